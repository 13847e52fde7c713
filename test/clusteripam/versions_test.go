package clusteripam

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// TestOlderClusterAPI: a Cluster API that does not know v1beta2 yet serves IPAddresses and IPAddressClaims as v1beta1 only. They have the same
// fields, so the CRDs here are ours under that name.
func TestOlderClusterAPI(t *testing.T) {
	for _, program := range []string{alone, insideManager} {
		t.Run(program, func(t *testing.T) { testOlderClusterAPI(t, newCluster(t, program)) })
	}
}

func testOlderClusterAPI(t *testing.T, c *cluster) {
	const older = "v1beta1"
	files, err := filepath.Glob(filepath.Join(crds, "*.yaml"))
	c.do("find the CRDs", err)
	renamed := 0
	for _, file := range files {
		if !strings.Contains(file, "_ipaddress") {
			c.apply(file)
			continue
		}
		text, err := os.ReadFile(file)
		c.do("read a CRD", err)
		crd := &unstructured.Unstructured{}
		c.do("read a CRD", yaml.Unmarshal(text, &crd.Object))
		versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
		if err != nil || len(versions) != 1 {
			t.Fatalf("%s has %d versions, want 1; %v", file, len(versions), err)
		}
		versions[0].(map[string]any)["name"] = older
		c.do("rename its version", unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"))
		c.do("apply a CRD", c.cp.ApplyObjects(t.Context(), crd))
		renamed++
	}
	if renamed != 2 {
		t.Fatalf("there are %d CRDs of addresses, want 2", renamed)
	}
	c.start()

	in := func(r schema.GroupVersionResource) schema.GroupVersionResource {
		r.Version = older
		return r
	}
	c.create(pools, "p", "{spec: {addresses: [10.0.0.5-10.0.0.6], prefix: 24}}")
	c.create(in(requests), "a", `{kind: IPAddressClaim, spec: {poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: p}}}`)
	c.until(in(requests), "a", map[string]string{"status.addressRef.name": `"a"`})
	c.until(pools, "p", usage(2, 1, 1, 0))
	address := c.get(in(addresses), "a")
	if is := at(address, "spec.address"); is != `"10.0.0.5"` {
		t.Errorf("the address is %s", is)
	}
	if is := at(address, "metadata.ownerReferences.0.apiVersion"); is != `"ipam.cluster.x-k8s.io/`+older+`"` {
		t.Errorf("the claim is its owner as %s", is)
	}
	c.delete(in(requests), "a")
	c.until(pools, "p", usage(2, 0, 2, 0))

	// The commands for a restore of etcd use the version that is served.
	c.kill()
	output, ok := c.restore(c.manager.LogPath())
	if address := c.get(in(addresses), "a"); !ok || at(address, "spec.address") != `"10.0.0.5"` {
		t.Errorf("the commands end well: %t; the IPAddress is %s\n%s", ok, asJSON(address), output)
	}
}
