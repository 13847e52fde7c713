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
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Event reasons.
const (
	// reasonReleaseFailed: the address of a claim that is deleted cannot be released yet.
	reasonReleaseFailed = "ReleaseFailed"
	// reasonRecordLeft: a host record stays in Infoblox.
	reasonRecordLeft = "HostRecordLeft"
)

// released is a claim that gives up its host record, or an IPAddress whose claim is gone.
type released struct {
	recordName
	host.Released
	about metav1.Object
	kind  *shell.Kind
}

// releasedOf returns what a claim gives up: what its IPAddress says, because that is what was allocated, or else what the claim says. Of what another
// program has allocated, the pool says where it is.
func (l *logic) releasedOf(claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) released {
	r := released{Released: host.Released{UID: claim.UID, Address: hostAddress(address)}, about: claim, kind: shell.IPAddressClaims}
	r.where(address)
	r.where(claim)
	if r.place == (place{}) && address != nil {
		l.Lock.With(func() {
			if pool, ok := l.pools.Get(claim.Namespace, claim.Spec.PoolRef.Name); ok {
				r.instance = pool.Spec.InstanceRef.Name
				r.networkView = cmp.Or(pool.Spec.NetworkView, "default")
				if s := l.servers[r.instance]; s != nil {
					r.networkView = cmp.Or(pool.Spec.NetworkView, s.networkView, "default")
				}
			}
		})
	}
	r.name = cmp.Or(r.name, claim.Name)
	return r
}

// where takes from an object where a host record is, as far as that is not known yet.
func (r *released) where(object metav1.Object) {
	if a, ok := object.(*v1beta2.IPAddress); ok {
		if a == nil {
			return
		}
		r.Was = types.UID(a.Annotations[annotationClaim])
		r.Unmarked = r.Was == ""
	}
	found, ok := recordOf(object)
	if ok && r.place == (place{}) {
		r.place = found.place
	}
	r.name = cmp.Or(r.name, found.name)
}

// release releases the address of a claim that is deleted: first in Infoblox, then the IPAddress, then the claim.
func (l *logic) release(ctx context.Context, claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) error {
	finalizers, missing := without(claim.Finalizers, v1beta2.FinalizerReleaseAddress)
	if missing {
		return nil
	}
	l.waits(claim, "")
	if slices.ContainsFunc(finalizers, func(f string) bool { return f != metav1.FinalizerDeleteDependents }) {
		return nil // The machine may still run. Garbage collection, however, waits for the IPAddress.
	}
	address, err := l.created(ctx, claim, address)
	if err != nil {
		return err
	}
	if err := l.giveUp(ctx, l.releasedOf(claim, address)); err != nil {
		return err
	}
	if err := l.deleteAddress(ctx, address); err != nil {
		return err
	}
	patch := shell.MergePatchOfVersion(claim, map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
	if err := l.API.Patch(ctx, shell.IPAddressClaims, nameOf(claim), patch, nil); err != nil && !writes.NotThere(err) {
		return err
	}
	return nil
}

// created returns the IPAddress of a claim that may have one, also if the cache does not show it or a create of it was not answered: its address must
// not be given to others as long as that create can still be carried out.
func (l *logic) created(ctx context.Context, claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) (*v1beta2.IPAddress, error) {
	var until time.Time
	l.Lock.With(func() { until = l.creating[claim.UID] })
	_, prepared := recordOf(claim)
	switch wait := until.Sub(l.Now()); {
	case address != nil, !prepared && until.IsZero():
		return address, nil
	case wait > 0:
		return nil, writes.Later(wait)
	}
	address = &v1beta2.IPAddress{}
	switch err := l.API.Get(ctx, shell.IPAddresses, nameOf(claim), address); {
	case writes.NotThere(err):
		return nil, nil
	case err != nil:
		return nil, err
	case !owns(claim, address):
		return nil, nil
	}
	return address, nil
}

// releaseOrphan releases an IPAddress that is deleted and whose claim is gone: somebody has removed the claim's finalizer.
func (l *logic) releaseOrphan(ctx context.Context, address *v1beta2.IPAddress) error {
	if address == nil || !ofInfoblox(address.Spec.PoolRef) || address.DeletionTimestamp == nil || paused(address) {
		return nil
	}
	if _, missing := without(address.Finalizers, v1beta2.FinalizerProtectAddress); missing {
		return nil
	}
	r := released{Released: host.Released{Address: hostAddress(address)}, about: address, kind: shell.IPAddresses}
	r.where(address)
	r.UID = r.Was
	if err := l.giveUp(ctx, r); err != nil {
		return err
	}
	return l.deleteAddress(ctx, address)
}

// deleteAddress deletes an IPAddress, and removes its finalizer before.
func (l *logic) deleteAddress(ctx context.Context, address *v1beta2.IPAddress) error {
	if address == nil {
		return nil
	}
	if finalizers, missing := without(address.Finalizers, v1beta2.FinalizerProtectAddress); !missing {
		patch := shell.MergePatchOfVersion(address, map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
		if err := l.API.Patch(ctx, shell.IPAddresses, nameOf(address), patch, nil); err != nil && !writes.NotThere(err) {
			return err
		}
	}
	if address.DeletionTimestamp != nil {
		return nil
	}
	if err := l.API.Delete(ctx, shell.IPAddresses, nameOf(address), address.UID, ""); err != nil && !writes.NotThere(err) {
		return err
	}
	return nil
}

// giveUp gives up what a claim has in Infoblox. It returns nil only when nothing is there any more, and nothing can come.
func (l *logic) giveUp(ctx context.Context, c released) error {
	if c.place == (place{}) {
		return nil // Nothing was ever written to Infoblox: the place is written to the claim before.
	}
	client, err := l.clientOf(ctx, c)
	if client == nil {
		return err
	}
	r, done, err := l.claimRecord(c.recordName)
	if err != nil {
		return err
	}
	defer done()
	for step := range maxSteps {
		found, err := client.Hosts(ctx, c.name, c.networkView)
		if err != nil {
			return l.cannotRelease(c, err)
		}
		var removals []host.Removal
		var wait bool
		l.Lock.With(func() { removals, wait = host.Release(c.Released, found, at{l, c.place}) })
		switch {
		case wait:
			return writes.Later(time.Second)
		case len(removals) == 0:
			return l.gone(ctx, client, c, r, step == 0)
		}
		if err := l.sent(r, false, remove(ctx, client, removals[0])); err != nil && !wapi.IsNotFound(err) {
			return l.cannotRelease(c, err)
		}
	}
	return fmt.Errorf("the host record %s changes all the time", c.name)
}

// gone ends a release when nothing is found any more. never: nothing was found at all.
func (l *logic) gone(ctx context.Context, client WAPI, c released, r *recordState, never bool) error {
	if err := l.settles(r, false); err != nil {
		return err
	}
	if never {
		networkView, err := elsewhere(ctx, client, c)
		switch {
		case err != nil:
			return l.cannotRelease(c, err)
		case networkView != "" && networkView != c.networkView:
			c.networkView = networkView
			return l.giveUp(ctx, c)
		}
	}
	l.gaveUp()
	return nil
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
	exists := false
	l.Lock.With(func() {
		_, exists = l.instances.Get("", c.instance)
		if s := l.servers[c.instance]; s != nil {
			client = s.client
		}
	})
	gone, err := l.missingFor(ctx, c, !exists && client == nil)
	switch {
	case err != nil:
		return nil, err
	case client != nil:
		return client, nil
	case exists:
		l.tell(c, reasonReleaseFailed, "The host record %s in the network view %s cannot be deleted: the InfobloxInstance %s is not ready. See its condition Ready.", c.name, c.networkView, c.instance)
		return nil, writes.Later(checkFailed)
	case gone < lostServerAfter:
		l.tell(c, reasonReleaseFailed, "The host record %s in the network view %s cannot be deleted: there is no InfobloxInstance %s. Create it again. Otherwise the record stays in Infoblox, and this object goes on without it after %v.",
			c.name, c.networkView, c.instance, lostServerAfter)
		return nil, writes.Later(checkFailed)
	default:
		with := ""
		if c.Address.IsValid() {
			with = fmt.Sprintf(" with the address %s", c.Address)
		}
		l.tell(c, reasonRecordLeft, "There is no InfobloxInstance %s. If Infoblox still has the host record %s%s in the network view %s, delete it there.",
			c.instance, c.name, with, c.networkView)
		return nil, nil
	}
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
	case now.Sub(last) >= missedAnew:
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
	if err := l.API.Patch(ctx, c.kind, nameOf(c.about), patch, stored); err != nil {
		return err
	}
	if stored.GetAnnotations()[annotationMissing] != text {
		return shell.ErrTakenBack // The wait would never end.
	}
	return nil
}

// elsewhere returns the network view that has the host record of a claim if it is not the one that it was: a network view can get another name.
func elsewhere(ctx context.Context, client WAPI, c released) (networkView string, err error) {
	if exists, err := client.NetworkView(ctx, c.networkView); exists || err != nil {
		return "", err
	}
	found, err := client.Hosts(ctx, c.name, "")
	if i := slices.IndexFunc(found, func(r host.Record) bool { return r.Of(c.UID) || c.Was != "" && r.Of(c.Was) }); i >= 0 {
		return found[i].NetworkView, err
	}
	return "", err
}

func (l *logic) cannotRelease(c released, err error) error {
	if !writes.NotItsTurn(err) {
		l.tell(c, reasonReleaseFailed, "The host record %s in the network view %s is not deleted yet: %v. The controller tries again.", c.name, c.networkView, err)
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
		for uid, reason := range l.waiting {
			if reason == v1beta2.ReasonPoolExhausted || reason == v1beta2.ReasonAllocationFailed { // perhaps because of this record
				l.Queue.Add(shell.Key{Kind: shell.IPAddressClaims, Namespace: l.names[uid].Namespace, Name: l.names[uid].Name})
			}
		}
	})
}
