package book

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
)

// Verb is what a request does.
type Verb uint8

const (
	Create      Verb = iota // Object
	Read                    // the object of Key
	Patch                   // Body, a JSON merge patch with the UID and the resource version for which it was decided
	PatchStatus             // the same, of the status
	Delete                  // with UID
)

func (v Verb) String() string {
	return [...]string{"create", "read", "patch", "patch the status of", "delete"}[v]
}

// Request is one request to the API server. Every request is sent once. Its answer goes to [Book.Done].
type Request struct {
	Verb   Verb
	Key    Key // of the object
	UID    types.UID
	Object *v1beta2.IPAddress
	Body   []byte
	// What is the request in words, for logs.
	What string

	claim *claim
	at    time.Time // when it was decided
	said  []metav1.Condition
}

func (r *Request) String() string { return r.Verb.String() + " " + r.Key.String() }

// Event is a warning about an object. What goes well has no event: it would be a fourth request to the API server for each claim, and the
// status of the claim says it.
type Event struct {
	Key     Key
	UID     types.UID
	Reason  string
	Message string
}

// Reasons of events that are not reasons of conditions.
const (
	EventConflict = "AddressConflict"
	EventOverlap  = "PoolsOverlap"
	// EventWithoutClaim and EventUnreadable are about IPAddresses of a pool.
	EventWithoutClaim = "AddressWithoutClaim"
	EventUnreadable   = "AddressUnreadable"
	// EventEdited is about an IPAddressClaim with an address, or an IPAddress of a pool, whose spec somebody has changed.
	EventEdited = "SpecEdited"
)

// Next is what to do about a claim or a pool. The zero value is: nothing, until something changes.
type Next struct {
	Request *Request
	// Again is when to ask again if nothing changes before; zero if there is no need to.
	Again time.Time
	// Rests is whether nothing is left to do until Again, whatever failed before.
	Rests  bool
	Events []Event
}

// sooner makes Again at the latest t.
func (n *Next) sooner(t time.Time) {
	if n.Again.IsZero() || t.Before(n.Again) {
		n.Again = t
	}
}

// Result is what became of a request.
type Result uint8

const (
	// Stored: the API server has carried it out.
	Stored Result = iota
	// NotSent: it did not leave this process.
	NotSent
	// Unknown: there was no answer. The API server may have carried it out, or may still do so.
	Unknown
	// Exists: an object of this name exists. Only of Create.
	Exists
	// NotFound: there is no such object.
	NotFound
	// Conflicted: the object has changed since the request was decided.
	Conflicted
	// Rejected: the API server has refused it for another reason.
	Rejected
)

func (r Result) String() string {
	return [...]string{"stored", "not sent", "unknown", "exists", "not found", "conflict", "rejected"}[r]
}

// Answer is the answer to a request.
type Answer struct {
	Result Result
	// Until is until when the API server may carry out a request whose result is Unknown.
	Until time.Time
	// Claim, Address or Pool is the object that the API server has returned, if any.
	Claim   *v1beta2.IPAddressClaim
	Address *v1beta2.IPAddress
	Pool    *Pool
	// Why is what the API server said if it refused the request.
	Why string
}

// readAfter is how long a confirmed IPAddress may not show before it is read.
const readAfter = 5 * time.Second

// NextForClaim returns what to do next about a claim, and about the IPAddress of its name. The caller must not ask about the same claim
// again before it has told the answer.
func (b *Book) NextForClaim(key Key, now time.Time) (n Next) {
	if !b.started {
		return Next{}
	}
	defer b.serve() // a ghost may have freed an address
	if b.nextForGhosts(key, now, &n); n.Request != nil {
		return n
	}
	c, a := b.claims[key], b.addresses[key]
	if a != nil && (c == nil || !c.broken && !c.owns(a.object)) { // Without a claim, or in the way of one.
		b.releaseOrphan(a, now, &n)
	}
	if c != nil && n.Request == nil {
		b.nextFor(c, now, &n)
	}
	return n
}

func (b *Book) nextFor(c *claim, now time.Time, n *Next) {
	switch {
	case c.ref == nil && c.pool == nil:
	case b.isPaused(c):
		if c.read && !c.creating && !c.deleting() { // A read changes nothing, and others may be waiting for the address.
			b.readWhenOver(c, now, n)
		}
	case c.deleting():
		b.release(c, now, n)
	default:
		b.allocate(c, now, n)
	}
}

// nextForGhosts finds out whether claims that are gone have left IPAddresses that the cache does not show.
func (b *Book) nextForGhosts(key Key, now time.Time, n *Next) {
	for _, g := range slices.Clone(b.ghosts[key]) {
		shown := b.addresses[key]
		switch {
		case g.creating:
		case now.Before(g.maybeUntil):
			n.sooner(g.maybeUntil)
		case g.found != nil && shown != nil && shown.object.UID == g.found.UID:
			b.exorcise(g) // from now on the IPAddress holds the address
		case g.found != nil && now.Before(g.storedAt.Add(time.Second)):
			n.sooner(g.storedAt.Add(time.Second))
		default:
			n.Request = &Request{Verb: Read, Key: addressKey(key), claim: g, at: now, What: "find out whether an IPAddress of a deleted claim exists"}
			return
		}
	}
}

func (b *Book) exorcise(g *claim) {
	b.let(g)
	if b.ghosts[g.key] = slices.DeleteFunc(b.ghosts[g.key], func(o *claim) bool { return o == g }); len(b.ghosts[g.key]) == 0 {
		delete(b.ghosts, g.key)
	}
	b.touch(g.key)
}

func addressKey(claim Key) Key { return Key{v1beta2.KindIPAddress, claim.Namespace, claim.Name} }

// allocate returns what to do next for a claim that is to have an address.
func (b *Book) allocate(c *claim, now time.Time, n *Next) {
	if c.ref == nil || c.broken {
		return
	}
	if !b.withoutCluster(c) && !slices.Contains(c.object.Finalizers, v1beta2.FinalizerReleaseAddress) {
		n.Request = b.patchMeta(c.key, c.object, map[string]any{"finalizers": append(slices.Clone(c.object.Finalizers), v1beta2.FinalizerReleaseAddress)})
		n.Request.What = "add the finalizer"
		return
	}
	if n.Request = b.claimStatus(c, now, n); n.Request != nil {
		return
	}
	if own, _ := b.own(c); own != nil && c.state == Assigned { // last, because it may be taken back again and again
		n.Request = b.adopt(c, own.object)
		return
	}
	b.create(c, now, n)
}

// create returns the request that creates the IPAddress of a claim, or that reads it if it may exist already.
func (b *Book) create(c *claim, now time.Time, n *Next) {
	own, _ := b.own(c)
	switch {
	case c.creating || c.state == Assigned || c.state == Waiting:
	case c.stored && now.Before(c.storedAt.Add(readAfter)):
		n.sooner(c.storedAt.Add(readAfter))
	case c.stored, c.read:
		n.Request = b.readBack(c, now)
	case c.state == Sent && (own != nil || c.found != nil || !b.mayCreate(c)):
		// There is another IPAddress, or it could not be allocated any more, so it is not written again. What became of the last request is known after a read.
		b.readWhenOver(c, now, n)
	case !b.mayCreate(c): // It keeps the address until it may.
	default:
		c.state, c.creating = Sent, true
		n.Request = &Request{Verb: Create, Key: addressKey(c.key), Object: b.newAddress(c), claim: c, at: now, What: "create the IPAddress"}
	}
}

// readWhenOver reads the IPAddress of a claim once no request can create it any more.
func (b *Book) readWhenOver(c *claim, now time.Time, n *Next) {
	if now.Before(c.maybeUntil) {
		n.sooner(c.maybeUntil)
	} else {
		n.Request = b.readBack(c, now)
	}
}

func (b *Book) readBack(c *claim, now time.Time) *Request {
	return &Request{Verb: Read, Key: addressKey(c.key), claim: c, at: now, What: "find out whether the IPAddress exists"}
}

// release returns what to do next for a claim that is being deleted: first its IPAddress goes, then its finalizer.
func (b *Book) release(c *claim, now time.Time, n *Next) {
	last, shown, deleted := b.last(c)
	if (last != nil || c.unresolved() || c.state == Released) && c.inUse(now, n) {
		b.restore(c, last, now, n)
		return
	}
	switch {
	case last != nil:
		b.end(last, deleted, n)
		b.followEnd(c, shown, now, n)
	case c.creating:
	case c.unresolved(), c.read: // It may have an IPAddress that the cache does not show. If it has none, others can have its address before it is gone.
		b.readWhenOver(c, now, n)
	case slices.Contains(c.object.Finalizers, v1beta2.FinalizerReleaseAddress):
		b.letGo(c, n)
	}
}

// restore creates the IPAddress of a claim that is being deleted again, if it was forced away: only an IPAddress outlasts this process. One that this
// process has deleted stays away, also if the pool has a longer grace period by now: the claim may be gone already. If it is not known whether the claim
// got an IPAddress, a read tells: others may hold the claim for ever, and a pool that is being deleted waits for the answer.
func (b *Book) restore(c *claim, last *v1beta2.IPAddress, now time.Time, n *Next) {
	switch {
	case last != nil || c.ended || c.creating:
	case c.had && (b.mayCreate(c) || !c.arriving()):
		b.create(c, now, n)
	case c.unresolved(), c.read:
		b.readWhenOver(c, now, n)
	}
}

// inUse reports whether the address of a claim that is being deleted may still be in use: others have finalizers on the claim, or its grace is
// not over.
func (c *claim) inUse(now time.Time, n *Next) bool {
	if slices.ContainsFunc(c.object.Finalizers, func(f string) bool {
		return f != v1beta2.FinalizerReleaseAddress && f != metav1.FinalizerDeleteDependents
	}) {
		return true // until the claim changes
	}
	until := c.object.DeletionTimestamp.Add(c.source().grace())
	if now.Before(until) {
		n.sooner(until)
		n.Rests = true
		return true
	}
	return false
}

// last returns the IPAddress that a claim still has: the one that the cache shows, otherwise the one that a read has found.
func (b *Book) last(c *claim) (o *v1beta2.IPAddress, shown, deleted bool) {
	if own, _ := b.own(c); own != nil {
		return own.object, true, own.deleted
	}
	if c.found != nil && c.owns(c.found) {
		return c.found, false, false
	}
	return nil, false, false
}

// followEnd sees to it that the claim hears of the end of its IPAddress. If the cache does not show it, no event may come, so it is read.
func (b *Book) followEnd(c *claim, shown bool, now time.Time, n *Next) {
	again := c.storedAt.Add(time.Second)
	switch {
	case n.Request != nil:
		n.Request.claim = c
	case shown:
	case now.Before(again):
		n.sooner(again)
	default:
		n.Request = b.readBack(c, now)
	}
}

// letGo removes the finalizer of a claim, the last step of its release.
func (b *Book) letGo(c *claim, n *Next) {
	n.Request = b.patchMeta(c.key, c.object, map[string]any{"finalizers": without(c.object.Finalizers, v1beta2.FinalizerReleaseAddress)})
	n.Request.What = "release the claim"
}

// releaseOrphan lets an IPAddress go that is being deleted and whose claim does not exist. One that is not being deleted stays: somebody
// may have made it for a claim that is to come.
func (b *Book) releaseOrphan(a *address, now time.Time, n *Next) {
	if a.pool == nil || a.pool.isPaused() || a.object.DeletionTimestamp == nil || len(b.ghosts[claimOf(a.object)]) > 0 {
		return
	}
	if until := a.object.DeletionTimestamp.Add(a.pool.grace()); now.Before(until) {
		n.sooner(until)
		n.Rests = true
		return
	}
	b.end(a.object, true, n)
}

// end removes the finalizer of an IPAddress and deletes it.
func (b *Book) end(o *v1beta2.IPAddress, deleted bool, n *Next) {
	key := addressKey(claimOf(o))
	switch {
	case slices.Contains(o.Finalizers, v1beta2.FinalizerProtectAddress):
		n.Request = b.patchMeta(key, o, map[string]any{"finalizers": without(o.Finalizers, v1beta2.FinalizerProtectAddress)})
		n.Request.What = "release the IPAddress"
	case o.DeletionTimestamp == nil && !deleted:
		n.Request = &Request{Verb: Delete, Key: key, UID: o.UID, What: "delete the IPAddress"}
	}
}

// newAddress returns the IPAddress for a claim.
func (b *Book) newAddress(c *claim) *v1beta2.IPAddress {
	p := c.pool.object
	prefix := int32(p.Spec.Prefix) // from 0 to 128: the spec has been compiled
	o := &v1beta2.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Name: c.key.Name, Namespace: c.key.Namespace,
			Finalizers:      []string{v1beta2.FinalizerProtectAddress},
			OwnerReferences: []metav1.OwnerReference{c.ownerReference(true), c.pool.ownerReference()},
		},
		Spec: v1beta2.IPAddressSpec{
			ClaimRef: v1beta2.IPAddressClaimReference{Name: c.key.Name},
			PoolRef:  v1beta2.IPPoolReference{APIGroup: v1alpha2.GroupName, Kind: c.pool.key.Kind, Name: c.pool.key.Name},
			Address:  c.addr.String(), Prefix: &prefix, Gateway: p.Spec.Gateway,
		},
	}
	if name, ok := c.object.Labels[v1beta2.LabelClusterName]; ok {
		o.Labels = map[string]string{v1beta2.LabelClusterName: name}
	}
	return o
}

func (c *claim) ownerReference(controller bool) metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{
		APIVersion: cmp.Or(c.object.APIVersion, v1beta2.GroupVersion.String()), Kind: v1beta2.KindIPAddressClaim,
		Name: c.key.Name, UID: c.uid(), Controller: &controller, BlockOwnerDeletion: &yes,
	}
}

func (p *pool) ownerReference() metav1.OwnerReference {
	yes, no := true, false
	return metav1.OwnerReference{
		APIVersion: v1alpha2.GroupVersion.String(), Kind: p.key.Kind, Name: p.key.Name, UID: p.object.UID, Controller: &no, BlockOwnerDeletion: &yes,
	}
}

// adopt returns the request that gives an existing IPAddress of a claim its finalizer, owners and label; nil if it has them. Its spec is
// never changed. While it is being deleted, no finalizer can be added, and the claim keeps it as it is.
func (b *Book) adopt(c *claim, o *v1beta2.IPAddress) *Request {
	if o.DeletionTimestamp != nil {
		return nil
	}
	change := map[string]any{}
	if !slices.Contains(o.Finalizers, v1beta2.FinalizerProtectAddress) {
		change["finalizers"] = append(slices.Clone(o.Finalizers), v1beta2.FinalizerProtectAddress)
	}
	if owners, differ := c.owners(o); differ {
		change["ownerReferences"] = owners
	}
	if name, ok := c.object.Labels[v1beta2.LabelClusterName]; ok && o.Labels[v1beta2.LabelClusterName] != name {
		change["labels"] = map[string]string{v1beta2.LabelClusterName: name}
	}
	if len(change) == 0 {
		return nil
	}
	r := b.patchMeta(addressKey(c.key), o, change)
	r.What, r.claim = "adopt the IPAddress", c
	return r
}

// owners returns the owners that an IPAddress of the claim is to have, and whether they differ from those it has. An IPAddress has one
// controller at most, so the claim is not its controller if another object is.
func (c *claim) owners(o *v1beta2.IPAddress) (owners []metav1.OwnerReference, differ bool) {
	other := slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.Controller != nil && *r.Controller && (r.Kind != v1beta2.KindIPAddressClaim || r.Name != c.key.Name)
	})
	wanted := []metav1.OwnerReference{c.ownerReference(!other)}
	if p := c.source(); p.object != nil && p.object.DeletionTimestamp == nil {
		wanted = append(wanted, p.ownerReference())
	}
	owners = slices.Clone(o.OwnerReferences)
	for _, w := range wanted {
		i := slices.IndexFunc(owners, func(r metav1.OwnerReference) bool { return r.Kind == w.Kind && r.Name == w.Name })
		switch {
		case i < 0:
			owners, differ = append(owners, w), true
		case owners[i].UID != w.UID:
			owners[i], differ = w, true
		}
	}
	return owners, differ
}

// patchMeta returns a patch of the metadata of an object as it was seen. A list replaces the stored one, so the patch must not meet a newer
// object.
func (b *Book) patchMeta(key Key, o metav1.Object, change map[string]any) *Request {
	change["uid"], change["resourceVersion"] = o.GetUID(), o.GetResourceVersion()
	return &Request{Verb: Patch, Key: key, UID: o.GetUID(), Body: marshal(map[string]any{"metadata": change})}
}

func marshal(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("%v cannot be JSON: %v", v, err))
	}
	return body
}

func without(all []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == one })
}

// Done notes the answer to a request. The caller asks for the next request at once, or later if the answer was not Stored.
func (b *Book) Done(r *Request, answer Answer, now time.Time) {
	switch {
	case r.Verb == Create:
		b.created(r.claim, answer, now)
	case r.Verb == Read:
		b.readDone(r, answer, now)
	case r.Verb == Delete && (answer.Result == Stored || answer.Result == NotFound):
		b.deleted(r)
	case answer.Result == Stored:
		b.patched(r, answer)
	case r.Verb == Patch && r.Key.Kind == v1beta2.KindIPAddress && answer.Result != NotSent && r.claim != nil:
		r.claim.found = nil // it is read again
	}
	b.unused(r.claim)
	b.serve()
}

// unused looks again at a pool that is being deleted after an answer about a claim that has an address of it: the pool goes when no IPAddress of it can be created
// any more, and an answer may say so although the claim keeps its address.
func (b *Book) unused(c *claim) {
	if c != nil && c.pool != nil && c.pool.object != nil && c.pool.object.DeletionTimestamp != nil {
		b.touch(c.pool.key)
	}
}

// created notes the answer to a create request.
func (b *Book) created(c *claim, answer Answer, now time.Time) {
	c.creating = false
	b.touch(c.key)
	if answer.Result == Unknown && answer.Until.After(c.maybeUntil) {
		c.maybeUntil = answer.Until
	}
	switch {
	case c.state == Assigned && !b.isNews(c, answer): // The cache was faster.
		return
	case c.state == Assigned:
		c.state = Sent
	}
	switch answer.Result {
	case Stored:
		c.stored, c.storedAt, c.problem, c.had = true, now, "", true
		c.answers(answer.Address)
	case Unknown, Exists:
		c.read = true
	default:
		c.notCreated(answer, now)
	}
	switch {
	case c.gone && !c.unresolved() && !c.read:
		b.exorcise(c)
	case !c.gone:
		b.giveWay(c, now)
		b.settle(c)
	}
}

// isNews reports whether an answer has another IPAddress than the one that the cache shows.
func (b *Book) isNews(c *claim, answer Answer) bool {
	own, _ := b.own(c)
	return answer.Result == Stored && answer.Address != nil && own != nil && own.object.UID != answer.Address.UID
}

// notCreated notes that a create request has stored nothing. An earlier one without an answer may still do so.
func (c *claim) notCreated(answer Answer, now time.Time) {
	if answer.Result != NotSent {
		if c.problem = ""; answer.Why != "" {
			c.problem = "The API server refused the IPAddress: " + answer.Why
		}
		if c.failingSince.IsZero() {
			c.failingSince = now
		}
	}
	if c.maybeUntil.IsZero() && c.state == Sent {
		c.state = Refused
	}
}

// readDone notes what a read of an IPAddress has found. A read that was sent when no create request could arrive any more, and that finds
// nothing, proves that there is none.
func (b *Book) readDone(r *Request, answer Answer, now time.Time) {
	c := r.claim
	b.touch(c.key)
	over := !r.at.Before(c.maybeUntil)
	switch {
	case answer.Result == NotFound:
		c.read, c.stored, c.found = false, false, nil
		b.isOver(c, now)
		if over {
			b.absent(c)
		}
	case answer.Result == Stored && answer.Address != nil:
		b.readFound(c, answer.Address, over, now)
	default:
		return
	}
	if !c.gone {
		b.settle(c)
	}
}

// readFound notes the IPAddress that a read has found. over: no create request could arrive any more when it was sent.
func (b *Book) readFound(c *claim, o *v1beta2.IPAddress, over bool, now time.Time) {
	if o.UID != c.answered {
		b.isOver(c, now)
	}
	c.answers(o)
	if over {
		c.maybeUntil = time.Time{}
	}
	switch {
	case c.gone:
		c.leaves(o, over, now)
	case c.state == Released && !c.owns(o): // Its own is gone: this one has its name.
		c.read, c.stored, c.found = false, false, nil
	case c.state == Assigned || c.state == Released:
		c.read, c.found, c.storedAt = false, o, now
	case c.owns(o):
		at := b.at(c.answeredAt) // somebody may have edited it since
		c.read, c.found, c.stored, c.storedAt = false, o, over || c.has(at), now
		if c.stored { // Otherwise it may go before a create request arrives.
			b.holdFound(c, at)
		}
	default: // One that is in the way. The cache will show it.
		c.read, c.stored, c.found = false, false, nil
		if over {
			c.state = Refused
		}
		c.problem = c.obstructed(o)
	}
}

// leaves notes the IPAddress that a read has found after the claim was gone. A read that was too early proves nothing: a create request may still
// arrive after this IPAddress is gone.
func (c *claim) leaves(o *v1beta2.IPAddress, over bool, now time.Time) {
	if over {
		c.found, c.storedAt = o, now
	}
}

// answers notes the IPAddress that an answer has. Of several answers with one IPAddress, the first says what was allocated.
func (c *claim) answers(o *v1beta2.IPAddress) {
	if o == nil || o.UID == c.answered {
		return
	}
	c.answered, c.answeredAt = o.UID, said{}
	if key, ours := poolOf(o.Spec.PoolRef, o.Namespace); ours {
		c.answeredAt = said{key, addrOf(o)}
	}
}

// lateAtMost is for how long a cache may be behind. What it has not shown by then, it does not show at all.
const lateAtMost = time.Hour

// isOver notes that the last IPAddress of a claim is gone. If the cache shows it only now, the next claim of the name must not take it for its own: it would let
// go the address that it has, and others would get that.
func (b *Book) isOver(c *claim, now time.Time) {
	a, shown := b.addresses[c.key]
	if c.answered == "" || shown && a.object.UID == c.answered {
		return
	}
	maps.DeleteFunc(b.over, func(_ types.UID, since time.Time) bool { return now.Sub(since) > lateAtMost })
	b.over[c.answered], c.answered = now, ""
}

// absent notes that a claim has no IPAddress, and that no request can create one any more.
func (b *Book) absent(c *claim) {
	hadOne := c.had || !c.maybeUntil.IsZero() // and perhaps somebody has forced it away
	c.maybeUntil = time.Time{}
	switch {
	case c.gone:
		b.exorcise(c)
	case c.state == Sent && c.deleting() && hadOne:
		c.state = Released
	case c.state == Sent:
		c.state = Refused
	}
}

// holdFound makes a claim hold the address that its IPAddress has, whatever was reserved for it.
func (b *Book) holdFound(c *claim, at place) {
	if !c.has(at) {
		b.let(c)
		b.hold(c, at.pool, at.addr)
		c.state = Sent
	}
	c.had = c.addr.IsValid()
}

// deleted notes that an IPAddress was deleted. If others have finalizers on it, it still exists.
func (b *Book) deleted(r *Request) {
	if a, ok := b.addresses[ClaimKey(r.Key.Namespace, r.Key.Name)]; ok && a.object.UID == r.UID {
		a.deleted = true
	}
	c := r.claim
	if c == nil {
		return
	}
	c.ended = true
	if c.found != nil && c.found.UID == r.UID {
		c.found, c.stored = nil, true // the next read tells whether it is gone
	}
}

// patched enters what the API server has returned. An object whose deletion was already heard of does not come back.
func (b *Book) patched(r *Request, answer Answer) {
	switch o := answer; {
	case o.Claim != nil:
		if c, ok := b.claims[r.Key]; ok && c.uid() == o.Claim.UID {
			b.SetClaim(o.Claim)
		}
	case o.Address != nil:
		b.patchedAddress(r, o.Address)
	case o.Pool != nil:
		if p, ok := b.pools[r.Key]; ok && p.object != nil && p.object.UID == o.Pool.UID {
			if r.Verb == PatchStatus {
				p.said = r.said
			}
			b.SetPool(o.Pool)
		}
	}
}

// patchedAddress enters an IPAddress that the API server has returned. One that the cache does not show was found by a read.
func (b *Book) patchedAddress(r *Request, o *v1beta2.IPAddress) {
	key := ClaimKey(r.Key.Namespace, r.Key.Name)
	if r.claim != nil && o.DeletionTimestamp != nil && !slices.Contains(o.Finalizers, v1beta2.FinalizerProtectAddress) {
		r.claim.ended = true
	}
	if a, ok := b.addresses[key]; ok && a.object.UID == o.UID {
		b.SetAddress(o)
	} else if c := r.claim; c != nil && c.found != nil && c.found.UID == o.UID {
		c.found = o
	}
}
