package cloudmanager

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/cloud-provider/app/config"
	genericcontrollermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/pkg/healthz"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// participant is the controller in one process, whoever leads. Safe for concurrent use.
type participant struct {
	*registered
	clientName string
	program    *config.CompletedConfig

	mu       sync.Mutex
	leads    bool   // the program
	waitsFor string // what the start waits for
	why      error  // the API server's answer about it
	running  *nodeipam.Controller
}

// Name implements the program's interface for controllers.
func (*participant) Name() string { return Name }

func (p *participant) leaseName() string {
	return p.program.ComponentConfig.Generic.LeaderElection.ResourceNamespace + "/" + p.lease
}

// waits notes what the start waits for. It reports whether that is new.
func (p *participant) waits(what string, why error) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed = p.waitsFor != what
	p.leads, p.waitsFor, p.why = true, what, why
	return changed
}

// run waits for the Lease and runs the controller while this process holds it. ctx ends with the process.
func (p *participant) run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), Name))
	if err := p.lead(ctx); ctx.Err() == nil {
		end(err, "The controller has ended, so this process does")
	}
}

func (p *participant) lead(ctx context.Context) error {
	p.waits("the Lease "+p.leaseName(), nil)
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read the host name, which is part of the identity in the Lease: %w", err)
	}
	times := p.program.ComponentConfig.Generic.LeaderElection
	if err := lease.CheckTimes(times.LeaseDuration.Duration, times.RetryPeriod.Duration, writes.Timeout); err != nil {
		klog.FromContext(ctx).Error(err, "The leader stops writing before every renewal", "lease", p.lease)
	}
	// The program's own client, which may write Leases: it writes its own.
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, times.ResourceNamespace, p.lease,
		resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}, p.program.Kubeconfig, times.RenewDeadline.Duration)
	if err != nil {
		return fmt.Errorf("create the lock of Lease %s: %w", p.leaseName(), err)
	}
	err = lease.Lead(ctx, leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   times.LeaseDuration.Duration,
		RenewDeadline:   times.RenewDeadline.Duration,
		RetryPeriod:     times.RetryPeriod.Duration,
		ReleaseOnCancel: true,
		Name:            p.lease,
		Callbacks: leaderelection.LeaderCallbacks{
			OnNewLeader: func(holder string) {
				klog.FromContext(ctx).Info("The Lease has a new holder", "lease", p.leaseName(), "holder", holder, "thisProcess", lock.Identity())
				if holder != lock.Identity() {
					p.waits("the Lease "+p.leaseName()+", which "+holder+" holds", nil)
				}
			},
			OnStoppedLeading: func() {},
		},
	}, lease.Clocks{}, p.allocate)
	if err == nil {
		err = fmt.Errorf("the Lease %s was lost", p.leaseName())
	}
	return err
}

// allocate runs the controller while this process holds the Lease.
func (p *participant) allocate(ctx context.Context, fence *lease.Fence) error {
	clientConfig, err := p.credentials(ctx)
	if err != nil {
		return nil // ctx is done
	}
	flags, err := p.fromFlags(p.program)
	if err != nil {
		return err
	}
	return p.options.Run(ctx, clientConfig, flags, fence, func(c *nodeipam.Controller) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.running = c
	})
}

// credentials returns the configuration of the controller's clients. With --use-service-account-credentials the API server makes them, which
// can fail.
func (p *participant) credentials(ctx context.Context) (c *rest.Config, err error) {
	p.waits("credentials", nil)
	err = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		c, err = p.program.ClientBuilder.Config(p.clientName)
		if err != nil && p.waits("credentials of its service account", err) {
			klog.FromContext(ctx).Error(err, "No Node gets podCIDRs: the controller has no credentials")
		}
		return err == nil, nil
	})
	return c, err
}

// HealthChecker implements the program's interface for health checks. If /healthz of a cloud-controller-manager fails, the kubelet restarts
// it, and with it every controller of the cloud. So this check is advisory there: it fails only where a person asks, in /healthz?verbose.
func (p *participant) HealthChecker() healthz.UnnamedHealthChecker { return advisory{p} }

type advisory struct{ *participant }

func (a advisory) Check(r *http.Request) error {
	if !r.URL.Query().Has("verbose") {
		return nil
	}
	return a.check(r)
}

// check says why no Node gets podCIDRs. A standby is healthy.
func (p *participant) check(r *http.Request) error {
	p.mu.Lock()
	leads, waitsFor, why, running := p.leads, p.waitsFor, p.why, p.running
	p.mu.Unlock()
	switch {
	case running != nil:
		return running.HealthChecker().Check(r)
	case leads && why != nil:
		return fmt.Errorf("not serving Nodes yet; waiting for %s (%w)", waitsFor, why)
	case leads:
		return fmt.Errorf("not serving Nodes yet; waiting for %s", waitsFor)
	}
	return nil
}

// serve opens the port of --node-ipam-secure-port. k8s.io/cloud-provider/app serves neither single health checks nor debug pages, and gives
// nobody its mux. A port that is taken is no reason to end a cloud-controller-manager.
func (p *participant) serve() {
	if p.port == 0 || p.program.SecureServing == nil {
		return
	}
	serving := *p.program.SecureServing
	host, _, err := net.SplitHostPort(serving.Listener.Addr().String())
	if err == nil {
		serving.Listener, err = net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(p.port)))
	}
	if err == nil {
		// The program itself keeps the certificates up to date: only what serves them is here, and not what reads files and ConfigMaps again.
		serving.Cert = struct {
			dynamiccertificates.CertKeyContentProvider
		}{serving.Cert}
		if serving.ClientCA != nil {
			serving.ClientCA = struct {
				dynamiccertificates.CAContentProvider
			}{serving.ClientCA}
		}
		_, _, err = serving.Serve(genericcontrollermanager.BuildHandlerChain(p.pages(), &p.program.Authorization, &p.program.Authentication), 0, nil)
	}
	if err != nil {
		klog.ErrorS(err, "There is no debug page, and no health check of this controller alone: choose another port with --node-ipam-secure-port, or 0 for none", "controller", Name)
	}
}

// pages are the health check and the debug page.
func (p *participant) pages() http.Handler {
	pages := mux.NewPathRecorderMux(Name)
	pages.HandleFunc("/healthz/"+Name, func(w http.ResponseWriter, r *http.Request) {
		if err := p.check(r); err != nil {
			http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, "ok")
	})
	path := "/debug/controllers/" + Name
	debug := http.StripPrefix(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		running := p.running
		p.mu.Unlock()
		if running == nil {
			http.Error(w, "The controller does not run here: see the process that holds the Lease "+p.leaseName(), http.StatusNotFound)
			return
		}
		running.DebuggingHandler().ServeHTTP(w, r)
	}))
	pages.UnlistedHandle(path, debug)
	pages.UnlistedHandlePrefix(path+"/", debug)
	return pages
}
