package clusteripam

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/multicidr/controller-manager/test/chaos/faultproxy"
	"github.com/multicidr/controller-manager/test/controlplane"
	"github.com/multicidr/controller-manager/test/seeds"
)

// TestPoolsBehindABadNetwork: while answers are lost, and requests are refused, dropped and late, and the program is killed, claims come and go
// in a pool that is full. At no time do two IPAddresses have one address. When the network is good again, everybody who can be served is, and
// nothing has leaked.
func TestPoolsBehindABadNetwork(t *testing.T) {
	const size, names, load = 20, 40, 40 * time.Second
	c := newCluster(t, alone)
	c.apply(crds)
	upstream, err := c.cp.Config(aloneUser)
	c.do("make credentials", err)
	certificate, key, err := c.cp.ServingCertificate("faultproxy")
	c.do("make a certificate", err)
	seed := seeds.First()
	defer seeds.Report(t, seed, nil)
	proxy, err := faultproxy.Start(faultproxy.Config{Upstream: upstream, Certificate: certificate, Key: key, Seed: seed})
	c.do("start the proxy", err)
	t.Cleanup(func() { _ = proxy.Close() })
	behind := rest.CopyConfig(upstream)
	behind.Host = proxy.URL()
	kubeconfig, err := c.cp.WriteKubeconfig("behind", behind)
	c.do("write a kubeconfig", err)
	start := func() {
		c.manager = c.cp.StartManagerForTest(t, controlplane.ManagerOptions{Name: c.program, Alone: true, Binary: alone, Kubeconfig: kubeconfig})
	}
	start()

	c.create(pools, "p", fmt.Sprintf("{spec: {addresses: [10.0.0.1-10.0.0.%d], prefix: 24}}", size))
	judged := controlplane.JudgeIPAddresses(t, c.of(addresses))

	// A late request arrives within the time that the fence allows for its way.
	bad := faultproxy.Faults{LoseAnswers: 0.08, DelayRequests: 0.08, DelayAnswers: 0.04, Refuse: 0.08, Drop: 0.04, MaxDelay: 3 * time.Second}
	proxy.Set(bad)
	d := rand.New(rand.NewPCG(seed, 1))
	killed := false
	for began := time.Now(); time.Since(began) < load; {
		name := fmt.Sprintf("c%d", d.IntN(names))
		claim := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddressClaim", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"poolRef": map[string]any{"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"}}}}
		if _, err := c.of(requests).Create(t.Context(), claim, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
			err = c.of(requests).Delete(t.Context(), name, metav1.DeleteOptions{})
			if !apierrors.IsNotFound(err) {
				c.do("delete "+name, err)
			}
		} else {
			c.do("create "+name, err)
		}
		if !killed && time.Since(began) > load/2 {
			killed = true
			c.do("kill the program", c.manager.Kill())
			proxy.Set(faultproxy.Faults{}) // No program starts without its certificates.
			start()                        // It waits for the Lease, while requests of the last one may still arrive.
			proxy.Set(bad)
		}
		time.Sleep(time.Duration(d.IntN(40)) * time.Millisecond) // the pace of the load
	}
	proxy.Set(faultproxy.Faults{})

	if err := controlplane.Eventually(t.Context(), 2*time.Minute, func(ctx context.Context) error {
		claims, err := c.of(requests).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		all, err := c.held(ctx)
		if err != nil {
			return err
		}
		live := map[string]bool{}
		for _, o := range claims.Items {
			if o.GetDeletionTimestamp() != nil {
				return fmt.Errorf("%s is still being deleted", o.GetName())
			}
			live[o.GetName()] = true
		}
		for name, at := range all {
			if !live[name] {
				return fmt.Errorf("%s is left behind, with %s", name, at)
			}
		}
		if want := min(len(live), size); len(all) != want {
			return fmt.Errorf("%d of %d claims have an address, want %d", len(all), len(live), want)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	t.Logf("%d IPAddresses came and went; faults: %v", judged(), proxy.Counts())
}
