package nodeipam

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
)

type waitingNode struct {
	uid      types.UID
	since    time.Time // the Node's creation
	refusals []refusal
	why      waitReason
	said     said // in events about it
}

// said is what the events on a pending Node said about why it is pending: the reasons, without what changes all the time.
type said struct {
	handed string // over to the announcer
	stored string // in the last event
}

// waitReason is why a Node waits, in one word. There are few, and all of them are always shown.
type waitReason string

const (
	waitNoClusterCIDR waitReason = "NoClusterCIDR"
	waitNotSelected   waitReason = "NotSelected"
	waitFull          waitReason = "Full"
)

var waitReasons = []waitReason{waitNoClusterCIDR, waitNotSelected, waitFull,
	waitReason(ipam.Pending.String()), waitReason(ipam.Disabled.String()), waitReason(ipam.Terminating.String()), waitReason(ipam.Invalid.String())}

// waitReasonOf sums up why pools refused a Node. Of several reasons it is that of the first pool that could be made to serve it: one
// that is full needs space, one in another state somebody's hand.
func waitReasonOf(pools int, refusals []refusal) waitReason {
	switch {
	case pools == 0:
		return waitNoClusterCIDR
	case len(refusals) == 0:
		return waitNotSelected
	case slices.ContainsFunc(refusals, func(r refusal) bool { return r.pool.State == ipam.Enabled }):
		return waitFull
	default:
		return waitReason(refusals[0].pool.State.String())
	}
}

// serve returns the Node's reservation. If there is none because no ClusterCIDR can serve the Node, say is whether there is something new to
// say about why: once for the same reasons.
func (b *book) serve(node *v1.Node) (r reservation, ok, say bool) {
	r, _, ok = b.reserve(node)
	w := b.waiting[node.Name]
	if ok || w.soon() {
		return r, ok, false // it serves, or says why not, in a moment
	}
	before, now := w.said.handed, w.reasons(len(b.pools))
	if before == now {
		return r, false, false
	}
	w.said.handed = now
	b.waiting[node.Name] = w
	return r, false, true
}

// soon reports whether the Node is about to be served.
func (w waitingNode) soon() bool {
	n := len(w.refusals)
	return n > 0 && w.refusals[n-1].pool.aboutToServe()
}

// reasons is why the Node is pending, for said: another text whenever notAvailable says something else.
func (w waitingNode) reasons(pools int) string {
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
	pool     *pool
	full     []ipam.Family // if State is Enabled
	cover    string        // which Nodes hold a whole range of the pool
	used     bool          // Nodes hold something in its full ranges
	excludes bool          // its full ranges have exclusions, and what nobody holds may be in them
}

// explain enters in refusals which Nodes cover the ranges of their pools, and whether there are exclusions. Which of those matter changes with
// what others hold, and a Node that waits is not looked at for that; the condition Ready says it.
func (b *book) explain(refusals []refusal) {
	for i, refused := range refusals {
		var texts []string
		for _, r := range refused.pool.Ranges {
			if h, covered := b.coveredBy(r); covered {
				texts = append(texts, fmt.Sprintf("%s holds %v", b.nameOf(h.Owner), h.Prefix))
			}
		}
		refusals[i].cover = listed(texts)
		refusals[i].excludes = excludes(refused.pool, refused.full)
		refusals[i].used = b.used(refused.pool, refused.full)
	}
}

func excludes(p *pool, full []ipam.Family) bool {
	return slices.ContainsFunc(p.Ranges, func(r ipam.Range) bool { return slices.Contains(full, r.Family()) && p.Excluded.Overlaps(r.Prefix) })
}

// reasons writes why pools refused a Node, the same text for the same reasons.
func reasons(refusals []refusal) string {
	var texts []string
	for _, r := range refusals {
		texts = append(texts, r.String())
	}
	return listed(texts)
}

func (r refusal) String() string {
	switch {
	case r.pool.State != ipam.Enabled && r.pool.problem != "":
		return fmt.Sprintf("%s is %s (%s)", r.pool.Name, strings.ToLower(r.pool.State.String()), r.pool.problem)
	case r.pool.State != ipam.Enabled:
		return fmt.Sprintf("%s is %s", r.pool.Name, strings.ToLower(r.pool.State.String()))
	}
	why := families(r.full)
	if r.cover != "" {
		why += "; " + r.cover
	}
	if r.excludes {
		why += "; it has spec.excludedCIDRs"
	}
	return fmt.Sprintf("%s is full (%s)", r.pool.Name, why)
}

// notAvailable says why a Node waits and what to do.
func notAvailable(refusals []refusal, pools int) string {
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
	if slices.ContainsFunc(refusals, func(r refusal) bool { return r.pool.State == ipam.Disabled && !r.pool.superseded }) {
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
	uid              types.UID
	message, reasons string // reasons is the message without what changes all the time
}

// whyPending returns why the Node of this name is pending. It is due if the last event that was stored about it gave other reasons.
func (b *book) whyPending(name string) (why whyPending, due bool) {
	w, ok := b.waiting[name]
	if !ok {
		return whyPending{}, false
	}
	if w.soon() {
		w.said.handed = "" // Once that is over, there is something to say or not, and it is handed over anew.
		b.waiting[name] = w
		return whyPending{}, false
	}
	why = whyPending{w.uid, notAvailable(w.refusals, len(b.pools)), w.reasons(len(b.pools))}
	return why, why.reasons != w.said.stored
}

// saidWhyPending notes that an event with these reasons is stored about a Node.
func (b *book) saidWhyPending(name string, uid types.UID, reasons string) {
	if w, ok := b.waiting[name]; ok && w.uid == uid {
		w.said.stored = reasons
		b.waiting[name] = w
	}
}

// awaits returns the pool for whose finalizer the Node of this name waits.
func (b *book) awaits(name string) (p *pool, ok bool) {
	w := b.waiting[name]
	if !w.soon() {
		return nil, false
	}
	return w.refusals[len(w.refusals)-1].pool, true
}

// awaitingFinalizer yields the names of the pools that can serve once they have their finalizer.
func (b *book) awaitingFinalizer() iter.Seq[string] { return maps.Keys(b.soon) }
