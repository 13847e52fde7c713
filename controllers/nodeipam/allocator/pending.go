package allocator

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pending"
	"github.com/multicidr/controller-manager/controllers/text"
)

type pendingNode struct {
	uid      types.UID
	refusals []pending.Refusal
	why      pending.Reason
	said     said // in events about it
}

// said records the reasons given in events on a pending Node, without the details that change all the time.
type said struct {
	handed string // passed to the announcer
	stored string // in the last stored event
}

// Allocate returns the Node's reservation. If no ClusterCIDR can serve the Node, say is whether the reasons are new and need an event.
func (b *State) Allocate(node *v1.Node) (r Reservation, ok, say bool) {
	r, _, ok = b.Reserve(node)
	w := b.pending[node.Name]
	if ok || w.awaitsFinalizer() {
		return r, ok, false // in a moment it has blocks, or a reason that stays
	}
	before, now := w.said.handed, w.reasons(len(b.pools))
	if before == now {
		return r, false, false
	}
	w.said.handed = now
	b.pending[node.Name] = w
	return r, false, true
}

// awaitsFinalizer reports whether the Node only waits for a pool to get its finalizer.
func (w pendingNode) awaitsFinalizer() bool {
	n := len(w.refusals)
	return n > 0 && w.refusals[n-1].Pool.AwaitsFinalizer()
}

// reasons is why the Node is pending, as kept in said. It changes whenever NotAvailable says something else.
func (w pendingNode) reasons(pools int) string {
	switch {
	case pools == 0: // no matter which ClusterCIDR was the last to go
		return "no ClusterCIDR"
	case len(w.refusals) == 0:
		return "no ClusterCIDR that selects it"
	default:
		return pending.Text(w.refusals)
	}
}

// explain records in refusals which Nodes cover the pools' ranges, and whether there are exclusions. Which exclusions matter depends on
// what others hold. A pending Node is not rechecked for that; the condition Ready reports it.
func (b *State) explain(refusals []pending.Refusal) {
	for i, refused := range refusals {
		var texts []string
		for _, r := range refused.Pool.Ranges {
			if h, covered := b.full().CoveredBy(r); covered {
				texts = append(texts, fmt.Sprintf("%s holds %v", b.NameOf(h.Owner), h.Prefix))
			}
		}
		refusals[i].Cover = text.Listed(texts)
		refusals[i].Excludes = excludes(refused.Pool, refused.Full)
		refusals[i].Used = b.full().Used(refused.Pool, refused.Full)
	}
}

func excludes(p *clustercidr.Pool, full []ipam.Family) bool {
	return slices.ContainsFunc(p.Ranges, func(r ipam.Range) bool { return slices.Contains(full, r.Family()) && p.Excluded.Overlaps(r.Prefix) })
}

// whyPending is what an event says about a pending Node.
type whyPending struct {
	UID              types.UID
	Message, Reasons string // reasons is the message without the details that change all the time
}

// WhyPending returns why the Node of this name is pending. due is whether the last stored event about it gave other reasons.
func (b *State) WhyPending(name string) (why whyPending, due bool) {
	w, ok := b.pending[name]
	if !ok {
		return whyPending{}, false
	}
	if w.awaitsFinalizer() {
		w.said.handed = "" // After that wait the reasons, if any, are passed on again.
		b.pending[name] = w
		return whyPending{}, false
	}
	why = whyPending{w.uid, pending.NotAvailable(w.refusals, len(b.pools)), w.reasons(len(b.pools))}
	return why, why.Reasons != w.said.stored
}

// SaidWhyPending notes that an event with these reasons about the Node is stored. After other ones, those that stay are said again.
func (b *State) SaidWhyPending(name string, uid types.UID, reasons string) {
	if w, ok := b.pending[name]; ok && w.uid == uid {
		w.said = said{handed: reasons, stored: reasons}
		b.pending[name] = w
	}
}

// AwaitsFinalizerOf returns the pool whose finalizer the Node of this name waits for.
func (b *State) AwaitsFinalizerOf(name string) (p *clustercidr.Pool, ok bool) {
	w := b.pending[name]
	if !w.awaitsFinalizer() {
		return nil, false
	}
	return w.refusals[len(w.refusals)-1].Pool, true
}

// AwaitingFinalizer yields the names of the pools that can allocate once they have their finalizer.
func (b *State) AwaitingFinalizer() iter.Seq[string] { return maps.Keys(b.awaitingFinalizer) }
