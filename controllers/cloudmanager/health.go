package cloudmanager

import (
	"fmt"
	"net"
	"net/http"
	"strconv"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/mux"
	genericcontrollermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/pkg/healthz"
	"k8s.io/klog/v2"
)

// HealthChecker implements the program's interface for health checks. If /healthz of a cloud-controller-manager fails, the kubelet restarts
// it, and with it every controller of the cloud. So this check is advisory there: it fails only where a person asks, in /healthz?verbose.
func (p *participant) HealthChecker() healthz.UnnamedHealthChecker { return advisory{p} }

type advisory struct{ *participant }

func (a advisory) Name() string { return Name }

func (a advisory) Check(r *http.Request) error {
	if !r.URL.Query().Has("verbose") {
		return nil
	}
	return a.check(r)
}

// check says why no Node gets podCIDRs, and how often the controller has ended by itself. A standby is healthy.
func (p *participant) check(r *http.Request) error { return p.runs.Explain(p.checkRunning(r)) }

func (p *participant) checkRunning(r *http.Request) error {
	p.mu.Lock()
	waitsFor, why, holder, running := p.waitsFor, p.why, p.holder, p.running
	if why == nil && waitsFor == p.awaited() {
		why = p.unwritten
	}
	p.mu.Unlock()
	select {
	case <-p.leading:
	default:
		return nil
	}
	switch {
	case running != nil:
		return running.HealthChecker().Check(r)
	case why != nil:
		return fmt.Errorf("not serving Nodes yet; waiting for %s (%w)", waitsFor, why)
	case holder != "":
		return fmt.Errorf("not serving Nodes yet; waiting for %s, which %s holds", waitsFor, holder)
	}
	return fmt.Errorf("not serving Nodes yet; waiting for %s", waitsFor)
}

// serve opens the port of --node-ipam-secure-port. k8s.io/cloud-provider/app serves neither single health checks nor debug pages, and gives
// nobody its mux. A port that is taken is no reason to end a cloud-controller-manager.
func (p *participant) serve() {
	program := p.program.SecureServing
	if p.port == 0 {
		return
	}
	if program == nil {
		klog.InfoS("There is no debug page, and no health check of this controller alone: --secure-port is 0", "controller", Name)
		return
	}
	host, _, err := net.SplitHostPort(program.Listener.Addr().String())
	if err != nil {
		host = ""
	}
	serving := *program
	// The program itself keeps them up to date.
	serving.Cert, serving.ClientCA = certificate{program.Cert}, nil
	if program.ClientCA != nil {
		serving.ClientCA = clientCA{program.ClientCA}
	}
	serving.Listener, err = net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(p.port)))
	if err != nil {
		klog.ErrorS(err, "There is no debug page, and no health check of this controller alone: choose another port with --node-ipam-secure-port, or 0 for none", "controller", Name)
		return
	}
	handlers := mux.NewPathRecorderMux(Name)
	handlers.HandleFunc("/healthz/"+Name, func(w http.ResponseWriter, r *http.Request) {
		if err := p.check(r); err != nil {
			http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, "ok")
	})
	path := "/debug/controllers/" + Name
	handlers.UnlistedHandle(path, http.StripPrefix(path, http.HandlerFunc(p.serveDebug)))
	handlers.UnlistedHandlePrefix(path+"/", http.StripPrefix(path, http.HandlerFunc(p.serveDebug)))
	chain := genericcontrollermanager.BuildHandlerChain(handlers, &p.program.Authorization, &p.program.Authentication)
	if _, _, err := serving.Serve(chain, 0, nil); err != nil { // until the process ends
		klog.ErrorS(err, "There is no debug page", "controller", Name)
	}
}

// certificate and clientCA have only what serves, and not what reads files and ConfigMaps again.
type (
	certificate struct {
		dynamiccertificates.CertKeyContentProvider
	}
	clientCA struct {
		dynamiccertificates.CAContentProvider
	}
)

// serveDebug serves the debug page of the controller that runs.
func (p *participant) serveDebug(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	running := p.running
	p.mu.Unlock()
	if running == nil {
		http.Error(w, "The controller does not run here: see the process that holds the Lease "+p.leaseName(), http.StatusNotFound)
		return
	}
	running.DebuggingHandler().ServeHTTP(w, r)
}
