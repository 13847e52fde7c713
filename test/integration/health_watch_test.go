package integration

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestRefusedWatches takes away the permission to watch from a kube-controller-manager with all controllers. There the informer of Nodes is shared,
// and exists before our controller does.
func TestRefusedWatches(t *testing.T) {
	ctx := t.Context()
	c := freshCluster(t, controlplane.Options{}, "--controllers=*,multi-cidr-node-ipam-controller", noTakeoverDelay,
		"--leader-elect-lease-duration=3m", "--leader-elect-renew-deadline=2m") // longer than the API server is away
	must(t, c.healthy())
	role, err := c.kube.RbacV1().ClusterRoles().Get(ctx, "system:kube-controller-manager", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	metav1.SetMetaDataAnnotation(&role.ObjectMeta, rbacv1.AutoUpdateAnnotationKey, "false")
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Verbs, "watch") })
	if _, err := c.kube.RbacV1().ClusterRoles().Update(ctx, role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	// A watch that runs is not asked for its permission; the next one is.
	must(t, c.cp.APIServer().Kill(), c.cp.StartAPIServer(ctx))
	for _, kind := range []string{"Nodes", "ServiceCIDRs"} {
		expect(t, c.healthSays("changes of "+kind+" are not seen: "+sentence(t, "health TestReadProblem/no_permission_for_Nodes")))
	}
}

// TestFailingReads puts a proxy before the API server that ends watches and answers reads with an error. New Nodes are not seen then, and wait; the
// health check says so, and all goes on when the proxy lets reads pass again.
func TestFailingReads(t *testing.T) {
	c := freshCluster(t, controlplane.Options{}, ours...)
	must(t, c.stopManager((*controlplane.Process).Stop), createClusterCIDR(c, []string{"a", "10.0.0.0/16", "hb8"}))
	front, kubeconfig := c.behindFront(t)
	c.manager = c.cp.StartManagerForTest(t, controlplane.ManagerOptions{Alone: true, Kubeconfig: kubeconfig, Args: []string{noTakeoverDelay}})
	t.Cleanup(func() { // before the proxy
		expect(t, c.stopManager((*controlplane.Process).Stop))
	})
	must(t, createNode(c, []string{"first"}), served(c, []string{"first", "10.0.0.0/24"}), c.healthy())

	fails := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusServiceUnavailable) }
	front.answer(map[string]http.HandlerFunc{"/api/v1/nodes": fails, "/apis/networking.k8s.io/v1/servicecidrs": fails})
	must(t, createNode(c, []string{"second"}))
	for _, kind := range []string{"Nodes", "ServiceCIDRs"} {
		expect(t, c.healthSays("changes of "+kind+" are not seen: "+sentence(t, "health TestReadProblem/a_proxy")))
	}

	front.answer(nil)
	if _, err := c.waitServed("second", 90*time.Second); err != nil { // an informer tries again after a minute at most
		t.Error(err)
	}
	expect(t, c.healthy())
}

// front is a proxy that lets all pass but some reads.
type front struct {
	mu      sync.Mutex
	answers map[string]http.HandlerFunc // by path
	ends    context.CancelFunc
	lasts   context.Context // until answers are others
}

// behindFront starts a front before the API server, and returns it with a kubeconfig for node-ipam-controller, whose credentials it has, since client
// certificates do not pass it.
func (c *cluster) behindFront(t *testing.T) (_ *front, kubeconfig string) {
	t.Helper()
	config, err := c.cp.Config(controlplane.AloneUser)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{
		Transport:     transport,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1, // a watch has to pass event by event
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	p := &front{}
	p.answer(nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		answer, lasts := p.answers[r.URL.Path], p.lasts
		p.mu.Unlock()
		switch {
		case r.Method != http.MethodGet:
			forward.ServeHTTP(w, r)
		case answer != nil:
			answer(w, r)
		default:
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(lasts, cancel)()
			forward.ServeHTTP(w, r.WithContext(ctx))
		}
	}))
	t.Cleanup(server.Close)
	if kubeconfig, err = c.cp.WriteKubeconfig("behind-front", &rest.Config{Host: server.URL}); err != nil {
		t.Fatal(err)
	}
	return p, kubeconfig
}

// answer ends all reads that go on, and answers those of some paths from now on.
func (p *front) answer(answers map[string]http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ends != nil {
		p.ends()
	}
	p.lasts, p.ends = context.WithCancel(context.Background())
	p.answers = answers
}
