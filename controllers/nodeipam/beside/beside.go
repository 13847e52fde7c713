// Package beside runs the controller in a program that is not kube-controller-manager, and leads by a Lease of its own beside whatever else
// allocates in the cluster.
package beside

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
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
	"github.com/multicidr/controller-manager/controllers/nodeipam/stored"
)

// lookInterval is the interval at which the start checks again for what is missing.
const lookInterval = time.Second

// serviceCIDRInterval is the interval at which an API server without ServiceCIDRs is asked again.
const serviceCIDRInterval = 10 * time.Second

// Program is what the controller needs of the program that it runs in. It makes its own clients and informers, which end with Run.
type Program struct {
	Config *rest.Config
	Fence  *lease.Fence // that of the Lease that the controller leads by
	// Waits is told what the start waits for, and the API server's answer about it. It reports whether that is new.
	Waits func(what string, why error) bool
	// Built gets the controller before it runs.
	Built func(*nodeipam.Controller)
}

// errServiceCIDRs ends a program whose API server did not have ServiceCIDRs when it started, for example before an upgrade.
var errServiceCIDRs = errors.New("the API server serves ServiceCIDRs now: the process ends, and reads them when it starts again")

// Run runs the controller until ctx is done. Any error means that the process must end: the flags, which were not validated, are wrong, the
// controller has ended by itself, or another start would read what this one could not.
func (p Program) Run(ctx context.Context, flags fromflags.Flags, opts *options.Options) error {
	defer metrics.ShowUnbuilt()()
	client, err := kubernetes.NewForConfig(p.Config)
	if err != nil {
		return fmt.Errorf("create a client: %w", err)
	}
	asOf, serviceCIDRs, err := p.look(ctx, client)
	if err != nil {
		return nil // ctx is done
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(stored.StripManagedFields))
	watches := &health.Watches{}
	watches.Nodes(factory)
	cfg := nodeipam.Config{Nodes: factory.Core().V1().Nodes(), NodesAsOf: asOf, Watches: watches, Fence: p.Fence, Term: p.Fence, LeaseOfItsOwn: true}
	if serviceCIDRs {
		watches.ServiceCIDRs(factory)
		cfg.ServiceCIDRs = factory.Networking().V1().ServiceCIDRs()
	} else {
		klog.FromContext(ctx).Info("The API server has no ServiceCIDRs: until it has, the controller knows only the service ranges in --service-cluster-ip-range")
		go untilServed(ctx, client.Discovery(), func() { stop(errServiceCIDRs) })
	}
	controller, err := opts.Build(p.Config, flags, cfg)
	if err != nil {
		return err
	}
	p.Built(controller)
	factory.Start(ctx.Done())
	controller.Run(ctx)
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return errors.New("the controller has ended by itself")
	case errors.Is(cause, errServiceCIDRs):
		return cause
	}
	return nil
}

// untilServed calls served when the API server serves ServiceCIDRs, unless ctx is done before.
func untilServed(ctx context.Context, api discovery.DiscoveryInterface, served func()) {
	err := wait.PollUntilContextCancel(ctx, serviceCIDRInterval, false, func(context.Context) (bool, error) {
		has, err := hasServiceCIDRs(api)
		return has && err == nil, nil
	})
	if err == nil {
		served()
	}
}

// look reads what must be read after the lease was acquired and before the informers start: the resource
// version of Nodes (see fresh.ReadNodes), and whether the API server has ServiceCIDRs. It retries until it succeeds. An error means that ctx
// is done.
func (p Program) look(ctx context.Context, client kubernetes.Interface) (nodesAsOf string, serviceCIDRs bool, err error) {
	err = wait.PollUntilContextCancel(ctx, lookInterval, true, func(ctx context.Context) (bool, error) {
		var err error
		if nodesAsOf, err = fresh.ReadNodes(ctx, client); err != nil {
			p.waitsAndLogs(ctx, "Nodes cannot be read: if that is forbidden, "+health.ApplyRBAC, err)
			return false, nil
		}
		if serviceCIDRs, err = hasServiceCIDRs(client.Discovery()); err != nil {
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
