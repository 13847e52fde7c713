package infoblox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/host"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/known"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Event reasons.
const (
	// reasonReleaseFailed: the address of a claim that is deleted cannot be released yet.
	reasonReleaseFailed = "ReleaseFailed"
	// reasonRecordLeft: a host record stays in Infoblox, or may.
	reasonRecordLeft = "HostRecordLeft"
	// reasonEdited: somebody has changed the spec of a claim that has an address, or of its IPAddress.
	reasonEdited = "SpecEdited"
)

// released is a claim that gives up its host record, or an IPAddress whose claim is gone.
type released struct {
	known.RecordName
	host.Released
	about   metav1.Object
	kind    *shell.Kind
	address *v1beta2.IPAddress // what shows the address to others; nil if there is none
}

// releasedOf returns what a claim gives up: what its IPAddress says, because that is what was allocated, or else what the claim says. Of what another
// program has allocated, the pool says where it is.
func (l *logic) releasedOf(claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) released {
	r := released{Released: host.Released{UID: claim.UID, Address: l.allocated(address)}, about: claim, kind: shell.IPAddressClaims, address: address}
	if had := known.ToldTo(claim); address == nil && had.Address.IsValid() { // Somebody has taken the IPAddress away.
		r.Released = had
	}
	r.where(address)
	r.where(claim)
	l.wherePoolIs(&r, address)
	return r
}

// wherePoolIs takes from the pool of an IPAddress where its host record is, if nothing else says that: another program has created it.
func (l *logic) wherePoolIs(r *released, address *v1beta2.IPAddress) {
	r.Name = cmp.Or(r.Name, r.about.GetName())
	if r.Place != (known.Place{}) || address == nil {
		return
	}
	l.Lock.With(func() { r.Place = l.PlaceOfPool(address) })
}

// where takes from an object where a host record is, as far as that is not known yet.
func (r *released) where(object metav1.Object) {
	if a, ok := object.(*v1beta2.IPAddress); ok {
		if a == nil {
			return
		}
		r.Was = types.UID(a.Annotations[known.AnnotationClaim])
		r.Unmarked = r.Was == ""
	}
	found, ok := known.RecordOf(object)
	if ok && r.Place == (known.Place{}) {
		r.Place = found.Place
	}
	r.Name = cmp.Or(r.Name, found.Name)
}

// release releases the address of a claim that is deleted: first in Infoblox, then the IPAddress, then the claim.
func (l *logic) release(ctx context.Context, claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) error {
	finalizers, missing := known.Without(claim.Finalizers, v1beta2.FinalizerReleaseAddress)
	if missing {
		return nil
	}
	if l.waits(claim, ""); known.KeptByOthers(claim) {
		return nil
	}
	address, err := l.created(ctx, claim, address)
	if err != nil {
		return err
	}
	if claim, err = l.leaveOther(ctx, claim, address); err != nil {
		return err
	}
	copied := func() bool { return address != nil && l.Copied(address) || address == nil && l.IsCopied(claim) }
	if err := l.releaseRecord(ctx, l.releasedOf(claim, address), copied); err != nil {
		return err
	}
	if err := l.deleteAddress(ctx, address); err != nil {
		return err
	}
	return l.letGo(ctx, claim, finalizers)
}

// releaseRecord gives up a host record, unless a copy of its IPAddress has it.
func (l *logic) releaseRecord(ctx context.Context, r released, copied func() bool) error {
	keeps := false
	l.Lock.With(func() { keeps = copied() })
	// The last IPAddress of a host record gives it up. Each says first that it goes, which a claim without an IPAddress has said, and looks at the others after
	// that: if two go together, at least one of them sees that.
	if keeps {
		if err := l.begin(ctx, r); err != nil {
			return err
		}
		l.Lock.With(func() { keeps = copied() })
	}
	if keeps {
		return nil
	}
	if err := l.noOtherComes(ctx, r); err != nil {
		return err
	}
	return l.giveUp(ctx, r)
}

// expecting returns which claims that are being moved to this cluster, or put back, may get an IPAddress with the host record of another one, and until when. Who moves a
// cluster pauses it until everything is there: the first of those that are to be left alone, which may be for ever, is paused.
func (l *logic) expecting(r released) (until map[types.NamespacedName]time.Time, paused string) {
	until = map[types.NamespacedName]time.Time{}
	l.Lock.With(func() {
		for _, claim := range l.Expecting(known.NameOf(r.about), r.Released) {
			name := known.NameOf(claim)
			if until[name] = claim.CreationTimestamp.Add(movedWithin); l.pausedOrAlone(claim) {
				until[name] = l.Now().Add(checkFailed)
				if paused == "" || name.String() < paused {
					paused = name.String()
				}
			}
		}
	})
	return until, paused
}

// noOtherComes returns an error while a claim that is being moved to this cluster, or put back, may get an IPAddress with the host record that is given up.
func (l *logic) noOtherComes(ctx context.Context, r released) error {
	until, paused := l.expecting(r)
	if paused != "" {
		l.tell(r, reasonReleaseFailed, "The host record %s in the network view %s is not given up yet: the IPAddressClaim %s says that it has the address %v, too, and it, its InfobloxIPPool or its Cluster is paused, or its Cluster is not there, as in a move. Let it go on, or delete it if no machine uses it.",
			r.Name, r.NetworkView, paused, r.Address)
	}
	return l.noneOfThemComes(ctx, until)
}

// letGo leaves a claim no other finalizers than these.
func (l *logic) letGo(ctx context.Context, claim *v1beta2.IPAddressClaim, finalizers []string) error {
	patch := shell.MergePatchOfVersion(claim, map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
	if err := l.API.Patch(ctx, shell.IPAddressClaims, known.NameOf(claim), patch, nil); err != nil && !writes.NotThere(err) {
		return err
	}
	return nil
}

// created returns the IPAddress of a claim that may have one, also if the cache does not show it or a create of it was not answered: its address must
// not be given to others as long as that create can still be carried out. That goes also if there is an IPAddress, of a later create: after its end, an
// earlier create would leave another one.
func (l *logic) created(ctx context.Context, claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) (*v1beta2.IPAddress, error) {
	var until time.Time
	l.Lock.With(func() { until = l.Creating[claim.UID] })
	_, prepared := known.RecordOf(claim)
	switch wait := until.Sub(l.Now()); {
	case wait > 0:
		return nil, writes.Later(wait)
	case address != nil, !prepared && until.IsZero():
		return address, nil
	}
	address = &v1beta2.IPAddress{}
	switch err := l.API.Get(ctx, shell.IPAddresses, known.NameOf(claim), address); {
	case writes.NotThere(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	own := false
	if l.Lock.With(func() { own = l.Owns(claim, address) }); !own {
		return nil, nil
	}
	return address, nil
}

// begin writes to an IPAddress who gives up its host record, and where that is, before anything is removed: the claim and this process may be gone before
// the IPAddress is. It returns an error until the cache shows that, because the cache tells whether the IPAddress is that of the next claim of the name.
func (l *logic) begin(ctx context.Context, c released) error {
	if c.address == nil {
		return nil
	}
	begun := false
	l.Lock.With(func() {
		shown, ok := l.Addresses.Get(c.address.Namespace, c.address.Name)
		begun = ok && shown.UID == c.address.UID && shown.Annotations[known.AnnotationReleasedBy] != ""
	})
	if begun {
		return nil
	}
	if c.address.Annotations[known.AnnotationReleasedBy] != "" {
		return writes.Later(time.Second)
	}
	annotations := map[string]any{known.AnnotationReleasedBy: c.about.GetUID()}
	if _, ok := known.RecordOf(c.address); !ok { // Another program has created the IPAddress.
		annotations[known.AnnotationPlace], annotations[known.AnnotationName] = c.String(), c.Name
	}
	stored := &v1beta2.IPAddress{}
	patch := shell.MergePatchOfVersion(c.address, map[string]any{"metadata": map[string]any{"annotations": annotations}})
	switch err := l.API.Patch(ctx, shell.IPAddresses, known.NameOf(c.address), patch, stored); {
	case err != nil:
		return err
	case stored.Annotations[known.AnnotationReleasedBy] == "":
		return shell.ErrTakenBack
	}
	return writes.Later(time.Second)
}

// releaseOrphan releases an IPAddress that leaves and whose claim is gone: somebody has removed the claim's finalizer.
func (l *logic) releaseOrphan(ctx context.Context, address *v1beta2.IPAddress) error {
	if address == nil || !known.OfInfoblox(address.Spec.PoolRef) || !known.IsLeaving(address) {
		return nil
	}
	rests := false
	l.Lock.With(func() { rests = l.IsPaused(address) })
	if rests {
		return nil
	}
	// Without its finalizer, its release is over, but the DELETE may not have arrived.
	if _, missing := known.Without(address.Finalizers, v1beta2.FinalizerProtectAddress); missing && address.DeletionTimestamp != nil {
		return nil
	}
	if err := l.releaseRecord(ctx, l.orphan(address), func() bool { return l.Copied(address) }); err != nil {
		return err
	}
	return l.deleteAddress(ctx, address)
}

// orphan returns what an IPAddress without a claim gives up.
func (l *logic) orphan(address *v1beta2.IPAddress) released {
	r := released{Released: host.Released{Address: l.allocated(address)}, about: address, kind: shell.IPAddresses, address: address}
	r.where(address)
	l.wherePoolIs(&r, address)
	r.UID = r.Was
	return r
}

// releaseLeftover releases an IPAddress that is in the way of a claim. The cache may not show yet that the claim has been told that it has it.
func (l *logic) releaseLeftover(ctx context.Context, s situation) error {
	stored := &v1beta2.IPAddressClaim{}
	err := l.API.Get(ctx, shell.IPAddressClaims, known.NameOf(s.claim), stored)
	if err != nil && !writes.NotThere(err) {
		return err
	}
	own := false
	if l.Lock.With(func() { own = err == nil && l.Owns(stored, s.foreign) }); own {
		return writes.Later(time.Second)
	}
	return l.releaseOrphan(ctx, s.foreign)
}

// deleteAddress deletes an IPAddress, and removes its finalizer before.
func (l *logic) deleteAddress(ctx context.Context, address *v1beta2.IPAddress) error {
	if address == nil {
		return nil
	}
	if finalizers, missing := known.Without(address.Finalizers, v1beta2.FinalizerProtectAddress); !missing {
		patch := shell.MergePatchOfVersion(address, map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
		if err := l.API.Patch(ctx, shell.IPAddresses, known.NameOf(address), patch, nil); err != nil && !writes.NotThere(err) {
			return err
		}
	}
	if address.DeletionTimestamp != nil {
		return nil
	}
	if err := l.API.Delete(ctx, shell.IPAddresses, known.NameOf(address), address.UID, ""); err != nil && !writes.NotThere(err) {
		return err
	}
	return nil
}

// giveUp gives up what a claim has in Infoblox. It returns nil only when nothing is there any more, and nothing can come.
func (l *logic) giveUp(ctx context.Context, c released) error {
	if c.Place == (known.Place{}) { // The place is written to a claim before anything is written to Infoblox. Only another program may have written there.
		if c.Address.IsValid() {
			l.tell(c, reasonRecordLeft, "The InfobloxIPPool of this IPAddress is gone, so nobody knows where its host record is. If there is one with the address %v in Infoblox, delete it there.", c.Address)
		}
		return nil
	}
	client, err := l.clientOf(ctx, c)
	if client == nil {
		return err
	}
	r, done, err := l.claimRecord(c.RecordName)
	if err != nil {
		return err
	}
	defer done()
	never := true // No removal of what was allocated was confirmed: a record can get another name at any time.
	for range maxSteps {
		found, err := client.Hosts(ctx, c.Name, c.NetworkView)
		if err != nil {
			return l.cannotRelease(c, err)
		}
		var removals []host.Removal
		var wait bool
		l.Lock.With(func() { removals, wait = host.Release(c.Released, found, known.At{World: l.World, Place: c.Place}) })
		switch {
		case wait:
			return l.unclear(ctx, c)
		case len(removals) == 0:
			return l.gone(ctx, client, c, r, never)
		}
		confirmed, err := l.take(ctx, client, c, r, removals[0], c.allocatedIn(found, removals[0]))
		if err != nil {
			return err
		}
		never = never && !confirmed
	}
	return fmt.Errorf("the host record %s changes all the time", c.Name)
}

// unclear lets another claim in the host record get its IPAddress first. That takes a moment, or as long as that claim says.
func (l *logic) unclear(ctx context.Context, c released) error {
	claim, ok := c.about.(*v1beta2.IPAddressClaim)
	if !ok {
		return writes.Later(time.Second)
	}
	since := claim.CreationTimestamp
	if claim.DeletionTimestamp != nil {
		since = *claim.DeletionTimestamp
	}
	if l.Now().Sub(since.Time) < 10*time.Second {
		return writes.Later(time.Second)
	}
	message := fmt.Sprintf("The host record %s cannot be given up yet: another IPAddressClaim shares it and has no address, so nobody knows which address of the record is whose. See the condition Ready of that claim.", c.Name)
	if err := l.pend(ctx, claim, v1beta2.ReasonAllocationFailed, message); err != nil {
		return err
	}
	return writes.Later(5 * time.Second)
}

// allocatedIn reports whether a removal is from the record that has the address that was allocated. A claim can have another record, too: one was renamed while
// the cache did not show the IPAddress yet, so another one was created.
func (r *released) allocatedIn(found []host.Record, removal host.Removal) bool {
	return !r.Address.IsValid() || slices.ContainsFunc(found, func(f host.Record) bool {
		return f.Ref == removal.Record.Ref && slices.Contains(f.Addresses(), r.Address)
	})
}

// take carries out a removal. It reports whether Infoblox has confirmed that what was allocated is removed.
func (l *logic) take(ctx context.Context, client WAPI, c released, r *recordState, removal host.Removal, allocated bool) (confirmed bool, err error) {
	if err := l.begin(ctx, c); err != nil {
		return false, err
	}
	switch err := l.sent(r, false, remove(ctx, client, removal)); {
	case wapi.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, l.cannotRelease(c, err)
	}
	if allocated {
		l.Lock.With(func() {
			if l.Shown(c.kind, c.about) {
				l.Removed[c.about.GetUID()] = true
			}
			if c.address != nil && l.Shown(shell.IPAddresses, c.address) {
				l.Removed[c.address.UID] = true // The claim may be forced away before.
			}
		})
	}
	l.keeps(c, removal)
	return allocated, nil
}

// keeps says which addresses stay in a host record of which no claim is left, or of two claims with one address. Somebody may have added them, or the
// pool had them before.
func (l *logic) keeps(c released, r host.Removal) {
	switch {
	case slices.Contains(r.Record.Addresses(), c.Address):
		l.tell(c, reasonRecordLeft, "The host record %s in the network view %s keeps the addresses %v: the IPAddress of another claim in it says %v, too, so one of the two was edited. Remove from it those that nobody uses.",
			c.Name, c.NetworkView, r.Record.Addresses(), c.Address)
	case !r.Delete && r.Record.Comment == "":
		l.tell(c, reasonRecordLeft, "The host record %s in the network view %s keeps the addresses %v, which are not those of an IPAddress. Remove from it those that nobody uses.",
			c.Name, c.NetworkView, r.Record.Addresses())
	}
}

// gone ends a release when nothing is found any more. never: no removal of what was allocated was confirmed.
func (l *logic) gone(ctx context.Context, client WAPI, c released, r *recordState, never bool) error {
	if err := l.quiet(r); err != nil {
		return err
	}
	if never {
		networkView, err := elsewhere(ctx, client, c)
		switch {
		case err != nil:
			return l.cannotRelease(c, err)
		case networkView != "" && networkView != c.NetworkView:
			c.NetworkView = networkView
			return l.giveUp(ctx, c)
		}
		l.notFound(c)
	}
	l.gaveUp()
	return nil
}

// quiet returns an error while anything can be carried out that was sent about a host record. An earlier leader may have sent a create twice: nothing shows that if the
// second one was answered and the claim got its IPAddress. Or it may have sent a DELETE, and somebody has forced away what shows that.
func (l *logic) quiet(r *recordState) error {
	if err := l.settles(r, false); err != nil {
		return err
	}
	if wait := l.began.Add(settled).Sub(l.Now()); wait > 0 {
		return writes.Later(wait)
	}
	return nil
}

// notFound says that there is no host record with an address that was allocated, unless this process has removed it before. It may have another name.
func (l *logic) notFound(c released) {
	var removed bool
	l.Lock.With(func() {
		there := l.Shown(c.kind, c.about) || c.address != nil && l.Shown(shell.IPAddresses, c.address) // Otherwise it is forgotten what was removed.
		removed = !there || l.Removed[c.about.GetUID()] || c.address != nil && l.Removed[c.address.UID]
	})
	if removed || !c.Address.IsValid() {
		return
	}
	with, edited := "", ""
	if c.UID != "" && !c.Unmarked {
		with = fmt.Sprintf(" and the UID %s in its comment", cmp.Or(c.Was, c.UID))
		edited = " If somebody has edited the IPAddress, the record has another address, and can have this name."
	}
	l.tell(c, reasonRecordLeft, "The InfobloxInstance %s has no host record %s of this object. If Infoblox has one of another name, with the address %v%s, delete it there.%s",
		c.Instance, c.Name, c.Address, with, edited)
}

func remove(ctx context.Context, client WAPI, r host.Removal) error {
	if r.Delete {
		return client.DeleteHost(ctx, r.Record.Ref)
	}
	return client.UpdateHost(ctx, r.Record)
}

// clientOf returns the client for the Infoblox that has a claim's host record. If there is none, the error says when to look again. Both are nil
// if it has been gone for so long that the record is left to people: they have taken the way to it away.
func (l *logic) clientOf(ctx context.Context, c released) (client WAPI, err error) {
	exists, checked := false, false
	l.Lock.With(func() { exists, checked, client = l.serverOf(c) })
	gone, err := l.missingFor(ctx, c, !exists && client == nil)
	switch {
	case err != nil:
		return nil, err
	case client != nil:
		return client, nil
	case exists && !checked:
		return nil, writes.Later(time.Second)
	case exists:
		l.tell(c, reasonReleaseFailed, "The host record %s in the network view %s cannot be deleted: the InfobloxInstance %s is not ready. See its condition Ready.", c.Name, c.NetworkView, c.Instance)
		return nil, writes.Later(checkFailed)
	case gone < lostServerAfter:
		l.tell(c, reasonReleaseFailed, "The host record %s in the network view %s cannot be deleted: there is no InfobloxInstance %s. Create it again. Otherwise the record stays in Infoblox, and this object goes on without it after %v.",
			c.Name, c.NetworkView, c.Instance, lostServerAfter)
		return nil, writes.Later(checkFailed)
	default:
		with := ""
		if c.Address.IsValid() {
			with = fmt.Sprintf(" with the address %s", c.Address)
		}
		l.tell(c, reasonRecordLeft, "There is no InfobloxInstance %s. If Infoblox still has the host record %s%s in the network view %s, delete it there.",
			c.Instance, c.Name, with, c.NetworkView)
		return nil, nil
	}
}

// serverOf returns whether there is the InfobloxInstance that has a host record, whether it was checked, and its client if it is ready: any other Infoblox would
// answer that it has no such record.
func (l *logic) serverOf(c released) (exists, checked bool, client WAPI) {
	_, exists = l.Instances.Get("", c.Instance)
	s := l.servers[c.Instance]
	if checked = s != nil; checked && s.ready {
		client = s.client
	}
	return exists, checked, client
}

// missingFor returns for how long a release has missed its InfobloxInstance. That is written to the object, so that the next leader goes on with
// the wait, and removed when there is the InfobloxInstance. Nobody looks while the object, its pool or its Cluster is paused, so it is written again
// and again: what is old does not count.
func (l *logic) missingFor(ctx context.Context, c released, missing bool) (gone time.Duration, err error) {
	since, last, noted := missed(c.about)
	now := l.Now().UTC()
	switch {
	case !missing && !noted:
		return 0, nil
	case !missing:
		if err := l.noteMissing(ctx, c, ""); err != nil {
			return 0, err
		}
		return 0, writes.Later(time.Second) // The object has changed.
	case now.Sub(last).Abs() >= missedAnew, since.After(last): // The clock of an earlier leader may have been wrong.
		since = now
	case now.Sub(last) < missedEvery:
		return now.Sub(since), nil
	}
	return now.Sub(since), l.noteMissing(ctx, c, since.Format(time.RFC3339)+"/"+now.Format(time.RFC3339))
}

// missed returns what annotationMissing says. What cannot be read is long ago.
func missed(object metav1.Object) (since, last time.Time, noted bool) {
	text, noted := object.GetAnnotations()[annotationMissing]
	from, to, _ := strings.Cut(text, "/")
	since, err := time.Parse(time.RFC3339, from)
	if err == nil {
		last, err = time.Parse(time.RFC3339, to)
	}
	if err != nil {
		last = time.Time{}
	}
	return since, last, noted
}

// noteMissing writes annotationMissing, or removes it.
func (l *logic) noteMissing(ctx context.Context, c released, text string) error {
	var value any
	if text != "" {
		value = text
	}
	var stored metav1.Object = &v1beta2.IPAddressClaim{}
	if c.kind == shell.IPAddresses {
		stored = &v1beta2.IPAddress{}
	}
	patch := shell.MergePatch(c.about, map[string]any{"metadata": map[string]any{"annotations": map[string]any{annotationMissing: value}}})
	if err := l.API.Patch(ctx, c.kind, known.NameOf(c.about), patch, stored); err != nil {
		return err
	}
	if stored.GetAnnotations()[annotationMissing] != text {
		return shell.ErrTakenBack // The wait would never end.
	}
	return nil
}

// elsewhere returns the network view that has the host record of a claim if it is not the one that it was: a network view can get another name, and
// another one the former name.
func elsewhere(ctx context.Context, client WAPI, c released) (networkView string, err error) {
	found, err := client.Hosts(ctx, c.Name, "")
	if i := slices.IndexFunc(found, func(r host.Record) bool { return r.Of(c.UID) || c.Was != "" && r.Of(c.Was) }); i >= 0 {
		return found[i].NetworkView, err
	}
	return "", err
}

func (l *logic) cannotRelease(c released, err error) error {
	if !writes.NotItsTurn(err) {
		l.tell(c, reasonReleaseFailed, "The host record %s in the network view %s is not deleted yet: %v. The controller tries again.", c.Name, c.NetworkView, err)
	}
	return err
}

func (l *logic) tell(c released, reason, format string, args ...any) {
	l.Tell(shell.Event{About: c.about, Kind: c.kind, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// gaveUp wakes claims that wait for an address: there is one more, if only in one of the networks.
func (l *logic) gaveUp() {
	l.Lock.With(func() {
		clear(l.full)
		for uid, reason := range l.Waiting {
			if reason == v1beta2.ReasonPoolExhausted || reason == v1beta2.ReasonAllocationFailed { // perhaps because of this record
				l.Queue.Add(shell.Key{Kind: shell.IPAddressClaims, Namespace: l.Names[uid].Namespace, Name: l.Names[uid].Name})
			}
		}
	})
}
