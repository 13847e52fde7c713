package incluster

import (
	"maps"
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
)

// AnnotationAddress on a claim and its IPAddress is the block that the claim has: an address, or a prefix with its length.
const AnnotationAddress = "networking.x-k8s.io/address"

// allocator knows who holds which block of which pool, and who gets the next one. It makes no requests and reads no clock. Its set and gone methods note what exists;
// blocks are given away by want and serve, which are called when everything that exists is known. Not safe for concurrent use.
type allocator struct {
	pools map[runner.Key]*pool
	// wants reports whether nothing about a claim itself forbids to give it a block.
	wants func(*claim) bool
	// touch is called with the claims and pools to look at again.
	touch func(runner.Key)
}

// pool is a pool object, if it exists, and everything that refers to it.
type pool struct {
	key       runner.Key
	object    *object // nil if it does not exist
	claims    map[types.UID]*claim
	addresses map[types.NamespacedName]*address
	usage     addresses.Usage[holders]
	waiting   map[*claim]bool
	// moves: clusterctl has begun to move what it has given, and the object does not say so yet.
	moves    bool
	reported time.Time // when its status was made last
}

// holders are those that hold one block, in the order in which they came.
type holders struct {
	claims    []*claim
	addresses []*address
}

// claim is an IPAddressClaim that exists, or whose IPAddress may still be created.
type claim struct {
	object *v1beta2.IPAddressClaim
	pool   *pool
	block  netip.Prefix // that it holds; not valid if it has none
}

// address is an IPAddress.
type address struct {
	object *v1beta2.IPAddress
	block  netip.Prefix // not valid if it cannot be read
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

func (a *allocator) touchClaim(c *claim) { a.touch(runner.KeyOf(runner.IPAddressClaims, c.object)) }

func (a *allocator) pool(key runner.Key) *pool {
	p, ok := a.pools[key]
	if !ok {
		p = &pool{key: key, claims: map[types.UID]*claim{}, addresses: map[types.NamespacedName]*address{}, waiting: map[*claim]bool{}}
		a.pools[key] = p
	}
	return p
}

// claim returns what is known of a claim; nil if it is gone.
func (a *allocator) claim(o *v1beta2.IPAddressClaim) *claim {
	key, _ := poolOf(o.Spec.PoolRef, o.Namespace)
	if p := a.pools[key]; p != nil {
		return p.claims[o.UID]
	}
	return nil
}

// changes has a pool looked at again. It forgets one to which nothing refers.
func (a *allocator) changes(p *pool) {
	a.touch(p.key)
	if p.object == nil && len(p.claims)+len(p.addresses) == 0 {
		delete(a.pools, p.key)
	}
}

// setPool notes a pool as it is stored; nil for one that is gone.
func (a *allocator) setPool(key runner.Key, o *object) {
	p := a.pool(key)
	before := p.object
	p.moves = p.moves && o != nil && !o.moved()
	if before != nil && o != nil && reflect.DeepEqual(before.spec, o.spec) {
		o.compiled, o.invalid = before.compiled, before.invalid
		p.object = o
	} else {
		a.touchOverlapping(p)
		if p.object = o; o != nil {
			o.compile()
		}
		p.usage.SetPool(p.compiled())
		a.touchOverlapping(p)
	}
	if !o.alike(before) {
		a.touchClaims(p)
	}
	a.changes(p)
}

// touchClaims looks again at the claims of p, and at those of its IPAddresses.
func (a *allocator) touchClaims(p *pool) {
	for _, c := range p.claims {
		a.touchClaim(c)
	}
	for name := range p.addresses {
		a.touch(runner.Key{Kind: runner.IPAddressClaims, Namespace: name.Namespace, Name: name.Name})
	}
}

func (p *pool) compiled() *addresses.Pool {
	if p.object == nil {
		return nil
	}
	return p.object.compiled
}

// touchOverlapping looks again at the pools that have addresses of p.
func (a *allocator) touchOverlapping(p *pool) {
	for _, o := range a.pools {
		if _, shared := o.shares(p); shared {
			a.touch(o.key)
		}
	}
}

// shares returns the first address that p has in common with another pool.
func (p *pool) shares(o *pool) (_ netip.Addr, ok bool) {
	if p == o || p.compiled() == nil || o.compiled() == nil {
		return netip.Addr{}, false
	}
	return p.compiled().Shared(o.compiled())
}

// eligible reports whether blocks of p may be allocated now. Without its finalizer it could vanish at any time.
func (p *pool) eligible() bool {
	_, _, gives := p.state()
	return gives && !contract.Paused(p.object) && !contract.GoingAway(p.object) && slices.Contains(p.object.Finalizers, v1beta2.FinalizerProtectPool)
}

// move notes that clusterctl has marked a claim or an IPAddress of p: the first one begins a move. Of Global pools clusterctl deletes neither the pool nor its
// IPAddresses, which go on holding their addresses.
func (a *allocator) move(p *pool, o metav1.Object) {
	if contract.GoingAway(o) && !kinds[p.key.Kind.Name].global && !p.moves && !p.object.moved() {
		p.moves = true
		a.touch(p.key)
	}
}

// grace is how long a block of p stays in use after the deletion of its claim.
func (p *pool) grace() time.Duration {
	if p.object == nil || p.object.DeletionTimestamp != nil {
		return 0
	}
	return p.object.spec.grace
}

// setClaim notes a claim as it is stored.
func (a *allocator) setClaim(o *v1beta2.IPAddressClaim) {
	key, ours := poolOf(o.Spec.PoolRef, o.Namespace)
	if !ours {
		return
	}
	p := a.pool(key)
	c, known := p.claims[o.UID]
	if !known {
		c = &claim{object: &v1beta2.IPAddressClaim{}, pool: p}
		p.claims[o.UID] = c
	}
	a.touch(p.key) // There may be an IPAddress of its name.
	c.object = o
	a.move(p, o)
	switch own := p.addresses[contract.NameOf(o)]; {
	case own != nil && own.block.IsValid() && contract.Owns(o, own.object):
		a.hold(c, own.block)
	case !c.block.IsValid():
		a.hold(c, blockSaid(o))
	}
	a.wait(c)
}

// claimGone notes that a claim is gone, and that no IPAddress of it can be created any more.
func (a *allocator) claimGone(o *v1beta2.IPAddressClaim) {
	c := a.claim(o)
	if c == nil {
		return
	}
	delete(c.pool.claims, o.UID)
	delete(c.pool.waiting, c)
	a.hold(c, netip.Prefix{})
	a.changes(c.pool)
}

// wait has a claim wait for a block of its pool, or not.
func (a *allocator) wait(c *claim) {
	if c.pool.waiting[c] = true; c.block.IsValid() || c.object.DeletionTimestamp != nil {
		delete(c.pool.waiting, c)
	}
}

// setAddress notes an IPAddress as it is stored.
func (a *allocator) setAddress(o *v1beta2.IPAddress) {
	key, ours := poolOf(o.Spec.PoolRef, o.Namespace)
	if !ours {
		return
	}
	p := a.pool(key)
	a.touch(key)
	a.move(p, o)
	if at, known := p.addresses[contract.NameOf(o)]; known {
		at.object = o
		return
	}
	at := &address{object: o, block: blockOf(o)}
	p.addresses[contract.NameOf(o)] = at
	if at.block.IsValid() {
		v := p.usage.Insert(at.block)
		v.addresses = append(v.addresses, at)
	}
}

// addressGone notes that an IPAddress is gone.
func (a *allocator) addressGone(o *v1beta2.IPAddress) {
	key, _ := poolOf(o.Spec.PoolRef, o.Namespace)
	p := a.pools[key]
	if p == nil || p.addresses[contract.NameOf(o)] == nil {
		return
	}
	at := p.addresses[contract.NameOf(o)]
	delete(p.addresses, contract.NameOf(o))
	if at.block.IsValid() {
		v := p.usage.At(at.block)
		v.addresses = slices.DeleteFunc(v.addresses, func(o *address) bool { return o == at })
		p.usage.Remove(at.block)
		a.wake(p, at.block)
	}
	a.changes(p)
}

// others returns the IPAddresses that have an address of a block, but not the one of this name.
func (p *pool) others(block netip.Prefix, name types.NamespacedName) (all []*address) {
	for v := range p.usage.Values(block) {
		for _, at := range v.addresses {
			if contract.NameOf(at.object) != name {
				all = append(all, at)
			}
		}
	}
	return all
}

// clashes returns the IPAddresses of which another one has an address: those that belong together in one slice, the widest block first.
func (p *pool) clashes() (all [][]*address) {
	var together []*address
	end := func() {
		if len(together) > 1 {
			all = append(all, together)
		}
		together = nil
	}
	for _, family := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		for v := range p.usage.Values(netip.PrefixFrom(family, 0)) {
			for _, at := range v.addresses {
				if len(together) > 0 && !together[0].block.Overlaps(at.block) {
					end()
				}
				together = append(together, at)
			}
		}
		end()
	}
	return all
}

// hold makes a claim hold a block in place of what it holds; nothing if the block is not valid.
func (a *allocator) hold(c *claim, block netip.Prefix) {
	before, p := c.block, c.pool
	if before == block {
		return
	}
	if c.block = block; block.IsValid() {
		v := p.usage.Insert(block)
		v.claims = append(v.claims, c)
	}
	if before.IsValid() {
		v := p.usage.At(before)
		v.claims = slices.DeleteFunc(v.claims, func(o *claim) bool { return o == c })
		p.usage.Remove(before)
		a.wake(p, before)
	}
	a.touch(p.key)
}

// wake looks again at the claims that hold an address of a block that somebody else held, too.
func (a *allocator) wake(p *pool, block netip.Prefix) {
	for v := range p.usage.Values(block) {
		for _, c := range v.claims {
			a.touchClaim(c)
		}
	}
}

// want returns what a claim holds. A claim that holds nothing is given the next block, unless others wait for longer. by says who else has an address of
// the block; empty if it is the claim's alone.
func (a *allocator) want(c *claim) (block netip.Prefix, by string) {
	if !blockSaid(c.object).IsValid() && c.first() != "" { // Nobody knows of it yet, or somebody has decided so.
		a.hold(c, netip.Prefix{})
	}
	a.wait(c)
	a.serve(c.pool)
	return c.block, c.first()
}

// first names one who has an address of the claim's block with more right: an IPAddress, or a claim that had it before or has a wider block.
func (c *claim) first() (by string) {
	if !c.block.IsValid() {
		return ""
	}
	if all := c.pool.others(c.block, contract.NameOf(c.object)); len(all) > 0 {
		return "IPAddress " + contract.NameOf(all[0].object).String()
	}
	for v := range c.pool.usage.Values(c.block) {
		switch {
		case len(v.claims) == 0:
		case v.claims[0] == c:
			return ""
		default:
			return "IPAddressClaim " + contract.NameOf(v.claims[0].object).String()
		}
	}
	return ""
}

// serve gives free blocks to the claims that wait, oldest first. One that does not want a block now waits again when it does.
func (a *allocator) serve(p *pool) {
	if _, free := p.usage.Next(); !free || !p.eligible() {
		return
	}
	for _, c := range slices.SortedFunc(maps.Keys(p.waiting), func(a, b *claim) int { return contract.Older(a.object, b.object) }) {
		block, free := p.usage.Next()
		if !free {
			return
		}
		if delete(p.waiting, c); a.wants(c) {
			a.hold(c, block)
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
	text := contract.Own(o)[AnnotationAddress]
	if block, err := netip.ParsePrefix(text); err == nil && kinds[o.Spec.PoolRef.Kind].prefixes {
		return block.Masked()
	}
	at, _ := netip.ParseAddr(text)
	block, _ := at.WithZone("").Prefix(at.BitLen())
	return block
}

// textOf is how a block is written in annotations and texts: as an address if it is one.
func textOf(block netip.Prefix) string {
	if block.IsSingleIP() {
		return block.Addr().String()
	}
	return block.String()
}
