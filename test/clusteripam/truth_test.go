package clusteripam

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/multicidr/controller-manager/controllers/build"
	"github.com/multicidr/controller-manager/controllers/clusteripam"
	"github.com/multicidr/controller-manager/test/controlplane"
	"github.com/multicidr/controller-manager/test/wapitest"
)

// TestMetricsAndDebugPages: what metrics and debug pages say is what the API server has, and they name no Secret.
func TestMetricsAndDebugPages(t *testing.T) {
	inBothPrograms(t, func(c *cluster) {
		const secret, password = "name-of-a-secret", "word-that-nobody-may-see"
		grid := wapitest.NewGrid("10.9.0.0/24")
		server := wapitest.New(t, grid)
		server.Password = password
		host, port := server.Address()
		for name, of := range map[string]string{"i": secret, "missing": secret + "-missing"} {
			c.create(instances, name, fmt.Sprintf(`{spec: {host: %q, port: %q, wapiVersion: "2.12", credentialsSecretRef: {name: %s}, customCAPath: %s}}`, host, port, of, server.CAFile))
		}
		_, err := c.kube.CoreV1().Secrets(metav1.NamespaceSystem).Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: secret}, StringData: map[string]string{"username": server.Username, "password": password},
		}, metav1.CreateOptions{})
		c.do("create a Secret", err)

		// A pool that shrinks below what is used, one that is full, one that no server is ready for, and a claim without a ClusterDeployment's name.
		c.create(pools, "p", `{spec: {addresses: [10.0.0.1-10.0.0.4], prefix: 24}}`)
		for i, name := range []string{"a", "b"} {
			c.create(requests, name, `{spec: {poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: p}}}`)
			c.until(addresses, name, map[string]string{"spec.address": fmt.Sprintf(`"10.0.0.%d"`, i+1)})
		}
		c.patch(pools, "p", `{spec: {addresses: [10.0.0.2-10.0.0.4]}}`)
		c.create(globalPools, "g", `{spec: {addresses: [10.1.0.1], prefix: 24}}`)
		for _, name := range []string{"d", "e", "f"} {
			c.create(requests, name, `{spec: {poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: GlobalInClusterIPPool, name: g}}}`)
		}
		c.create(claims, "bound", `{spec: {provider: in-cluster, nodeNetwork: {cidr: 10.2.0.0/24}}}`)
		c.create(claims, "invalid", `{spec: {provider: in-cluster, nodeNetwork: {cidr: nope}}}`)
		c.create(claims, "no-server", `{metadata: {annotations: {networking.x-k8s.io/infoblox-instance: missing}}, spec: {provider: ipam-infoblox, cluster: d, nodeNetwork: {cidr: 10.8.0.0/24, gateway: 10.8.0.1}}}`)
		c.create(deployments, "d", `{spec: {template: x, ipamClaim: {ref: no-server}}}`)
		c.create(infoblox, "x", `{spec: {instance: {name: i}, subnets: [{cidr: 10.9.0.0/24}]}}`)
		c.request("x", "x")
		c.request("y", "no-server")
		c.until(requests, "x", ready("True", "Ready"))
		c.until(requests, "y", ready("False", "PoolNotReady"))
		c.untilCondition(claims, "no-server", "IPAMProviderConditionError", "reason", `"PoolNotReady"`)
		c.untilCondition(deployments, "d", "IPAMReady", "reason", `"ClaimNotBound"`)
		c.until(claims, "bound", map[string]string{"status.bound": "true"})

		const alloc, bind, gate, grids = "in-cluster-ip-pool-controller", "cluster-ipam-controller", "cluster-deployment-ipam-controller", "infoblox-ip-pool-controller"
		sample := func(name, controller string, labels ...string) string {
			return "cluster_ipam_" + name + "{" + strings.Join(append([]string{`controller="` + controller + `"`}, labels...), ",") + "}"
		}
		pool := func(kind, namespace, name, state string) string {
			return sample("addresses", alloc, `kind="`+kind+`"`, `namespace="`+namespace+`"`, `pool="`+name+`"`, `state="`+state+`"`)
		}
		want := map[string]string{
			pool("InClusterIPPool", namespace, "p", "used"): "2", pool("InClusterIPPool", namespace, "p", "free"): "2", pool("InClusterIPPool", namespace, "p", "out_of_range"): "1",
			pool("GlobalInClusterIPPool", "", "g", "used"): "1", pool("GlobalInClusterIPPool", "", "g", "free"): "0",
			pool("InClusterIPPool", namespace, "bound", "free"):                                     "254",
			sample("bound_objects", alloc):                                                          "3",
			sample("waiting_objects", alloc, `reason="PoolExhausted"`):                              "2",
			sample("conflicting_addresses", alloc):                                                  "0",
			sample("wait_duration_seconds_count", alloc):                                            "3",
			sample("bound_objects", bind):                                                           "1",
			sample("waiting_objects", bind, `reason="InvalidClaim"`):                                "1",
			sample("waiting_objects", bind, `reason="PoolNotReady"`):                                "1",
			sample("bound_objects", gate):                                                           "0",
			sample("waiting_objects", gate, `reason="ClaimNotBound"`):                               "1",
			sample("bound_objects", grids):                                                          "1",
			sample("waiting_objects", grids, `reason="PoolNotReady"`):                               "1",
			sample("failing_objects", grids, `kind="IPAddressClaim"`):                               "0",
			sample("writes_total", grids, `kind="IPAddress"`, `outcome="success"`, `verb="create"`): "1",
		}
		for _, name := range clusteripam.Names() {
			want[sample("ready", name)] = "1"
		}
		var metrics string
		err = controlplane.Eventually(t.Context(), patience, func(ctx context.Context) error {
			metrics = c.page(ctx, "/metrics")
			for _, sample := range slices.Sorted(maps.Keys(want)) {
				if !strings.Contains(metrics, "\n"+sample+" "+want[sample]+"\n") {
					return fmt.Errorf("want %s %s", sample, want[sample])
				}
			}
			return nil
		})
		if err != nil {
			var ours []string
			for line := range strings.Lines(metrics) {
				if strings.HasPrefix(line, "cluster_ipam_") && !strings.Contains(line, "_bucket") {
					ours = append(ours, line)
				}
			}
			t.Errorf("%v in\n%s", err, strings.Join(ours, ""))
		}

		if version := `git_version="` + build.Get().GitVersion + `"`; !regexp.MustCompile(`(?m)^multicidr_build_info\{.*` + version + `.*\} 1$`).MatchString(metrics) {
			t.Errorf("no multicidr_build_info has %s", version)
		}

		// The debug pages show these objects, and neither they nor the metrics name a Secret.
		for controller, paths := range map[string]map[string]string{
			alloc: {"state.pools.InClusterIPPool " + namespace + "/p.Claims." + namespace + "/a": `"10.0.0.1"`,
				"state.pools.InClusterIPPool " + namespace + "/p.OutOfRange": "1", "state.pools.GlobalInClusterIPPool g.Waiting": "2"},
			bind:  {"state.Bound": "1", "state.Waiting.InvalidClaim": "1", "state.IPAMs.0.Namespace": `"` + namespace + `"`},
			gate:  {"state.Bound": "0", "state.Waiting.ClaimNotBound": "1"},
			grids: {"state.instances.i.Ready": "true", "state.instances.missing.Ready": "false"},
		} {
			text := c.page(t.Context(), "/debug/controllers/"+controller)
			object := &unstructured.Unstructured{}
			c.do("read "+text, object.UnmarshalJSON([]byte(`{"kind": "x",`+strings.TrimPrefix(text, "{"))))
			for path, value := range paths {
				if is := at(object, path); is != value {
					t.Errorf("%s: %s is %s, want %s in\n%s", controller, path, is, value, text)
				}
			}
			for _, word := range []string{secret, password} {
				if strings.Contains(text+metrics, word) {
					t.Errorf("the pages of %s have %q:\n%s", controller, word, text)
				}
			}
		}
		c.staysIdle()
	})
}

var idle = flag.Duration("idle", 0, "how long nothing changes before it is checked that nothing was written; the acceptance case has ten minutes")

// staysIdle checks that nothing is written while nothing changes, and not by a new process, which looks at everything. For it, objects that come
// after its start are handled after those that were there.
func (c *cluster) staysIdle() {
	c.t.Helper()
	c.until(pools, "p", map[string]string{"status.ipAddresses": `{"free":2,"outOfRange":1,"total":3,"used":2}`})
	c.until(globalPools, "g", map[string]string{"status.ipAddresses": `{"free":0,"outOfRange":0,"total":1,"used":1}`})
	c.until(requests, "e", ready("False", "PoolExhausted"))
	c.until(requests, "f", ready("False", "PoolExhausted"))
	before := c.everything()
	time.Sleep(*idle)
	c.restart()
	c.create(claims, "last", `{spec: {provider: in-cluster, cluster: last, nodeNetwork: {cidr: 10.3.0.0/24}}}`)
	c.create(deployments, "last", `{spec: {template: x, ipamClaim: {ref: last}}}`)
	c.request("last", "x")
	c.create(requests, "last-too", `{spec: {poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: last}}}`)
	c.until(deployments, "last", map[string]string{"spec.config.ipamEnabled": "true"})
	for _, name := range []string{"last", "last-too"} {
		c.until(requests, name, ready("True", "Ready"))
	}
	after := c.everything()
	for name, was := range before {
		if is := after[name]; is != was {
			c.t.Errorf("%s was written without a reason:\n%s\n%s", name, was, is)
		}
	}
}

// everything returns all objects of Cluster IPAM, as JSON, by kind and name.
func (c *cluster) everything() map[string]string {
	c.t.Helper()
	all := map[string]string{}
	for resource, kind := range kinds {
		list, err := c.of(resource).List(c.t.Context(), metav1.ListOptions{})
		c.do("list "+kind, err)
		for _, object := range list.Items {
			all[kind+" "+object.GetName()] = asJSON(object.Object)
		}
	}
	return all
}

// page is a page of the program.
func (c *cluster) page(ctx context.Context, path string) string {
	c.t.Helper()
	code, body, err := c.manager.Get(ctx, path)
	if err != nil || code != http.StatusOK {
		c.t.Fatalf("GET %s: %d %s, %v", path, code, body, err)
	}
	return string(body)
}
