package clusteripam

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeNetworks are what claims can ask for, and the pool, the number of addresses and the first address that they get.
var nodeNetworks = map[string]struct{ of, pool, total, first string }{
	"list":                {`{ipAddresses: [10.1.0.5, 10.1.0.7], prefix: 24, gateway: 10.1.0.1}`, `{"addresses":["10.1.0.5","10.1.0.7"],"gateway":"10.1.0.1","prefix":24}`, "2", "10.1.0.5"},
	"list-wins":           {`{cidr: 10.2.0.0/24, ipAddresses: [10.2.0.9], prefix: 24}`, `{"addresses":["10.2.0.9"],"prefix":24}`, "1", "10.2.0.9"},
	"list-without-prefix": {`{ipAddresses: [10.3.0.9]}`, `{"addresses":["10.3.0.9"],"prefix":0}`, "1", "10.3.0.9"},
	"without-prefix":      {`{cidr: 172.16.41.200/29}`, `{"addresses":["172.16.41.200/29"],"prefix":29}`, "6", "172.16.41.201"},
	"v6":                  {`{cidr: "fd00::/120", gateway: "fd00::1", prefix: 120}`, `{"addresses":["fd00::/120"],"gateway":"fd00::1","prefix":120}`, "254", "fd00::2"},
	"large-v6":            {`{cidr: "fd01::/64", gateway: "fd01::1", prefix: 64}`, `{"addresses":["fd01::/64"],"gateway":"fd01::1","prefix":64}`, "9223372036854775807", "fd01::2"},
}

// warnings returns the reasons of all warnings about a ClusterIPAMClaim, each as often as it was told.
func (c *cluster) warnings(claim string) (reasons []string) {
	c.t.Helper()
	events, err := c.kube.CoreV1().Events(namespace).List(c.t.Context(), metav1.ListOptions{})
	c.do("list events", err)
	for _, e := range events.Items {
		if e.InvolvedObject.Kind == kinds[claims] && e.InvolvedObject.Name == claim && e.Type == corev1.EventTypeWarning {
			reasons = append(reasons, slices.Repeat([]string{e.Reason}, int(e.Count))...)
		}
	}
	return reasons
}

// TestClaims is what becomes of claims that users get wrong, change, or take things away from.
func TestClaims(t *testing.T) {
	inBothPrograms(t, func(c *cluster) {
		// A claim that cannot be carried out says why, and nothing is created for it.
		c.create(claims, "c", `{spec: {provider: in-cluster, cluster: d, nodeNetwork: {ipAddresses: [10.0.0.1-10.0.0.5]}}}`)
		c.untilCondition(claims, "c", "InvalidClaimCondition", "message",
			`"spec.nodeNetwork.ipAddresses has \"10.0.0.1-10.0.0.5\", which is not a single address. Write every address of its own, or use cidr."`)
		c.create(claims, "no-cidr", `{spec: {provider: in-cluster, nodeNetwork: {cidr: not-a-valid-cidr}}}`)
		c.untilCondition(claims, "no-cidr", "InvalidClaimCondition", "reason", `"InvalidClaim"`)
		c.until(claims, "c", map[string]string{"status.bound": "false"})
		c.untilEvent("c", "InvalidClaim")
		if c.get(ipams, "c") != nil || c.get(pools, "c") != nil {
			t.Error("the invalid claim has a ClusterIPAM or a pool")
		}
		for name, network := range nodeNetworks {
			c.create(claims, name, `{spec: {provider: in-cluster, nodeNetwork: `+network.of+`}}`)
			c.create(requests, name, claimOf("InClusterIPPool", name))
		}
		for name, network := range nodeNetworks {
			c.until(pools, name, map[string]string{"spec": network.pool, "status.ipAddresses.total": network.total})
			c.until(claims, name, map[string]string{"status.bound": "true"})
			c.until(addresses, name, map[string]string{"spec.address": `"` + network.first + `"`})
		}
		c.untilEvent("list-without-prefix", "PrefixMissing")
		c.untilCondition(claims, "list-without-prefix", "Warning", "reason", `"PrefixMissing"`)

		// When it is corrected it is bound.
		c.patch(claims, "c", `{spec: {nodeNetwork: {ipAddresses: null, cidr: 172.16.40.200/29}}}`)
		c.until(claims, "c", map[string]string{"status.bound": "true"})
		c.untilCondition(claims, "c", "InvalidClaimCondition", "reason", "")
		if is := c.warnings("c"); !slices.Equal(is, []string{"InvalidClaim"}) {
			t.Errorf("the warnings about the claim were %q", is)
		}

		// An edit reaches the pool. What a user added to the pool stays.
		c.patch(pools, "c", `{spec: {excludedAddresses: [10.0.0.9]}}`)
		c.patch(claims, "c", `{spec: {nodeNetwork: {cidr: 10.0.0.0/23, gateway: 10.0.0.1}}}`)
		c.until(pools, "c", map[string]string{"spec.addresses": `["10.0.0.0/23"]`, "spec.prefix": "23", "spec.excludedAddresses": `["10.0.0.9"]`, "status.ipAddresses.total": "508"})

		// What is deleted by hand is created again.
		uid := at(c.get(pools, "c"), "metadata.uid")
		c.delete(pools, "c")
		c.until(pools, "c", map[string]string{"metadata.deletionTimestamp": "", "status.ipAddresses.total": "509"})
		if at(c.get(pools, "c"), "metadata.uid") == uid {
			t.Error("the pool was not deleted")
		}
		c.until(ipams, "c", map[string]string{"status.phase": `"Bound"`})
		c.until(claims, "c", map[string]string{"status.bound": "true"})
		before := c.get(claims, "c").GetResourceVersion()
		c.delete(ipams, "c")
		c.until(ipams, "c", map[string]string{"status.phase": `"Bound"`, "spec.clusterIPAMClaimRef": `"c"`})
		c.until(claims, "c", map[string]string{"status.bound": "true"})
		if was := slices.Compact(c.history(claims, "c", before, "status.bound")); !slices.Equal(was, []string{"false", "true"}) {
			t.Errorf("without its ClusterIPAM, bound of the claim was %s", was)
		}

		// The binding to a ClusterDeployment does not follow a field that was removed and set again.
		c.patch(claims, "c", `{spec: {cluster: null}}`)
		c.patch(claims, "c", `{spec: {cluster: e}}`)
		c.untilCondition(claims, "c", "Warning", "reason", `"ClusterChanged"`)
		c.create(deployments, "e", `{spec: {template: x, ipamClaim: {ref: c}}}`)
		c.untilCondition(deployments, "e", "IPAMReady", "reason", `"ClusterMismatch"`)
		c.create(deployments, "d", `{spec: {template: x, ipamClaim: {ref: c}}}`)
		c.until(deployments, "d", map[string]string{"spec.config.ipamEnabled": "true"})
		if at(c.get(deployments, "e"), "spec.config") != "" {
			t.Error("the claim moved to another ClusterDeployment")
		}

		// A pool of somebody else is not taken over.
		c.create(pools, "theirs", `{spec: {addresses: [10.9.0.0/24], prefix: 24}}`)
		c.create(claims, "theirs", `{spec: {provider: in-cluster, nodeNetwork: {cidr: 10.8.0.0/24}}}`)
		c.untilCondition(claims, "theirs", "IPAMProviderConditionError", "reason", `"PoolConflict"`)
		c.until(pools, "theirs", map[string]string{"spec.addresses": `["10.9.0.0/24"]`, "metadata.ownerReferences": ""})
		c.until(claims, "theirs", map[string]string{"status.bound": "false"})

		// Idle is idle: another claim passes, and nothing of these is written again.
		quiet := asJSON([]any{c.get(claims, "c"), c.get(ipams, "c"), c.get(pools, "c"), c.get(deployments, "d"), c.get(deployments, "e")})
		c.create(claims, "last", `{spec: {provider: in-cluster, nodeNetwork: {cidr: 10.7.0.0/24}}}`)
		c.until(claims, "last", map[string]string{"status.bound": "true"})
		if after := asJSON([]any{c.get(claims, "c"), c.get(ipams, "c"), c.get(pools, "c"), c.get(deployments, "d"), c.get(deployments, "e")}); after != quiet {
			t.Errorf("written without a reason:\n%s\n%s", quiet, after)
		}
	})
}

// TestGate is ClusterDeployments that describe their claim, whose claim comes later, and whose claim waits for its pool.
func TestGate(t *testing.T) {
	inBothPrograms(t, func(c *cluster) {
		c.collectGarbage()
		c.create(deployments, "d", `{spec: {template: x, dryRun: true, config: {workersNumber: 2},
			ipamClaim: {spec: {provider: in-cluster, nodeNetwork: {cidr: 192.168.1.0/24, gateway: 192.168.1.1, prefix: 24}}}}}`)
		c.until(claims, "d-ipam", map[string]string{
			"spec.cluster": `"d"`, "spec.clusterIPAMRef": `"d-ipam"`, "spec.nodeNetwork.cidr": `"192.168.1.0/24"`, "metadata.ownerReferences.0.name": `"d"`,
			"metadata.ownerReferences.0.controller": "", "status.bound": "true",
		})
		c.until(deployments, "d", map[string]string{
			"spec.ipamClaim.ref": `"d-ipam"`, "spec.config.ipamEnabled": "true", "spec.config.workersNumber": "2",
			"spec.config.ipPool": `{"config":{"apiGroup":"ipam.cluster.x-k8s.io","kind":"InClusterIPPool","name":"d-ipam"},"name":"ipPool","ready":true}`,
		})
		c.untilCondition(deployments, "d", "IPAMReady", "status", `"True"`)

		// Without the inline part the ClusterDeployment keeps its claim.
		c.patch(deployments, "d", `{spec: {ipamClaim: {spec: null}}}`)
		c.until(deployments, "d", map[string]string{"spec.ipamClaim.spec": "", "spec.config.ipamEnabled": "true"})
		c.untilCondition(deployments, "d", "IPAMReady", "status", `"True"`)

		// A claim that is missing opens the gate when it comes.
		c.create(deployments, "late", `{spec: {template: x, ipamClaim: {ref: later}}}`)
		c.untilCondition(deployments, "late", "IPAMReady", "reason", `"ClaimMissing"`)
		c.create(claims, "later", `{spec: {provider: in-cluster, cluster: x, nodeNetwork: {cidr: 10.0.0.0/24}}}`)
		c.untilCondition(deployments, "late", "IPAMReady", "reason", `"ClusterMismatch"`)
		c.create(requests, "machine", `{spec: {poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: later}}}`)
		c.until(addresses, "machine", map[string]string{"spec.address": `"10.0.0.1"`})
		c.delete(claims, "later")
		c.untilCondition(deployments, "late", "IPAMReady", "reason", `"ClaimMissing"`)
		// Garbage collection deletes what was made for it. The pool stays until nobody has an address of it.
		c.untilGone(claims, "later")
		c.untilGone(ipams, "later")
		c.untilCondition(pools, "later", "Ready", "reason", `"Terminating"`)
		c.until(addresses, "machine", map[string]string{"spec.address": `"10.0.0.1"`, "metadata.deletionTimestamp": ""})
		c.delete(requests, "machine")
		c.untilGone(addresses, "machine")
		c.untilGone(pools, "later")
		c.create(claims, "later", `{spec: {provider: in-cluster, cluster: late, nodeNetwork: {cidr: 10.0.0.0/24}}}`)
		c.until(deployments, "late", map[string]string{"spec.config.ipPool.config.name": `"later"`})

		// A claim of a user is not overwritten.
		c.create(claims, "u-ipam", `{spec: {provider: in-cluster, nodeNetwork: {cidr: 10.5.0.0/24}}}`)
		c.create(deployments, "u", `{spec: {template: x, ipamClaim: {spec: {provider: in-cluster, nodeNetwork: {cidr: 10.6.0.0/24}}}}}`)
		c.untilCondition(deployments, "u", "IPAMReady", "reason", `"ClaimConflict"`)
		c.until(claims, "u-ipam", map[string]string{"spec.nodeNetwork.cidr": `"10.5.0.0/24"`, "metadata.ownerReferences": ""})

		c.waitForAnotherAllocator()
	})
}

// waitForAnotherAllocator has another provider allocate. While it is silent, the claim and the gate wait, and nothing is written again and again. The
// gate opens in one write.
func (c *cluster) waitForAnotherAllocator() {
	c.t.Helper()
	c.setProvider("another")
	c.untilHealth("in-cluster-ip-pool-controller", "another provider to go")
	since := c.create(deployments, "d2", `{spec: {template: x, config: {workersNumber: 2}, ipamClaim: {ref: c2}}}`).GetResourceVersion()
	c.create(claims, "c2", `{spec: {provider: in-cluster, cluster: d2, nodeNetwork: {cidr: 10.4.0.0/24}}}`)
	const data = `{"config":{"apiGroup":"ipam.cluster.x-k8s.io","kind":"InClusterIPPool","name":"c2"},"name":"ipPool"`
	c.until(ipams, "c2", map[string]string{"status.phase": `"Pending"`, "status.providerData": "[" + data + "}]"}) // ready is left out when it is false, as k0rdent does
	c.until(claims, "c2", map[string]string{"status.bound": "false"})
	c.untilCondition(deployments, "d2", "IPAMReady", "reason", `"ClaimNotBound"`)

	c.patch(pools, "c2", `{status: {ipAddresses: {total: 10, free: 10, used: 0, outOfRange: 0}}}`, "status")
	took := c.until(claims, "c2", map[string]string{"status.bound": "true"})
	took += c.until(deployments, "d2", map[string]string{"spec.config.ipamEnabled": "true"})
	if c.t.Logf("from the status of the pool to an open gate: %v", took); took > 5*time.Second {
		c.t.Error("this is too long for a controller that does not poll")
	}
	c.untilCondition(deployments, "d2", "IPAMReady", "status", `"True"`)
	if was := c.history(ipams, "c2", since, "status.phase"); !slices.Equal(was, []string{"", `"Pending"`, `"Bound"`}) {
		c.t.Errorf("the ClusterIPAM was written with the phases %s", was)
	}
	if was := slices.Compact(c.history(deployments, "d2", since, "spec.config")); !slices.Equal(was, []string{`{"workersNumber":2}`, `{"ipPool":` + data + `,"ready":true},"ipamEnabled":true,"workersNumber":2}`}) {
		c.t.Errorf("the config of the ClusterDeployment was %s", was)
	}
	const none = `cluster_ipam_failing_objects{controller="cluster-ipam-controller",kind="ClusterIPAMClaim"} 0`
	if metrics := c.page(c.t.Context(), "/metrics"); !strings.Contains(metrics, none) {
		c.t.Errorf("while the claim waits, the work on it fails: %s is not in %s", none, metrics)
	}
}
