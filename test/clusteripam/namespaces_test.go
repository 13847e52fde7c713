package clusteripam

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/multicidr/controller-manager/test/wapitest"
)

// TestNamespaces: two namespaces have objects of equal names and networks. What happens in one changes nothing in the other, and where they share
// something, a GlobalInClusterIPPool or an InfobloxInstance, no address is allocated twice.
func TestNamespaces(t *testing.T) {
	inBothPrograms(t, func(c *cluster) {
		server := withInfoblox(c, "i", wapitest.NewGrid("10.9.0.0/24"))
		c.create(globalPools, "g", `{spec: {addresses: [10.7.0.1-10.7.0.9], prefix: 24}}`)
		c.collectGarbage()
		east, west := c.in("east"), c.in("west")
		both := []*cluster{east, west}
		for _, n := range both {
			n.create(claims, "c", `{spec: {provider: in-cluster, cluster: d, nodeNetwork: {cidr: 10.0.0.0/24, gateway: 10.0.0.1}}}`)
			n.create(deployments, "d", `{spec: {template: x, ipamClaim: {ref: c}}}`)
			n.create(deployments, "e", `{spec: {template: x, ipamClaim: {spec: {provider: in-cluster, nodeNetwork: {cidr: 10.1.0.0/24}}}}}`)
			n.create(claims, "x", `{spec: {provider: ipam-infoblox, nodeNetwork: {cidr: 10.9.0.0/24, gateway: 10.9.0.254}}}`)
			n.until(claims, "c", map[string]string{"status.bound": "true"})
			n.until(claims, "x", map[string]string{"status.bound": "true"})
			n.until(deployments, "d", map[string]string{"spec.config.ipPool.config.name": `"c"`, "status.conditions.0.status": `"True"`})
			n.until(deployments, "e", map[string]string{"spec.config.ipPool.config.name": `"e-ipam"`, "status.conditions.0.status": `"True"`})
		}
		for _, n := range both {
			n.create(requests, "a", claimOf("InClusterIPPool", "c"))
			n.until(addresses, "a", map[string]string{"spec.address": `"10.0.0.2"`})
			n.until(pools, "c", usage(253, 1, 252, 0))
		}
		for i, n := range both {
			n.create(requests, "g", claimOf("GlobalInClusterIPPool", "g"))
			n.until(addresses, "g", map[string]string{"spec.address": fmt.Sprintf(`"10.7.0.%d"`, i+1)})
			n.create(requests, "h", claimOf("InfobloxIPPool", "x"))
			n.until(addresses, "h", map[string]string{"spec.address": fmt.Sprintf(`"10.9.0.%d"`, i+1)})
			for _, name := range []string{"a", "g", "h"} {
				n.until(requests, name, map[string]string{"status.addressRef.name": `"` + name + `"`, "status.conditions.0.status": `"True"`})
			}
		}
		other := "h." + strings.Trim(at(west.get(requests, "h"), "metadata.uid"), `"`)
		c.untilRecords(server, "h 10.9.0.1", other+" 10.9.0.2")
		c.until(globalPools, "g", map[string]string{"status.ipAddresses.used": "2"})

		// What both share changes: the usage of the Global pool, and the condition of pools that names others with the same addresses.
		shared := func(name, _ string) bool { return strings.Contains(name, "InClusterIPPool ") }
		before := west.everything()
		maps.DeleteFunc(before, shared)
		east.patch(claims, "c", `{"spec": {"nodeNetwork": {"cidr": "10.0.0.0/23"}}}`)
		east.until(pools, "c", usage(509, 1, 508, 0))
		east.patch(claims, "c", `{"spec": {"cluster": null}}`)
		east.patch(claims, "c", `{"spec": {"cluster": "z"}}`)
		east.patch(claims, "x", `{"spec": {"nodeNetwork": {"gateway": "10.9.0.253"}}}`)
		east.until(infoblox, "x", map[string]string{"spec.subnets.0.gateway": `"10.9.0.253"`})
		east.patch(pools, "e-ipam", `{"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}}`)
		for _, name := range []string{"a", "g", "h"} {
			east.delete(requests, name)
			east.untilGone(requests, name)
		}
		c.untilRecords(server, other+" 10.9.0.2")
		c.until(globalPools, "g", map[string]string{"status.ipAddresses.used": "1"})
		east.delete(deployments, "d")
		for _, name := range []string{"c", "x"} {
			east.delete(claims, name)
			east.untilGone(claims, name)
		}
		east.untilGone(ipams, "c")
		east.untilGone(pools, "c")
		c.restart()
		east.create(requests, "late", claimOf("InClusterIPPool", "c"))
		east.until(requests, "late", map[string]string{"status.conditions.0.reason": `"PoolNotReady"`})
		after := west.everything()
		maps.DeleteFunc(after, shared)
		if diff := cmp.Diff(before, after); diff != "" {
			c.t.Errorf("what happened in another namespace has changed (-before +after):\n%s", diff)
		}
		west.until(pools, "c", usage(253, 1, 252, 0))

		// And the other one still works.
		west.create(requests, "b", claimOf("InClusterIPPool", "c"))
		west.until(addresses, "b", map[string]string{"spec.address": `"10.0.0.3"`})
		west.create(requests, "g2", claimOf("GlobalInClusterIPPool", "g"))
		west.until(addresses, "g2", map[string]string{"spec.address": `"10.7.0.1"`})
		west.create(requests, "h2", claimOf("InfobloxIPPool", "x"))
		west.until(addresses, "h2", map[string]string{"spec.address": `"10.9.0.1"`})
	})
}
