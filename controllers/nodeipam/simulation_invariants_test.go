package nodeipam

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/events"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	"github.com/multicidr/controller-manager/controllers/queues"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// The invariants of the design, by their numbers:
//
//  1. No two live Nodes get overlapping blocks from us.
//  2. A block is not reused before its Node object is gone.
//  3. After quiescence: free = total - held - excluded; nothing leaks.
//  4. A ClusterCIDR that is disabled or being deleted never allocates.
//  5. Its finalizer goes when, and only when, no Node holds a block from it.
//  6. podCIDRs are never changed once set.
//  7. Service ranges and ranges held by foreign podCIDRs are never handed out, nor what a ClusterCIDR excludes by itself.
//  8. A Node that some pool can serve is served; no Node waits for a timer when space, a pool or a label appears.
//
// What others do is known to a process only once it has looked at it: a Node that registers with podCIDRs of its own while a
// PATCH with the same block is on its way makes a conflict, which nobody can prevent. So a choice is judged by what its
// process had seen, and a write that arrives by all that our processes did.

func overlap(a, b []netip.Prefix) bool {
	return slices.ContainsFunc(a, func(p netip.Prefix) bool {
		return slices.ContainsFunc(b, p.Overlaps)
	})
}

// assigns judges the first podCIDRs of a Node on their arrival at the server.
func (w *world) assigns(node *v1.Node) {
	blocks := prefixes(node.Spec.PodCIDRs)
	w.invariant1And2(node, blocks)
	w.invariant4And5(node)
	if overlap(blocks, w.serviceRanges) {
		w.violate("invariant 7", "Node %s gets %v, in the service range %v", node.Name, blocks, w.serviceRanges)
	}
	w.assigned[node.UID] = node.Annotations[networkingv1.AnnotationClusterCIDR]
	w.cover("podCIDRs assigned")
	if len(blocks) == 2 && blocks[0].Addr().Is6() {
		w.cover("podCIDRs with IPv6 first assigned")
	}
}

func (w *world) invariant1And2(node *v1.Node, blocks []netip.Prefix) {
	for _, o := range w.server.objects[kindNode] {
		other := o.(*v1.Node)
		if other.UID == node.UID || !overlap(blocks, prefixes(other.Spec.PodCIDRs)) {
			continue
		}
		switch {
		case w.assigned[other.UID] == "":
			w.cover("a foreign Node came while a block was on its way")
		case other.DeletionTimestamp != nil:
			w.violate("invariant 2", "Node %s gets %v while %s with %v is being deleted", node.Name, blocks, other.Name, other.Spec.PodCIDRs)
		default:
			w.violate("invariant 1", "Node %s gets %v while %s has %v", node.Name, blocks, other.Name, other.Spec.PodCIDRs)
		}
	}
}

// invariant4And5: what a block came from is there, with its finalizer, when the block arrives.
func (w *world) invariant4And5(node *v1.Node) {
	name := node.Annotations[networkingv1.AnnotationClusterCIDR]
	cc := w.server.clusterCIDR(name)
	if !w.forced[name] && (cc == nil || !slices.Contains(cc.Finalizers, networkingv1.Finalizer)) {
		w.violate("invariant 5", "Node %s gets %v from ClusterCIDR %s, which is gone or has no finalizer", node.Name, node.Spec.PodCIDRs, name)
	}
}

// letsGo judges the end of our finalizer on its arrival at the server.
func (w *world) letsGo(cc *networkingv1.ClusterCIDR) {
	for _, o := range w.server.objects[kindNode] {
		node := o.(*v1.Node)
		if w.assigned[node.UID] == cc.Name && !w.annotated[node.UID] && !w.forced[cc.Name] {
			w.violate("invariant 5", "ClusterCIDR %s goes while Node %s has %v from it", cc.Name, node.Name, node.Spec.PodCIDRs)
		}
	}
	w.cover("a ClusterCIDR let go")
}

// willPatchNode judges a PATCH of podCIDRs before it is sent.
func (p *process) willPatchNode(name string, patch []byte) *nodeWrite {
	var node v1.Node
	if err := json.Unmarshal(patch, &node); err != nil {
		p.w.violate("patches are JSON", "%s: %v", patch, err)
		return &nodeWrite{}
	}
	seen := p.seen.nodes[name]
	switch {
	case len(node.Spec.PodCIDRs) == 0:
	case seen == nil:
		p.w.violate("invariant 2", "%s writes to Node %s, which it knows to be gone", p.name, name)
	case seen.DeletionTimestamp != nil:
		p.w.violate("a Node that goes gets nothing", "%s writes podCIDRs %v to Node %s, which is being deleted", p.name, node.Spec.PodCIDRs, name)
	case len(seen.Spec.PodCIDRs) > 0:
		p.w.violate("invariant 6", "%s writes podCIDRs %v to Node %s, which has %v", p.name, node.Spec.PodCIDRs, name, seen.Spec.PodCIDRs)
	default:
		p.followAll()
		if len(p.seen.writes[node.UID]) == 0 {
			p.judgeListed(name, prefixes(node.Spec.PodCIDRs))
		}
		if p.unsent[node.UID] {
			p.judgeMissed(seen, node.Annotations[networkingv1.AnnotationClusterCIDR])
			delete(p.unsent, node.UID)
		}
		p.stillRight(seen, prefixes(node.Spec.PodCIDRs), node.Annotations[networkingv1.AnnotationClusterCIDR])
	}
	write := &nodeWrite{uid: node.UID, over: p.over()}
	p.seen.writes[node.UID] = append(p.seen.writes[node.UID], write)
	return write
}

// stillRight judges blocks that are about to be written: by all that is known now, not when they were chosen.
func (p *process) stillRight(node *v1.Node, blocks []netip.Prefix, pool string) {
	v := p.seen
	cc := v.clusterCIDRs[pool]
	if cc == nil {
		p.w.violate("invariant 4", "%s writes %v of ClusterCIDR %q to Node %s, and knows of no such ClusterCIDR", p.name, blocks, pool, node.Name)
		return
	}
	if reason, ok := v.ready(cc); !ok {
		p.w.violate("invariant 4", "%s writes %v of ClusterCIDR %s, which is %s, to Node %s", p.name, blocks, pool, reason, node.Name)
	}
	if len(v.writes[node.UID]) == 0 {
		v.reservedFrom[node.UID] = cc.UID // which would choose the same
	} else if v.reservedFrom[node.UID] != cc.UID {
		p.w.violate("invariant 4", "%s writes %v to Node %s, which it chose from a ClusterCIDR %s that is gone: the one of that name is another one", p.name, blocks, node.Name, pool)
	}
	for _, h := range v.holdings() {
		if h.Owner != allocator.OwnerOf(node.UID) && overlap(blocks, []netip.Prefix{h.Prefix}) {
			p.w.violate("invariant 7", "%s writes %v to Node %s, and knows that %v has %v", p.name, blocks, node.Name, h.Owner, h.Prefix)
		}
	}
	if len(v.writes[node.UID]) > 0 {
		p.w.cover("blocks are written again that may have been written") // They stay although the Node would get others now.
	} else if r, ok := v.reserved[node.UID]; ok && !p.w.outside && !v.keeps(node, r) {
		p.w.violate("the choice is right", "%s writes %v of %s to Node %s, which would get others now", p.name, blocks, pool, node.Name)
	}
}

// patchedNode notes what is known of a PATCH of podCIDRs when its call has returned.
func (p *process) patchedNode(write *nodeWrite, err error) {
	if err == nil {
		write.over = -1 // It has been carried out, and will not be once more.
	}
	if err != nil && writes.Answered(err) {
		p.seen.writes[write.uid] = slices.DeleteFunc(p.seen.writes[write.uid], func(w *nodeWrite) bool { return w == write })
		p.w.cover("a write of podCIDRs was refused")
	}
}

// gotNode notes what a read of a Node says about writes that were not answered.
func (p *process) gotNode(node *v1.Node) {
	late := slices.ContainsFunc(p.seen.writes[node.UID], func(w *nodeWrite) bool { return w.over > p.w.elapsed })
	if len(node.Spec.PodCIDRs) == 0 && !late {
		delete(p.seen.writes, node.UID)
		p.w.cover("a read told that a write was not carried out")
	}
}

// willPatchClusterCIDR judges a PATCH of finalizers before it is sent. There are others, of spec.allocation.
func (p *process) willPatchClusterCIDR(name string, patch []byte) {
	var cc networkingv1.ClusterCIDR
	if err := json.Unmarshal(patch, &cc); err != nil {
		p.w.violate("patches are JSON", "%s: %v", patch, err)
		return
	}
	if cc.Finalizers == nil || slices.Contains(cc.Finalizers, networkingv1.Finalizer) {
		return
	}
	if p.cutOff() {
		p.w.violate("what exists is known", "%s removes the finalizer of ClusterCIDR %s while a watch is broken off", p.name, name)
	}
	if seen := p.seen.clusterCIDRs[name]; seen == nil {
		p.w.violate("invariant 5", "%s removes the finalizer of ClusterCIDR %s, which it knows to be gone", p.name, name)
	} else if members := p.seen.membersOf(seen); len(members) > 0 {
		p.w.violate("invariant 5", "%s removes the finalizer of ClusterCIDR %s, to which %v belong", p.name, name, members)
	}
}

// willCreateEvent: who waits for the same reasons is told once; and nobody takes what a leader has written, this one or an earlier or later one, for
// the work of another allocator.
func (p *process) willCreateEvent(event *v1.Event) {
	if event.Reason == events.ReasonWriteFailed {
		p.w.cover("a write that fails is told")
	}
	if event.Reason == allocator.ReasonAssignedByOther {
		p.w.cover("another allocator is reported")
		if from := p.w.assigned[event.InvolvedObject.UID]; from != "" {
			p.w.violate("nobody is accused", "%s says of Node %s, which was served from %s: %s", p.name, event.InvolvedObject.Name, from, event.Message)
		}
	}
	again := !strings.HasPrefix(event.Message, "Nothing is allocated") // That is said in each gap.
	if again && event.Reason == events.ReasonNotAvailable && p.lastSaid[event.InvolvedObject.UID] == event.Name {
		p.w.violate("it is said once", "%s says again of Node %s: %s", p.name, event.InvolvedObject.Name, event.Message)
	}
}

// said notes an event on a Node. If blocks were chosen for the Node while the event was on its way, it is not the last word.
func (p *process) said(event *v1.Event, chosen int, err error) {
	if event.Reason == events.ReasonNotAvailable && err == nil && p.chosen[event.InvolvedObject.UID] == chosen {
		p.lastSaid[event.InvolvedObject.UID] = event.Name
	}
}

// check judges what a process has in its state after every bit that it ran.
func (p *process) check() {
	if p.followAll(); p.w.violation != nil {
		return
	}
	if p.w.outside {
		return
	}
	b := p.controller.state
	all := append(b.Holdings(netip.MustParsePrefix("0.0.0.0/0")), b.Holdings(netip.MustParsePrefix("::/0"))...)
	slices.SortFunc(all, compareHoldings)
	if want := p.seen.holdings(); !slices.Equal(all, want) {
		p.w.violate("the book is right", "%s has another book than what it has seen (-want +got):\n%s", p.name, cmp.Diff(holdingTexts(want), holdingTexts(all)))
	}
}

// follow judges what has become of a Node's reservation, and enters it in the view.
func (p *process) follow(node *v1.Node) {
	held := p.controller.state.HeldBy(allocator.OwnerOf(node.UID))
	before, known := p.seen.reserved[node.UID]
	if len(node.Spec.PodCIDRs) > 0 || !known && len(held) == 0 {
		return // a difference is found by check
	}
	now, _ := p.controller.state.Node(node.Name)
	if known && slices.Equal(held, before.Blocks) && before.ClusterCIDR == now.ClusterCIDR {
		return
	}
	if known {
		p.gaveUp(node, before)
	}
	if len(held) == 0 {
		return
	}
	if p.w.server.lease.record.HolderIdentity != p.name {
		p.w.cover("a deposed leader chose blocks")
	}
	r := allocator.Reservation{ClusterCIDR: now.ClusterCIDR, Blocks: held}
	if !p.w.outside {
		p.chose(node, r)
		p.turns.chosen = append(p.turns.chosen, choice{node, r.ClusterCIDR})
	}
	if p.w.violation == nil && p.seen.clusterCIDRs[r.ClusterCIDR] != nil {
		p.seen.reserve(node, r)
	}
	delete(p.lastSaid, node.UID) // If it has to wait once more, that is news.
	p.chosen[node.UID]++
	p.unsent[node.UID] = true
	p.w.note("  %s reserves %v of %s for Node %s", p.name, r.Blocks, r.ClusterCIDR, node.Name)
}

// gaveUp notes that a Node's reservation is given up.
func (p *process) gaveUp(node *v1.Node, r allocator.Reservation) {
	p.w.cover("a reservation was given up")
	if len(p.seen.writes[node.UID]) > 0 && !p.w.outside {
		p.w.violate("a reservation stands", "%s gives up %v of Node %s, which may have been written", p.name, r.Blocks, node.Name)
	}
	delete(p.seen.reserved, node.UID)
}

// chose judges a new reservation.
func (p *process) chose(node *v1.Node, r allocator.Reservation) {
	w, v := p.w, p.seen
	cc := v.clusterCIDRs[r.ClusterCIDR]
	if cc == nil {
		w.violate("invariant 4", "%s chose %v for Node %s from ClusterCIDR %q, which it does not know", p.name, r.Blocks, node.Name, r.ClusterCIDR)
		return
	}
	if reason, ok := v.ready(cc); !ok {
		w.violate("invariant 4", "%s chose %v for Node %s from ClusterCIDR %s, which is %s", p.name, r.Blocks, node.Name, r.ClusterCIDR, reason)
	}
	if len(r.Blocks) != len(slowRangesOf(cc)) {
		w.violate("every family", "%s chose %v for Node %s from ClusterCIDR %s", p.name, r.Blocks, node.Name, r.ClusterCIDR)
	}
	for _, h := range v.unavailableTo(cc) {
		if !overlap(r.Blocks, []netip.Prefix{h.Prefix}) {
			continue
		}
		switch other := v.nodeOf(h.Owner); {
		case h.Owner.Kind != ipam.Node, len(other.Spec.PodCIDRs) > 0 && w.assigned[other.UID] == "":
			w.violate("invariant 7", "%s chose %v for Node %s, and %v has %v", p.name, r.Blocks, node.Name, h.Owner, h.Prefix)
		case other.DeletionTimestamp != nil:
			w.violate("invariant 2", "%s chose %v for Node %s, and %s, which is being deleted, has %v", p.name, r.Blocks, node.Name, other.Name, h.Prefix)
		default:
			w.violate("invariant 1", "%s chose %v for Node %s, and %s has %v", p.name, r.Blocks, node.Name, other.Name, h.Prefix)
		}
	}
	if want, ok := v.choose(node); !ok || want.ClusterCIDR != r.ClusterCIDR || !slices.Equal(want.Blocks, r.Blocks) {
		w.violate("the choice is right", "%s chose %v of %s for Node %s, want %v of %s", p.name, r.Blocks, r.ClusterCIDR, node.Name, want.Blocks, want.ClusterCIDR)
	}
}

func (v *view) nodeOf(o ipam.Owner) *v1.Node {
	for _, node := range v.nodes {
		if o.Kind == ipam.Node && types.UID(o.ID) == node.UID {
			return node
		}
	}
	return nil
}

// checkSettled judges a process that has seen everything and done all it wanted to do without waiting.
func (w *world) checkSettled(p *process) {
	now := w.whole(p)
	for _, name := range sortedNames(now.nodes) {
		node := now.nodes[name]
		if len(node.Spec.PodCIDRs) > 0 {
			w.checkFindings(now, node)
			continue
		}
		switch r, served := now.choose(node); {
		case node.DeletionTimestamp != nil:
			w.cover("a Node is deleted before it is served")
		case len(now.blocksOf(node)) > 0:
			w.violate("invariant 8", "the blocks that %s reserved for Node %s are not written", p.name, name)
		case served:
			w.violate("invariant 8", "Node %s waits although it could have %v of %s", name, r.Blocks, r.ClusterCIDR)
		default:
			w.cover("a Node waits with reason")
			if !w.said(node.UID, events.ReasonNotAvailable) {
				w.violate("it is said why", "no event on Node %s, which waits", name)
			}
			if why, due := p.controller.state.WhyPending(name); due {
				w.violate("it is said why", "the last event on Node %s, which waits, does not say: %s", name, why.Message)
			}
		}
	}
	for _, name := range sortedNames(now.clusterCIDRs) {
		cc := now.clusterCIDRs[name]
		w.invariant3(p, now, cc)
		finalized := slices.Contains(cc.Finalizers, networkingv1.Finalizer)
		switch members := now.membersOf(cc); {
		case w.justUndone(p, name):
		case cc.DeletionTimestamp == nil && !finalized && !w.server.dropsFinalizers:
			w.violate("invariant 5", "ClusterCIDR %s has no finalizer", name)
		case cc.DeletionTimestamp != nil && finalized && len(members) == 0:
			w.violate("invariant 5", "ClusterCIDR %s does not go although no Node belongs to it", name)
		case cc.DeletionTimestamp != nil && finalized:
			w.cover("a ClusterCIDR waits for Nodes")
		}
	}
	w.checkFlags(p, now)
	for reserved := range p.seen.reserved {
		if w.outside {
			break
		}
		if node := now.nodeOf(allocator.OwnerOf(reserved)); node == nil || node.DeletionTimestamp == nil {
			w.violate("invariant 3", "%s still has a reservation for %s", p.name, reserved)
		}
	}
}

// checkFindings: who shares addresses, or lies in no range, has an event.
func (w *world) checkFindings(now *view, node *v1.Node) {
	blocks := now.blocksOf(node)
	shares := slices.ContainsFunc(now.holdings(), func(h ipam.Holding) bool {
		return h.Owner != allocator.OwnerOf(node.UID) && h.Owner.Kind != ipam.Kept && overlap(blocks, []netip.Prefix{h.Prefix})
	})
	if shares && !w.said(node.UID, allocator.ReasonConflict) {
		w.violate("conflicts are seen", "no event on Node %s, which shares addresses", node.Name)
	}
	outside := len(now.clusterCIDRs) > 0
	for _, cc := range now.clusterCIDRs {
		outside = outside && !slices.ContainsFunc(blocks, func(b netip.Prefix) bool { return inside(cc, b) })
	}
	if outside && !w.said(node.UID, allocator.ReasonOutsideRanges) {
		w.violate("conflicts are seen", "no event on Node %s, which is in no range", node.Name)
	}
}

// keepsOthers: we take away no finalizer but our own.
func (w *world) keepsOthers(old, cc *networkingv1.ClusterCIDR) {
	for _, f := range old.Finalizers {
		if f != networkingv1.Finalizer && !slices.Contains(cc.Finalizers, f) {
			w.violate("finalizers of others stay", "ClusterCIDR %s loses %s", cc.Name, f)
		}
	}
}

// justUndone reports whether a process need not write again yet what a user took back. While it is suspended, its clock stands still.
func (w *world) justUndone(p *process, name string) bool {
	at, ok := w.undone[name]
	return ok && w.server.now().Sub(at) <= queues.RetryMax+p.asleep
}

// checkFlags: there is one ClusterCIDR for what the flags say, which nobody but a user disables. Those for what they said before are
// disabled, and gone if no Node uses them.
func (w *world) checkFlags(p *process, now *view) {
	var made []*networkingv1.ClusterCIDR
	taken := false // by a user, who took the label away
	for _, name := range sortedNames(now.clusterCIDRs) {
		switch cc := now.clusterCIDRs[name]; {
		case cc.DeletionTimestamp != nil:
		case isFromFlags(cc):
			made = append(made, cc)
		case strings.HasPrefix(name, "created-from-flags-") && p.flags != nil && clustercidr.SameRanges(cc.Spec, *p.flags):
			taken = true
		}
	}
	slices.SortStableFunc(made, func(a, b *networkingv1.ClusterCIDR) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	current := 0
	for _, cc := range made {
		_, annotated := cc.Annotations[networkingv1.AnnotationSuperseded]
		disabled := cc.Spec.Allocation == networkingv1.AllocationDisabled
		changed := w.disabled[cc.UID] || cc.Spec.Priority != 0 || len(cc.Spec.ExcludedCIDRs) > 0
		switch {
		case !now.superseded(cc) && current == 0:
			current++
			if w.justUndone(p, cc.Name) {
				continue
			}
			if annotated || disabled != w.disabled[cc.UID] {
				w.violate("the flags are followed", "ClusterCIDR %s of the flags of %s is disabled: %t, superseded: %t; a user disabled it: %t", cc.Name, p.name, disabled, annotated, w.disabled[cc.UID])
			}
		case w.justUndone(p, cc.Name):
		case !disabled:
			w.violate("the flags are followed", "ClusterCIDR %s is not disabled although it is not that of the flags of %s", cc.Name, p.name)
		case p.flags == nil && w.notDeleted[cc.UID]:
			w.cover("a ClusterCIDR of flags stays, which the controller may not delete")
		case !changed && len(now.membersOf(cc)) == 0:
			w.violate("the flags are followed", "ClusterCIDR %s is not gone although no Node uses it and the flags of %s say something else", cc.Name, p.name)
		default:
			w.cover("a ClusterCIDR is superseded")
		}
	}
	if p.flags != nil && w.justUndone(p, fromflags.NameOf(p.flags)) {
		taken = true // It was made, and forced away before any list showed it. It is made again later.
	}
	if want := p.flags != nil; (current == 1) != want && !taken {
		w.violate("the flags are followed", "%d ClusterCIDRs for the flags of %s", current, p.name)
	}
}

// deletesClusterCIDR judges a deletion by a controller on its arrival at the server.
func (w *world) deletesClusterCIDR(cc *networkingv1.ClusterCIDR) {
	if !isFromFlags(cc) || w.disabled[cc.UID] || cc.Spec.Priority != 0 || len(cc.Spec.ExcludedCIDRs) > 0 {
		w.violate("what is a user's stays", "ClusterCIDR %s is deleted, which has the labels %v and the spec %+v", cc.Name, cc.Labels, cc.Spec)
	}
	for _, o := range w.server.objects[kindNode] {
		node := o.(*v1.Node)
		if w.assigned[node.UID] == cc.Name && !w.annotated[node.UID] && !w.forced[cc.Name] {
			w.violate("nothing is lost with flags", "ClusterCIDR %s is deleted while Node %s has %v from it", cc.Name, node.Name, node.Spec.PodCIDRs)
		}
	}
	w.cover("a superseded ClusterCIDR is deleted")
}

// setsAllocation judges a write of spec.allocation by a controller on its arrival at the server.
func (w *world) setsAllocation(old, cc *networkingv1.ClusterCIDR) {
	if !isFromFlags(old) || w.disabled[old.UID] {
		w.violate("what is a user's stays", "ClusterCIDR %s with the labels %v is set to %s; a user disabled it: %t", old.Name, old.Labels, cc.Spec.Allocation, w.disabled[old.UID])
	}
	w.cover("flags: allocation " + string(cc.Spec.Allocation))
}

// invariant3: free = total - held - excluded, for the state and for who counts block by block.
func (w *world) invariant3(p *process, now *view, cc *networkingv1.ClusterCIDR) {
	for _, r := range slowRangesOf(cc) {
		if w.outside {
			return
		}
		pool, _ := p.controller.state.Pool(cc.Name)
		got := p.controller.state.Free(pool, ipam.Range{Prefix: r.prefix, BlockBits: r.blocks[0].Bits()})
		if want := len(r.free(now.unavailableTo(cc))); got != uint64(want) {
			w.violate("invariant 3", "%d blocks of %v in ClusterCIDR %s are free, %s says %d", want, r.prefix, cc.Name, p.name, got)
		}
	}
}

// said reports whether there is an event on an object.
func (w *world) said(uid types.UID, reason string) bool {
	for _, e := range w.server.events {
		if e.InvolvedObject.UID == uid && e.Reason == reason {
			return true
		}
	}
	return false
}

// checkStatuses judges the statuses when all timers have run out.
func (w *world) checkStatuses(p *process) {
	now := w.whole(p)
	for _, name := range sortedNames(now.clusterCIDRs) {
		cc := now.clusterCIDRs[name]
		if diff := cmp.Diff(now.statusText(cc), textOfStatus(cc.Status)); diff != "" {
			w.violate("statuses are right", "of ClusterCIDR %s (-want +got):\n%s", name, diff)
		}
		for _, s := range []*networkingv1.RangeStatus{cc.Status.IPv4, cc.Status.IPv6} {
			if s == nil {
				continue
			}
			cursor := p.seen.cursors[cc.UID][ipam.FamilyOf(netip.MustParsePrefix(s.CIDR))]
			if got := s.Cursor; cursor.IsValid() && got != cursor.String() {
				w.violate("statuses are right", "the cursor of ClusterCIDR %s is %s, want %v", name, got, cursor)
			}
		}
	}
}

func sortedNames[T any](m map[string]T) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func holdingTexts(holdings []ipam.Holding) (texts []string) {
	for _, h := range holdings {
		texts = append(texts, fmt.Sprintf("%v %v", h.Owner, h.Prefix))
	}
	return texts
}
