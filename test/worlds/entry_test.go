package worlds

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
)

// config is one process. This file is all that knows the product.
type config struct {
	identity string
	lease    string // its name; empty: no leader election
	// network carries requests, and paused wraps what looks at the clocks for the last time before a request is sent.
	network http.RoundTripper
	paused  func(http.RoundTripper) http.RoundTripper
	// clocks are the wall clock, the boot clock and the monotonic clock.
	clocks func() (wall time.Time, boot, monotonic time.Duration)
	flags  fromflags.Flags
	// takeover is --node-ipam-takeover-delay.
	takeover time.Duration
	workers  int
	// early: the informers run before the process leads, as in a cloud-controller-manager.
	early bool
	// leads is called when the process leads.
	leads func()
	// made is called with the controller's health check.
	made func(check func() error)
}

// run runs a process until ctx ends or it loses its Lease.
func run(ctx context.Context, c config) error {
	rest := &rest.Config{Host: "http://api.test", Transport: c.network, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}}
	rest.Wrap(lease.Transport)
	rest.Wrap(c.paused)
	clocks := lease.Clocks{Read: c.clocks}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := kubernetes.NewForConfigOrDie(rest)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(nodeipam.WithoutManagedFields))
	watches := &health.Watches{}
	if err := errors.Join(watches.Follow("Nodes", factory.Core().V1().Nodes().Informer()), watches.Follow("ServiceCIDRs", factory.Networking().V1().ServiceCIDRs().Informer())); err != nil {
		return err
	}
	if c.early {
		factory.Start(ctx.Done())
	}
	lead := func(ctx context.Context, fence *lease.Fence) error {
		c.leads()
		controller, err := nodeipam.New(nodeipam.Config{
			Client: client, ClusterCIDRClient: versioned.NewForConfigOrDie(rest),
			Nodes: factory.Core().V1().Nodes(), ServiceCIDRs: factory.Networking().V1().ServiceCIDRs(), StartInformers: factory.Start, Watches: watches,
			FromFlags: c.flags, Workers: c.workers, Fence: fence, TakeoverDelay: c.takeover,
		})
		if err != nil {
			return err
		}
		if c.made != nil {
			c.made(func() error { return controller.HealthChecker().Check(nil) })
		}
		controller.Run(ctx)
		return nil
	}
	if c.lease == "" {
		fence := lease.Unelected(clocks)
		defer fence.Close()
		return lead(ctx, fence)
	}
	namespace, name, _ := strings.Cut(c.lease, "/")
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, namespace, name, resourcelock.ResourceLockConfig{Identity: c.identity}, rest, 10*time.Second)
	if err != nil {
		return err
	}
	return lease.Lead(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{OnStoppedLeading: func() {}},
	}, clocks, lead)
}
