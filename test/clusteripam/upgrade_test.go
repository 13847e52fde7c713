package clusteripam

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/multicidr/controller-manager/test/controlplane"
	"github.com/multicidr/controller-manager/test/wapitest"
)

// TestUpgrade runs cluster-ipam-controller of an earlier commit, with claims of both providers, two that share a host record, and two that were moved. Then today's takes
// over: every machine keeps its address, and every host record stays until its last claim goes.
func TestUpgrade(t *testing.T) {
	bin, err := controlplane.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	earlier := filepath.Join(bin, "earlier")
	if _, err := os.Stat(filepath.Join(earlier, alone)); err != nil {
		t.Skipf("make test-upgrade-cluster-ipam builds the earlier version: %v", err)
	}
	c := newCluster(t, alone)
	c.apply(filepath.Join(earlier, "crds"))
	_, err = c.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "earlier"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: aloneUser}},
	}, metav1.CreateOptions{})
	c.do("let the earlier version do everything", err)
	grid := wapitest.NewGrid("10.1.0.0/24", "fd00::/120")
	grid.Zones["default"] = []string{"example.com"}
	server := withInfoblox(c, "i", grid)
	c.binary = filepath.Join(earlier, alone)
	c.start()

	c.create(claims, "c", claimOfCase5)
	c.create(deployments, "d", `{spec: {template: x, ipamClaim: {ref: c}}}`)
	c.create(claims, "e", `{spec: {provider: ipam-infoblox, nodeNetwork: {cidr: 10.1.0.0/24, gateway: 10.1.0.1}}}`)
	c.create(infoblox, "v4", `{spec: {instance: {name: i}, dnsZone: example.com, subnets: [{cidr: 10.1.0.0/24, gateway: 10.1.0.1}]}}`)
	c.create(infoblox, "v6", `{spec: {instance: {name: i}, dnsZone: example.com, subnets: [{cidr: "fd00::/120", gateway: "fd00::1"}]}}`)
	names := []string{"a", "b", "moved", "web4", "web6", "lone", "moved-host"}
	for _, name := range names[:3] {
		c.create(requests, name, requestOfC)
	}
	c.request("web4", "v4", `annotations: {ipam.cluster.x-k8s.io/hostname: web.example.com}`)
	c.request("web6", "v6", `annotations: {ipam.cluster.x-k8s.io/hostname: web.example.com}`)
	c.request("lone", "e")
	c.request("moved-host", "e")
	for _, name := range names {
		c.until(requests, name, map[string]string{"status.addressRef.name": `"` + name + `"`})
	}
	c.until(deployments, "d", map[string]string{"spec.config.ipamEnabled": "true"})
	c.until(claims, "e", map[string]string{"status.bound": "true"})

	// What clusterctl makes of an object in another cluster: the same without status and with another UID.
	c.kill()
	c.copied(requests, "moved", "moved-host")
	c.copied(addresses, "moved", "moved-host")
	c.start()
	for _, name := range names {
		c.until(requests, name, map[string]string{"status.addressRef.name": `"` + name + `"`})
	}
	before := c.allocated(server, names)
	t.Logf("the earlier version has made\n%s", strings.Join(before, "\n"))

	c.kill()
	c.apply(crds)
	c.binary = ""
	c.start()
	// New claims get addresses, so everything was read, and claims of before were worked on.
	c.create(requests, "later", requestOfC)
	c.request("later-host", "e")
	for _, name := range append(slices.Clone(names), "later", "later-host") {
		c.until(requests, name, ready("True", "Ready"))
	}
	same := func(when string) {
		t.Helper()
		after := slices.DeleteFunc(c.allocated(server, names), func(line string) bool { return strings.Contains(line, "later-host") })
		if !slices.Equal(before, after) {
			t.Errorf("%s there is\n%s\nand the earlier version had made\n%s", when, strings.Join(after, "\n"), strings.Join(before, "\n"))
		}
	}
	same("with today's version")
	c.restart()
	c.create(requests, "last", requestOfC)
	c.until(requests, "last", ready("True", "Ready"))
	same("after a restart of today's version")

	// A record goes with its last claim, and with nobody else.
	c.delete(requests, "web4")
	c.untilGone(requests, "web4")
	c.untilHost(server, "web.example.com fd00::")
	for _, name := range []string{"web6", "moved-host", "lone", "moved"} {
		c.delete(requests, name)
		c.untilGone(requests, name)
	}
	if left := records(server); len(left) != 1 || !strings.HasPrefix(left[0], "later-host ") {
		t.Errorf("Infoblox has %q", left)
	}
}

// allocated returns what must not change: the address of each IPAddressClaim, the pools of claims and what a ClusterDeployment has of them, and all host records with their owners.
func (c *cluster) allocated(server *wapitest.Server, names []string) (all []string) {
	c.t.Helper()
	for _, name := range names {
		all = append(all, fmt.Sprintf("%s %s %s", name, at(c.get(addresses, name), "metadata.uid"), at(c.get(addresses, name), "spec")))
	}
	for _, name := range []string{"c", "e"} {
		all = append(all, name+at(c.get(claims, name), "status.bound")+at(c.get(ipams, name), "spec")+at(c.get(ipams, name), "status"))
	}
	all = append(all, at(c.get(pools, "c"), "spec"), at(c.get(infoblox, "e"), "spec"), at(c.get(deployments, "d"), "spec.config"))
	server.Grid(func(g *wapitest.Grid) {
		for _, h := range g.Hosts() {
			all = append(all, fmt.Sprintf("%s %s %v: %s", h.NetworkView, h.Name, h.Addresses, h.Comment))
		}
	})
	return all
}

// untilHost waits until Infoblox has a host record that begins so.
func (c *cluster) untilHost(server *wapitest.Server, want string) {
	c.t.Helper()
	c.eventually(func(context.Context) error {
		if has := records(server); !slices.ContainsFunc(has, func(r string) bool { return strings.HasPrefix(r, want) }) {
			return fmt.Errorf("Infoblox has %q, want %q", has, want)
		}
		return nil
	})
}

// copied replaces objects by copies, while no program runs.
func (c *cluster) copied(of schema.GroupVersionResource, names ...string) {
	c.t.Helper()
	for _, name := range names {
		object := c.get(of, name)
		c.patch(of, name, `{metadata: {finalizers: null}}`)
		if c.get(of, name) != nil {
			c.delete(of, name)
		}
		c.untilGone(of, name)
		next := &unstructured.Unstructured{Object: map[string]any{"apiVersion": object.GetAPIVersion(), "kind": object.GetKind(), "spec": object.Object["spec"]}}
		next.SetName(name)
		next.SetAnnotations(object.GetAnnotations())
		next.SetLabels(object.GetLabels())
		next.SetFinalizers(object.GetFinalizers())
		_, err := c.of(of).Create(c.t.Context(), next, metav1.CreateOptions{})
		c.do("create the copy of "+name, err)
	}
}
