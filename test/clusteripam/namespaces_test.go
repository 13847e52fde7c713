package clusteripam

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/test/wapitest"
)

// TestNamespaces: two namespaces have objects of equal names and networks. What happens in one changes nothing in the other, and where they share
// something, a GlobalInClusterIPPool or an InfobloxInstance, no address is allocated twice.
func TestNamespaces(t *testing.T) {
	inBothPrograms(t, func(c *cluster) {
		server := withInfoblox(c, "i", wapitest.NewGrid("10.9.0.0/24"))
		c.create(globalPools, "g", `{spec: {addresses: [10.7.0.1-10.7.0.9], prefix: 24}}`)
		east, west := c.in(c.t, "east"), c.in(c.t, "west")
		both := []*space{east, west}
		for _, n := range both {
			n.put(`{apiVersion: k0rdent.mirantis.com/v1beta1, kind: ClusterIPAMClaim, metadata: {name: c}, spec: {provider: in-cluster, cluster: d, nodeNetwork: {cidr: 10.0.0.0/24, gateway: 10.0.0.1}}}`)
			n.put(`{apiVersion: k0rdent.mirantis.com/v1beta1, kind: ClusterDeployment, metadata: {name: d}, spec: {template: x, ipamClaim: {ref: c}}}`)
			n.put(`{apiVersion: k0rdent.mirantis.com/v1beta1, kind: ClusterDeployment, metadata: {name: e}, spec: {template: x, ipamClaim: {spec: {provider: in-cluster, nodeNetwork: {cidr: 10.1.0.0/24}}}}}`)
			n.put(`{apiVersion: k0rdent.mirantis.com/v1beta1, kind: ClusterIPAMClaim, metadata: {name: x}, spec: {provider: ipam-infoblox, nodeNetwork: {cidr: 10.9.0.0/24, gateway: 10.9.0.254}}}`)
			n.has(claims, "c", map[string]string{"status.bound": "true"})
			n.has(claims, "x", map[string]string{"status.bound": "true"})
			n.has(deployments, "d", map[string]string{"spec.config.ipPool.config.name": `"c"`, "status.conditions.0.status": `"True"`})
			n.has(deployments, "e", map[string]string{"spec.config.ipPool.config.name": `"e-ipam"`, "status.conditions.0.status": `"True"`})
		}
		for _, n := range both {
			n.claim("a", "c")
			n.has(addresses, "a", map[string]string{"spec.address": `"10.0.0.2"`})
			n.usage("c", v1alpha2.PoolUsage{Total: 253, Free: 252, Used: 1})
		}
		for i, n := range both {
			n.request("g", "GlobalInClusterIPPool", "g")
			n.has(addresses, "g", map[string]string{"spec.address": fmt.Sprintf(`"10.7.0.%d"`, i+1)})
			n.request("h", "InfobloxIPPool", "x")
			n.has(addresses, "h", map[string]string{"spec.address": fmt.Sprintf(`"10.9.0.%d"`, i+1)})
			for _, name := range []string{"a", "g", "h"} {
				n.has(requests, name, map[string]string{"status.addressRef.name": `"` + name + `"`, "status.conditions.0.status": `"True"`})
			}
		}
		other := "h." + strings.Trim(at(west.object(requests, "h"), "metadata.uid"), `"`)
		c.untilRecords(server, "h 10.9.0.1", other+" 10.9.0.2")
		c.until(globalPools, "g", map[string]string{"status.ipAddresses.used": "2"})

		before := west.everything()
		east.patch(claims, "c", `{"spec": {"nodeNetwork": {"cidr": "10.0.0.0/23"}}}`)
		east.usage("c", v1alpha2.PoolUsage{Total: 509, Free: 508, Used: 1})
		east.patch(claims, "c", `{"spec": {"cluster": null}}`)
		east.patch(claims, "c", `{"spec": {"cluster": "z"}}`)
		east.patch(claims, "x", `{"spec": {"nodeNetwork": {"gateway": "10.9.0.253"}}}`)
		east.has(infoblox, "x", map[string]string{"spec.subnets.0.gateway": `"10.9.0.253"`})
		east.patch(pools, "e-ipam", `{"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}}`)
		for _, name := range []string{"a", "g", "h"} {
			east.delete(requests, name)
			east.has(requests, name, nil)
		}
		c.untilRecords(server, other+" 10.9.0.2")
		c.until(globalPools, "g", map[string]string{"status.ipAddresses.used": "1"})
		east.delete(deployments, "d")
		for _, name := range []string{"c", "x"} {
			east.delete(claims, name)
			east.has(claims, name, nil)
		}
		for _, object := range []schema.GroupVersionResource{ipams, pools} {
			east.remove(object, "c") // The garbage collector is in one of the programs only.
			east.has(object, "c", nil)
		}
		c.restart()
		east.claim("late", "c")
		east.has(requests, "late", map[string]string{"status.conditions.0.reason": `"PoolNotReady"`})
		if after := west.everything(); after != before {
			c.t.Errorf("what happened in another namespace has changed\n%s\nto\n%s", before, after)
		}

		// And the other one still works.
		west.claim("b", "c")
		west.has(addresses, "b", map[string]string{"spec.address": `"10.0.0.3"`})
		west.request("g2", "GlobalInClusterIPPool", "g")
		west.has(addresses, "g2", map[string]string{"spec.address": `"10.7.0.1"`})
		west.request("h2", "InfobloxIPPool", "x")
		west.has(addresses, "h2", map[string]string{"spec.address": `"10.9.0.1"`})
	})
}

func (n *space) request(name, kind, pool string) {
	n.t.Helper()
	n.put(fmt.Sprintf(`{apiVersion: ipam.cluster.x-k8s.io/v1beta2, kind: IPAddressClaim, metadata: {name: %s}, spec: {poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: %s, name: %s}}}`, name, kind, pool))
}

// remove deletes an object that may be gone already.
func (n *space) remove(r schema.GroupVersionResource, name string) {
	n.t.Helper()
	if err := n.of(r).Delete(n.t.Context(), name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		n.do("delete "+name, err)
	}
}

// has waits until an object has all these values, by path, as JSON; nil waits until it is gone.
func (n *space) has(r schema.GroupVersionResource, name string, want map[string]string) {
	n.t.Helper()
	n.eventually(func(ctx context.Context) error {
		object, err := n.of(r).Get(ctx, name, metav1.GetOptions{})
		switch {
		case want == nil && apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		case want == nil:
			return fmt.Errorf("%s %s is still there: %s", kinds[r], name, asJSON(object))
		}
		for path, value := range want {
			if is := at(object, path); is != value {
				return fmt.Errorf("%s of %s %s is %s, want %s: %s", path, kinds[r], name, is, value, asJSON(object))
			}
		}
		return nil
	})
}

// object returns an object.
func (n *space) object(r schema.GroupVersionResource, name string) *unstructured.Unstructured {
	n.t.Helper()
	object, err := n.of(r).Get(n.t.Context(), name, metav1.GetOptions{})
	n.do("get "+name, err)
	return object
}

// everything is all objects of Cluster IPAM in the namespace.
func (n *space) everything() string {
	n.t.Helper()
	var all []any
	for _, r := range []schema.GroupVersionResource{claims, ipams, deployments, pools, infoblox, requests, addresses} {
		list, err := n.of(r).List(n.t.Context(), metav1.ListOptions{})
		n.do("list "+kinds[r], err)
		for _, object := range list.Items {
			if r == pools { // Its condition names pools of other namespaces that share addresses with it.
				unstructured.RemoveNestedField(object.Object, "status", "conditions")
				object.SetManagedFields(nil)
				object.SetResourceVersion("")
			}
			all = append(all, object.Object)
		}
	}
	return asJSON(all)
}
