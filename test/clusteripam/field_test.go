package clusteripam

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// claimOf is an IPAddressClaim of a pool, as YAML.
func claimOf(kind, pool string, metadata ...string) string {
	return fmt.Sprintf(`{metadata: {%s}, spec: {poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: %s, name: %s}}}`, strings.Join(metadata, ", "), kind, pool)
}

// TestWhatAnotherVersionLeft starts on what k0rdent's manager 1.8 made of a claim: its pool has clusterNetwork.ipAddresses. The pool becomes wider only when
// somebody has confirmed it, because the addresses between may be a router's.
func TestWhatAnotherVersionLeft(t *testing.T) {
	c := newCluster(t, alone)
	c.apply(crds)
	claim := c.create(claims, "e", `{spec: {provider: in-cluster, clusterIPAMRef: e, nodeNetwork: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, prefix: 24}, clusterNetwork: {ipAddresses: [10.0.0.50, 10.0.0.51]}}}`)
	owner := fmt.Sprintf(`{apiVersion: k0rdent.mirantis.com/v1beta1, kind: ClusterIPAMClaim, name: e, uid: %q}`, claim.GetUID())
	c.create(ipams, "e", `{metadata: {ownerReferences: [`+owner+`]}, spec: {provider: in-cluster, clusterIPAMClaimRef: e}}`)
	c.create(pools, "e", `{metadata: {ownerReferences: [`+owner+`]}, spec: {addresses: [10.0.0.50, 10.0.0.51], prefix: 24, gateway: 10.0.0.1}}`)
	c.create(requests, "first", claimOf("InClusterIPPool", "e"))
	c.create(addresses, "first", `{spec: {address: 10.0.0.50, prefix: 24, claimRef: {name: first}, poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: e}}}`)
	c.start()
	c.create(requests, "second", claimOf("InClusterIPPool", "e"))
	c.until(addresses, "second", map[string]string{"spec.address": `"10.0.0.51"`})
	c.until(claims, "e", map[string]string{"status.bound": "true"})
	if said := at(c.get(claims, "e"), "status.conditions"); !strings.Contains(said, `"type":"PoolWouldWiden"`) || !strings.Contains(said, "confirm-pool") {
		t.Errorf("the claim says %s", said)
	}
	c.until(pools, "e", map[string]string{"spec.addresses": `["10.0.0.50","10.0.0.51"]`})
	c.patch(claims, "e", `{metadata: {annotations: {networking.x-k8s.io/confirm-pool: 10.0.0.0/24}}}`)
	c.until(pools, "e", map[string]string{"spec.addresses": `["10.0.0.0/24"]`})
	c.until(addresses, "first", map[string]string{"spec.address": `"10.0.0.50"`})
}

// TestRestoredInVelerosOrder: claims come before their IPAddresses, or the other way round, without status.
func TestRestoredInVelerosOrder(t *testing.T) {
	inBothPrograms(t, func(c *cluster) {
		c.create(pools, "p", `{spec: {addresses: [10.0.0.10-10.0.0.12], prefix: 24}}`)
		c.create(requests, "m1", claimOf("InClusterIPPool", "p", `annotations: {networking.x-k8s.io/infoblox-owner: `+namespace+`/m1/old, networking.x-k8s.io/address: 10.0.0.12}`))
		c.create(addresses, "m2", `{spec: {address: 10.0.0.10, prefix: 24, claimRef: {name: m2}, poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: p}}}`)
		c.until(pools, "p", map[string]string{"status.ipAddresses.used": "2"}) // An IPAddress that nobody has seen yet cannot be left out: TestAnIPAddressComesBetween.
		c.create(requests, "new", claimOf("InClusterIPPool", "p"))
		c.create(requests, "m2", claimOf("InClusterIPPool", "p"))
		for name, address := range map[string]string{"m1": "10.0.0.12", "m2": "10.0.0.10", "new": "10.0.0.11"} {
			c.until(addresses, name, map[string]string{"spec.address": `"` + address + `"`})
			c.until(requests, name, ready("True", "Ready"))
		}
	})
}

// TestClaimsThatGoAtOnce deletes claims while they get their finalizer: the API server lets some go although it came in between. Nothing is left of them.
func TestClaimsThatGoAtOnce(t *testing.T) {
	inBothPrograms(t, func(c *cluster) {
		c.collectGarbage()
		c.create(pools, "p", `{spec: {addresses: [10.0.0.10-10.0.0.13], prefix: 24}}`)
		c.create(prefixPools, "x", `{spec: {prefixes: ["fd00::/62"]}}`)
		for kind, pool := range map[string]string{"InClusterIPPool": "p", "InClusterPrefixPool": "x"} {
			var wg sync.WaitGroup
			for i := range 50 {
				name := fmt.Sprintf("%s-%d", pool, i)
				c.create(requests, name, claimOf(kind, pool))
				wg.Go(func() {
					time.Sleep(time.Duration(i%5) * time.Millisecond / 2)
					if err := c.of(requests).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			for i := range 4 {
				name := fmt.Sprintf("kept-%s-%d", pool, i)
				c.create(requests, name, claimOf(kind, pool))
				c.until(requests, name, ready("True", "Ready"))
			}
		}
		for i := range 50 {
			for _, of := range []schema.GroupVersionResource{requests, addresses} {
				c.untilGone(of, fmt.Sprintf("p-%d", i))
				c.untilGone(of, fmt.Sprintf("x-%d", i))
			}
		}
	})
}
