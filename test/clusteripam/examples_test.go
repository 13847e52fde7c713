package clusteripam

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// Every example does what its comments and docs/operators/cluster-ipam.md say.
func TestExamples(t *testing.T) {
	inBothPrograms(t, func(c *cluster) {
		c.apply("../../examples/cluster-ipam")
		type want struct {
			of         schema.GroupVersionResource
			name       string
			path, json string
		}
		pool := func(name string) string {
			return fmt.Sprintf(`{"config":{"apiGroup":"ipam.cluster.x-k8s.io","kind":"InClusterIPPool","name":%q},"name":"ipPool","ready":true}`, name)
		}
		for _, w := range []want{
			{claims, "edge-addresses", "spec.clusterIPAMRef", `"edge-addresses"`},
			{claims, "edge-addresses", "status.bound", `true`},
			{ipams, "edge-addresses", "status.phase", `"Bound"`},
			{pools, "edge-addresses", "status.ipAddresses.total", `253`},
			{deployments, "edge", "spec.config", `{"controlPlaneNumber":1,"ipPool":` + pool("edge-addresses") + `,"ipamEnabled":true,"workersNumber":2}`},
			{claims, "inline-ipam", "status.bound", `true`},
			{claims, "inline-ipam", "spec.cluster", `"inline"`},
			{pools, "inline-ipam", "spec.addresses", `["192.168.2.10","192.168.2.11","192.168.2.12"]`},
			{deployments, "inline", "spec.ipamClaim.ref", `"inline-ipam"`},
			{deployments, "inline", "spec.config.ipPool", pool("inline-ipam")},
			{addresses, "machine-1", "spec.address", `"10.7.0.2"`},
			{requests, "machine-1", "status.addressRef.name", `"machine-1"`},
			{pools, "rack-7", "status.ipAddresses", `{"free":136,"outOfRange":0,"total":137,"used":1}`},
			{infoblox, "datacenter-addresses", "spec", `{"instance":{"name":"datacenter"},"subnets":[{"cidr":"10.0.0.0/24","gateway":"10.0.0.1"}]}`},
		} {
			err := controlplane.Eventually(t.Context(), patience, func(ctx context.Context) error {
				object, err := c.dynamic.Resource(w.of).Namespace(metav1.NamespaceDefault).Get(ctx, w.name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if got := at(object, w.path); got != w.json {
					return fmt.Errorf("%s is %s, want %s", w.path, got, w.json)
				}
				return nil
			})
			if err != nil {
				t.Errorf("%s %s: %v", kinds[w.of], w.name, err)
			}
		}
	})
}
