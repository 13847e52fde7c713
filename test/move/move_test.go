package move

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// moving are the kinds whose objects leave the source.
var moving = []schema.GroupVersionResource{deployments, ipamClaims, ipams, claims, addresses, pools, infoblox, machines, clusters}

// whats are the claims that each pool has.
var whats = []string{"cluster", "machine", "named", "free"}

// TestMove moves a cluster whose claims all have addresses. Before the first object is deleted in the source, the target has told the claims
// that belong to no paused Cluster: for a while both have them.
func TestMove(t *testing.T) {
	w := newWorld(t)
	told, records := w.everything()
	w.ctl.beforeDeletes = func() {
		early := maps.Clone(told)
		maps.DeleteFunc(early, func(name, _ string) bool { return !strings.HasSuffix(name, "-free") })
		w.target.untilTold(early)
	}
	w.target.do("clusterctl move", w.ctl.move(t.Context(), w.source, w.target))
	w.moved(told, records)
}

// TestMoveAgain interrupts a move when everything was copied, and begins again.
func TestMoveAgain(t *testing.T) {
	w := newWorld(t)
	told, records := w.everything()
	ctx, cancel := context.WithCancel(t.Context())
	w.ctl.beforeDeletes = cancel
	if err := w.ctl.move(ctx, w.source, w.target); err == nil {
		t.Fatal("clusterctl move was interrupted, and ends well")
	}
	w.source.patch(clusters, "edge", `{spec: {paused: null}}`) // clusterctl demands it
	w.target.do("clusterctl move", w.ctl.move(t.Context(), w.source, w.target))
	w.moved(told, records)
}

// everything creates all pools in the source, each with its claims, and waits for their addresses.
func (w *world) everything() (told map[string]string, records []record) {
	w.Helper()
	var names []string
	for _, p := range allPools {
		p.create(w.source)
		for _, what := range whats {
			names = append(names, w.claim(w.source, p, what, ""))
		}
	}
	w.source.untilCondition(deployments, "d", "IPAMReady", "True", "")
	return w.settled(names...)
}

// moved is what holds when the claims of all pools were moved.
func (w *world) moved(told map[string]string, records []record) {
	w.target.untilTold(told)
	w.source.untilGone(ofGlobalPool, moving...)
	w.grid.untouched(records)
	for _, name := range []string{"d-ipam", "x"} {
		w.target.untilBound(name)
	}
	w.target.untilCondition(deployments, "d", "IPAMReady", "True", "")

	// A Global pool stays where it was, and knows what is used elsewhere.
	global := allPools[1]
	name := w.claim(w.source, global, "another", "")
	if address := w.source.untilTold(map[string]string{name: ""})[name]; slices.Contains(slices.Collect(maps.Values(told)), address) {
		w.Errorf("source: a new claim gets %s, which a machine of the target has", address)
	}
	// Its copy allocates nothing until somebody says that the other one is not used any more.
	name = w.claim(w.target, global, "another", "")
	w.target.untilCondition(globalPools, global.name, "Ready", "False", "PoolWasCopied")
	w.target.untilCondition(claims, name, "Ready", "False", "PoolNotReady")
	w.target.delete(claims, name)
	w.target.confirmCopy(global.name)

	for _, p := range allPools {
		w.fill(p)
	}
	w.emptied()
}

// ofGlobalPool says which objects clusterctl leaves in the source.
func ofGlobalPool(o *unstructured.Unstructured) bool {
	return o.GetKind() == kinds[addresses] && text(o, "spec", "poolRef", "kind") == kinds[globalPools]
}

// untilBound waits until a ClusterIPAMClaim is bound.
func (c *management) untilBound(name string) {
	c.Helper()
	eventually(c.T, c.name, func(ctx context.Context) error {
		claim, err := c.of(ipamClaims).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if bound, _, _ := unstructured.NestedBool(claim.Object, "status", "bound"); !bound {
			return fmt.Errorf("the ClusterIPAMClaim %s is not bound: %v", name, claim.Object["status"])
		}
		return nil
	})
}

// confirmCopy says that a Global pool which was copied may allocate.
func (c *management) confirmCopy(name string) {
	c.Helper()
	c.patch(globalPools, name, `{metadata: {annotations: {networking.x-k8s.io/pool-uid: null}}}`)
}
