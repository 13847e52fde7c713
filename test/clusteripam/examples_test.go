package clusteripam

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// Every example does what its comments and docs/cluster-ipam/README.md say.
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
		for _, file := range []string{"docs/cluster-ipam/README.md", "manifests/charts/cluster-ipam-controller/templates/NOTES.txt"} {
			c.namesKinds(file)
		}
	})
}

// A kubectl command, as in `kubectl get clusteripams,inclusterippools`, also over the end of a line. The group are the resources.
var kubectlCommand = regexp.MustCompile(`kubectl\s+(?:get|describe)\s+([a-z0-9][a-z0-9.,-]*)`)

// namesKinds fails unless kubectl takes all resources in the commands of a text for those of Cluster IPAM, or for Leases. Kubernetes has IPAddresses
// of its own, those of Services, and they come first.
func (c *cluster) namesKinds(file string) {
	c.t.Helper()
	text, err := os.ReadFile("../../" + file)
	c.do("read what users read", err)
	commands := kubectlCommand.FindAllStringSubmatch(string(text), -1)
	if len(commands) == 0 {
		c.t.Errorf("%s has no kubectl command", file)
	}
	for _, command := range commands {
		for resource := range strings.SplitSeq(command[1], ",") {
			for name := range strings.FieldsSeq(c.shell("kubectl get --all-namespaces --output=name " + resource)) {
				if _, group, _ := strings.Cut(strings.Split(name, "/")[0], "."); group != "ipam.cluster.x-k8s.io" && group != "k0rdent.mirantis.com" && group != "coordination.k8s.io" {
					c.t.Errorf("%s: %q shows %s. Write the group of the resource", file, command[0], name)
				}
			}
		}
	}
}
