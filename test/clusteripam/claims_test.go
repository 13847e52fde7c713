package clusteripam

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
)

// untilCondition waits until a field of a condition has a value, as JSON; empty if there is to be no such condition.
func (c *cluster) untilCondition(resource schema.GroupVersionResource, name, kind, field, want string) {
	c.t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(c.t.Context(), poll, patience, true, func(context.Context) (bool, error) {
		last = ""
		object := c.get(resource, name)
		for i := range 10 {
			if prefix := fmt.Sprintf("status.conditions.%d", i); at(object, prefix+".type") == `"`+kind+`"` {
				last = at(object, prefix+"."+field)
			}
		}
		return last == want, nil
	})
	if err != nil {
		c.t.Fatalf("condition %s of %s %s: %s is %s, want %s: %s", kind, kinds[resource], name, field, last, want, asJSON(c.get(resource, name)))
	}
}

// TestClaims is what becomes of claims that users get wrong, change, or take things away from.
func TestClaims(t *testing.T) {
	inBothPrograms(t, func(c *cluster) {
		// A claim that cannot be carried out says why, and nothing is created for it.
		c.create(claims, "c", `{spec: {provider: in-cluster, cluster: d, nodeNetwork: {ipAddresses: [10.0.0.1-10.0.0.5]}}}`)
		c.untilCondition(claims, "c", "InvalidClaimCondition", "reason", `"InvalidClaim"`)
		c.untilEvent("c", "InvalidClaim")
		if c.get(ipams, "c") != nil || c.get(pools, "c") != nil {
			t.Error("an invalid claim has a ClusterIPAM or a pool")
		}

		// When it is corrected it is bound. The prefix is that of the cidr.
		c.patch(claims, "c", `{spec: {nodeNetwork: {ipAddresses: null, cidr: 172.16.40.200/29}}}`)
		c.until(pools, "c", map[string]string{"spec.addresses": `["172.16.40.200/29"]`, "spec.prefix": "29", "status.ipAddresses.total": "6"})
		c.until(claims, "c", map[string]string{"status.bound": "true"})
		c.untilCondition(claims, "c", "InvalidClaimCondition", "reason", "")

		// An edit reaches the pool. What a user added to the pool stays.
		c.patch(pools, "c", `{spec: {excludedAddresses: [10.0.0.9]}}`)
		c.patch(claims, "c", `{spec: {nodeNetwork: {cidr: 10.0.0.0/23, gateway: 10.0.0.1}}}`)
		c.until(pools, "c", map[string]string{"spec.addresses": `["10.0.0.0/23"]`, "spec.prefix": "23", "spec.excludedAddresses": `["10.0.0.9"]`, "status.ipAddresses.total": "508"})

		// The binding to a ClusterDeployment does not follow a field that was removed and set anew.
		c.patch(claims, "c", `{spec: {cluster: null}}`)
		c.patch(claims, "c", `{spec: {cluster: e}}`)
		c.untilCondition(claims, "c", "ClusterChanged", "status", `"True"`)
		c.create(deployments, "e", `{spec: {template: x, ipamClaim: {ref: c}}}`)
		c.untilCondition(deployments, "e", "IPAMReady", "reason", `"ClusterMismatch"`)
		c.create(deployments, "d", `{spec: {template: x, ipamClaim: {ref: c}}}`)
		c.until(deployments, "d", map[string]string{"spec.config.ipamEnabled": "true"})
		if at(c.get(deployments, "e"), "spec.config") != "" {
			t.Error("the claim moved to another ClusterDeployment")
		}

		// What is deleted by hand is created again.
		uid := at(c.get(pools, "c"), "metadata.uid")
		c.delete(pools, "c")
		c.until(pools, "c", map[string]string{"metadata.deletionTimestamp": "", "status.ipAddresses.total": "509"})
		if at(c.get(pools, "c"), "metadata.uid") == uid {
			t.Error("the pool was not deleted")
		}
		c.until(ipams, "c", map[string]string{"status.phase": `"Bound"`})
		c.delete(ipams, "c")
		c.until(ipams, "c", map[string]string{"status.phase": `"Bound"`, "spec.clusterIPAMClaimRef": `"c"`})
		c.until(claims, "c", map[string]string{"status.bound": "true"})

		// A pool of somebody else is not taken over.
		c.create(pools, "theirs", `{spec: {addresses: [10.9.0.0/24], prefix: 24}}`)
		c.create(claims, "theirs", `{spec: {provider: in-cluster, nodeNetwork: {cidr: 10.8.0.0/24}}}`)
		c.untilCondition(claims, "theirs", "IPAMProviderConditionError", "reason", `"PoolConflict"`)
		c.until(pools, "theirs", map[string]string{"spec.addresses": `["10.9.0.0/24"]`, "metadata.ownerReferences": ""})
		c.until(claims, "theirs", map[string]string{"status.bound": "false"})

		// Idle is idle: another claim passes, and nothing of these is written again.
		before := asJSON([]any{c.get(claims, "c"), c.get(ipams, "c"), c.get(pools, "c"), c.get(deployments, "d"), c.get(deployments, "e")})
		c.create(claims, "last", `{spec: {provider: in-cluster, nodeNetwork: {cidr: 10.7.0.0/24}}}`)
		c.until(claims, "last", map[string]string{"status.bound": "true"})
		if after := asJSON([]any{c.get(claims, "c"), c.get(ipams, "c"), c.get(pools, "c"), c.get(deployments, "d"), c.get(deployments, "e")}); after != before {
			t.Errorf("written without a reason:\n%s\n%s", before, after)
		}
	})
}

// TestInlineClaim is a ClusterDeployment that describes its claim, and one whose claim comes later.
func TestInlineClaim(t *testing.T) {
	inBothPrograms(t, func(c *cluster) {
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
		c.delete(claims, "later")
		c.untilCondition(deployments, "late", "IPAMReady", "reason", `"ClaimMissing"`)
		c.untilGone(claims, "later")
		if c.program == insideManager {
			c.untilGone(ipams, "later") // The garbage collector runs there only.
			c.untilGone(pools, "later")
			c.create(claims, "later", `{spec: {provider: in-cluster, cluster: late, nodeNetwork: {cidr: 10.0.0.0/24}}}`)
			c.until(deployments, "late", map[string]string{"spec.config.ipPool.config.name": `"later"`})
		}

		// A claim of a user is not overwritten.
		c.create(claims, "u-ipam", `{spec: {provider: in-cluster, nodeNetwork: {cidr: 10.5.0.0/24}}}`)
		c.create(deployments, "u", `{spec: {template: x, ipamClaim: {spec: {provider: in-cluster, nodeNetwork: {cidr: 10.6.0.0/24}}}}}`)
		c.untilCondition(deployments, "u", "IPAMReady", "reason", `"ClaimConflict"`)
		c.until(claims, "u-ipam", map[string]string{"spec.nodeNetwork.cidr": `"10.5.0.0/24"`, "metadata.ownerReferences": ""})
	})
}
