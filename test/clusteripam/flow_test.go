package clusteripam

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/multicidr/controller-manager/controllers/clusteripam"
)

const (
	claimOfCase5 = `{spec: {provider: in-cluster, cluster: d, nodeNetwork: {cidr: 192.168.1.0/24, gateway: 192.168.1.1, prefix: 24}}}`
	requestOfC   = `{spec: {poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: c}}}`
	boundOfC     = `[{"config":{"apiGroup":"ipam.cluster.x-k8s.io","kind":"InClusterIPPool","name":"c"},"name":"ipPool","ready":true}]`
)

// TestFlow is one claim from its creation to the addresses of machines: a claim is bound, a ClusterDeployment may go on, IPAddressClaims get
// addresses, and a process that was killed goes on where it was.
func TestFlow(t *testing.T) {
	inBothPrograms(t, func(c *cluster) {
		claim := c.create(claims, "c", claimOfCase5)
		c.create(deployments, "d", `{spec: {template: x, config: {workersNumber: 2}, ipamClaim: {ref: c}}}`)
		owner := func(controller string) string {
			return fmt.Sprintf(`[{"apiVersion":"k0rdent.mirantis.com/v1beta1",%s"kind":"ClusterIPAMClaim","name":"c","uid":%q}]`, controller, claim.GetUID())
		}
		c.until(pools, "c", map[string]string{
			"spec": `{"addresses":["192.168.1.0/24"],"gateway":"192.168.1.1","prefix":24}`, "metadata.ownerReferences": owner(""), "status.ipAddresses.total": "253",
		})
		c.until(ipams, "c", map[string]string{
			"spec": `{"clusterIPAMClaimRef":"c","provider":"in-cluster"}`, "metadata.ownerReferences": owner(`"blockOwnerDeletion":true,"controller":true,`),
			"status.phase": `"Bound"`, "status.providerData": boundOfC,
		})
		c.until(claims, "c", map[string]string{"spec.clusterIPAMRef": `"c"`, "status.bound": "true"})
		for kind, want := range map[string]string{"clusteripamclaim": "NAME BOUND AGE c true ", "clusteripam": "NAME PHASE AGE c Bound "} {
			if is := strings.Join(strings.Fields(c.shell("kubectl get --namespace="+namespace+" "+kind)), " "); !strings.HasPrefix(is, want) {
				t.Errorf("kubectl get %s prints %q, want %q", kind, is, want)
			}
		}
		c.until(deployments, "d", map[string]string{"spec.config.ipamEnabled": "true", "spec.config.ipPool.ready": "true", "spec.config.workersNumber": "2"})

		for i, name := range []string{"a", "b", "e"} {
			c.create(requests, name, requestOfC)
			address := fmt.Sprintf(`"192.168.1.%d"`, i+2)
			c.until(addresses, name, map[string]string{
				"spec.address": address, "spec.prefix": "24", "spec.gateway": `"192.168.1.1"`, "spec.claimRef.name": `"` + name + `"`,
				"metadata.finalizers": `["ipam.cluster.x-k8s.io/ProtectAddress"]`,
			})
			c.until(requests, name, map[string]string{"status.addressRef.name": `"` + name + `"`, "metadata.finalizers": `["ipam.cluster.x-k8s.io/ReleaseAddress"]`})
		}
		c.until(pools, "c", map[string]string{"status.ipAddresses.used": "3", "status.ipAddresses.free": "250"})

		c.restart()
		c.delete(requests, "b")
		c.untilGone(addresses, "b")
		c.until(pools, "c", map[string]string{"status.ipAddresses.used": "2"}) // Two watches need not show things in the order of their writes.
		c.create(requests, "f", requestOfC)
		c.until(addresses, "f", map[string]string{"spec.address": `"192.168.1.3"`})

		took := []time.Duration{}
		for i := range 3 {
			name := fmt.Sprintf("c%d", i)
			c.create(claims, name, fmt.Sprintf(`{spec: {provider: in-cluster, nodeNetwork: {cidr: 10.%d.0.0/24, gateway: 10.%d.0.1}}}`, i, i))
			took = append(took, c.until(claims, name, map[string]string{"status.bound": "true"}))
		}
		t.Logf("from creation to bound: %v", took)
	})
}

// TestLateKinds starts the program before any CustomResourceDefinition exists, and deletes them while they are in use. It waits, says what is missing
// without filling its log, and begins by itself.
func TestLateKinds(t *testing.T) {
	for _, program := range []string{alone, insideManager} {
		t.Run(program, func(t *testing.T) {
			c := newCluster(t, program)
			c.start()
			install := func() {
				c.apply(crds)
				c.create(claims, "c", claimOfCase5)
				c.create(requests, "a", requestOfC)
				c.until(addresses, "a", map[string]string{"spec.address": `"192.168.1.2"`})
				c.until(claims, "c", map[string]string{"status.bound": "true"})
				for _, name := range clusteripam.Names() {
					c.untilHealth(name, "ok")
				}
			}
			lines := func() int {
				log, err := c.manager.Log()
				c.do("read the log", err)
				return strings.Count(log, "\n")
			}
			c.untilHealth("cluster-ipam-controller", "ClusterIPAMClaim")
			install()

			before := lines()
			deleteCRDs(t, c.dynamic) // takes kube-apiserver five seconds
			for _, name := range clusteripam.Names() {
				c.untilHealth(name, "the API server does not have")
			}
			if n := lines() - before; n > 200 {
				t.Errorf("%d lines of log about kinds that are gone", n)
			}
			install()
		})
	}
}
