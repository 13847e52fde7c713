// Package beside runs the controller in a program that is not kube-controller-manager, and leads by a Lease of its own beside whatever else
// allocates in the cluster.
package beside

import (
	"context"
	"slices"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fresh"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/metrics"
	"github.com/multicidr/controller-manager/controllers/nodeipam/options"
)

// lookInterval is the interval at which the start checks again for what is missing.
const lookInterval = time.Second

// serviceCIDRInterval is the interval at which an API server without ServiceCIDRs is asked again.
const serviceCIDRInterval = 10 * time.Second

// Program is what the controller needs of the program that it runs in.
type Program struct {
	Config *rest.Config         // of the clients that the controller makes
	Client kubernetes.Interface // for what is read before the controller is built
	// Fence is that of the Lease that the controller leads by.
	Fence *lease.Fence
	// Nodes is the shared informer, which Watches monitors. Informers makes that of ServiceCIDRs, where the API server has them; it may be the
	// factory of Nodes. StartInformers starts what was requested of it, if that is not started yet. They may outlive Run.
	Nodes          coreinformers.NodeInformer
	Informers      informers.SharedInformerFactory
	StartInformers func()
	Watches        *health.Watches
	// Waits is told what the start waits for, and the API server's answer about it. It reports whether that is new.
	Waits func(what string, why error) bool
	// Again runs controllers until ctx is done: the first one, and another one whenever one has ended by itself (package restart).
	Again func(ctx context.Context, build func(again bool) (*nodeipam.Controller, error)) error
}

// Run runs the controller until ctx is done. It builds a new one when the last one has ended by itself, and when the API server begins to
// serve ServiceCIDRs, for example after an upgrade. An error is one of the flags, which were not validated.
func (p Program) Run(ctx context.Context, flags fromflags.Flags, opts *options.Options) error {
	defer metrics.ShowUnbuilt()()
	asOf, serviceCIDRs, err := p.look(ctx)
	if err != nil {
		return nil // ctx is done
	}
	cfg := nodeipam.Config{Nodes: p.Nodes, NodesAsOf: asOf, Watches: p.Watches, Fence: p.Fence, Term: p.Fence, LeaseOfItsOwn: true}
	run := func(ctx context.Context) error {
		return p.Again(ctx, func(again bool) (*nodeipam.Controller, error) {
			if again {
				cfg.NodesAsOf = "" // It is older than the writes of the last controller.
			}
			built, err := opts.Build(p.Config, flags, cfg)
			if err != nil {
				return nil, err
			}
			p.StartInformers()
			return built, nil
		})
	}
	if !serviceCIDRs {
		klog.FromContext(ctx).Info("The API server has no ServiceCIDRs: until it has, the controller knows only the service ranges in --service-cluster-ip-range")
		if err := untilServed(ctx, p.Client.Discovery(), run); err != nil || ctx.Err() != nil {
			return err
		}
		klog.FromContext(ctx).Info("The API server serves ServiceCIDRs now: the controller restarts and reads them")
		cfg.NodesAsOf = ""
	}
	p.Watches.ServiceCIDRs(p.Informers)
	cfg.ServiceCIDRs = p.Informers.Networking().V1().ServiceCIDRs()
	return run(ctx)
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

// look reads what must be read after the lease was acquired and, if the program can wait for that, before the informers start: the resource
// version of Nodes (see fresh.ReadNodes), and whether the API server has ServiceCIDRs. It retries until it succeeds. An error means that ctx
// is done.
func (p Program) look(ctx context.Context) (nodesAsOf string, serviceCIDRs bool, err error) {
	err = wait.PollUntilContextCancel(ctx, lookInterval, true, func(ctx context.Context) (bool, error) {
		var err error
		if nodesAsOf, err = fresh.ReadNodes(ctx, p.Client); err != nil {
			p.waitsAndLogs(ctx, "Nodes cannot be read: if that is forbidden, "+health.ApplyRBAC, err)
			return false, nil
		}
		if serviceCIDRs, err = hasServiceCIDRs(p.Client.Discovery()); err != nil {
			p.waitsAndLogs(ctx, "the API server does not say whether it has ServiceCIDRs", err)
			return false, nil
		}
		return true, nil
	})
	return nodesAsOf, serviceCIDRs, err
}

// waitsAndLogs notes what the start waits for, and logs it when it is new.
func (p Program) waitsAndLogs(ctx context.Context, what string, err error) {
	if ctx.Err() == nil && p.Waits(what, err) {
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
