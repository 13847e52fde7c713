package move

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// world is two management clusters that share an Infoblox.
type world struct {
	*testing.T
	source, target *management
	ctl            *clusterctl
	grid           *grid
	owners         map[string]string // the start of a claim's metadata, by the second part of its name
}

// pool is a pool that the tests have.
type pool struct {
	name, content string
	of            schema.GroupVersionResource
	// creates is another object, which makes controllers create the pool.
	creates schema.GroupVersionResource
	// free is how many addresses it has more than four.
	free int
}

var allPools = []pool{
	{name: "p", of: pools, content: `{spec: {addresses: [10.1.0.10-10.1.0.15], prefix: 24, gateway: 10.1.0.1}}`, free: 2},
	{name: "g", of: globalPools, content: `{spec: {addresses: ["fd00::10-fd00::15"], prefix: 64}}`, free: 2},
	{name: "i", of: infoblox, content: `{spec: {instance: {name: grid}, subnets: [{cidr: 10.3.0.0/29, gateway: 10.3.0.1}]}}`, free: 1},
	{name: "d-ipam", of: pools, creates: deployments, content: `{spec: {template: x, ipamClaim: {spec: {provider: in-cluster, nodeNetwork: {cidr: 10.4.0.0/29, gateway: 10.4.0.1}}}}}`, free: 1},
	{name: "x", of: infoblox, creates: ipamClaims, content: `{spec: {provider: ipam-infoblox, nodeNetwork: {cidr: 10.5.0.0/29, gateway: 10.5.0.1}}}`, free: 1},
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, grid: newGrid(t)}
	w.source, w.target = newManagement(t, "source", w.grid), newManagement(t, "target", w.grid)
	w.ctl = newClusterctl(t, nil, w.source, w.target)
	w.cluster()
	return w
}

// cluster creates a Cluster with a Machine in the source.
func (w *world) cluster() {
	c := w.source
	edge := c.create(clusters, "edge", `{spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: X, name: edge}, controlPlaneEndpoint: {host: 127.0.0.1, port: 6443}}}`)
	c.patch(clusters, "edge", `{status: {initialization: {infrastructureProvisioned: true, controlPlaneInitialized: true}, conditions: [
		{type: ControlPlaneInitialized, status: "True", reason: Initialized, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}]}}`, "status")
	owner := func(o *unstructured.Unstructured) string {
		return fmt.Sprintf(`ownerReferences: [{apiVersion: cluster.x-k8s.io/v1beta2, kind: %s, name: %s, uid: %s}]`, o.GetKind(), o.GetName(), o.GetUID())
	}
	machine := c.create(machines, "m0", fmt.Sprintf(`{metadata: {%s}, spec: {clusterName: edge, bootstrap: {dataSecretName: x}, infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: X, name: m0}}}`, owner(edge)))
	c.patch(machines, "m0", `{status: {nodeRef: {name: m0}}}`, "status")
	// The Machine's claims of two Infoblox pools share a host record.
	w.owners = map[string]string{
		"cluster": owner(edge), "machine": owner(machine) + `, annotations: {ipam.cluster.x-k8s.io/hostname: m0}`, "named": "", "free": "",
	}
}

// pool creates a pool.
func (p pool) create(c *management) {
	c.Helper()
	resource, name := p.of, p.name
	if p.creates != (schema.GroupVersionResource{}) {
		resource, name = p.creates, strings.TrimSuffix(p.name, "-ipam")
	}
	c.create(resource, name, p.content)
}

// claim creates a claim of a pool: <pool>-cluster is owned by the Cluster, <pool>-machine by its Machine, <pool>-named only names the Cluster,
// and all others have nothing to do with it.
func (w *world) claim(c *management, p pool, what, moreMetadata string) (name string) {
	w.Helper()
	name = p.name + "-" + what
	metadata, known := w.owners[what]
	var clusterName string
	if known && what != "free" {
		clusterName = "clusterName: edge, "
	}
	c.create(claims, name, fmt.Sprintf(`{metadata: {%s}, spec: {%spoolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: %s, name: %s}}}`,
		strings.Trim(metadata+", "+moreMetadata, ", "), clusterName, kinds[p.of], p.name))
	return name
}

// settled waits until claims of the source have addresses, and returns these with the host records.
func (w *world) settled(names ...string) (told map[string]string, records []record) {
	w.Helper()
	want := map[string]string{}
	for _, name := range names {
		want[name] = ""
	}
	told = w.source.untilTold(want)
	if w.Failed() {
		w.FailNow()
	}
	w.grid.forget()
	return told, w.grid.records()
}

// unique reports two claims of a cluster with one address, and claims without a host record.
func (w *world) unique(c *management) {
	w.Helper()
	told, err := c.told(w.Context())
	c.do("list claims", err)
	holders, records := map[string]string{}, w.grid.held()
	for _, name := range slices.Sorted(maps.Keys(told)) {
		address := told[name]
		if other := holders[address]; other != "" {
			w.Errorf("%s: %s and %s both have %s", c.name, other, name, address)
		}
		holders[address] = name
		if (name[0] == 'i' || name[0] == 'x') && records[address] == "" {
			w.Errorf("%s: %s has been told %s, which no host record has", c.name, name, address)
		}
	}
}

// fill creates claims in the target until a pool is full. Addresses that others have are not among what they get.
func (w *world) fill(p pool) {
	w.Helper()
	want := map[string]bool{}
	for i := range p.free + 1 {
		want[w.claim(w.target, p, fmt.Sprintf("new-%d", i), "")] = true
	}
	eventually(w.T, fmt.Sprintf("the target fills the pool %s", p.name), func(ctx context.Context) error {
		told, err := w.target.told(ctx)
		if err != nil {
			return err
		}
		var waits []string
		for name := range want {
			if told[name] == "" {
				waits = append(waits, name)
			}
		}
		if len(waits) != 1 {
			return fmt.Errorf("%d of %d claims wait, want 1: %s", len(waits), len(want), w.target.summaries(ctx, waits))
		}
		claim, err := w.target.list(ctx, claims)
		if err != nil {
			return err
		}
		if _, reason, message := condition(claim[waits[0]], "Ready"); reason != "PoolExhausted" {
			return fmt.Errorf("%s waits with the reason %q, want PoolExhausted: %s", waits[0], reason, message)
		}
		return nil
	})
	w.unique(w.target)
}

// emptied deletes all claims of the target: everything is released.
func (w *world) emptied() {
	w.Helper()
	all, err := w.target.list(w.Context(), claims)
	w.target.do("list claims", err)
	for name := range all {
		w.target.delete(claims, name)
	}
	w.target.untilGone(none, claims, addresses)
	if left := w.grid.records(); len(left) > 0 {
		w.Errorf("all claims are gone, and Infoblox still has %+v", left)
	}
}

func (c *management) summaries(ctx context.Context, names []string) string {
	var all []string
	for _, name := range names {
		all = append(all, name+" "+c.summary(ctx, name))
	}
	return strings.Join(all, "; ")
}

// inOne waits until each of the claims is in exactly one of the clusters, and returns those that are in the target.
func (w *world) inOne(names ...string) (moved []string) {
	w.Helper()
	eventually(w.T, "claims that were not answered", func(ctx context.Context) error {
		moved = nil
		inSource, err1 := w.source.list(ctx, claims)
		inTarget, err2 := w.target.list(ctx, claims)
		errs := []error{err1, err2}
		for _, name := range names {
			if (inSource[name] == nil) == (inTarget[name] == nil) {
				errs = append(errs, fmt.Errorf("%s is in the source: %t, and in the target: %t", name, inSource[name] != nil, inTarget[name] != nil))
			}
			if inTarget[name] != nil {
				moved = append(moved, name)
			}
		}
		return errors.Join(errs...)
	})
	return moved
}
