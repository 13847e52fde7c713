package cloudmanager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/cloud-provider/app/config"
	genericcontrollermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/pkg/healthz"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/internal/pages"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
)

// participant is the controller in one process, whoever leads. Safe for concurrent use.
type participant struct {
	*registered
	clientName string
	program    *config.CompletedConfig
	shown      pages.Controller // waits for nothing before the program leads: a standby is healthy
}

// Name implements the program's interface for controllers.
func (*participant) Name() string { return Name }

func (p *participant) leaseName() string {
	return p.program.ComponentConfig.Generic.LeaderElection.ResourceNamespace + "/" + p.lease
}

// run waits for the Lease and runs the controller while this process holds it. ctx ends with the process.
func (p *participant) run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), Name))
	logger, identity := klog.FromContext(ctx), lease.Identity("")
	p.shown.Waits(errors.New("waiting for the Lease " + p.leaseName()))
	by := p.program.ComponentConfig.Generic.LeaderElection
	by.LeaderElect, by.ResourceLock, by.ResourceName = true, resourcelock.LeasesResourceLock, p.lease
	// The program's own client, which may write Leases: it writes its own.
	err := lease.Elect(ctx, by, p.program.Kubeconfig, resourcelock.ResourceLockConfig{Identity: identity}, leaderelection.LeaderElectionConfig{
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnNewLeader: func(holder string) {
				logger.Info("The Lease has a new holder", "lease", p.leaseName(), "holder", holder, "thisProcess", identity)
				if holder != identity {
					p.shown.Waits(fmt.Errorf("waiting for the Lease %s, which %s holds", p.leaseName(), holder))
				}
			},
			OnStoppedLeading: func() {},
		},
	}, p.allocate)
	if ctx.Err() == nil {
		end(err, "The controller has ended, so this process does")
	}
}

// allocate runs the controller while this process holds the Lease.
func (p *participant) allocate(ctx context.Context, fence *lease.Fence) error {
	p.shown.Waits(errors.New("waiting for credentials"))
	var clientConfig *rest.Config
	// With --use-service-account-credentials the API server makes them, which can fail.
	err := p.shown.Build(ctx, func(context.Context) (err error) {
		clientConfig, err = p.program.ClientBuilder.Config(p.clientName)
		return err
	})
	if err != nil {
		return nil // ctx is done
	}
	flags, err := p.fromFlags(p.program)
	if err != nil {
		return err
	}
	return p.options.Run(ctx, clientConfig, flags, fence, func(c *nodeipam.Controller) { p.shown.Runs(c) })
}

// HealthChecker implements the program's interface for health checks.
func (p *participant) HealthChecker() healthz.UnnamedHealthChecker { return p }

// Check is advisory: it fails only where a person asks, in /healthz?verbose. If /healthz of a cloud-controller-manager fails, the kubelet
// restarts it, and with it every controller of the cloud.
func (p *participant) Check(r *http.Request) error {
	if !r.URL.Query().Has("verbose") {
		return nil
	}
	return p.shown.Check(r)
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
		own := mux.NewPathRecorderMux(Name)
		p.shown.Install(own, Name)
		_, _, err = serving.Serve(genericcontrollermanager.BuildHandlerChain(own, &p.program.Authorization, &p.program.Authentication), 0, nil)
	}
	if err != nil {
		klog.ErrorS(err, "There is no debug page, and no health check of this controller alone: choose another port with --node-ipam-secure-port, or 0 for none", "controller", Name)
	}
}
