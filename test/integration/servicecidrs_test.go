package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestServiceCIDRsServedLater runs node-ipam-controller before an API server that has no ServiceCIDRs, as one of v1.32, and upgrades it. Nobody restarts
// the controller, and it gives no block of a ServiceCIDR. (An API server of today does not start without ServiceCIDRs, so a proxy hides them.)
func TestServiceCIDRsServedLater(t *testing.T) {
	ctx := t.Context()
	c := sharedCluster(t)
	c.runs(t, alone)
	if err := c.stopManager((*controlplane.Process).Stop); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.startManager(alone.usual...); err != nil {
			t.Error(err)
		}
	})
	upstream, err := c.cp.Config(controlplane.AloneUser)
	if err != nil {
		t.Fatal(err)
	}
	hides, kubeconfig := c.withoutServiceCIDRs(t, upstream)
	m, err := c.cp.StartManager(ctx, controlplane.ManagerOptions{Alone: true, Name: "before-the-upgrade", Kubeconfig: kubeconfig,
		Args: append(slices.Clone(alone.usual), "--enable-leader-election=false")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(passes(m), createClusterCIDR(c, []string{"a", "10.0.0.0/22", "hb8"}), createServiceCIDR(c, []string{"later", "10.0.1.0/24"}),
		createNode(c, []string{"n1"}), served(c, []string{"n1", "10.0.0.0/24"})); err != nil {
		t.Fatal(err)
	}
	hides.Store(false)
	err = eventually(patience, func(ctx context.Context) error {
		cc, err := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Get(ctx, "a", metav1.GetOptions{})
		if err == nil && (cc.Status.IPv4 == nil || cc.Status.IPv4.Unavailable != 1) {
			err = fmt.Errorf("the status is %+v, want one block that is not available", cc.Status.IPv4)
		}
		return err
	})
	if err := errors.Join(err, createNode(c, []string{"n2"}), served(c, []string{"n2", "10.0.2.0/24"}), passes(m)); err != nil {
		t.Fatal(err)
	}
	if n := timesLogged(t, m, "has ended by itself"); n > 0 {
		t.Errorf("the log says %d times that the controller has ended by itself", n)
	}
}

// withoutServiceCIDRs starts a proxy before the API server that hides ServiceCIDRs for as long as it is told to, and returns it with a kubeconfig. It has
// the credentials of the config, since client certificates do not pass it.
func (c *cluster) withoutServiceCIDRs(t *testing.T, config *rest.Config) (hides *atomic.Bool, kubeconfig string) {
	t.Helper()
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1 // watches
	if proxy.Transport, err = rest.TransportFor(config); err != nil {
		t.Fatal(err)
	}
	hides = &atomic.Bool{}
	hides.Store(true)
	const group = "/apis/networking.k8s.io/v1"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case hides.Load() && r.URL.Path == group:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "networking.k8s.io/v1", "resources": [{"name": "ingresses", "kind": "Ingress", "verbs": ["list"]}]}`)
		case hides.Load() && strings.HasPrefix(r.URL.Path, group+"/servicecidrs"):
			http.NotFound(w, r)
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	kubeconfig, err = c.cp.WriteKubeconfig("without-servicecidrs", &rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return hides, kubeconfig
}
