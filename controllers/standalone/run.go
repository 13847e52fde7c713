package standalone

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fresh"
	nodehealth "github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/stored"
	"github.com/multicidr/controller-manager/controllers/restart"
)

// lookInterval is the interval at which the start checks again for what is missing.
const lookInterval = time.Second

// serviceCIDRInterval is the interval at which an API server without ServiceCIDRs is asked again.
const serviceCIDRInterval = 10 * time.Second

// process has what lives as long as the program.
type process struct {
	opts   *options
	config *rest.Config
	client kubernetes.Interface
	health *health
	server *servers
}

// run runs until ctx is done. It then returns nil when the writes in flight have ended and the lease is released. It returns an error if
// the options are wrong, or if the lease was lost: then a new process must read the cluster again.
func run(ctx context.Context, opts *options) (err error) {
	p := &process{opts: opts, health: newHealth(opts.elect)}
	if p.config, err = opts.clientConfig(); err != nil {
		return err
	}
	if p.client, err = kubernetes.NewForConfig(p.config); err != nil {
		return fmt.Errorf("create a client, with the API server of --apiserver, --kubeconfig or IPAM_API_SERVER_URL: %w", err)
	}
	// The servers answer from now on, even while this process waits for the lease, until everything else has ended.
	if p.server, err = serve(opts, p.config, p.health); err != nil {
		return err
	}
	defer p.server.stop()

	if !opts.elect {
		klog.FromContext(ctx).Info("Leader election is off: make sure that no other replica runs")
		fence := lease.Unelected()
		defer fence.Close()
		return p.control(ctx, fence)
	}
	logger := klog.FromContext(ctx)
	election := opts.election(logger)
	lock, err := resourcelock.NewFromKubeconfig(opts.lockType, opts.lockNamespace, opts.lockName,
		resourcelock.ResourceLockConfig{Identity: opts.identity}, p.config, opts.renewDeadline)
	if err != nil {
		return fmt.Errorf("create the lock of Lease %s/%s: %w", opts.lockNamespace, opts.lockName, err)
	}
	election.Lock = p.health.watch(lock)
	election.WatchDog = p.health.watchDog
	election.Callbacks.OnNewLeader = func(holder string) {
		logger.Info("The Lease has a new holder", "lease", lock.Describe(), "holder", holder, "thisProcess", lock.Identity())
	}
	election.Callbacks.OnStoppedLeading = func() {
		logger.Info("This process does not hold the Lease and does not wait for it any more", "lease", lock.Describe())
	}
	if err := lease.Lead(ctx, election, p.control); err != nil {
		return err
	}
	if ctx.Err() == nil {
		return fmt.Errorf("the Lease %s was lost", lock.Describe())
	}
	return nil
}

// control runs the controller, under the lease if there is one. It builds a new controller when the last one has ended by itself, and when
// the API server begins to serve ServiceCIDRs, for example after an upgrade.
func (p *process) control(ctx context.Context, fence *lease.Fence) error {
	p.health.lead()
	asOf, serviceCIDRs, err := p.look(ctx)
	if err != nil {
		return nil // ctx is done
	}
	factory := informers.NewSharedInformerFactoryWithOptions(p.client, 0, informers.WithTransform(stored.StripManagedFields))
	watches := &nodehealth.Watches{}
	cfg := nodeipam.Config{Nodes: factory.Core().V1().Nodes(), NodesAsOf: asOf, Watches: watches, Fence: fence, Term: fence, LeaseOfItsOwn: true}
	watches.Nodes(factory)
	running, stop := context.WithCancel(ctx)
	defer stop() // the informers are not waited for: see nodeipam.Controller.Run
	showDebug := sync.OnceFunc(func() { p.server.debug(p.health.serveDebug) })
	run := func(ctx context.Context) error {
		// As in kube-controller-manager, this process continues. A new process would first have to wait for the Lease, and would then meet
		// the same object.
		return p.health.runs.Again(ctx, nodeipam.Name, func(_ context.Context, again bool) (restart.Controller, error) {
			if again {
				cfg.NodesAsOf = "" // It is older than the writes of the last controller.
			}
			controller, err := p.opts.nodeIPAM.Build(p.config, p.opts.flags, cfg)
			if err != nil {
				return nil, err
			}
			p.health.controlledBy(controller)
			showDebug()
			factory.Start(running.Done())
			return controller, nil
		})
	}
	if !serviceCIDRs {
		klog.FromContext(ctx).Info("The API server has no ServiceCIDRs: until it has, the controller knows only the service ranges in --service-cluster-ip-range")
		if err := untilServed(running, p.client.Discovery(), run); err != nil || running.Err() != nil {
			return err
		}
		klog.FromContext(ctx).Info("The API server serves ServiceCIDRs now: the controller restarts and reads them")
		cfg.NodesAsOf = ""
	}
	watches.ServiceCIDRs(factory)
	cfg.ServiceCIDRs = factory.Networking().V1().ServiceCIDRs()
	return run(running)
}

// untilServed calls run with a context that ends when the API server serves ServiceCIDRs, or with ctx. It returns what run returns.
func untilServed(ctx context.Context, api discovery.DiscoveryInterface, run func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	var looking sync.WaitGroup
	defer looking.Wait()
	defer stop()
	looking.Go(func() {
		err := wait.PollUntilContextCancel(ctx, serviceCIDRInterval, false, func(context.Context) (bool, error) {
			served, err := hasServiceCIDRs(api)
			return served && err == nil, nil
		})
		if err == nil {
			stop()
		}
	})
	return run(ctx)
}

// look reads what must be read after the lease was acquired and before the informers start: the resource version of Nodes (see
// fresh.ReadNodes), and whether the API server has ServiceCIDRs. It retries until it succeeds. An error means that ctx is done.
func (p *process) look(ctx context.Context) (nodesAsOf string, serviceCIDRs bool, err error) {
	err = wait.PollUntilContextCancel(ctx, lookInterval, true, func(ctx context.Context) (bool, error) {
		var err error
		if nodesAsOf, err = fresh.ReadNodes(ctx, p.client); err != nil {
			p.waitFor(ctx, "Nodes cannot be read: if that is forbidden, "+nodehealth.ApplyRBAC, err)
			return false, nil
		}
		if serviceCIDRs, err = hasServiceCIDRs(p.client.Discovery()); err != nil {
			p.waitFor(ctx, "the API server does not say whether it has ServiceCIDRs", err)
			return false, nil
		}
		return true, nil
	})
	return nodesAsOf, serviceCIDRs, err
}

// waitFor notes what the start waits for, and logs it when it is new.
func (p *process) waitFor(ctx context.Context, what string, err error) {
	if ctx.Err() == nil && p.health.waitFor(what, err) {
		klog.FromContext(ctx).Error(err, "No Node gets podCIDRs: "+what)
	}
}

// hasServiceCIDRs reports whether the API server has ServiceCIDRs, which Kubernetes has had since 1.33. Without them their informer would
// never sync.
func hasServiceCIDRs(api discovery.DiscoveryInterface) (bool, error) {
	list, err := api.ServerResourcesForGroupVersion(networkingv1.SchemeGroupVersion.String())
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	if err == nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == "servicecidrs" }) {
		return true, nil
	}
	return false, nil
}
