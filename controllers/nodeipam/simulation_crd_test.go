package nodeipam

import "math/rand/v2"

// The CustomResourceDefinition of ClusterCIDRs goes, with all ClusterCIDRs or, if somebody took its finalizer away by force, without them, which are there
// again when it is applied again. Meanwhile nothing can be read or written of them.

// onClusterCIDRs are moves of users that need the CustomResourceDefinition, beside those that end in -cc.
var onClusterCIDRs = []string{"allocation", "exclude", "write-status", "prioritize"}

var crdMoves = map[string]moveKind{
	"crd-gone": {3, func(w *world, d *rand.Rand) []string {
		if w.server.crdGone {
			return nil
		}
		return []string{oneOf(d, []string{"kept", "lost"})}
	}, func(w *world, a []string) bool {
		if w.server.crdGone {
			return false
		}
		w.server.crdGone = true
		for _, p := range w.processes {
			if c := p.caches[kindClusterCIDR]; c != nil && c.watched() {
				c.gap.Open, c.gap.Count = true, c.gap.Count+1
			}
		}
		if a[0] == "kept" {
			return true
		}
		for _, name := range sortedNames(w.server.objects[kindClusterCIDR]) {
			w.forceClusterCIDR(name)
		}
		return true
	}},
	"crd-back": {60, func(w *world, _ *rand.Rand) []string {
		if !w.server.crdGone {
			return nil
		}
		return []string{}
	}, func(w *world, _ []string) bool {
		was := w.server.crdGone
		w.server.crdGone = false
		return was
	}},
}

// serves reports whether the API server has objects of a kind.
func (w *world) serves(k kind) bool { return k != kindClusterCIDR || !w.server.crdGone }
