package infoblox

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Event reasons.
const (
	// reasonReleaseFailed: the address of a claim that is deleted cannot be released yet.
	reasonReleaseFailed = "ReleaseFailed"
	// reasonRecordLeft: a host record stays in Infoblox, or may.
	reasonRecordLeft = "HostRecordLeft"
)

// clientOf returns the client of the Infoblox that has a host record. problem says why there is none, and what to do.
func (l *logic) clientOf(at recordName) (c client, problem string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.servers[at.instance]
	switch _, exists := l.instances.Get("", at.instance); {
	case !exists:
		return c, fmt.Sprintf("The host record %s is in the InfobloxInstance %s, which does not exist. Create it again.", at.name, at.instance)
	case s == nil || !s.ready || s.client == nil: // Any other Infoblox would answer that it has no such record.
		return c, fmt.Sprintf("The host record %s is in the InfobloxInstance %s, which is not ready. See its condition Ready.", at.name, at.instance)
	}
	return *s.client, ""
}

// MayRelease implements contract.Provider.
func (l *logic) MayRelease(claim *v1beta2.IPAddressClaim, _ metav1.Object) error {
	at, ok := recordOf(claim)
	if !ok {
		return nil
	}
	if wait := time.Until(l.began.Add(settled)); wait > 0 { // A create of an earlier process may still be carried out, which that sent twice.
		return writes.Later(wait)
	}
	_, problem := l.clientOf(at)
	if problem == "" {
		return nil
	}
	return releaseLater(checkFailed, "%s Or remove the finalizer %s of the claim, and delete the record in Infoblox.", problem, v1beta2.FinalizerReleaseAddress)
}

// releaseLater returns the error of a claim whose release has to wait.
func releaseLater(again time.Duration, format string, args ...any) error {
	return contract.Waits{Reason: reasonReleaseFailed, Message: fmt.Sprintf(format, args...), Again: again}
}

// Release implements contract.Provider. It removes the address and the token of a claim from its host record, which goes with its last address.
func (l *logic) Release(ctx context.Context, claim *v1beta2.IPAddressClaim) error {
	at, ok := recordOf(claim)
	if !ok { // It is written to the claim before anything is written to Infoblox.
		return nil
	}
	if err := l.MayRelease(claim, nil); err != nil {
		return err
	}
	c, _ := l.clientOf(at)
	done, err := l.work(at)
	if err != nil {
		return err
	}
	defer done()
	o := l.ownerOf(claim, nil, at, "")
	found, err := l.recordsOf(ctx, c, claim, o, at)
	if err != nil {
		return l.cannotRelease(claim, at, err)
	}
	removals, why := o.release(found, neighbourhood{l, contract.NameOf(claim), at})
	if why != "" {
		return releaseLater(checkFailed, "The host record %s cannot be given up yet: it has several addresses that no IPAddress has, "+
			"or another IPAddressClaim in it has no address, so nobody knows whose they are. "+
			"See the condition Ready of the other claim, or remove from the record in Infoblox what nobody uses.", at.name)
	}
	for _, r := range removals {
		err := l.sent(at, remove(ctx, c, r))
		switch {
		case wapi.IsNotFound(err): // It has changed.
			return writes.Later(time.Second)
		case err != nil:
			return l.cannotRelease(claim, at, err)
		case r.left:
			l.term.Event(claim, runner.IPAddressClaims, false, reasonRecordLeft, fmt.Sprintf(
				"The host record %s in the network view %s keeps the addresses %v, which are not this claim's. "+
					"Remove from it those that nobody uses.", at.name, at.networkView, r.record.Addresses()))
		}
	}
	l.gaveUp(claim)
	return nil
}

func remove(ctx context.Context, c client, r removal) error {
	if r.delete {
		return c.DeleteHost(ctx, r.record.Ref)
	}
	return c.UpdateHost(ctx, r.record)
}

// recordsOf returns the host records of a claim. If there is none under its name, it looks for the token everywhere: people may have renamed the record or its view.
func (l *logic) recordsOf(ctx context.Context, c client, claim *v1beta2.IPAddressClaim, o owner, at recordName) ([]wapi.Record, error) {
	found, err := c.Hosts(ctx, at.name, at.networkView)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	released := l.claims[claim.UID]
	l.mu.Unlock()
	if _, ok := o.recordIn(found); ok || released {
		return found, nil
	}
	found, err = c.HostsWith(ctx, string(o.token))
	if _, ok := o.recordIn(found); err == nil && !ok && o.says != (netip.Addr{}) {
		l.term.Event(claim, runner.IPAddressClaims, false, reasonRecordLeft, fmt.Sprintf(
			"The InfobloxInstance %s has no host record %s with the UID %s in its comment. If Infoblox has another one with the address %v, which nobody uses, "+
				"delete it there.", at.instance, at.name, o.token, o.says))
	}
	return found, err
}

func (l *logic) cannotRelease(claim *v1beta2.IPAddressClaim, at recordName, err error) error {
	if writes.NotItsTurn(err) {
		return err
	}
	again := checkFailed
	if wapi.InFlight(err) {
		again = settled
		l.noteReleased(claim) // perhaps
	}
	return releaseLater(again, "The host record %s in the network view %s is not deleted yet: %v. The controller tries again.", at.name, at.networkView, err)
}

// noteReleased notes that the claim may have nothing in Infoblox any more.
func (l *logic) noteReleased(claim *v1beta2.IPAddressClaim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, seen := l.claims[claim.UID]; seen { // Otherwise nothing would end it.
		l.claims[claim.UID] = true
	}
}

// gaveUp wakes claims that wait for an address: there is one more, if only in one of the networks.
func (l *logic) gaveUp(claim *v1beta2.IPAddressClaim) {
	l.noteReleased(claim)
	l.mu.Lock()
	full := l.full
	l.full = map[types.NamespacedName]time.Time{}
	l.mu.Unlock()
	for pool := range full {
		l.contract.QueuePool(claim.Spec.PoolRef.Kind, pool.Namespace, pool.Name)
	}
}
