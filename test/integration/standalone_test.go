package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestStandaloneHealth starts the program in a cluster where nothing is installed that it needs. It lives, says at each step what is
// missing, and serves as soon as all is there, without a restart.
func TestStandaloneHealth(t *testing.T) {
	ctx := t.Context()
	cp := controlplane.StartForTest(t, controlplane.Options{})
	c := clusterOf(cp, alone)
	kubeconfig, err := cp.Kubeconfig(controlplane.AloneUser)
	if err != nil {
		t.Fatal(err)
	}
	flags := []string{"--kubeconfig=" + kubeconfig, "--webserver-bind-address=127.0.0.1:0", "--leader-elect-namespace=kube-system"}
	p := startPlain(t, c, "first", flags...)
	must(t, createNode(c, []string{"n"}))

	const controllerPath = "/readyz/multi-cidr-node-ipam-controller"
	for _, step := range []struct{ logs, apply string }{
		{`"node-ipam-controller\" is forbidden`, "standalone-rbac.yaml"},
		{sentence(t, "health TestReadProblem/no_permission_for_it"), "../../manifests/rbac"},
		{sentence(t, "health TestReadProblem/no_CRD"), "../../manifests/crds"},
	} {
		must(t, p.says(step.logs), p.answers("/readyz", 500, "readyz check failed"), p.answers("/healthz", 200, "ok"))
		must(t, cp.Apply(ctx, step.apply))
	}
	must(t, p.leads(), p.ready())
	must(t, createClusterCIDR(c, []string{"a", "10.0.0.0/16", "hb8"}))
	must(t, c.isServed("n"))

	t.Run("a standby is ready", func(t *testing.T) {
		standby := startPlain(t, c, "standby", flags...)
		expect(t, standby.ready(), standby.answers("/metrics", 200, `leader_election_master_status{name="node-ipam-controller"} 0`))
	})
	t.Run("metrics have the names of the peer", func(t *testing.T) {
		expect(t, p.answers("/metrics", 200, `node_ipam_controller_multicidrset_cidrs_allocations_total{clusterCIDR="10.0.0.0/16",clusterCIDRName="a"} 1`))
	})
	t.Run("the debug page is not for everybody", func(t *testing.T) {
		expect(t, p.answers(debugPath, 404, ""))
	})
	t.Run("a missing permission after the start", func(t *testing.T) {
		c.forbidPatch(t, "nodes")
		must(t, createNode(c, []string{"m"}))
		err := errors.Join(p.answers("/readyz", 500, "[-]multi-cidr-node-ipam-controller failed: reason withheld"), p.says("Cannot write: "+sentence(t, "health TestWriteProblem/no_permission")), p.answers("/healthz", 200, "ok"))
		if err != nil {
			t.Error(err)
		}
		// Whatever is asked, and however.
		for _, path := range []string{controllerPath, healthPath, "/readyz?verbose", "/healthz?verbose", "/readyz/lease", "/", "/healthz/", "/readyz/nothing"} {
			_, body, err := httpGet(ctx, p.url+path)
			if err != nil || strings.Contains(string(body), "Node") || strings.Contains(string(body), "forbid") {
				t.Errorf("GET %s: %s, %v, want no names and no words of the API server", path, body, err)
			}
		}
		must(t, cp.Apply(ctx, "../../manifests/rbac"))
		expect(t, p.ready())
	})
	t.Run("with --secure-port metrics are only there", func(t *testing.T) {
		// As in a Pod that is told to do without the kubernetes Service.
		elsewhere, err := cp.Config(controlplane.AloneUser)
		if err != nil {
			t.Fatal(err)
		}
		apiServer := elsewhere.Host
		elsewhere.Host = "https://127.0.0.1:1"
		nowhere, err := cp.WriteKubeconfig("nowhere", elsewhere)
		if err != nil {
			t.Fatal(err)
		}
		secured, err := cp.StartManager(ctx, controlplane.ManagerOptions{Name: "secured", Alone: true, Kubeconfig: nowhere, Args: []string{"--apiserver=" + apiServer}})
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]int{"/metrics": 404, "/readyz": 200, "/healthz": 200} {
			expect(t, eventually(patience, func(ctx context.Context) error {
				status, body, err := secured.Probe(ctx, path)
				if err == nil && status != want {
					err = fmt.Errorf("GET %s at the plain address: %d %s, want %d", path, status, body, want)
				}
				return err
			}))
		}
		status, body, err := secured.Get(ctx, "/metrics")
		if err != nil || status != 200 || !strings.Contains(string(body), "leader_election_master_status") {
			t.Errorf("GET /metrics at the secure address: %d %.200s, %v", status, body, err)
		}
		nobody, err := rest.HTTPClientFor(rest.AnonymousClientConfig(cp.AdminConfig()))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/metrics", "/readyz/lease", controllerPath, healthPath, debugPath} {
			response, err := nobody.Get(secured.URL() + path)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != http.StatusForbidden {
				t.Errorf("GET %s as nobody: %s, want 403", path, response.Status)
			}
		}
		expect(t, eventually(patience, func(ctx context.Context) error {
			status, body, err := secured.Get(ctx, "/readyz/lease")
			if err == nil && status != 200 {
				err = fmt.Errorf("GET /readyz/lease as an administrator: %d %s", status, body)
			}
			return err
		}))
		expect(t, secured.Stop())
	})
}

// says waits until the program's log has a text.
func (p *plainProgram) says(text string) error {
	return eventually(patience, func(context.Context) error {
		log, err := p.Log()
		if err == nil && !strings.Contains(log, text) {
			err = fmt.Errorf("%s does not say %q", p.LogPath(), text)
		}
		return err
	})
}

// TestStandaloneReplicas runs two replicas under the fence of the API server, kills the leader, tells the next one to end, and pauses
// the third past the end of its lease. Nodes that join all the while are served by who leads, without overlaps.
func TestStandaloneReplicas(t *testing.T) {
	c := freshCluster(t, controlplane.Options{})
	ctx := t.Context()
	must(t, c.stopManager((*controlplane.Process).Stop), c.cp.Apply(ctx, policy, standalone))
	kubeconfig, err := c.cp.Kubeconfig(controlplane.AloneUser)
	if err != nil {
		t.Fatal(err)
	}
	replica := func(id string) *plainProgram {
		t.Helper()
		p := startPlain(t, c, id, "--kubeconfig="+kubeconfig, "--webserver-bind-address=127.0.0.1:0", "--leader-elect-namespace=kube-system", "--leader-elect-id="+id,
			"--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=500ms")
		must(t, p.ready())
		return p
	}
	// by returns who served a Node.
	by := func(name string) string {
		t.Helper()
		node, err := c.waitServed(name, patience)
		if err != nil {
			t.Fatal(err)
		}
		id, _, _ := strings.Cut(node.Annotations[networkingv1.AnnotationLeaseHolder], "_")
		return id
	}

	first := replica("first")
	must(t, first.leads())
	second := replica("second")
	// A leader that is killed before that leaves the wait of a takeover to its successor.
	must(t, c.waitMarked(standaloneLease))
	c.joinAround(t, first.Kill)
	must(t, second.leads())
	if got := by(fmt.Sprint("n", joining-1)); got != "second" {
		t.Errorf("the last Node was served by %q, want the second", got)
	}

	third := replica("third")
	must(t, second.Stop(), third.leads())
	if code, err := second.ended(patience); code != 0 || err != nil {
		t.Errorf("told to end, the leader ended with %d, %v, want 0", code, err)
	}
	log, err := second.Log()
	if err != nil {
		t.Fatal(err)
	}
	stopped, released := strings.Index(log, "Stopped controller"), strings.Index(log, "This process does not hold the Lease")
	if stopped < 0 || released < stopped {
		t.Errorf("the controller has to stop before the Lease is given up:\n%s", log)
	}
	must(t, createNode(c, []string{"by-third"}))
	if got := by("by-third"); got != "third" {
		t.Errorf("Node by-third was served by %q", got)
	}

	fourth := replica("fourth")
	must(t, c.waitMarked(standaloneLease), third.Pause())
	must(t, createNode(c, []string{"by-fourth"}))
	if got := by("by-fourth"); got != "fourth" {
		t.Errorf("Node by-fourth was served by %q", got)
	}
	must(t, third.Continue(), fourth.leads())
	if code, err := third.ended(patience); code != 1 || err != nil {
		t.Errorf("without its Lease the third ended with %d, %v, want 1: a new process starts from what is true then", code, err)
	}
	if log, err = third.Log(); err != nil || !strings.Contains(log, "node-ipam-controller was lost") {
		t.Errorf("the third does not say that its Lease was lost, %v:\n%s", err, log)
	}
	expect(t, c.overlaps(ctx))
}

// TestStandaloneEndsAsStandby tells a program to end that never led.
func TestStandaloneEndsAsStandby(t *testing.T) {
	c := sharedCluster(t)
	must(t, c.holdLease(t.Context(), "somebody", time.Hour))
	t.Cleanup(func() {
		expect(t, c.setLease(context.Background(), standaloneLease, noLease))
	})
	kubeconfig, err := c.cp.Kubeconfig(controlplane.AloneUser)
	if err != nil {
		t.Fatal(err)
	}
	p := startPlain(t, c, "never-leads", "--kubeconfig="+kubeconfig, "--webserver-bind-address=127.0.0.1:0", "--leader-elect-namespace=kube-system")
	must(t, p.ready(), syscall.Kill(p.PID(), syscall.SIGTERM))
	if code, err := p.ended(patience); code != 0 || err != nil {
		t.Errorf("ended with %d, %v, want 0", code, err)
	}
}

func httpGet(ctx context.Context, url string) (status int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

// holdLease makes somebody the holder of the Lease of node-ipam-controller from now on, for so long.
func (c *cluster) holdLease(ctx context.Context, holder string, good time.Duration) error {
	if err := c.setLease(ctx, standaloneLease, noLease); err != nil {
		return err
	}
	now := metav1.NowMicro()
	_, err := c.kube.CoordinationV1().Leases(metav1.NamespaceSystem).Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: standaloneLease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: new(int32(good.Seconds())), AcquireTime: &now, RenewTime: &now,
		},
	}, metav1.CreateOptions{})
	return err
}
