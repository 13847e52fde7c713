package infoblox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/text"
	"github.com/multicidr/controller-manager/controllers/writes"
)

const (
	// reasonReleaseFailed (False): the address of a claim that is deleted cannot be released yet.
	reasonReleaseFailed = "ReleaseFailed"
	// reasonRecordLeft is of an event: a host record stays in Infoblox.
	reasonRecordLeft = "HostRecordLeft"
)

// waits returns the error of a claim that waits. again is zero if a change will queue the claim; none does for what somebody changes in Infoblox.
func waits(reason string, again time.Duration, format string, args ...any) error {
	return contract.Waits{Reason: reason, Message: text.Cut(fmt.Sprintf(format, args...), text.MaxCondition), Again: again}
}

// failed returns the error of a claim for an error of Infoblox.
func failed(reason, what string, err error) error {
	e, ok := errors.AsType[*wapi.Error](err)
	if !ok {
		return err
	}
	again := checkFailed
	if !wapi.Answered(err) {
		again = settled
	}
	return waits(reason, again, "Infoblox %s: %v. The controller tries again.", what, e)
}

// Pool implements contract.Provider.
func (l *logic) Pool(claim *v1beta2.IPAddressClaim) (pool metav1.Object, ours bool) {
	if !ofInfoblox(claim.Spec.PoolRef) {
		return nil, false
	}
	if found, ok := l.pools.Get(claim.Namespace, claim.Spec.PoolRef.Name); ok {
		pool = found
	}
	return pool, true
}

// poolFor returns the pool of a claim as it was checked; the error says why nothing can be allocated from it.
func (l *logic) poolFor(claim *v1beta2.IPAddressClaim, pool metav1.Object) (*checked, error) {
	name := claim.Spec.PoolRef.Name
	p, _ := pool.(*v1alpha1.InfobloxIPPool)
	switch {
	case p == nil:
		return nil, waits(v1beta2.ReasonPoolNotReady, 0, "The InfobloxIPPool %s does not exist. Create it.", name)
	case p.DeletionTimestamp != nil:
		return nil, waits(v1beta2.ReasonPoolNotReady, 0, "The InfobloxIPPool %s is being deleted. Use another one.", name)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.checked[contract.NameOf(p)]
	switch {
	case c == nil || !equality.Semantic.DeepEqual(c.of.Spec, p.Spec): // It is being checked, which queues its claims.
		return nil, writes.Pending{}
	case !c.Ready:
		return nil, waits(v1beta2.ReasonPoolNotReady, 0, "The InfobloxIPPool %s is not ready. %s", name, c.message)
	case c.full && !said(claim).IsValid():
		return nil, exhausted(claim)
	}
	return c, nil
}

func exhausted(claim *v1beta2.IPAddressClaim) error {
	return waits(v1beta2.ReasonPoolExhausted, 0, "No subnet of the InfobloxIPPool %s has a free address. Add a subnet, "+
		"or delete IPAddressClaims that are not needed.", claim.Spec.PoolRef.Name)
}

// claimGone wakes claims that wait for an address: there is one more, if only in one of the networks.
func (l *logic) claimGone(claim *v1beta2.IPAddressClaim) {
	if !ofInfoblox(claim.Spec.PoolRef) {
		return
	}
	l.left(claim.Namespace, claim.Spec.PoolRef)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.fresh, claim.UID)
	for pool, c := range l.checked {
		if c.full {
			c.full = false
			l.contract.QueuePool(v1alpha1.KindInfobloxIPPool, pool.Namespace, pool.Name)
		}
	}
}

// Allocate implements contract.Provider. A claim must carry its host record before it gets an address.
func (l *logic) Allocate(ctx context.Context, claim *v1beta2.IPAddressClaim, pool metav1.Object) (contract.Allocation, error) {
	annotations, err := l.prepare(ctx, claim, pool)
	if _, ok := recordOf(claim); err != nil || !ok || contract.IsCopy(claim) {
		return contract.Allocation{Annotations: annotations}, err
	}
	return l.allocate(ctx, claim, pool)
}

// prepare chooses the host record of a claim, which stays until the claim goes.
func (l *logic) prepare(ctx context.Context, claim *v1beta2.IPAddressClaim, pool metav1.Object) (map[string]string, error) {
	hostname := claim.Annotations[v1alpha1.AnnotationHostname]
	if had, ok := recordOf(claim); ok && !contract.IsCopy(claim) {
		return had.annotations(hostname), nil
	}
	from, err := l.poolFor(claim, pool)
	if err != nil {
		return nil, err
	}
	otherwise := claim.Name
	if from.dnsZone != "" && hostname == "" {
		if otherwise, err = l.machineOf(ctx, claim); err != nil {
			return nil, err
		}
	}
	name, ok := nameIn(from.dnsZone, hostname, otherwise)
	if !ok {
		return nil, waits(v1beta2.ReasonAllocationFailed, 0, "The host name %s is not in the zone %s of the InfobloxIPPool %s. "+
			"Correct the annotation %s of the claim: a name without dots gets the zone.",
			text.Cut(hostname, text.MaxValue), from.dnsZone, claim.Spec.PoolRef.Name, v1alpha1.AnnotationHostname)
	}
	if l.contract.Token(claim, nil) == claim.UID { // Nobody has written its record in another cluster, or before a restore.
		l.mu.Lock()
		l.fresh[claim.UID] = true
		l.mu.Unlock()
	}
	return recordName{from.place, name}.annotations(hostname), nil
}

// ownerOf returns a claim as far as its host record is concerned. address may be nil.
func (l *logic) ownerOf(claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) owner {
	l.mu.Lock()
	fresh := l.fresh[claim.UID]
	l.mu.Unlock()
	o := owner{token: l.contract.Token(claim, address), namespace: claim.Namespace, name: claim.Name, says: has(claim, address), fresh: fresh}
	if !marked.MatchString(comment([]types.UID{o.token}, "")) { // Somebody has written it who may create claims.
		o.token = claim.UID
	}
	return o
}

// unmarked reports whether another program has allocated an IPAddress, and Infoblox was not asked about it yet.
func unmarked(address *v1beta2.IPAddress) bool { return address.Annotations[AnnotationName] == "" }

// says returns what follows from an IPAddress alone: its address, and, of one that another program has allocated, which host record it has.
func (l *logic) says(address *v1beta2.IPAddress) map[string]string {
	annotations := map[string]string{AnnotationAddress: address.Spec.Address}
	claim, claimed := l.contract.Claims.Get(address.Namespace, address.Name)
	if pool, ok := l.pools.Get(address.Namespace, address.Spec.PoolRef.Name); ok && claimed && unmarked(address) {
		at, _ := recordOf(claim)
		annotations[AnnotationPlace], annotations[AnnotationName] = l.placeOf(pool).String(), at.name
	}
	return annotations
}

// clientOf returns the client of the Infoblox that has a host record. problem says why there is none, and what to do.
func (l *logic) clientOf(at recordName) (_ *wapi.Client, problem string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.servers[at.instance]
	switch _, exists := l.instances.Get("", at.instance); {
	case !exists:
		return nil, fmt.Sprintf("The host record %s is in the InfobloxInstance %s, which does not exist. Create it again.", at.name, at.instance)
	case s == nil || !s.Ready: // Any other Infoblox would answer that it has no such record.
		return nil, fmt.Sprintf("The host record %s is in the InfobloxInstance %s, which is not ready. See its condition Ready.", at.name, at.instance)
	}
	return s.client, ""
}

// Confirm implements contract.Provider: Infoblox has a host record with the token and the address. One of another program, which does not mark its records, gets
// the token now.
func (l *logic) Confirm(ctx context.Context, claim *v1beta2.IPAddressClaim, _ metav1.Object, address *v1beta2.IPAddress) error {
	at, ok := recordOf(claim)
	if !ok {
		return waits(v1beta2.ReasonAllocationFailed, checkEvery, "The claim has the IPAddress %s, and nobody knows where its host record is. "+
			"Create the InfobloxIPPool %s again.", address.Name, claim.Spec.PoolRef.Name)
	}
	c, problem := l.clientOf(at)
	if problem != "" {
		return waits(v1beta2.ReasonAllocationFailed, checkFailed, "The claim has the IPAddress %s, whose host record is to be looked up. %s", address.Name, problem)
	}
	done, err := l.work(at)
	if err != nil {
		return err
	}
	defer done()
	found, err := c.Hosts(ctx, at.name, at.networkView)
	if err != nil {
		return failed(v1beta2.ReasonAllocationFailed, "does not say whether the address is reserved", err)
	}
	o := l.ownerOf(claim, address)
	o.unmarked = unmarked(address)
	ok, adopt := o.reserved(found, neighbourhood{l, contract.NameOf(claim), at.place})
	if adopt != nil {
		if err := l.put(ctx, c, at, *adopt); err != nil {
			return failed(v1beta2.ReasonAllocationFailed, "did not take the comment of the host record", err)
		}
	}
	switch {
	case ok || adopt != nil:
		return nil
	case claim.DeletionTimestamp != nil: // What is not its own is not released.
		l.term.Event(claim, runner.IPAddressClaims, false, reasonRecordLeft, fmt.Sprintf("Infoblox has no host record %s with the address %v that is this claim's. "+
			"If another one has the address, and nobody uses it, delete that in Infoblox.", at.name, o.says))
		return nil
	}
	return waits(v1beta2.ReasonAllocationFailed, checkEvery, "Infoblox has no host record %s with the address %v, which the IPAddress %s says, "+
		"or another IPAddress or claim says this address, too. Delete the claim if no machine uses the address. Otherwise let the record have the address, and the comment %q.",
		at.name, o.says, address.Name, comment([]types.UID{o.token}, ""))
}

// MayRelease implements contract.Provider.
func (l *logic) MayRelease(claim *v1beta2.IPAddressClaim, _ metav1.Object) error {
	at, ok := recordOf(claim)
	if !ok { // It is written to the claim before anything is written to Infoblox.
		return nil
	}
	if rest := time.Until(l.began.Add(settled)); rest > 0 { // A create of an earlier process may still be carried out, which that sent twice.
		return writes.Later(rest)
	}
	if _, problem := l.clientOf(at); problem != "" {
		return waits(reasonReleaseFailed, checkFailed, "%s Or remove the finalizer %s of the claim, and delete the record in Infoblox.", problem, v1beta2.FinalizerReleaseAddress)
	}
	return nil
}

// Release implements contract.Provider. It removes the address and the token of a claim from its host record, which goes with its last address.
func (l *logic) Release(ctx context.Context, claim *v1beta2.IPAddressClaim) error {
	at, ok := recordOf(claim)
	if err := l.MayRelease(claim, nil); err != nil || !ok {
		return err
	}
	done, err := l.work(at)
	if err != nil {
		return err
	}
	defer done()
	c, _ := l.clientOf(at)
	what := fmt.Sprintf("has not given up the host record %s in the network view %s", at.name, at.networkView)
	found, err := c.Hosts(ctx, at.name, at.networkView)
	if err != nil {
		return failed(reasonReleaseFailed, what, err)
	}
	stays, left, why := l.ownerOf(claim, nil).release(found, neighbourhood{l, contract.NameOf(claim), at.place})
	if why != "" {
		return waits(reasonReleaseFailed, checkFailed, "The host record %s cannot be given up yet: it has several addresses that no IPAddress has, "+
			"or another IPAddressClaim in it has no address, so nobody knows whose they are. "+
			"See the condition Ready of the other claim, or remove from the record in Infoblox what nobody uses.", at.name)
	}
	for _, r := range stays {
		if err := l.put(ctx, c, at, r); err != nil {
			return failed(reasonReleaseFailed, what, err)
		}
	}
	if len(left) > 0 {
		l.term.Event(claim, runner.IPAddressClaims, false, reasonRecordLeft, fmt.Sprintf("The host record %s in the network view %s keeps the addresses %v, which are not this claim's. "+
			"Remove from it those that nobody uses.", at.name, at.networkView, left))
	}
	return nil
}
