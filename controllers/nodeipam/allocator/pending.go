package allocator

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/text"
)

type pendingNode struct {
	uid      types.UID
	since    time.Time // the Node's creation
	refusals []refusal
	why      PendingReason
	said     said // in events about it
}

// said is what the events on a pending Node said about why it is pending: the reasons, without what changes all the time.
type said struct {
	handed string // over to the announcer
	stored string // in the last event
}

// PendingReason is why a Node waits, in one word. There are few, and all of them are always shown.
type PendingReason string

const (
	pendingNoClusterCIDR PendingReason = "NoClusterCIDR"
	pendingNotSelected   PendingReason = "NotSelected"
	pendingFull          PendingReason = "Full"
)

var PendingReasons = []PendingReason{pendingNoClusterCIDR, pendingNotSelected, pendingFull,
	PendingReason(ipam.Pending.String()), PendingReason(ipam.Disabled.String()), PendingReason(ipam.Terminating.String()), PendingReason(ipam.Invalid.String())}

// waitReasonOf sums up why pools refused a Node. Of several reasons it is that of the first pool that could be made to serve it: one
// that is full needs space, one in another state somebody's hand.
func pendingReasonOf(pools int, refusals []refusal) PendingReason {
	switch {
	case pools == 0:
		return pendingNoClusterCIDR
	case len(refusals) == 0:
		return pendingNotSelected
	case slices.ContainsFunc(refusals, func(r refusal) bool { return r.pool.State == ipam.Enabled }):
		return pendingFull
	default:
		return PendingReason(refusals[0].pool.State.String())
	}
}

// Allocate returns the Node's reservation. If there is none because no ClusterCIDR can serve the Node, say is whether there is something new to
// say about why: once for the same reasons.
func (b *State) Allocate(node *v1.Node) (r Reservation, ok, say bool) {
	r, _, ok = b.Reserve(node)
	w := b.pending[node.Name]
	if ok || w.awaitsFinalizer() {
		return r, ok, false // it serves, or says why not, in a moment
	}
	before, now := w.said.handed, w.reasons(len(b.pools))
	if before == now {
		return r, false, false
	}
	w.said.handed = now
	b.pending[node.Name] = w
	return r, false, true
}

// soon reports whether the Node is about to be served.
func (w pendingNode) awaitsFinalizer() bool {
	n := len(w.refusals)
	return n > 0 && w.refusals[n-1].pool.AwaitsFinalizer()
}

// reasons is why the Node is pending, for said: another text whenever notAvailable says something else.
func (w pendingNode) reasons(pools int) string {
	switch {
	case pools == 0: // whatever the last one was that is gone
		return "no ClusterCIDR"
	case len(w.refusals) == 0:
		return "no ClusterCIDR that selects it"
	default:
		return reasons(w.refusals)
	}
}

// refusal is why one pool that matches a Node cannot serve it.
type refusal struct {
	pool     *clustercidr.Pool
	full     []ipam.Family // if State is Enabled
	cover    string        // which Nodes hold a whole range of the pool
	used     bool          // Nodes hold something in its full ranges
	excludes bool          // its full ranges have exclusions, and what nobody holds may be in them
}

// explain enters in refusals which Nodes cover the ranges of their pools, and whether there are exclusions. Which of those matter changes with
// what others hold, and a Node that waits is not looked at for that; the condition Ready says it.
func (b *State) explain(refusals []refusal) {
	for i, refused := range refusals {
		var texts []string
		for _, r := range refused.pool.Ranges {
			if h, covered := b.coveredBy(r); covered {
				texts = append(texts, fmt.Sprintf("%s holds %v", b.NameOf(h.Owner), h.Prefix))
			}
		}
		refusals[i].cover = text.Listed(texts)
		refusals[i].excludes = excludes(refused.pool, refused.full)
		refusals[i].used = b.used(refused.pool, refused.full)
	}
}

func excludes(p *clustercidr.Pool, full []ipam.Family) bool {
	return slices.ContainsFunc(p.Ranges, func(r ipam.Range) bool { return slices.Contains(full, r.Family()) && p.Excluded.Overlaps(r.Prefix) })
}

// reasons writes why pools refused a Node, the same text for the same reasons.
func reasons(refusals []refusal) string {
	var texts []string
	for _, r := range refusals {
		texts = append(texts, r.String())
	}
	return text.Listed(texts)
}

func (r refusal) String() string {
	switch {
	case r.pool.State != ipam.Enabled && r.pool.Problem != "":
		return fmt.Sprintf("%s is %s (%s)", r.pool.Name, strings.ToLower(r.pool.State.String()), r.pool.Problem)
	case r.pool.State != ipam.Enabled:
		return fmt.Sprintf("%s is %s", r.pool.Name, strings.ToLower(r.pool.State.String()))
	}
	why := text.Families(r.full)
	if r.cover != "" {
		why += "; " + r.cover
	}
	if r.excludes {
		why += "; it has spec.excludedCIDRs"
	}
	return fmt.Sprintf("%s is full (%s)", r.pool.Name, why)
}

// NotAvailable says why a Node waits and what to do.
func NotAvailable(refusals []refusal, pools int) string {
	switch {
	case pools == 0:
		return "No ClusterCIDR exists. Create one that selects this Node."
	case len(refusals) == 0:
		return fmt.Sprintf("None of the %d ClusterCIDRs selects this Node. Change its labels or create a ClusterCIDR that selects it.", pools)
	default:
		return fmt.Sprintf("No ClusterCIDR that selects this Node can serve it: %s. %s.", reasons(refusals), wayOut(refusals))
	}
}

// wayOut says what to do about refusals: besides another ClusterCIDR, only what helps.
func wayOut(refusals []refusal) string {
	ways := []string{"Create another one"}
	if slices.ContainsFunc(refusals, func(r refusal) bool { return r.pool.State == ipam.Disabled && !r.pool.Superseded }) {
		ways = append(ways, "set spec.allocation: Enabled")
	}
	if slices.ContainsFunc(refusals, func(r refusal) bool { return r.pool.State == ipam.Enabled && r.used }) {
		ways = append(ways, "delete Nodes that are not needed")
	}
	if slices.ContainsFunc(refusals, func(r refusal) bool { return r.excludes }) {
		ways = append(ways, "shorten spec.excludedCIDRs where the condition Ready names some")
	}
	return strings.Join(ways, ", or ")
}

// whyPending is what there is to say about a Node that no ClusterCIDR can serve now.
type whyPending struct {
	UID              types.UID
	Message, Reasons string // reasons is the message without what changes all the time
}

// WhyPending returns why the Node of this name is pending. It is due if the last event that was stored about it gave other reasons.
func (b *State) WhyPending(name string) (why whyPending, due bool) {
	w, ok := b.pending[name]
	if !ok {
		return whyPending{}, false
	}
	if w.awaitsFinalizer() {
		w.said.handed = "" // Once that is over, there is something to say or not, and it is handed over anew.
		b.pending[name] = w
		return whyPending{}, false
	}
	why = whyPending{w.uid, NotAvailable(w.refusals, len(b.pools)), w.reasons(len(b.pools))}
	return why, why.Reasons != w.said.stored
}

// SaidWhyPending notes that an event with these reasons is stored about a Node.
func (b *State) SaidWhyPending(name string, uid types.UID, reasons string) {
	if w, ok := b.pending[name]; ok && w.uid == uid {
		w.said.stored = reasons
		b.pending[name] = w
	}
}

// AwaitsFinalizerOf returns the pool for whose finalizer the Node of this name waits.
func (b *State) AwaitsFinalizerOf(name string) (p *clustercidr.Pool, ok bool) {
	w := b.pending[name]
	if !w.awaitsFinalizer() {
		return nil, false
	}
	return w.refusals[len(w.refusals)-1].pool, true
}

// AwaitingFinalizer yields the names of the pools that can serve once they have their finalizer.
func (b *State) AwaitingFinalizer() iter.Seq[string] { return maps.Keys(b.awaitingFinalizer) }
