package infoblox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/host"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/known"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
	"github.com/multicidr/controller-manager/controllers/text"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// errFull is that no subnet of a pool has a free address.
var errFull = errors.New("no subnet has a free address")

// maxSteps limits the steps of one attempt: somebody else may change the host record all the time.
const maxSteps = 20

// situation is a claim with what has its name.
type situation struct {
	claim    *v1beta2.IPAddressClaim
	address  *v1beta2.IPAddress // the claim's; without a claim, whatever it is
	foreign  *v1beta2.IPAddress // one that stands in the claim's way
	leftover bool               // foreign leaves, and this controller is to release it
	copy     bool               // foreign is a copy of what another claim has
	equal    string             // foreign and this IPAddress have one host record, and nobody knows which is the copy; or empty
	held     bool               // foreign is paused, or its pool is
	rests    bool               // nothing is to be done about the claim
}

func (l *logic) situationOf(key shell.Key) (s situation) {
	s.claim, _ = l.Claims.Get(key.Namespace, key.Name)
	s.address, _ = l.Addresses.Get(key.Namespace, key.Name)
	if s.claim == nil {
		return s
	}
	if s.address != nil && !l.Owns(s.claim, s.address) {
		s.address, s.foreign = nil, s.address
		l.judgeForeign(&s)
	}
	s.rests = !known.Concerns(s.claim) || l.Claims.Broken(s.claim) != nil && s.claim.DeletionTimestamp == nil || l.pausedOrAlone(s.claim) ||
		!known.OfInfoblox(s.claim.Spec.PoolRef) && s.address != nil && l.IsPaused(s.address)
	return s
}

// judgeForeign finds out about the IPAddress in a claim's way.
func (l *logic) judgeForeign(s *situation) {
	s.held = l.IsPaused(s.foreign)
	if !known.OfInfoblox(s.foreign.Spec.PoolRef) {
		return
	}
	// Of a claim that cannot be read nobody knows what it has.
	s.leftover = known.IsLeaving(s.foreign) && l.Claims.Broken(s.claim) == nil
	if s.foreign.Spec.ClaimRef.Name != s.claim.Name {
		return
	}
	originals := l.Originals(s.foreign)
	s.copy = !s.held && slices.ContainsFunc(originals, l.IsServed)
	if !s.copy && len(originals) > 0 {
		s.equal = originals[0].String()
	}
}

// syncClaim brings a claim to its address, or releases what it has.
func (l *logic) syncClaim(ctx context.Context, key shell.Key) error {
	var s situation
	l.Lock.With(func() { s = l.situationOf(key) })
	switch {
	case s.claim == nil:
		return l.releaseOrphan(ctx, s.address)
	case s.leftover: // The claim may be another allocator's. It does not wait for that.
		return errors.Join(l.releaseLeftover(ctx, s), l.bring(ctx, s))
	}
	return l.bring(ctx, s)
}

// bring does what a claim itself needs.
func (l *logic) bring(ctx context.Context, s situation) error {
	claim, address := s.claim, s.address
	switch {
	case s.rests:
		return nil
	case claim.DeletionTimestamp != nil:
		return l.release(ctx, claim, address)
	case s.leftover && s.held:
		return l.pend(ctx, claim, v1beta2.ReasonAllocationFailed, fmt.Sprintf("The IPAddress %s is being deleted, and goes when it and its InfobloxIPPool %s are not paused any more.",
			claim.Name, s.foreign.Spec.PoolRef.Name))
	case s.leftover:
		return l.pend(ctx, claim, v1beta2.ReasonAllocationFailed, fmt.Sprintf("The IPAddress %s of the %s %s is being deleted, and goes after its host record. See its event %s if there is one.",
			claim.Name, s.foreign.Spec.PoolRef.Kind, s.foreign.Spec.PoolRef.Name, reasonReleaseFailed))
	case s.copy: // Written down, because it does not show any more when the original is gone: the claim would be told then that it has the address.
		return l.begin(ctx, l.orphan(s.foreign))
	case s.equal != "": // Not everything that decides it wakes this claim, such as that the other one is told of its IPAddress.
		return l.stuck(ctx, claim, fmt.Sprintf("The IPAddresses %s and %s have the same host record, and nobody knows which of them is the copy. Delete the one that no machine uses.",
			known.NameOf(s.foreign), s.equal))
	case s.foreign != nil:
		return l.pend(ctx, claim, v1beta2.ReasonAllocationFailed, fmt.Sprintf("The IPAddress %s exists, and is of the %s %s. Delete it if no machine uses it, or create a claim with another name.",
			claim.Name, s.foreign.Spec.PoolRef.Kind, s.foreign.Spec.PoolRef.Name))
	case address != nil:
		return l.finish(ctx, claim, address)
	default:
		return l.allocate(ctx, claim)
	}
}

// pausedOrAlone reports whether a claim is to be left alone: it, its pool or its Cluster is paused, or it names a Cluster that is not there yet.
// That the Cluster is gone does not keep a claim that is deleted.
func (l *logic) pausedOrAlone(claim *v1beta2.IPAddressClaim) bool {
	pool, ok := l.Pools.Get(claim.Namespace, claim.Spec.PoolRef.Name)
	if known.Paused(claim) || ok && known.Paused(pool) && known.OfInfoblox(claim.Spec.PoolRef) {
		return true
	}
	name := known.ClusterOf(claim)
	if _, served := l.Served(shell.Clusters); name == "" || !served {
		return false
	}
	c, ok := l.Clusters.Get(claim.Namespace, name)
	if !ok {
		return claim.DeletionTimestamp == nil
	}
	return c.Paused()
}

// prospects are what a claim can expect from its pool.
type prospects struct {
	from   source
	client WAPI
	// reason and message say why the pool cannot be used.
	reason, message string
	// unchecked: the pool is being checked, which queues its claims.
	unchecked bool
	// full is for how long the pool is not asked because it was full.
	full time.Duration
}

// prospectsOf looks at the pool of a claim.
func (l *logic) prospectsOf(claim *v1beta2.IPAddressClaim) (p prospects) {
	name := known.PoolOf(claim.Namespace, claim.Spec.PoolRef)
	pool, ok := l.Pools.Get(name.Namespace, name.Name)
	v := l.verdicts[name]
	switch {
	case !ok:
		p.reason, p.message = v1beta2.ReasonPoolNotReady, fmt.Sprintf("The InfobloxIPPool %s does not exist. Create it.", name.Name)
	case pool.DeletionTimestamp != nil:
		p.reason, p.message = v1beta2.ReasonPoolNotReady, fmt.Sprintf("The InfobloxIPPool %s is being deleted. Use another one.", name.Name)
	case v != nil && !v.ready:
		p.reason, p.message = v1beta2.ReasonPoolNotReady, fmt.Sprintf("The InfobloxIPPool %s is not ready. %s", name.Name, v.message)
	default:
		var inputs string
		p.from, p.client, _, inputs = l.sourceOf(pool)
		p.unchecked = v == nil || p.client == nil || v.inputs != inputs
		p.full = l.full[name].Sub(l.Now())
	}
	return p
}

// allocate gets an address for a claim that has no IPAddress.
func (l *logic) allocate(ctx context.Context, claim *v1beta2.IPAddressClaim) error {
	var p prospects
	l.Lock.With(func() { p = l.prospectsOf(claim) })
	switch {
	case p.reason != "":
		return l.pend(ctx, claim, p.reason, p.message)
	case p.unchecked:
		return nil
	case p.full > 0 && !known.ToldTo(claim).Address.IsValid(): // Otherwise it gets what it had, and no other address.
		return l.exhausted(ctx, claim, p.full)
	}
	names, mayShare := naming(claim, p.from).Names()
	had, moved, leaves := l.leaves(claim, p.from, names)
	switch {
	case moved && known.WasServed(claim):
		return l.stuck(ctx, claim, fmt.Sprintf("The claim has had an address, which stays in the host record %s of the InfobloxInstance %s and the network view %s. Let the pool name these again, or create another claim.",
			had.Name, had.Instance, had.NetworkView))
	case leaves:
		if err := l.leave(ctx, claim); err != nil {
			return err
		}
	}
	return l.try(ctx, claim, p.client, p.from, names, mayShare)
}

// leaves tells which host record a claim has, whether that is not at the place of its pool, and whether the claim gets another one: the pool or the
// annotation may have changed while the claim was waiting.
func (l *logic) leaves(claim *v1beta2.IPAddressClaim, from source, names []string) (had known.RecordName, moved, leaves bool) {
	had, has := known.RecordOf(claim)
	l.Lock.With(func() {
		moved = has && !l.SamePlace(had.Place, from.Place)
		if leaves = moved || has && !slices.Contains(names, had.Name); leaves && !known.WasServed(claim) {
			l.Leaving[claim.UID] = true
		} else {
			delete(l.Leaving, claim.UID)
		}
	})
	return had, moved, leaves
}

// remember writes to a claim which address it has, before the claim is told.
func (l *logic) remember(ctx context.Context, claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) (*v1beta2.IPAddressClaim, error) {
	has, madeFor := l.allocated(address), address.Annotations[known.AnnotationClaim]
	if !has.IsValid() || known.ToldTo(claim).Address.IsValid() || claim.Annotations[known.AnnotationAddress] == has.String() && claim.Annotations[known.AnnotationClaim] == madeFor {
		return claim, nil
	}
	annotations := map[string]any{known.AnnotationAddress: has.String(), known.AnnotationClaim: nil}
	if madeFor != "" {
		annotations[known.AnnotationClaim] = madeFor
	}
	stored := &v1beta2.IPAddressClaim{}
	err := l.API.Patch(ctx, shell.IPAddressClaims, known.NameOf(claim), shell.MergePatchOfVersion(claim, map[string]any{"metadata": map[string]any{"annotations": annotations}}), stored)
	return stored, err
}

// leave gives up the host record of a claim that gets another one. The cache may not show yet that the claim has an IPAddress, or that it had one and was
// told.
func (l *logic) leave(ctx context.Context, claim *v1beta2.IPAddressClaim) error {
	if err := l.noneComes(ctx, known.NameOf(claim), l.writing(claim)); err != nil {
		return err
	}
	if err := l.untold(ctx, claim); err != nil {
		return err
	}
	return l.giveUpFormer(ctx, claim, l.releasedOf(claim, nil))
}

// writing returns until when a create of an IPAddress with the address of a claim's host record can be carried out, or a write that tells the claim of it.
func (l *logic) writing(claim *v1beta2.IPAddressClaim) (until time.Time) {
	l.Lock.With(func() {
		if until = l.Creating[claim.UID]; until.Before(l.Telling[claim.UID]) {
			until = l.Telling[claim.UID]
		}
	})
	return until
}

// untold returns an error if a claim that stays has been told of an IPAddress, which the cache does not show.
func (l *logic) untold(ctx context.Context, claim *v1beta2.IPAddressClaim) error {
	if claim.DeletionTimestamp != nil {
		return nil
	}
	stored := &v1beta2.IPAddressClaim{}
	switch err := l.API.Get(ctx, shell.IPAddressClaims, known.NameOf(claim), stored); {
	case writes.NotThere(err), err == nil && (stored.UID != claim.UID || known.WasServed(stored)):
		return writes.Later(time.Second)
	case err != nil:
		return err
	}
	return nil
}

// exists returns an error if an IPAddress that the cache shows is gone.
func (l *logic) exists(ctx context.Context, address *v1beta2.IPAddress) error {
	stored := &v1beta2.IPAddress{}
	switch err := l.API.Get(ctx, shell.IPAddresses, known.NameOf(address), stored); {
	case writes.NotThere(err), err == nil && stored.UID != address.UID:
		return writes.Later(time.Second)
	case err != nil:
		return err
	}
	return nil
}

// giveUpFormer gives up the host record that a claim had before. If nobody can do that now, the claim says so.
func (l *logic) giveUpFormer(ctx context.Context, claim *v1beta2.IPAddressClaim, had released) error {
	copied := func() bool { return l.IsCopied(claim) } // Of a record that the claim was never told of, nobody has a copy.
	switch err := l.releaseRecord(ctx, had, copied); {
	case errors.Is(err, writes.Later(checkFailed)):
		if said := l.pend(ctx, claim, v1beta2.ReasonAllocationFailed, fmt.Sprintf("The claim had the host record %s before, and the InfobloxInstance %s cannot give it up. See the event %s.", had.Name, had.Instance, reasonReleaseFailed)); said != nil {
			return said
		}
		return err
	case err != nil && claim.DeletionTimestamp != nil:
		return err
	case err != nil:
		return l.failed(ctx, claim, err)
	}
	l.Lock.With(func() { // It has another one, or gets one.
		delete(l.Chosen, claim.UID)
		delete(l.Removed, claim.UID)
	})
	return nil
}

// noneComes returns an error while a claim may have an IPAddress that the cache does not show. until is how long a create of it can be carried out.
func (l *logic) noneComes(ctx context.Context, name types.NamespacedName, until time.Time) error {
	if wait := until.Sub(l.Now()); wait > 0 {
		return writes.Later(wait)
	}
	switch err := l.API.Get(ctx, shell.IPAddresses, name, &v1beta2.IPAddress{}); {
	case err == nil:
		return writes.Later(time.Second)
	case !writes.NotThere(err):
		return err
	}
	return nil
}

// noneOfThemComes is noneComes for several claims.
func (l *logic) noneOfThemComes(ctx context.Context, until map[types.NamespacedName]time.Time) error {
	for name, until := range until {
		if err := l.noneComes(ctx, name, until); err != nil {
			return err
		}
	}
	return nil
}

// try tries the names that the claim's host record can have.
func (l *logic) try(ctx context.Context, claim *v1beta2.IPAddressClaim, client WAPI, from source, names []string, mayShare bool) error {
	l.Lock.With(func() { // A name that was given up before is not tried again, even if the cache does not show that yet.
		if i := slices.Index(names, l.Prepared[claim.UID].Name); i > 0 {
			names = names[i:]
		}
	})
	for i, name := range names {
		var err error
		if claim, err = l.prepare(ctx, claim, from.Place, name); err != nil {
			return err
		}
		step, err := l.obtain(ctx, client, host.Claim{UID: claim.UID, Namespace: claim.Namespace, Name: claim.Name, Wanted: wanted(name, from), Subnets: from.subnets, MayShare: mayShare, Had: known.ToldTo(claim), Says: types.UID(claim.Annotations[known.AnnotationClaim])}, from)
		switch {
		case errors.Is(err, errFull):
			l.Lock.With(func() { l.full[known.PoolOf(claim.Namespace, claim.Spec.PoolRef)] = l.Now().Add(fullFor) })
			return l.exhausted(ctx, claim, fullFor)
		case err != nil:
			return l.failed(ctx, claim, err)
		case step.Verb == host.Wait:
			return l.waitForOthers(ctx, claim, name)
		case step.Verb == host.Use:
			l.Lock.With(func() { delete(l.full, known.PoolOf(claim.Namespace, claim.Spec.PoolRef)) })
			return l.create(ctx, claim, from, step)
		case step.Verb == host.Ambiguous:
			return l.ambiguous(ctx, claim, step.Record)
		case step.Verb == host.Lost:
			return l.stuck(ctx, claim, fmt.Sprintf("The claim has had the address %s, and somebody has deleted its IPAddress. Infoblox has no host record %s with this address and the UID of the claim, or the InfobloxIPPool %s has no subnet for it. Put that back, or create another claim.",
				claim.Annotations[known.AnnotationAddress], name, claim.Spec.PoolRef.Name))
		case i < len(names)-1: // host.Taken
			l.sayIfItWas(claim, step.Record)
		default:
			return l.stuck(ctx, claim, fmt.Sprintf("Infoblox has a host record %s in the network view %s, or in another one of the same DNS view, and it belongs to somebody else. Delete it there if no machine uses its addresses, or create the claim with another annotation %s.",
				name, from.NetworkView, v1alpha1.AnnotationHostname))
		}
	}
	return nil
}

// sayIfItWas says that a host record which stands in the way of a claim may be its own, if it was made for a claim of this name that is not there any more: somebody
// has moved the claim, or put it back, before it had an IPAddress. Another cluster can have a claim of this name, too, so the record stays.
func (l *logic) sayIfItWas(claim *v1beta2.IPAddressClaim, r host.Record) {
	uids, known := r.Claims(), true
	if len(uids) == 1 && r.For(claim.Namespace+"/"+claim.Name) {
		l.Lock.With(func() { known = l.Known(uids[0]) != nil })
	}
	if !known {
		l.Tell(shell.Event{About: claim, Kind: shell.IPAddressClaims, Reason: reasonRecordLeft, Message: fmt.Sprintf(
			"Infoblox has a host record %s with the UID %s of another claim of this name, so this claim gets another record. If no cluster has that claim any more, for example because it was moved here, delete the record there.", r.Name, uids[0])})
	}
}

// ambiguous starts anew if a host record has several addresses, nobody but this claim has any there, and nobody knows which one is the claim's. Infoblox may have
// given several while none of them could be used, because somebody had them who is gone by now. The claim was told none, so no machine uses any.
func (l *logic) ambiguous(ctx context.Context, claim *v1beta2.IPAddressClaim, r host.Record) error {
	if !slices.Equal(r.Claims(), []types.UID{claim.UID}) {
		return l.stuck(ctx, claim, fmt.Sprintf("The host record %s in Infoblox has several addresses that no IPAddress has: %v. Remove from it those that nobody uses.", r.Name, r.Addresses()))
	}
	if err := l.leave(ctx, claim); err != nil {
		return err
	}
	return writes.Later(time.Second)
}

// waitForOthers lets other claims in the same host record get their addresses first. That takes a moment, or as long as their pool is full.
func (l *logic) waitForOthers(ctx context.Context, claim *v1beta2.IPAddressClaim, name string) error {
	if l.Now().Sub(claim.CreationTimestamp.Time) < 10*time.Second {
		return writes.Later(time.Second)
	}
	full := false
	l.Lock.With(func() { // Who asks the pool does so at the end of that time, so it is noted anew by then.
		until, noted := l.full[known.PoolOf(claim.Namespace, claim.Spec.PoolRef)]
		full = noted && l.Now().Before(until.Add(fullFor))
	})
	if said := meta.FindStatusCondition(claim.Status.Conditions, v1beta2.ConditionReady); full && said != nil && said.Reason == v1beta2.ReasonPoolExhausted {
		return writes.Later(5 * time.Second) // It waits for both, and would say the one and the other in turn.
	}
	message := fmt.Sprintf("Another IPAddressClaim shares the host record %s and has no address yet. See its condition Ready.", name)
	if err := l.pend(ctx, claim, v1beta2.ReasonAllocationFailed, message); err != nil {
		return err
	}
	return writes.Later(5 * time.Second)
}

// naming returns what the name of a claim's host record comes from.
func naming(claim *v1beta2.IPAddressClaim, from source) host.Naming {
	n := host.Naming{Claim: claim.Name, UID: claim.UID, Hostname: claim.Annotations[v1alpha1.AnnotationHostname], DNSZone: from.dnsZone}
	if had, ok := known.RecordOf(claim); ok {
		n.Recorded, n.Served = had.Name, known.WasServed(claim)
	}
	if owner := metav1.GetControllerOf(claim); owner != nil {
		n.Machine = owner.Name
	}
	return n
}

func wanted(name string, from source) host.Record {
	r := host.Record{Name: name, NetworkView: from.NetworkView}
	if from.dnsZone != "" {
		r.ConfiguredForDNS, r.View = true, from.dnsView
	}
	return r
}

// prepare writes to a claim what its release needs, before anything is written to Infoblox.
func (l *logic) prepare(ctx context.Context, claim *v1beta2.IPAddressClaim, at known.Place, name string) (*v1beta2.IPAddressClaim, error) {
	finalizers, missing := known.Without(claim.Finalizers, v1beta2.FinalizerReleaseAddress)
	done := !missing && claim.Annotations[known.AnnotationName] == name && claim.Annotations[known.AnnotationPlace] == at.String() && claim.Annotations[annotationMissing] == ""
	l.Lock.With(func() {
		want := known.RecordName{Place: at, Name: name}
		before, ok := l.Prepared[claim.UID]
		done = done && (!ok || before == want) // Otherwise the cache shows what was before a write whose answer was lost.
		if l.Shown(shell.IPAddressClaims, claim) {
			l.Prepared[claim.UID] = want
		}
	})
	if done {
		return claim, nil
	}
	stored := &v1beta2.IPAddressClaim{}
	patch := shell.MergePatchOfVersion(claim, map[string]any{"metadata": map[string]any{
		"finalizers": append(finalizers, v1beta2.FinalizerReleaseAddress),
		"annotations": map[string]any{
			v1alpha1.AnnotationHostname: cmp.Or(claim.Annotations[v1alpha1.AnnotationHostname], name),
			known.AnnotationPlace:       at.String(),
			known.AnnotationName:        name,
			annotationMissing:           nil,
		},
	}})
	if err := l.API.Patch(ctx, shell.IPAddressClaims, known.NameOf(claim), patch, stored); err != nil {
		return nil, err
	}
	return stored, nil
}

// claimRecord keeps others from the host records of a name until done is called. It fails if somebody else is at work on them.
func (l *logic) claimRecord(name known.RecordName) (r *recordState, done func(), err error) {
	l.Lock.With(func() {
		if r = l.recordState(name); r.busy {
			err = writes.Later(100 * time.Millisecond)
			return
		}
		r.busy = true
	})
	return r, func() {
		l.Lock.With(func() {
			if r.busy = false; !l.Now().Before(r.unsettled) {
				delete(l.records, recordKey(name))
			}
		})
	}, err
}

// sent notes the outcome of a write to Infoblox.
func (l *logic) sent(r *recordState, create bool, err error) error {
	if wapi.InFlight(err) {
		l.Lock.With(func() { r.unsettle(create, l.Now()) })
	}
	return err
}

// settles returns an error until the writes of a host record that were not answered are over: all of them, or those that would change a record
// that is created now.
func (l *logic) settles(r *recordState, create bool) (err error) {
	l.Lock.With(func() {
		until := r.unsettled
		if create {
			until = r.changing
		}
		if wait := until.Sub(l.Now()); wait > 0 {
			err = writes.Later(wait)
		}
	})
	return err
}

// obtain brings a claim to an address in Infoblox. The step that it returns is Use, or says why there is none.
//
// Whatever was written before, by whom, and whether the answer came: it looks first, and writes only what is missing. Infoblox refuses a second
// record of a name, so a lost create is sent again at once. An update adds an address, whatever has become of the last one, so it is not
// sent again until the last one is over. A record that is created again has the reference of the one before, so a create waits for updates and
// deletes.
func (l *logic) obtain(ctx context.Context, client WAPI, c host.Claim, from source) (step host.Step, err error) {
	r, done, err := l.claimRecord(known.RecordName{Place: from.Place, Name: c.Wanted.Name})
	if err != nil {
		return step, err
	}
	defer done()
	hidden := false // Infoblox has a record of the name that it does not show, such as one in another network view of the DNS view.
	for range maxSteps {
		found, err := client.Hosts(ctx, c.Wanted.Name, from.NetworkView)
		if err != nil {
			return step, err
		}
		l.Lock.With(func() {
			step = host.Next(c, found, known.At{World: l.World, Place: from.Place})
			if _, exists := l.Names[c.UID]; exists && step.Verb == host.Use { // Otherwise nothing would end it.
				l.Chosen[c.UID] = known.Chosen{Address: step.Address, Place: from.Place}
				delete(l.Removed, c.UID) // That was another one, which it had begun to give up.
			}
		})
		switch step.Verb {
		case host.Use, host.Ambiguous, host.Wait, host.Lost:
			return step, l.mayUse(r, step)
		case host.Create:
			if hidden {
				step.Verb = host.Taken
			}
		}
		create := step.Verb == host.Create
		if err := l.mayWrite(ctx, c, r, create); err != nil {
			return step, err
		}
		if step.Verb == host.Taken {
			return step, nil
		}
		if hidden, err = l.send(ctx, client, r, step, from); err != nil {
			return step, err
		}
	}
	return step, fmt.Errorf("the host record %s changes all the time", c.Wanted.Name)
}

// mayUse returns an error while what was sent when a claim gave its host record up can still take the address away that is to be used, or an IPAddress can still
// come that has it, too.
func (l *logic) mayUse(r *recordState, step host.Step) error {
	if step.Verb != host.Use {
		return nil
	}
	if wait := l.unsure.Sub(l.Now()); wait > 0 {
		return writes.Later(wait)
	}
	return l.settles(r, true)
}

// mayWrite returns an error while a write to a claim's host record has to wait: for others that were not answered, or because there is an IPAddress, or may be one
// soon, that says the address which the record has, or had: somebody may have deleted it, and nobody else gets the address as long as it is the one that was chosen.
func (l *logic) mayWrite(ctx context.Context, c host.Claim, r *recordState, create bool) error {
	if err := l.settles(r, create); err != nil {
		return err
	}
	var until time.Time
	sent, chose, shown := false, false, false
	l.Lock.With(func() {
		until, sent = l.Creating[c.UID]
		_, chose = l.Chosen[c.UID]
		_, shown = l.Addresses.Get(c.Namespace, c.Name)
	})
	switch {
	case shown: // by now
		return writes.Later(time.Second)
	case create && !chose, !create && !sent:
		return nil
	}
	if sent {
		if err := l.noneComes(ctx, types.NamespacedName{Namespace: c.Namespace, Name: c.Name}, until); err != nil {
			return err
		}
	}
	if create { // Otherwise nobody would ever get the address that the claim's last record had, if Infoblox has given it to another one.
		l.Lock.With(func() { delete(l.Chosen, c.UID) })
	}
	return nil
}

// send sends the write of a step. That the record has changed is no error. duplicate: there is one of the name already.
func (l *logic) send(ctx context.Context, client WAPI, r *recordState, step host.Step, from source) (duplicate bool, err error) {
	err = l.sent(r, step.Verb == host.Create, write(ctx, client, step, from))
	if duplicate = wapi.IsDuplicate(err); duplicate || wapi.IsNotFound(err) {
		return duplicate, nil
	}
	return false, err
}

// write carries out a step, with the first subnet that has a free address.
func write(ctx context.Context, client WAPI, step host.Step, from source) (err error) {
	if !step.Next {
		return client.UpdateHost(ctx, step.Record)
	}
	for _, s := range from.subnets {
		r := step.Record.WithNext(s.Prefix, from.NetworkView)
		if step.Verb == host.Create {
			_, err = client.CreateHost(ctx, r)
		} else {
			err = client.UpdateHost(ctx, r)
		}
		if !wapi.IsFull(err) {
			return err
		}
	}
	return errFull
}

// create creates the IPAddress of a claim.
func (l *logic) create(ctx context.Context, claim *v1beta2.IPAddressClaim, from source, step host.Step) error {
	var pool *v1alpha1.InfobloxIPPool
	l.Lock.With(func() { pool, _ = l.Pools.Get(claim.Namespace, claim.Spec.PoolRef.Name) })
	if pool == nil {
		return writes.Later(time.Second)
	}
	claimVersion, _ := l.Served(shell.IPAddressClaims)
	poolVersion, _ := l.Served(shell.InfobloxIPPools)
	address := &v1beta2.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Name: claim.Name, Namespace: claim.Namespace,
			Annotations: map[string]string{
				v1alpha1.AnnotationHostname: step.Record.Name,
				known.AnnotationPlace:       from.String(),
				known.AnnotationName:        step.Record.Name,
			},
			Finalizers: []string{v1beta2.FinalizerProtectAddress},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: claimVersion, Kind: v1beta2.KindIPAddressClaim, Name: claim.Name, UID: claim.UID, Controller: new(true), BlockOwnerDeletion: new(true)},
				{APIVersion: poolVersion, Kind: v1alpha1.KindInfobloxIPPool, Name: pool.Name, UID: pool.UID, Controller: new(false), BlockOwnerDeletion: new(true)},
			},
		},
		Spec: v1beta2.IPAddressSpec{
			ClaimRef: v1beta2.IPAddressClaimReference{Name: claim.Name},
			PoolRef:  claim.Spec.PoolRef,
			Address:  step.Address.String(),
			Prefix:   new(int32(step.Subnet.Prefix.Bits())),
		},
	}
	madeFor := claim.UID
	if !step.Record.Of(claim.UID) { // The claim has had it before it was moved.
		madeFor = known.ToldTo(claim).Was
	}
	if madeFor != "" { // Another program does not mark its host records.
		address.Annotations[known.AnnotationClaim] = string(madeFor)
	}
	if step.Subnet.Gateway.IsValid() {
		address.Spec.Gateway = step.Subnet.Gateway.String()
	}
	if cluster := known.ClusterOf(claim); cluster != "" {
		address.Labels = map[string]string{v1beta2.LabelClusterName: cluster}
	}
	stored := &v1beta2.IPAddress{}
	err := l.API.Create(ctx, shell.IPAddresses, address, stored)
	l.Lock.With(func() {
		switch until := l.Creating[claim.UID]; {
		case !l.Shown(shell.IPAddressClaims, claim): // Nothing would end it.
		case !writes.Answered(err):
			l.Creating[claim.UID] = l.Now().Add(l.unanswered())
		case err == nil && until.Before(l.Now()):
			l.Creating[claim.UID] = l.Now() // The cache does not show it yet.
		}
	})
	if err != nil {
		return l.notCreated(ctx, claim, err)
	}
	l.Took(l.Now().Sub(claim.CreationTimestamp.Time))
	return l.finish(ctx, claim, stored)
}

// notCreated says why the IPAddress of a claim was not created, if the API server refuses it.
func (l *logic) notCreated(ctx context.Context, claim *v1beta2.IPAddressClaim, err error) error {
	switch {
	case apierrors.IsAlreadyExists(err):
		return writes.RefusedLater{Err: err} // Its event is coming: it may be ours, of a create that was not answered.
	case writes.Answered(err) && !writes.NotSent(err):
		if said := l.pend(ctx, claim, v1beta2.ReasonAllocationFailed, fmt.Sprintf("The API server refuses the IPAddress: %v.", err)); said != nil {
			return errors.Join(err, said)
		}
	}
	return err
}

// finish writes into a claim which IPAddress it has.
func (l *logic) finish(ctx context.Context, claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) error {
	if !known.WasServed(claim) && address.Annotations[known.AnnotationClaim] != string(claim.UID) {
		if err := l.isOnlyOne(ctx, claim, address); err != nil {
			return err
		}
		if ok, err := l.reserved(ctx, claim, address); !ok {
			return err
		}
	}
	claim, err := l.leaveOther(ctx, claim, address)
	if err != nil {
		return err
	}
	l.waits(claim, "")
	if !slices.Contains(claim.Finalizers, v1beta2.FinalizerReleaseAddress) { // Another program has created the IPAddress.
		at, _ := known.PlaceOf(address)
		released := l.releasedOf(claim, address)
		if at == (known.Place{}) {
			at = released.Place
		}
		if claim, err = l.prepare(ctx, claim, at, released.Name); err != nil {
			return err
		}
	}
	if claim, err = l.remember(ctx, claim, address); err != nil {
		return err
	}
	c := metav1.Condition{Type: v1beta2.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready", Message: l.edits(claim, address), ObservedGeneration: claim.Generation}
	return l.status(ctx, claim, c, address.Name)
}

// leaveOther gives up the host record that a claim has got before the cache showed its IPAddress, if that has another one, and writes to the claim which one it has
// from now on: when the claim goes, or somebody takes the IPAddress away, only that one is looked for. A create of an IPAddress with the address of the former one may
// be on its way, or may have been carried out: the cache can be late. If the claim was told that it has that address, it keeps it until it goes.
func (l *logic) leaveOther(ctx context.Context, claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) (*v1beta2.IPAddressClaim, error) {
	if address == nil || known.WasServed(claim) && claim.DeletionTimestamp == nil || address.Annotations[known.AnnotationClaim] == string(claim.UID) {
		return claim, nil
	}
	other, has := l.releasedOf(claim, nil), l.releasedOf(claim, address)
	same := other.Place == (known.Place{})
	if l.Lock.With(func() { same = same || l.SameRecord(other.RecordName, has.RecordName) }); same {
		return claim, nil
	}
	if wait := l.writing(claim).Sub(l.Now()); wait > 0 {
		return nil, writes.Later(wait)
	}
	if err := l.exists(ctx, address); err != nil {
		return nil, err
	}
	if err := l.untold(ctx, claim); err != nil {
		return nil, err
	}
	if err := l.giveUpFormer(ctx, claim, other); err != nil {
		return nil, err
	}
	return l.prepare(ctx, claim, has.Place, has.Name)
}

// isOnlyOne returns an error while another claim that is being moved to this cluster, or put back, may get an IPAddress with the host record of the one that a claim is to be told
// of. When that comes, nobody knows which of the two is the copy: the machine of the other claim may use the address.
func (l *logic) isOnlyOne(ctx context.Context, claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) error {
	until, paused := l.expecting(l.releasedOf(claim, address))
	if paused != "" {
		return l.stuck(ctx, claim, fmt.Sprintf("The claim has the IPAddress %s, and the IPAddressClaim %s says that it has the address %v, too. That one, its InfobloxIPPool or its Cluster is paused, or its Cluster is not there, as in a move. Let it go on, or delete it if no machine uses it.",
			address.Name, paused, l.allocated(address)))
	}
	return l.noneOfThemComes(ctx, until)
}

// reserved reports whether Infoblox has the host record of an IPAddress that a claim has not been told of, and that was made for another claim: that one, or
// somebody in Infoblox, may have given up the record, and the address may be anybody's. If not, it says so, or lets the IPAddress go that is being deleted.
func (l *logic) reserved(ctx context.Context, claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) (ok bool, err error) {
	c := l.releasedOf(claim, address)
	exists, checked, client := false, false, WAPI(nil)
	l.Lock.With(func() { exists, checked, client = l.serverOf(c) })
	switch {
	case client != nil:
	case exists && !checked:
		return false, writes.Later(time.Second)
	default:
		return false, l.stuck(ctx, claim, fmt.Sprintf("The claim has the IPAddress %s, and the InfobloxInstance %s, which is not ready, is to be asked for its host record. See the condition Ready of both.", address.Name, c.Instance))
	}
	r, done, err := l.claimRecord(c.RecordName)
	if err != nil {
		return false, err
	}
	defer done()
	if err := l.quiet(r); err != nil { // A removal may still be carried out.
		return false, err
	}
	found, err := client.Hosts(ctx, c.Name, "") // The network view may have got another name.
	switch {
	case err != nil:
		return false, l.failed(ctx, claim, err)
	case slices.ContainsFunc(found, c.reserves):
		return true, nil
	case known.IsLeaving(address):
		return false, l.begin(ctx, l.orphan(address))
	}
	return false, l.stuck(ctx, claim, fmt.Sprintf("Infoblox has no host record %s with the address %v, which the IPAddress %s says. Delete the IPAddress if no machine uses it. Otherwise create the record there, with the comment %q.",
		c.Name, c.Address, address.Name, host.Mark([]types.UID{cmp.Or(c.Was, c.UID)}, "")))
}

// reserves reports whether a host record, in whatever network view, is that of an IPAddress.
func (c released) reserves(r host.Record) bool {
	return c.Reserves(r) && (len(r.Claims()) > 0 || r.NetworkView == c.NetworkView)
}

// status writes the condition Ready of a claim and, if it is not empty, the name of its IPAddress.
func (l *logic) status(ctx context.Context, claim *v1beta2.IPAddressClaim, c metav1.Condition, address string) error {
	before := meta.FindStatusCondition(claim.Status.Conditions, c.Type)
	same := before != nil && before.Status == c.Status && before.Reason == c.Reason && before.Message == c.Message
	if same && (address == "" || claim.Status.AddressRef.Name == address) {
		return nil
	}
	conditions := append([]metav1.Condition{}, claim.Status.Conditions...)
	c.LastTransitionTime = metav1.NewTime(l.Now().Truncate(time.Second))
	meta.SetStatusCondition(&conditions, c)
	if err := l.patchStatus(ctx, claim, conditions, address); err != nil {
		return err
	}
	switch {
	case same, c.Message == "":
	case c.Status == metav1.ConditionFalse:
		l.Tell(shell.Event{About: claim, Kind: shell.IPAddressClaims, Reason: c.Reason, Message: text.Cut(c.Message, text.MaxMessage)})
	default:
		l.Tell(shell.Event{About: claim, Kind: shell.IPAddressClaims, Reason: reasonEdited, Message: text.Cut(c.Message, text.MaxMessage)})
	}
	return nil
}

// patchStatus writes the conditions of a claim and, if it is not empty, the name of its IPAddress.
func (l *logic) patchStatus(ctx context.Context, claim *v1beta2.IPAddressClaim, conditions []metav1.Condition, address string) error {
	status := map[string]any{"conditions": conditions}
	if address != "" {
		status["addressRef"] = map[string]string{"name": address}
	}
	patch := shell.MergePatchOfVersion(claim, map[string]any{"status": status})
	patch.Status = true
	err := l.API.Patch(ctx, shell.IPAddressClaims, known.NameOf(claim), patch, nil)
	if address != "" && !writes.Answered(err) {
		l.Lock.With(func() {
			if l.Shown(shell.IPAddressClaims, claim) {
				l.Telling[claim.UID] = l.Now().Add(l.unanswered())
			}
		})
	}
	return err
}

// edits says what somebody has changed in the spec of a claim that has an address, or of its IPAddress, and what to do.
func (l *logic) edits(claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) string {
	switch had := l.allocated(address); {
	case had != known.HostAddress(address):
		return fmt.Sprintf("The address is %v. The IPAddress was edited, and says %.40q: set its spec back, or delete this claim when its machine is gone.", had, address.Spec.Address)
	case address.Spec.PoolRef != claim.Spec.PoolRef:
		return fmt.Sprintf("The address is of the InfobloxIPPool %s, and stays so: set spec.poolRef back, or create another IPAddressClaim.", address.Spec.PoolRef.Name)
	}
	return ""
}

// waits notes why a claim waits, or that it does not.
func (l *logic) waits(claim *v1beta2.IPAddressClaim, reason string) {
	l.Lock.With(func() {
		if delete(l.Waiting, claim.UID); reason != "" && l.Names[claim.UID].Name != "" {
			l.Waiting[claim.UID] = reason
		}
	})
}

// pend says why a claim has no address.
func (l *logic) pend(ctx context.Context, claim *v1beta2.IPAddressClaim, reason, message string) error {
	l.waits(claim, reason)
	return l.status(ctx, claim, metav1.Condition{Type: v1beta2.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: text.Cut(message, text.MaxCondition), ObservedGeneration: claim.Generation}, "")
}

// stuck says what somebody has to change before a claim can get an address. Nothing tells that it has changed in Infoblox, so the claim looks.
func (l *logic) stuck(ctx context.Context, claim *v1beta2.IPAddressClaim, message string) error {
	if err := l.pend(ctx, claim, v1beta2.ReasonAllocationFailed, message); err != nil {
		return err
	}
	return writes.Later(checkEvery)
}

// exhausted says that a pool has no free address, and tries again later.
func (l *logic) exhausted(ctx context.Context, claim *v1beta2.IPAddressClaim, again time.Duration) error {
	if err := l.pend(ctx, claim, v1beta2.ReasonPoolExhausted, fmt.Sprintf("No subnet of the InfobloxIPPool %s has a free address. Add a subnet, or delete IPAddressClaims that are not needed.", claim.Spec.PoolRef.Name)); err != nil {
		return err
	}
	return writes.Later(again)
}

// failed says that Infoblox has refused something or does not answer. The error is returned, for a retry.
func (l *logic) failed(ctx context.Context, claim *v1beta2.IPAddressClaim, err error) error {
	if _, later := errors.AsType[writes.Later](err); later || writes.NotItsTurn(err) {
		return err
	}
	if e, ok := errors.AsType[*wapi.Error](err); ok {
		if said := l.pend(ctx, claim, v1beta2.ReasonAllocationFailed, fmt.Sprintf("Infoblox did not allocate an address: %v. The controller tries again.", e)); said != nil {
			return errors.Join(err, said)
		}
	}
	return err
}

// allocated is FirstOf for callers that do not have the Lock.
func (l *logic) allocated(address *v1beta2.IPAddress) (a netip.Addr) {
	l.Lock.With(func() { a = l.FirstOf(address) })
	return a
}
