package incluster

import (
	"cmp"
	"container/heap"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/addresses"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/ipam"
)

// AnnotationAddress on a claim and its IPAddress is the block that the claim has: an address, or a prefix with its length.
const AnnotationAddress = "networking.x-k8s.io/address"

// allocator knows who holds which block of which pool, and who gets the next one. It makes no requests and reads no clock. Nothing is given away before it
// is started: then all objects that exist are known. Not safe for concurrent use.
type allocator struct {
	pools     map[runner.Key]*pool
	order     []*pool              // all pools, by key
	claims    map[types.UID]*claim // of these pools
	names     map[types.NamespacedName]*claim
	addresses map[types.NamespacedName]*address
	// wants reports whether nothing about a claim itself forbids to give it a block.
	wants   func(*claim) bool
	started bool
	holds   int // numbers the holds of claims
	// changed are the claims and pools to look at again.
	changed map[runner.Key]bool
}

// pool is a pool object, if it exists, and everything that refers to it.
type pool struct {
	key     runner.Key
	object  *object // nil if it does not exist
	usage   addresses.Usage
	holders ipam.PrefixMap[holders]
	waiting queue
	claims  int // how many claims and IPAddresses refer to it
	// moves: clusterctl has begun to move what it has given, and the object does not say so yet.
	moves bool
	// leaving are claims in deletion that only a grace period keeps.
	leaving map[*claim]bool
	// strays are IPAddresses without a claim, conflicts those of which another one has an address.
	strays, conflicts map[*address]bool
}

// holders are those that hold one block.
type holders struct {
	claims    []*claim
	addresses []*address
}

// claim is an IPAddressClaim that exists, or whose IPAddress may still be created.
type claim struct {
	object *v1beta2.IPAddressClaim
	pool   *pool
	block  netip.Prefix // that it holds; not valid if it has none
	hold   int          // number of its hold: earlier ones are smaller
	said   netip.Prefix // what its annotation says
	passed bool         // it has an IPAddress, or one may have been created
	index  int          // in the queue of the pool; -1 if it is not there
}

// address is an IPAddress.
type address struct {
	object *v1beta2.IPAddress
	pool   *pool
	block  netip.Prefix // not valid if it cannot be read
}

func newAllocator(wants func(*claim) bool) *allocator {
	return &allocator{
		pools: map[runner.Key]*pool{}, claims: map[types.UID]*claim{}, names: map[types.NamespacedName]*claim{}, addresses: map[types.NamespacedName]*address{},
		wants: wants, changed: map[runner.Key]bool{},
	}
}

// poolOf returns the key of the pool that a claim or an IPAddress of a namespace names. ok is false if it is a pool of another provider.
func poolOf(ref v1beta2.IPPoolReference, namespace string) (_ runner.Key, ok bool) {
	k, ok := kinds[ref.Kind]
	if !ok || ref.APIGroup != k.kind.Group {
		return runner.Key{}, false
	}
	if k.global {
		namespace = ""
	}
	return runner.Key{Kind: k.kind, Namespace: namespace, Name: ref.Name}, true
}

func compare(a, b runner.Key) int {
	return cmp.Or(strings.Compare(a.Kind.Name, b.Kind.Name), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

func (a *allocator) touch(k runner.Key) { a.changed[k] = true }

func (a *allocator) touchClaim(c *claim) { a.touch(runner.KeyOf(runner.IPAddressClaims, c.object)) }

func (a *allocator) pool(key runner.Key) *pool {
	p, ok := a.pools[key]
	if !ok {
		p = &pool{key: key, leaving: map[*claim]bool{}, strays: map[*address]bool{}, conflicts: map[*address]bool{}}
		a.pools[key] = p
		i, _ := slices.BinarySearchFunc(a.order, key, func(p *pool, key runner.Key) int { return compare(p.key, key) })
		a.order = slices.Insert(a.order, i, p)
	}
	return p
}

// tidy forgets a pool to which nothing refers.
func (a *allocator) tidy(p *pool) {
	if p.object == nil && p.claims == 0 {
		delete(a.pools, p.key)
		a.order = slices.DeleteFunc(a.order, func(o *pool) bool { return o == p })
	}
}

// setPool notes a pool as it is stored; nil for one that is gone.
func (a *allocator) setPool(key runner.Key, o *object) {
	p := a.pool(key)
	before := p.object
	p.object = o
	p.moves = p.moves && o != nil && !o.moved()
	a.touch(key)
	if before != nil && o != nil && reflect.DeepEqual(before.spec, o.spec) {
		o.compiled, o.invalid = before.compiled, before.invalid
	} else {
		a.touchOverlapping(p, before)
		if o != nil {
			o.compile()
		}
		p.usage.SetPool(p.compiled())
		a.touchOverlapping(p, o)
	}
	a.serve(p)
	a.tidy(p)
}

func (p *pool) compiled() *addresses.Pool {
	if p.object == nil {
		return nil
	}
	return p.object.compiled
}

// touchOverlapping looks again at the pools that have addresses of p as it was or is.
func (a *allocator) touchOverlapping(p *pool, as *object) {
	if !a.started || as == nil {
		return
	}
	for _, o := range a.order {
		if _, shared := o.shares(as.compiled); shared && o != p {
			a.touch(o.key)
		}
	}
}

// shares returns the first address that p has in common with another pool.
func (p *pool) shares(o *addresses.Pool) (_ netip.Addr, ok bool) {
	if p.compiled() == nil || o == nil {
		return netip.Addr{}, false
	}
	return p.compiled().Shared(o)
}

// eligible reports whether blocks of p may be allocated now.
func (p *pool) eligible() bool { return p.object.eligible() && p.compiled() != nil && !p.moves }

// move notes that a claim or an IPAddress of p is as it is now, and was as it was before, or nil. The first one that clusterctl marks begins a move. Of Global pools
// clusterctl deletes neither the pool nor its IPAddresses, which go on holding their addresses.
func (a *allocator) move(p *pool, was, is metav1.Object) {
	if contract.GoingAway(is) && !contract.GoingAway(was) && !kinds[p.key.Kind.Name].global && (p.object != nil || !a.started) {
		p.moves = true
		a.touch(p.key)
	}
}

// inUse reports whether an IPAddress of p exists or may be created.
func (p *pool) inUse() bool { return p.usage.Counts().Used > 0 }

// setClaim notes a claim as it is stored.
func (a *allocator) setClaim(o *v1beta2.IPAddressClaim) {
	key, ours := poolOf(o.Spec.PoolRef, o.Namespace)
	if !ours {
		return
	}
	c, known := a.claims[o.UID]
	if known {
		a.move(c.pool, c.object, o)
	} else {
		c = &claim{pool: a.pool(key), index: -1}
		c.pool.claims++
		a.claims[o.UID] = c
		a.move(c.pool, nil, o)
	}
	c.object = o
	a.names[contract.NameOf(o)] = c
	if own := a.addresses[contract.NameOf(o)]; own != nil {
		a.stray(own)
		a.follow(c, own)
	}
	if said := blockSaid(o); said != c.said {
		if c.said = said; !c.passed {
			a.drop(c)
			a.give(c, said)
		}
	}
	if o.DeletionTimestamp != nil && c.isUnknown() {
		a.drop(c)
	}
	a.wait(c)
	a.leave(c)
	a.serve(c.pool)
}

// isUnknown reports whether nobody but this process knows of the block of a claim.
func (c *claim) isUnknown() bool { return !c.passed && !c.said.IsValid() }

// follow makes a claim hold what its IPAddress has, whatever it held before.
func (a *allocator) follow(c *claim, own *address) {
	if own.block.IsValid() && contract.Owns(c.object, own.object) {
		if c.passed = true; c.block != own.block {
			a.drop(c)
			a.give(c, own.block)
		}
		a.wait(c)
	}
}

// claimGone notes that a claim is gone, and that no IPAddress of it can be created any more.
func (a *allocator) claimGone(o *v1beta2.IPAddressClaim) {
	c, known := a.claims[o.UID]
	if !known {
		return
	}
	delete(a.claims, o.UID)
	if a.names[contract.NameOf(o)] == c {
		delete(a.names, contract.NameOf(o))
	}
	if c.index >= 0 {
		heap.Remove(&c.pool.waiting, c.index)
	}
	delete(c.pool.leaving, c)
	c.pool.claims--
	a.drop(c)
	if own := a.addresses[contract.NameOf(o)]; own != nil {
		a.stray(own)
	}
	a.serve(c.pool)
	a.tidy(c.pool)
}

// wait queues a claim for a block of its pool, or takes it out of the queue.
func (a *allocator) wait(c *claim) {
	waits := !c.block.IsValid() && c.object.DeletionTimestamp == nil
	switch {
	case waits && c.index < 0:
		heap.Push(&c.pool.waiting, c)
	case !waits && c.index >= 0:
		heap.Remove(&c.pool.waiting, c.index)
	}
}

// leave notes whether a claim only keeps its block for a grace period. Claims that wait then say when the next block is free.
func (a *allocator) leave(c *claim) {
	p := c.pool
	if c.object.DeletionTimestamp == nil || !c.block.IsValid() || len(contract.KeptBy(c.object)) > 0 || p.leaving[c] {
		return
	}
	before := p.nextFree()
	if p.leaving[c] = true; !p.nextFree().Equal(before) {
		for _, w := range p.waiting {
			a.touchClaim(w)
		}
	}
}

// grace is how long a block of p stays in use after the deletion of its claim.
func (p *pool) grace() time.Duration {
	if p.object == nil || p.object.meta.GetDeletionTimestamp() != nil {
		return 0
	}
	return p.object.spec.grace
}

// nextFree is when the next grace period ends; zero if there is none.
func (p *pool) nextFree() (at time.Time) {
	if p.grace() == 0 {
		return at
	}
	for c := range p.leaving {
		if ends := c.object.DeletionTimestamp.Add(p.grace()); at.IsZero() || ends.Before(at) {
			at = ends
		}
	}
	return at
}

// setAddress notes an IPAddress as it is stored.
func (a *allocator) setAddress(o *v1beta2.IPAddress) {
	key, ours := poolOf(o.Spec.PoolRef, o.Namespace)
	if !ours {
		return
	}
	at, known := a.addresses[contract.NameOf(o)]
	if known {
		a.move(at.pool, at.object, o)
		at.object = o
		a.stray(at)
		return
	}
	at = &address{object: o, pool: a.pool(key), block: blockOf(o)}
	a.addresses[contract.NameOf(o)] = at
	a.move(at.pool, nil, o)
	at.pool.claims++
	if at.block.IsValid() {
		v := at.pool.holders.Insert(at.block)
		v.addresses = append(v.addresses, at)
		at.pool.usage.Use(at.block)
		a.touch(at.pool.key)
		a.clash(at)
	}
	a.stray(at)
	if c := a.names[contract.NameOf(o)]; c != nil {
		a.follow(c, at)
	}
	a.serve(at.pool)
}

// addressGone notes that an IPAddress is gone.
func (a *allocator) addressGone(o *v1beta2.IPAddress) {
	at, known := a.addresses[contract.NameOf(o)]
	if !known {
		return
	}
	p := at.pool
	delete(a.addresses, contract.NameOf(o))
	delete(p.strays, at)
	delete(p.conflicts, at)
	p.claims--
	a.touch(p.key)
	if at.block.IsValid() {
		v := p.holders.At(at.block)
		v.addresses = slices.DeleteFunc(v.addresses, func(o *address) bool { return o == at })
		p.holders.Remove(at.block)
		p.usage.Free(at.block)
		a.clash(at)
		a.wake(p, at.block)
	}
	a.serve(p)
	a.tidy(p)
}

// clash looks which IPAddresses have addresses that others have, too, among those that overlap one that has come or gone.
func (a *allocator) clash(changed *address) {
	p := changed.pool
	for v := range p.holders.Values(changed.block) {
		for _, at := range v.addresses {
			if len(p.others(at.block, at.object.Namespace, at.object.Name)) > 0 {
				p.conflicts[at] = true
			} else {
				delete(p.conflicts, at)
			}
		}
	}
}

// others returns the IPAddresses that have an address of a block, but not the one of this name.
func (p *pool) others(block netip.Prefix, namespace, name string) (all []*address) {
	for v := range p.holders.Values(block) {
		for _, at := range v.addresses {
			if at.object.Namespace != namespace || at.object.Name != name {
				all = append(all, at)
			}
		}
	}
	return all
}

// stray notes whether an IPAddress has no claim although it is protected like one of a claim. It stays until somebody deletes it: a machine may use it.
func (a *allocator) stray(at *address) {
	c := a.names[contract.NameOf(at.object)]
	is := (c == nil || !contract.Owns(c.object, at.object)) && at.object.DeletionTimestamp == nil &&
		slices.Contains(at.object.Finalizers, v1beta2.FinalizerProtectAddress)
	if at.pool.strays[at] != is {
		a.touch(at.pool.key)
	}
	if at.pool.strays[at] = is; !is {
		delete(at.pool.strays, at)
	}
}

// give makes a claim hold a block.
func (a *allocator) give(c *claim, block netip.Prefix) {
	if !block.IsValid() {
		return
	}
	a.holds++
	c.block, c.hold = block, a.holds
	v := c.pool.holders.Insert(block)
	v.claims = append(v.claims, c)
	c.pool.usage.Use(block)
	a.touch(c.pool.key)
}

// drop ends the hold of a claim.
func (a *allocator) drop(c *claim) {
	block := c.block
	if !block.IsValid() {
		return
	}
	v := c.pool.holders.At(block)
	v.claims = slices.DeleteFunc(v.claims, func(o *claim) bool { return o == c })
	c.pool.holders.Remove(block)
	c.pool.usage.Free(block)
	c.block = netip.Prefix{}
	a.touch(c.pool.key)
	a.wake(c.pool, block)
}

// wake looks again at the claims that hold an address of a block that somebody else held, too.
func (a *allocator) wake(p *pool, block netip.Prefix) {
	for v := range p.holders.Values(block) {
		for _, c := range v.claims {
			a.touchClaim(c)
		}
	}
}

// want returns what a claim holds. A claim that holds nothing is given the next block, unless others wait for longer. by says who else has an address of
// the block; empty if it is the claim's alone.
func (a *allocator) want(c *claim) (block netip.Prefix, by string) {
	a.started = true
	a.wait(c)
	a.serve(c.pool)
	if by = c.first(); by != "" && c.isUnknown() {
		a.drop(c)
		a.wait(c)
		a.serve(c.pool)
		by = c.first()
	}
	return c.block, by
}

// first names one who has an address of the claim's block with more right: an IPAddress, or a claim that had it before.
func (c *claim) first() (by string) {
	if !c.block.IsValid() {
		return ""
	}
	if all := c.pool.others(c.block, c.object.Namespace, c.object.Name); len(all) > 0 {
		return "IPAddress " + contract.NameOf(all[0].object).String()
	}
	for v := range c.pool.holders.Values(c.block) {
		for _, o := range v.claims {
			if o.hold < c.hold && o.object.UID != c.object.UID {
				return "IPAddressClaim " + contract.NameOf(o.object).String()
			}
		}
	}
	return ""
}

// serve gives free blocks to the claims that wait, oldest first. One that does not want a block now waits again when it does.
func (a *allocator) serve(p *pool) {
	for a.started && len(p.waiting) > 0 && p.eligible() {
		block, ok := p.usage.Next()
		if !ok {
			return
		}
		c := heap.Pop(&p.waiting).(*claim)
		if a.wants(c) {
			a.give(c, block)
			a.touchClaim(c)
		}
	}
}

// blockOf returns what an IPAddress holds; not valid if it cannot be read. Other programs write IPAddresses, too, and a CRD that is not ours stores what they
// write: an IPv4 address as IPv6, with a prefix length, or with blanks.
func blockOf(o *v1beta2.IPAddress) netip.Prefix {
	text, _, _ := strings.Cut(strings.TrimSpace(o.Spec.Address), "/")
	at, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}
	}
	at = at.Unmap().WithZone("")
	bits := at.BitLen()
	if kinds[o.Spec.PoolRef.Kind].prefixes && o.Spec.Prefix != nil {
		bits = int(*o.Spec.Prefix)
	}
	block, _ := at.Prefix(bits) // not valid if it has too many bits
	return block
}

// blockSaid returns the block that the annotation of a claim says; not valid if it says none.
func blockSaid(o *v1beta2.IPAddressClaim) netip.Prefix {
	text := o.Annotations[AnnotationAddress]
	if text == "" || contract.IsCopy(o) {
		return netip.Prefix{}
	}
	if block, err := netip.ParsePrefix(text); err == nil && kinds[o.Spec.PoolRef.Kind].prefixes {
		return block.Masked()
	}
	at, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(at.WithZone(""), at.BitLen())
}

// textOf is how a block is written in annotations and texts: as an address if it is one.
func textOf(block netip.Prefix) string {
	if block.IsSingleIP() {
		return block.Addr().String()
	}
	return block.String()
}

// queue has the claims that wait for a block, oldest first. It is a heap.
type queue []*claim

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool {
	a, b := q[i].object, q[j].object
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name)) < 0
}

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *queue) Push(c any) {
	c.(*claim).index = len(*q)
	*q = append(*q, c.(*claim))
}

func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	last.index = -1
	(*q)[len(*q)-1] = nil
	*q = (*q)[:len(*q)-1]
	return last
}
