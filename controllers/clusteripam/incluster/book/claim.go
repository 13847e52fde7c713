package book

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
)

// State is how far the address of a claim has come. Only the book changes it.
//
//	         a free address         sending             the cache shows the IPAddress
//	waiting ───────────────► reserved ─────► sent ──────────────────────────────────► assigned
//	   ▲                        │  ▲         │  ▲                                        │
//	   │  the pool may not, or  │  │ refused │  │ sending                                │ the IPAddress is gone, the claim is
//	   │  others have it        ▼  │         ▼  │                                        ▼ not: reserved; it is being deleted:
//	   └───────────────────── reserved, refused                                       released
//
// In the states reserved and refused no create request can take effect any more, so the address can be given up. In the state sent the
// claim keeps it whatever happens. In all states but waiting, a claim that is gone frees its address, unless a request may still arrive.
//
// An IPAddress that goes before its claim was forced away. A machine may have the address configured, so the claim keeps it in the states
// reserved, refused and released, too, and creates the IPAddress again.
type State uint8

const (
	Waiting State = iota
	Reserved
	Sent
	Refused
	Assigned
	// Released: the IPAddress is gone. The address stays held until the claim is gone, too.
	Released
)

func (s State) String() string {
	return [...]string{"Waiting", "Reserved", "Sent", "Refused", "Assigned", "Released"}[s]
}

// revocable reports whether the address can be given up.
func (s State) revocable() bool {
	return s == Reserved || s == Refused
}

// claim is an IPAddressClaim, and what became of its address.
type claim struct {
	key     Key
	object  *v1beta2.IPAddressClaim
	gone    bool
	broken  bool  // some fields of the stored object cannot be read
	ref     *pool // to which it refers; nil if that is not of this controller's kinds
	cluster *cluster

	state State
	pool  *pool // that has addr
	addr  netip.Addr
	// had is whether there was an IPAddress of the claim with addr.
	had bool
	// ended is whether this process has let the IPAddress go because the claim is being deleted.
	ended bool

	// creating is whether a create request is on its way.
	creating bool
	// maybeUntil is until when the API server may carry out a create request that it has not answered; zero if there is none.
	maybeUntil time.Time
	// stored is whether the API server has confirmed the IPAddress and the cache does not show it yet; since storedAt.
	stored   bool
	storedAt time.Time
	// read is whether to find out by a read what became of the last request.
	read bool
	// found is the IPAddress that a read has found and the cache does not show yet.
	found *v1beta2.IPAddress
	// answered is the IPAddress of the last answer to a create request or a read, and answeredAt what it said in the first answer.
	answered   types.UID
	answeredAt said
	// failingSince is when create requests began to be refused, and problem says why there is no IPAddress.
	failingSince time.Time
	problem      string
	// gaveWay replaces the creation time in the order of waiting claims after the claim has given up a refused address for others.
	gaveWay time.Time
	// queuedIn is the pool in whose queue the claim is, at queuedAt; nil if it is in none.
	queuedIn *pool
	queuedAt time.Time
}

// said is what an IPAddress says: its pool and its address. The address is not valid if it cannot be read, or if the pool is of another kind.
type said struct {
	pool Key
	addr netip.Addr
}

func (c *claim) uid() types.UID { return c.object.UID }

func (c *claim) deleting() bool { return c.object.DeletionTimestamp != nil }

// unresolved reports whether an IPAddress may exist that the cache does not show, or may be created.
func (c *claim) unresolved() bool { return c.stored || c.arriving() }

// arriving reports whether the API server may still carry out a create request.
func (c *claim) arriving() bool { return c.creating || !c.maybeUntil.IsZero() }

func byAge(a, b *claim) int {
	return cmp.Or(a.place().Compare(b.place()), Compare(a.key, b.key))
}

func (c *claim) place() time.Time {
	if !c.gaveWay.IsZero() {
		return c.gaveWay
	}
	return c.object.CreationTimestamp.Time
}

// SetClaim notes a claim as it is stored.
func (b *Book) SetClaim(o *v1beta2.IPAddressClaim) { b.setClaim(o, false) }

func (b *Book) setClaim(o *v1beta2.IPAddressClaim, broken bool) {
	key := ClaimKey(o.Namespace, o.Name)
	c, ok := b.claims[key]
	switch {
	case ok && c.uid() != o.UID:
		b.ClaimGone(o.Namespace, o.Name, c.uid())
		ok = false
	case ok && !newer(o.ResourceVersion, c.object.ResourceVersion):
		return
	}
	if !ok {
		c = &claim{key: key}
		b.claims[key] = c
	}
	c.object, c.broken = o, broken
	b.refer(c)
	if a, ok := b.addresses[key]; ok {
		b.stray(a)
	}
	b.settle(c)
	b.serve()
}

// SetBrokenClaim notes a claim of which some fields cannot be read. Nothing is decided about it but its release, for which its metadata and its
// last spec are enough. Its IPAddress is not one without a claim.
func (b *Book) SetBrokenClaim(o *v1beta2.IPAddressClaim) {
	c, ok := b.claims[ClaimKey(o.Namespace, o.Name)]
	switch known := ok && c.uid() == o.UID; {
	case known && !newer(o.ResourceVersion, c.object.ResourceVersion):
		return
	case known:
		o = &v1beta2.IPAddressClaim{TypeMeta: o.TypeMeta, ObjectMeta: o.ObjectMeta, Spec: c.object.Spec, Status: c.object.Status}
	}
	b.setClaim(o, true)
}

// ClaimGone notes that a claim does not exist any more. It does not affect another claim of the same name.
func (b *Book) ClaimGone(namespace, name string, uid types.UID) {
	key := ClaimKey(namespace, name)
	c, ok := b.claims[key]
	if !ok || c.uid() != uid {
		return
	}
	delete(b.claims, key)
	c.gone = true
	if a, ok := b.addresses[key]; ok {
		b.stray(a)
	}
	b.refer(c)
	if c.arriving() {
		c.found = nil // A read that was too early proves nothing.
	}
	if c.unresolved() {
		b.ghosts[key] = append(b.ghosts[key], c)
	} else {
		b.let(c)
	}
	b.touch(key)
	b.serve()
}

// refer keeps the indexes of claims by pool and cluster.
func (b *Book) refer(c *claim) {
	var p *pool
	var cl *cluster
	if !c.gone {
		if key, ours := poolOf(c.object.Spec.PoolRef, c.key.Namespace); ours {
			p = b.pool(key)
		}
		if name := cmp.Or(c.object.Spec.ClusterName, c.object.Labels[v1beta2.LabelClusterName]); name != "" {
			cl = b.cluster(clusterKey(c.key.Namespace, name))
		}
	}
	if before := c.ref; before != p {
		if c.ref = p; before != nil {
			delete(before.claims, c)
			before.trim()
			b.tidy(before)
		}
		if p != nil {
			p.claims[c] = true
		}
	}
	if before := c.cluster; before != cl {
		if c.cluster = cl; before != nil {
			delete(before.claims, c)
			b.tidyCluster(before)
		}
		if cl != nil {
			cl.claims[c] = true
		}
	}
}

// own returns the IPAddress of a claim, as the cache shows it; nil if there is none. An IPAddress of the claim's name that is of another
// claim or pool is in the way.
func (b *Book) own(c *claim) (own, inTheWay *address) {
	a, ok := b.addresses[c.key]
	switch {
	case !ok:
		return nil, nil
	case c.owns(a.object):
		return a, nil
	}
	return nil, a
}

// owns reports whether an IPAddress of the claim's name is the claim's: it is of its pool, or was made for it. The spec of neither can be changed,
// but not everybody checks that.
func (c *claim) owns(o *v1beta2.IPAddress) bool {
	key, ours := poolOf(o.Spec.PoolRef, o.Namespace)
	switch {
	case !ours:
		return false
	case c.ref != nil && key == c.ref.key && o.Spec.ClaimRef.Name == c.key.Name:
		return true
	}
	return slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == c.uid() })
}

// source is the pool that the claim has its address from; as long as it has had none, the pool to which it refers, which may be nil.
func (c *claim) source() *pool {
	if c.had {
		return c.pool
	}
	return c.ref
}

// mayAllocate reports whether nothing about the claim itself forbids to allocate an address.
func (b *Book) mayAllocate(c *claim) bool {
	_, inTheWay := b.own(c)
	return c.ref != nil && !c.gone && !c.broken && !c.deleting() && !b.isPaused(c) && !b.withoutCluster(c) && inTheWay == nil
}

// isPaused reports whether nothing must be done about a claim.
func (b *Book) isPaused(c *claim) bool {
	return paused(c.object) || b.clustersServed && c.cluster != nil && c.cluster.paused || c.source() != nil && c.source().isPaused()
}

func (b *Book) withoutCluster(c *claim) bool {
	return b.clustersServed && c.cluster != nil && !c.cluster.exists
}

// mayKeep reports whether a claim may keep the address that it holds while it has no IPAddress.
func (b *Book) mayKeep(c *claim) bool {
	return c.had && c.pool.alone(c) || b.mayHave(c)
}

// mayCreate reports whether the IPAddress of a claim may be created, with the address that the claim holds. The pool need not have an address
// any more that the claim had before.
func (b *Book) mayCreate(c *claim) bool {
	_, inTheWay := b.own(c)
	again := c.had && b.mayKeep(c) && inTheWay == nil && c.pool.eligible() && slices.Contains(c.object.Finalizers, v1beta2.FinalizerReleaseAddress)
	return again || b.mayHave(c)
}

// mayHave reports whether the claim's pool could still allocate the address that the claim holds.
func (b *Book) mayHave(c *claim) bool {
	if !b.mayAllocate(c) || c.pool != c.ref || !c.pool.eligible() || !c.pool.compiled.Contains(c.addr) {
		return false
	}
	return c.pool.alone(c)
}

// alone reports whether no other claim and no other claim's IPAddress has the address of c.
func (p *pool) alone(c *claim) bool {
	h := p.holdings[c.addr]
	return len(h.claims) == 1 && !slices.ContainsFunc(h.addresses, func(a *address) bool { return claimOf(a.object) != c.key })
}

// settle brings the state of a claim in line with everything else in the book.
func (b *Book) settle(c *claim) {
	if !b.started {
		return
	}
	b.touch(c.key)
	if c.gone {
		return
	}
	own, _ := b.own(c)
	switch {
	case own == nil:
	case c.mayGetAnother(own): // The claim keeps its address until a read tells which of the two IPAddresses it has.
		return
	default:
		b.assign(c, own)
		return
	}
	if c.state == Assigned {
		c.bereave()
	}
	if c.state.revocable() && !b.mayKeep(c) {
		b.let(c)
	}
	if c.state.revocable() && c.deleting() {
		c.state = Released
	}
	if c.state == Waiting && b.mayAllocate(c) {
		b.enqueue(c)
	}
}

// bereave notes that the IPAddress of a claim is gone.
func (c *claim) bereave() {
	switch {
	case c.deleting():
		c.state = Released
	case c.unresolved():
		c.state = Sent
	default:
		c.state = Reserved
	}
}

// mayGetAnother reports whether a claim has another IPAddress than the one that the cache shows, or may get one with another address: the cache may be late,
// or the one that it shows may go before a create request arrives.
func (c *claim) mayGetAnother(shown *address) bool {
	return c.stored && shown.object.UID != c.answered || c.arriving() && !c.has(shown.first())
}

// has reports whether a claim holds an address of a pool.
func (c *claim) has(at place) bool { return c.pool == at.pool && c.addr == at.addr }

// assign notes that the cache shows the IPAddress of a claim. Whatever it says by now, the claim has what was allocated.
func (b *Book) assign(c *claim, a *address) {
	if at := a.first(); !c.has(at) {
		b.let(c)
		b.hold(c, at.pool, at.addr)
	}
	c.state, c.had = Assigned, c.addr.IsValid()
	c.stored, c.read, c.found = false, false, nil
	c.failingSince, c.problem, c.gaveWay = time.Time{}, "", time.Time{}
}

// hold makes a claim a holder of an address.
func (b *Book) hold(c *claim, p *pool, at netip.Addr) {
	c.pool, c.addr = p, at
	if !at.IsValid() {
		return
	}
	h := p.holding(at)
	h.claims = append(h.claims, c)
	p.usage.Use(at)
	b.touch(p.key)
}

// let ends the hold of a claim on its address.
func (b *Book) let(c *claim) {
	p, at := c.pool, c.addr
	c.pool, c.addr, c.had, c.state = nil, netip.Addr{}, false, Waiting
	if p == nil || !at.IsValid() {
		return
	}
	h := p.holding(at)
	h.claims = slices.DeleteFunc(h.claims, func(o *claim) bool { return o == c })
	p.usage.Free(at)
	b.touch(p.key)
	for _, o := range h.claims { // the address may be one claim's alone by now
		b.touch(o.key)
	}
	b.dropped(p, at, h)
}

// serve reserves free addresses for waiting claims, oldest first.
func (b *Book) serve() {
	if !b.started {
		return
	}
	for len(b.freed) > 0 {
		for _, p := range slices.SortedFunc(maps.Keys(b.freed), func(p, q *pool) int { return Compare(p.key, q.key) }) {
			delete(b.freed, p)
			for p.eligible() && b.anyWaiting(p) {
				at, ok := p.usage.Next()
				if !ok {
					break
				}
				c := p.dequeue()
				b.hold(c, p, at)
				c.state = Reserved
				b.touch(c.key)
			}
		}
	}
}

// anyWaiting reports whether a claim waits for an address of p. The first of the queue then is one that does.
func (b *Book) anyWaiting(p *pool) bool {
	for len(p.waiting) > 0 {
		w := p.waiting[0]
		if c := w.claim; c.state == Waiting && c.queuedIn == p && c.queuedAt.Equal(w.place) && c.ref == p && b.mayAllocate(c) {
			return true
		}
		p.dequeue()
	}
	return false
}

// enqueue makes a claim wait for an address of its pool.
func (b *Book) enqueue(c *claim) {
	b.freed[c.ref] = true
	if c.queuedIn == c.ref && c.queuedAt.Equal(c.place()) {
		return
	}
	c.queuedIn, c.queuedAt = c.ref, c.place()
	heap.Push(&c.ref.waiting, waiter{c, c.queuedAt})
	c.ref.trim()
}

// trim removes the entries of claims that do not wait for p any more, when there are more of them than claims. While the first claim waits,
// nothing else removes those of claims that come and go.
func (p *pool) trim() {
	if len(p.waiting) < 2*len(p.claims)+16 {
		return
	}
	p.waiting = slices.DeleteFunc(p.waiting, func(w waiter) bool {
		return !p.claims[w.claim] || w.claim.queuedIn != p || !w.claim.queuedAt.Equal(w.place)
	})
	heap.Init(&p.waiting)
}

// dequeue removes the first entry of the queue of p.
func (p *pool) dequeue() *claim {
	w := heap.Pop(&p.waiting).(waiter)
	if c := w.claim; c.queuedIn == p && c.queuedAt.Equal(w.place) {
		c.queuedIn = nil
	}
	return w.claim
}

// giveWayAfter is how long create requests of a claim are refused until it gives up its address for others that wait for one.
const giveWayAfter = 10 * time.Second

// giveWay gives up the refused address of a claim if other claims wait for one, and no machine can have it. The claim waits behind them.
func (b *Book) giveWay(c *claim, now time.Time) {
	if c.state != Refused || c.had || now.Sub(c.failingSince) < giveWayAfter || !b.anyWaiting(c.pool) {
		return
	}
	c.gaveWay, c.failingSince = now, time.Time{}
	b.let(c)
	b.settle(c)
	b.serve()
}

// isServed reports whether a claim has an address, and an IPAddress as soon as it is created.
func (b *Book) isServed(c *claim) bool {
	return c.state != Waiting && (!c.had || b.mayCreate(c))
}

// why says why a claim has no address: a reason, and what to do. Both are empty if that changes by itself.
func (b *Book) why(c *claim) (reason, message string) {
	p := c.source()
	_, inTheWay := b.own(c)
	switch {
	case c.broken:
		return ReasonUnreadable, "Some fields cannot be read. See the event Unreadable."
	case b.withoutCluster(c) && !c.had:
		name := cmp.Or(c.object.Spec.ClusterName, c.object.Labels[v1beta2.LabelClusterName])
		return v1beta2.ReasonAllocationFailed, fmt.Sprintf("Cluster %s/%s does not exist. Create it, or correct spec.clusterName.", c.key.Namespace, name)
	case inTheWay != nil:
		return v1beta2.ReasonAllocationFailed, c.obstructed(inTheWay.object)
	case c.problem != "":
		return v1beta2.ReasonAllocationFailed, c.problem
	case b.isServed(c):
		return "", ""
	case p.object == nil:
		return v1beta2.ReasonPoolNotReady, p.key.String() + " does not exist. Create it, or correct spec.poolRef."
	case p.object.DeletionTimestamp != nil:
		return v1beta2.ReasonPoolNotReady, p.key.String() + " is being deleted. Name another pool in spec.poolRef."
	case p.compiled == nil:
		return v1beta2.ReasonPoolNotReady, p.key.String() + " is not valid: " + p.invalid + "."
	case p.compiled.Total() == 0:
		return v1beta2.ReasonPoolNotReady, p.key.String() + ": " + p.compiled.WithoutAddresses() + "."
	case !p.eligible():
		return "", ""
	}
	return v1beta2.ReasonPoolExhausted, fmt.Sprintf("%v is full: all %d addresses are in use. Add addresses to %s, or delete IPAddressClaims.", p.key, p.compiled.Total(), p.source())
}

// obstructed says what the IPAddress is that has the name of a claim and is not the claim's, and what to do.
func (c *claim) obstructed(by *v1beta2.IPAddress) string {
	of := by.Spec.PoolRef.Kind + " " + by.Spec.PoolRef.Name
	if group := by.Spec.PoolRef.APIGroup; group != v1alpha2.GroupName {
		of += " of " + group
	}
	if by.Spec.ClaimRef.Name != c.key.Name {
		return fmt.Sprintf("The IPAddress of the same name belongs to the claim %s and to %s. Delete it if no machine uses it, or give this claim another name.", by.Spec.ClaimRef.Name, of)
	}
	return fmt.Sprintf("The IPAddress of the same name has an address of %s, and this claim asks for one of %s %s. Delete the IPAddress if no machine uses it. Otherwise delete this claim, and create it for %s.",
		of, c.object.Spec.PoolRef.Kind, c.object.Spec.PoolRef.Name, of)
}

// queue has the claims that wait for an address of a pool, oldest first. Some do not wait any more.
type queue []waiter

type waiter struct {
	claim *claim
	place time.Time
}

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return cmp.Or(q[i].place.Compare(q[j].place), Compare(q[i].claim.key, q[j].claim.key)) < 0
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(w any)   { *q = append(*q, w.(waiter)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	(*q)[len(*q)-1] = waiter{}
	*q = (*q)[:len(*q)-1]
	return last
}
