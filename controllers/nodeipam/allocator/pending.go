package allocator

import (
	"iter"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pending"
)

type pendingNode struct {
	uid      types.UID
	refusals []pending.Refusal // the first of them, pending.Most at most
	last     ipam.Candidate    // the last of these
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
	if _, awaits := b.awaiting[node.Name]; ok || awaits {
		return r, ok, false // in a moment it has blocks, or a reason that stays
	}
	w := b.pending[node.Name]
	before, now := w.said.handed, pending.Gist(w.refusals, len(b.pools))
	if before == now {
		return r, false, false
	}
	w.said.handed = now
	b.pending[node.Name] = w
	return r, false, true
}

// explain notes why a Node stays pending, and that it needs a recheck if that is news. awaits is the name of the pool whose finalizer it waits
// for; empty if there is none.
func (b *State) explain(node *v1.Node, awaits string) {
	var refusals []pending.Refusal
	for p := range b.candidates.Of(node) {
		refusal := pending.Explain(p, b.Exhausted())
		if refusals = append(refusals, refusal); len(refusal.Full) > 0 {
			b.told[p.Name] = refusal.Full
		}
		if p.Name == awaits || len(refusals) == pending.Most {
			break
		}
	}
	before, known := b.pending[node.Name]
	now := pendingNode{uid: node.UID, refusals: refusals, why: pending.ReasonOf(len(b.pools), refusals), said: before.said}
	if len(refusals) > 0 {
		now.last = refusals[len(refusals)-1].Pool.For(node)
	}
	b.pending[node.Name] = now
	news := known && pending.Gist(before.refusals, len(b.pools)) != pending.Gist(refusals, len(b.pools)) || b.awaiting[node.Name] != awaits
	if delete(b.awaiting, node.Name); awaits != "" {
		b.awaiting[node.Name] = awaits
	}
	if news {
		b.recheck.Add(node.Name)
	}
}

// tells reports whether p may be among the reasons why the Node of this name is pending: only the pools that come first are.
func (b *State) tells(name string, p *clustercidr.Pool) bool {
	w, ok := b.pending[name]
	return ok && (len(w.refusals) < pending.Most || ipam.Compare(p.First(), w.last) <= 0)
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
	if _, awaits := b.awaiting[name]; awaits {
		w.said.handed = "" // After that wait the reasons, if any, are passed on again.
		b.pending[name] = w
		return whyPending{}, false
	}
	why = whyPending{w.uid, pending.NotAvailable(w.refusals, len(b.pools)), pending.Gist(w.refusals, len(b.pools))}
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
	p, ok = b.pools[b.awaiting[name]]
	return p, ok
}

// AwaitingFinalizer yields the names of the pools that can allocate once they have their finalizer.
func (b *State) AwaitingFinalizer() iter.Seq[string] { return maps.Keys(b.awaitingFinalizer) }
