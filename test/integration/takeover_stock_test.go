package integration

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/test/chaos/faultproxy"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestTakeoverFromStock kills a stock manager whose last PATCH of a Node is held up on its way, and starts ours. Ours has the Lease when that
// PATCH arrives, and every block is free to it that the stock manager had only chosen.
func TestTakeoverFromStock(t *testing.T) {
	for name, tc := range map[string]struct {
		delay string
		// late is whether the PATCH arrives after ours has allocated, as it may if ours does not wait.
		late      bool
		nextBlock string
	}{
		"our leader waits, sees it, and goes around it":  {delay: "15s", nextBlock: "10.244.2.0/24"},
		"without the wait two Nodes have the same block": {delay: "0s", late: true, nextBlock: "10.244.1.0/24"},
	} {
		t.Run(name, func(t *testing.T) { takeOverFromStock(t, tc.delay, tc.late, tc.nextBlock) })
	}
}

func takeOverFromStock(t *testing.T, delay string, late bool, nextBlock string) {
	ctx := t.Context()
	c := freshCluster(t, controlplane.Options{APIServerArgs: []string{"--request-timeout=15s"}}, ours...)
	must(t, c.stopManager((*controlplane.Process).Stop), c.setLease(ctx, kcmLease, noLease))
	held := c.servedByStock(t)
	args := slices.Concat([]string{"--controllers=multi-cidr-node-ipam-controller", "--node-ipam-takeover-delay=" + delay}, shortLease)
	successor := func(name string) *controlplane.Manager {
		t.Helper()
		m := c.start(t, controlplane.ManagerOptions{Name: name, Args: args})
		must(t, m.WaitLeading(ctx))
		return m
	}
	first := successor("ours")
	const waits = "waiting for the last request of another allocator to be over"
	if late {
		must(t, served(c, []string{"next", nextBlock}))
	} else if err := eventually(patience, func(ctx context.Context) error {
		_, body, err := first.Get(ctx, healthPath)
		if err == nil && !strings.Contains(string(body), waits) {
			err = fmt.Errorf("GET %s: %s, want %q", healthPath, body, waits)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	held.Release()
	must(t, served(c, []string{"last", "10.244.1.0/24"}), served(c, []string{"next", nextBlock}))
	if late {
		return
	}

	// Between two processes of this project there is no wait: the Lease says who led.
	must(t, c.waitMarked(kcmLease), first.Kill())
	second := successor("ours-again")
	must(t, createNode(c, []string{"after", "p=x"}), served(c, []string{"after", "10.244.3.0/24"}))
	const logged = "Waiting before the first allocation"
	for m, want := range map[*controlplane.Manager]bool{first: true, second: false} {
		log, err := os.ReadFile(m.LogPath())
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(log), logged); got != want {
			t.Errorf("%s: the log says %q: %t, want %t", m.LogPath(), logged, got, want)
		}
	}
}

// servedByStock starts a stock manager that gives Node first 10.244.0.0/24 and dies when it has sent a PATCH of Node last, with 10.244.1.0/24, which is held up
// on its way. Node next is for ours. Ours leaves Node last alone, which the stock manager has chosen a block for, else it would choose the same block for it.
func (c *cluster) servedByStock(t *testing.T) *faultproxy.Held {
	t.Helper()
	proxy, kubeconfig := c.behindProxy(t)
	stock := c.start(t, controlplane.ManagerOptions{
		Name: "stock", Binary: "upstream/kube-controller-manager", Kubeconfig: kubeconfig,
		Args: slices.Concat(shortLease, []string{"--controllers=node-ipam-controller", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16"}),
	})
	must(t, stock.WaitLeading(t.Context()), createNode(c, []string{"first"}), served(c, []string{"first", "10.244.0.0/24"}))
	held := c.diesWithPatchHeld(t, stock, proxy, "last")
	must(t, createClusterCIDR(c, []string{"a", "sel(p=x)", "10.244.0.0/16", "hb8", "-nowait"}), createNode(c, []string{"next", "p=x"}))
	return held
}

// diesWithPatchHeld creates a Node and kills the manager behind the proxy when it has sent its PATCH of that Node, which is held up on its way.
func (c *cluster) diesWithPatchHeld(t *testing.T, m *controlplane.Manager, proxy *faultproxy.Proxy, node string) *faultproxy.Held {
	t.Helper()
	held := proxy.Hold(func(method, path string) bool { return method == http.MethodPatch && path == "/api/v1/nodes/"+node })
	t.Cleanup(held.Release)
	must(t, createNode(c, []string{node}))
	select {
	case <-held.Arrived():
	case <-t.Context().Done():
		t.Fatalf("no PATCH of Node %s was sent", node)
	}
	must(t, m.Kill())
	return held
}

// behindProxy starts a proxy before the API server, and returns it with a kubeconfig for a manager behind it.
func (c *cluster) behindProxy(t *testing.T) (_ *faultproxy.Proxy, kubeconfig string) {
	t.Helper()
	upstream, err := c.cp.Config("system:kube-controller-manager")
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, err := c.cp.ServingCertificate("faultproxy")
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := faultproxy.Start(faultproxy.Config{Upstream: upstream, Certificate: certificate, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		expect(t, proxy.Close())
	})
	behind := rest.CopyConfig(upstream)
	behind.Host = proxy.URL()
	if kubeconfig, err = c.cp.WriteKubeconfig("behind-proxy", behind); err != nil {
		t.Fatal(err)
	}
	return proxy, kubeconfig
}

// waitMarked waits until the Lease says that its leader is fenced, so that the next one need not wait.
func (c *cluster) waitMarked(name string) error {
	return eventually(patience, func(ctx context.Context) error {
		l, err := c.kube.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if l.Spec.LeaseTransitions == nil || l.Labels[lease.LabelTerm] != strconv.Itoa(int(*l.Spec.LeaseTransitions)) {
			return fmt.Errorf("Lease %s has the labels %v and the transitions %v", name, l.Labels, l.Spec.LeaseTransitions)
		}
		return nil
	})
}
