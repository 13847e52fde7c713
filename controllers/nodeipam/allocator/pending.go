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
	"github.com/multicidr/controller-manager/controllers/text"
)

type pendingNode struct {
	uid      types.UID
	since    time.Time // the Node's creation
	refusals []refusal
	why      PendingReason
	said     said // in events about it
}

// said records the reasons given in events on a pending Node, without the details that change all the time.
type said struct {
	handed string // passed to the announcer
	stored string // in the last stored event
}

// PendingReason is why a Node is pending, in one word. There are few values, and metrics always show all of them.
type PendingReason string

const (
	pendingNoClusterCIDR PendingReason = "NoClusterCIDR"
	pendingNotSelected   PendingReason = "NotSelected"
	pendingFull          PendingReason = "Full"
	PendingMissed        PendingReason = "ChangesMissed" // That nothing is chosen for it, and why, the State does not know.
)

var PendingReasons = []PendingReason{pendingNoClusterCIDR, pendingNotSelected, pendingFull,
	PendingReason(ipam.Pending.String()), PendingReason(ipam.Disabled.String()), PendingReason(ipam.Terminating.String()), PendingReason(ipam.Invalid.String()), PendingMissed}

// pendingReasonOf sums up why pools refused a Node. It is Full if any pool only lacks space; otherwise it is the state of the first pool,
// which somebody has to change.
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
	return n > 0 && w.refusals[n-1].pool.AwaitsFinalizer()
}

// reasons is why the Node is pending, as kept in said. It changes whenever NotAvailable says something else.
func (w pendingNode) reasons(pools int) string {
	switch {
	case pools == 0: // no matter which ClusterCIDR was the last to go
		return "no ClusterCIDR"
	case len(w.refusals) == 0:
		return "no ClusterCIDR that selects it"
	default:
		return reasons(w.refusals)
	}
}

// refusal is why a pool that matches a Node cannot serve it.
type refusal struct {
	pool     *clustercidr.Pool
	full     []ipam.Family // if the pool's State is Enabled
	cover    string        // Nodes that hold a whole range of the pool
	used     bool          // Nodes hold blocks in its full ranges
	excludes bool          // its full ranges have exclusions, which may contain unused blocks
}

// explain records in refusals which Nodes cover the pools' ranges, and whether there are exclusions. Which exclusions matter depends on
// what others hold. A pending Node is not rechecked for that; the condition Ready reports it.
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

// reasons formats why pools refused a Node. Equal reasons give equal text.
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

// NotAvailable says why a Node is pending and what to do about it.
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

// wayOut says what to do about refusals: create another ClusterCIDR, or whatever else would help.
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
	why = whyPending{w.uid, NotAvailable(w.refusals, len(b.pools)), w.reasons(len(b.pools))}
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
	return w.refusals[len(w.refusals)-1].pool, true
}

// AwaitingFinalizer yields the names of the pools that can allocate once they have their finalizer.
func (b *State) AwaitingFinalizer() iter.Seq[string] { return maps.Keys(b.awaitingFinalizer) }
