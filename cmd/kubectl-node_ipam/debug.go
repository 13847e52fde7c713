package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/cluster"
	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/show"
	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/tunnel"
	"github.com/multicidr/controller-manager/controllers/build"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
)

// debugPath is where every form of the controller has its debug page.
const debugPath = "/debug/controllers/" + nodeipam.Name

func (p *program) debugCommand() *cobra.Command {
	var address string
	c := &cobra.Command{
		Use:   "debug [-o json]",
		Short: "Print the leader's debug page: what it knows",
		Long: "Finds the leader by the Leases of all forms, connects to its Pod as kubectl port-forward does, and prints its debug page, or the same as JSON. " +
			"It authenticates to the leader as you do to the API server.\n\n" +
			"You need permission to get the path " + debugPath + ", to get Pods, and to forward ports of Pods. If there is no Pod, or you may not forward its port, open a tunnel to the leader's machine and name its end with --address.",
		Example: "  # What does the leader know?\n  kubectl node-ipam debug | less -S\n\n" +
			"  # Which blocks are reserved and not shown yet?\n  kubectl node-ipam debug -o json | jq '.nodes[] | select(.state == \"Reserved\")'\n\n" +
			"  # The leader cp1 is a process of its own\n  ssh -NL 10257:127.0.0.1:10257 cp1 &\n  kubectl node-ipam debug --address=127.0.0.1:10257",
		Args: exactly(0, "flags only"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error { return p.debug(c.Context(), address) },
	}
	c.Flags().StringVar(&address, "address", "", "where the leader's HTTPS port is, or the end of a tunnel to it. Without it a Pod is looked for")
	p.addOutput(c, show.Table, show.JSON)
	return c
}

func (p *program) debug(ctx context.Context, address string) error {
	config, err := p.config.ToRESTConfig()
	if err != nil {
		return err
	}
	if config.Impersonate.UserName != "" {
		fmt.Fprintln(p.ErrOut, "warning: the debug page is shown to you and not to the user of --as: only the API server knows that flag")
	}
	page, err := p.findPage(ctx, config, address)
	if err != nil {
		return err
	}
	defer page.close()
	query := ""
	if show.Format(p.output) == show.JSON {
		query = "format=json"
	}
	response, err := page.get(ctx, query)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(p.Out, response.Body)
	return err
}

// page is a debug page that answers.
type page struct {
	of     string // whose it is
	client *http.Client
	close  func()
}

// pageURL is the address of the page in requests. Where it really is the client's dialer knows.
var pageURL = url.URL{Scheme: "https", Host: "leader", Path: debugPath}

// get returns the answer, or why it is none.
func (g *page) get(ctx context.Context, query string) (*http.Response, error) {
	target := pageURL
	target.RawQuery = query
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	response, err := g.client.Do(request)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return nil, fmt.Errorf("%s does not answer: %w", g.of, err)
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer response.Body.Close()
	switch text, _ := io.ReadAll(io.LimitReader(response.Body, 1000)); response.StatusCode {
	case http.StatusNotFound:
		return nil, errNoPage{fmt.Errorf("%s has no debug page: it does not run the controller, or is not the leader", g.of)}
	case http.StatusUnauthorized:
		return nil, fmt.Errorf("%s does not accept your credentials: use a client certificate of the cluster, or a token", g.of)
	case http.StatusForbidden:
		return nil, fmt.Errorf("you may not see the debug page of %s: an administrator can let you. %s", g.of, debugRole())
	default:
		return nil, fmt.Errorf("%s answers %s: %s", g.of, response.Status, text)
	}
}

// errNoPage is that a process has no debug page. Another one can have it.
type errNoPage struct{ error }

// findPage returns the debug page at an address, or that of the leader.
func (p *program) findPage(ctx context.Context, config *rest.Config, address string) (*page, error) {
	if address != "" {
		return pageAt(ctx, config, address)
	}
	r, err := p.connect()
	if err != nil {
		return nil, err
	}
	leaders, missing, err := r.Leaders(ctx, nil, p.now())
	if err != nil {
		return nil, err
	}
	p.warn(missing)
	if len(missing) > 0 && len(leaders) == 0 {
		return nil, fmt.Errorf("without Leases the leader cannot be found: say with --address where it is, or let an administrator give you the permission. %s", debugRole())
	}
	leaders = slices.DeleteFunc(leaders, func(l cluster.Leader) bool { return l.Expired })
	if len(leaders) == 0 {
		return nil, fmt.Errorf("no process holds a Lease of the controller: see why with %s status", display)
	}
	// Where kube-controller-manager does not run the controller it holds a Lease, too. So one leader after the other is asked.
	var problems, others []error
	for _, l := range slices.Backward(leaders) {
		g, err := pageOf(ctx, r, config, l)
		if err == nil {
			return g, nil
		}
		if _, ok := errors.AsType[errNoPage](err); ok {
			others = append(others, err)
		} else {
			problems = append(problems, err)
		}
	}
	if len(problems) == 0 {
		problems = others
	}
	return nil, errors.Join(problems...)
}

// pageOf connects to the Pod of a leader.
func pageOf(ctx context.Context, r *cluster.Reader, config *rest.Config, l cluster.Leader) (*page, error) {
	process, ok, err := r.ProcessOf(ctx, l)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, fmt.Errorf("the leader %s runs in no Pod of %s: %s", l.Host(), l.Namespace(), byTunnel(l))
	case process.Port == 0 && process.Flag != "secure-port":
		return nil, fmt.Errorf("the leader, Pod %s, has --%s=0, and so no debug page: set it to another port, or leave it out", process, process.Flag)
	case process.Port == 0:
		return nil, fmt.Errorf("the leader, Pod %s, has no --secure-port, and so no debug page: set service.securePort of the Helm chart", process)
	case process.Namespace != metav1.NamespaceSystem && sendsToken(config):
		// Anybody who may create a Lease and a Pod in a namespace could collect tokens there. A certificate's key is not sent.
		return nil, fmt.Errorf("the leader is Pod %s, and you authenticate with a token, which is sent to Pods of %s only: use a client certificate", process, metav1.NamespaceSystem)
	}
	t, err := tunnel.Open(config, process.Namespace, process.Pod)
	if err != nil {
		return nil, notForwarded(process, l, err, r.MayForward(ctx, process))
	}
	client, err := tunnel.Client(config, func(context.Context, string, string) (net.Conn, error) { return t.Dial(process.Port) })
	if err != nil {
		t.Close()
		return nil, err
	}
	g := &page{of: "Pod " + process.String(), client: client, close: func() { t.Close() }}
	if err := g.probe(ctx); err != nil {
		t.Close()
		return nil, err
	}
	return g, nil
}

func notForwarded(process cluster.Process, l cluster.Leader, err error, allowed bool) error {
	if !allowed {
		return fmt.Errorf("you may not forward ports of Pod %s, the leader: ask for permission to create and get pods/portforward in %s. Or %s", process, process.Namespace, byTunnel(l))
	}
	return fmt.Errorf("port %d of Pod %s, the leader, cannot be forwarded: %w. Instead %s", process.Port, process, err, byTunnel(l))
}

// byTunnel says how to reach a leader on its host.
func byTunnel(l cluster.Leader) string {
	const port = 10257
	return fmt.Sprintf("open a tunnel to its machine, ssh -NL %[1]d:127.0.0.1:%[1]d %[2]s (or the port of its --secure-port or, in a cloud-controller-manager, its --node-ipam-secure-port), and then: %[3]s debug --address=127.0.0.1:%[1]d", port, l.Host(), display)
}

// pageAt connects to an address.
func pageAt(ctx context.Context, config *rest.Config, address string) (*page, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, usage("--address=%s: write host:port, for example 127.0.0.1:10257", address)
	}
	if ip, err := netip.ParseAddr(host); sendsToken(config) && (err != nil || !ip.IsLoopback()) {
		return nil, usage("--address=%s: you authenticate with a token, which is sent to addresses of this machine only: open a tunnel, or use a client certificate", address)
	}
	var dialer net.Dialer
	client, err := tunnel.Client(config, func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, address)
	})
	if err != nil {
		return nil, err
	}
	g := &page{of: address, client: client, close: func() {}}
	return g, g.probe(ctx)
}

// debugRole is the permission to see debug pages.
func debugRole() string {
	return fmt.Sprintf("The ClusterRole and the Role to bind: kubectl apply -f %s", build.Manifest("rbac-viewer/debug.yaml"))
}

// sendsToken reports whether a server gets to know a secret of the user. A program of the user's configuration can return a token.
func sendsToken(config *rest.Config) bool {
	return config.BearerToken != "" || config.BearerTokenFile != "" || config.Password != "" || config.AuthProvider != nil || config.ExecProvider != nil
}

// probeTimeout is how long a leader has to answer.
const probeTimeout = 30 * time.Second

// probe returns why there is no page; nil if there is one.
func (g *page) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	response, err := g.get(ctx, "")
	if err != nil {
		return err
	}
	return response.Body.Close()
}
