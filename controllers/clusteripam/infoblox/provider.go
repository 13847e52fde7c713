package infoblox

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	return contract.Waits{Reason: reason, Message: fmt.Sprintf(format, args...), Again: again}
}

// failed returns the error of a claim for an error of Infoblox.
func failed(reason, what string, err error) error {
	e, ok := errors.AsType[*wapi.Error](err)
	if !ok {
		return err
	}
	return waits(reason, settled, "Infoblox %s: %v. The controller tries again.", what, e)
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

// sourceFor returns where a claim of a pool gets its address; the error says why it gets none.
func (l *logic) sourceFor(claim *v1beta2.IPAddressClaim, pool metav1.Object) (from source, err error) {
	name := claim.Spec.PoolRef.Name
	p, _ := pool.(*v1alpha1.InfobloxIPPool)
	switch {
	case p == nil:
		return from, waits(v1beta2.ReasonPoolNotReady, 0, "The InfobloxIPPool %s does not exist. Create it.", name)
	case p.DeletionTimestamp != nil:
		return from, waits(v1beta2.ReasonPoolNotReady, 0, "The InfobloxIPPool %s is being deleted. Use another one.", name)
	}
	ready := contract.Find(p.Status.Conditions, v1alpha1.ConditionReady)
	from, problem, known := l.sourceOf(p)
	switch rest := l.fullFor(claim, p); {
	case !known || ready == nil || ready.ObservedGeneration > 0 && ready.ObservedGeneration != p.Generation: // It is being checked, which queues its claims.
		return from, writes.Pending{}
	case problem.message != "":
		return from, waits(v1beta2.ReasonPoolNotReady, 0, "The InfobloxIPPool %s is not ready. %s", name, problem.message)
	case ready.Status != metav1.ConditionTrue:
		return from, waits(v1beta2.ReasonPoolNotReady, 0, "The InfobloxIPPool %s is not ready. %s", name, ready.Message)
	case rest > 0:
		return from, exhausted(claim, rest)
	}
	return from, nil
}

func exhausted(claim *v1beta2.IPAddressClaim, again time.Duration) error {
	return waits(v1beta2.ReasonPoolExhausted, again, "No subnet of the InfobloxIPPool %s has a free address. Add a subnet, "+
		"or delete IPAddressClaims that are not needed.", claim.Spec.PoolRef.Name)
}

// full is what Infoblox has said about a pool of a generation: none of its subnets has a free address. It is not asked again before a time, unless a claim goes.
type full struct {
	generation int64
	until      time.Time
}

// fullFor returns for how long Infoblox is not asked for an address of a pool. A claim that may have one already asks in any case: to others the pool is full.
func (l *logic) fullFor(claim *v1beta2.IPAddressClaim, p *v1alpha1.InfobloxIPPool) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.full[contract.NameOf(p)]; f.generation == p.Generation && !l.mayHave[claim.UID] && !said(claim).IsValid() {
		return time.Until(f.until)
	}
	return 0
}

// asks notes that Infoblox may have an address for a claim, until it says that there is none.
func (l *logic) asks(claim *v1beta2.IPAddressClaim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mayHave[claim.UID] = true
}

// ClaimGone implements contract.Provider. It wakes claims that wait for an address: there is one more, if only in one of the networks.
func (l *logic) ClaimGone(claim *v1beta2.IPAddressClaim) {
	if !ofInfoblox(claim.Spec.PoolRef) {
		return
	}
	l.left(claim.Namespace, claim.Spec.PoolRef)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mayHave, claim.UID)
	for pool := range l.full {
		l.contract.QueuePool(v1alpha1.KindInfobloxIPPool, pool.Namespace, pool.Name)
	}
	clear(l.full)
}

// AddressShown implements contract.Provider.
func (l *logic) AddressShown(before, now *v1beta2.IPAddress) {
	if now == nil {
		l.left(before.Namespace, before.Spec.PoolRef)
	}
}

// Allocate implements contract.Provider. A claim must carry its host record before it gets an address.
func (l *logic) Allocate(ctx context.Context, claim *v1beta2.IPAddressClaim, pool metav1.Object) (contract.Allocation, error) {
	annotations, err := l.prepare(ctx, claim, pool)
	if _, ok := recordOf(claim); err != nil || !ok {
		return contract.Allocation{Annotations: annotations}, err
	}
	return l.allocate(ctx, claim, pool)
}

// prepare chooses the host record of a claim, which stays until the claim goes.
func (l *logic) prepare(ctx context.Context, claim *v1beta2.IPAddressClaim, pool metav1.Object) (map[string]string, error) {
	hostname := claim.Annotations[v1alpha1.AnnotationHostname]
	if had, ok := recordOf(claim); ok {
		return had.annotations(hostname), nil
	}
	from, err := l.sourceFor(claim, pool)
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
	return recordName{from.place, name}.annotations(hostname), nil
}

// ownerOf returns a claim as far as its host record is concerned. address may be nil.
func (l *logic) ownerOf(claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) owner {
	o := owner{token: l.contract.Token(claim, address), namespace: claim.Namespace, name: claim.Name, says: has(claim, address)}
	if !marked.MatchString(comment([]types.UID{o.token}, "")) { // Somebody has written it who may create claims.
		o.token = claim.UID
	}
	return o
}

// Says implements contract.Provider: the address and, where another program has allocated it, which host record has it.
func (l *logic) Says(address *v1beta2.IPAddress) map[string]string {
	annotations := map[string]string{AnnotationAddress: address.Spec.Address}
	claim, _ := l.contract.Claims.Get(address.Namespace, address.Name)
	pool, ok := l.pools.Get(address.Namespace, address.Spec.PoolRef.Name)
	if _, known := recordOf(address); ok && !known && claim != nil {
		at, known := recordOf(claim)
		if !known {
			at.place = l.placeOf(pool)
		}
		annotations[AnnotationPlace], annotations[AnnotationName] = at.String(), at.name
	}
	return annotations
}

// visit returns the records that Infoblox has under the name of a claim's host record, and keeps others from them until done is called.
func (l *logic) visit(ctx context.Context, at recordName, reason string) (c *wapi.Client, found []wapi.Record, done func(), err error) {
	if done, err = l.work(at); err != nil {
		return nil, nil, nil, failed(reason, "does not show the host record "+at.name, err)
	}
	l.mu.Lock()
	s := l.servers[at.instance]
	l.mu.Unlock()
	if s == nil || !s.Ready { // Any other Infoblox would answer that it has no such record.
		err = waits(reason, checkFailed, "The host record %s is in the InfobloxInstance %s, which does not exist or is not ready. Create it again, or see its condition Ready. "+
			"Or remove the finalizer %s of a claim that is being deleted, and delete the record in Infoblox.", at.name, at.instance, v1beta2.FinalizerReleaseAddress)
	} else if found, err = l.hosts(ctx, s.client, at); err != nil {
		err = failed(reason, "does not show the host record "+at.name, err)
	}
	if err != nil {
		done()
		return nil, nil, nil, err
	}
	return s.client, found, done, nil
}

// Confirm implements contract.Provider: Infoblox has a host record with the token and the address. One of another program, which does not mark its records, gets
// the token now.
func (l *logic) Confirm(ctx context.Context, claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) error {
	at, ok := recordOf(claim)
	if !ok {
		return waits(v1beta2.ReasonAllocationFailed, checkEvery, "The claim has the IPAddress %s, and nobody knows where its host record is. "+
			"Create the InfobloxIPPool %s again.", address.Name, claim.Spec.PoolRef.Name)
	}
	c, found, done, err := l.visit(ctx, at, v1beta2.ReasonAllocationFailed)
	if err != nil {
		return err
	}
	defer done()
	o := l.ownerOf(claim, address)
	o.unmarked = contract.Unmarked(address)
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
func (l *logic) MayRelease(*v1beta2.IPAddressClaim) error { return nil }

// Release implements contract.Provider. It removes the address and the token of a claim from its host record, which goes with its last address.
func (l *logic) Release(ctx context.Context, claim *v1beta2.IPAddressClaim) error {
	at, ok := recordOf(claim)
	if !ok { // It is written to the claim before anything is written to Infoblox.
		return nil
	}
	o := l.ownerOf(claim, nil)
	had, err := l.releaseRecord(ctx, claim, o, at)
	if err == nil && !had && at.name == claim.Name { // The claim comes from a backup of the time before it got its second name.
		_, err = l.releaseRecord(ctx, claim, o, recordName{at.place, ownName(claim.Name, o.token)})
	}
	return err
}

// releaseRecord does what Release does with the records of one name. had reports whether one has the token of the claim.
func (l *logic) releaseRecord(ctx context.Context, claim *v1beta2.IPAddressClaim, o owner, at recordName) (had bool, err error) {
	c, found, done, err := l.visit(ctx, at, reasonReleaseFailed)
	if err != nil {
		return false, err
	}
	defer done()
	stays, left, known := o.release(found, neighbourhood{l, contract.NameOf(claim), at.place})
	if !known {
		return false, waits(reasonReleaseFailed, checkFailed, "The host record %s cannot be given up yet: it has several addresses that no IPAddress has, "+
			"or another IPAddressClaim in it has no address, so nobody knows whose they are. "+
			"See the condition Ready of the other claim, or remove from the record in Infoblox what nobody uses.", at.name)
	}
	for _, r := range stays {
		if err := l.put(ctx, c, at, r); err != nil {
			return false, failed(reasonReleaseFailed, "has not given up the host record "+at.name, err)
		}
	}
	if len(left) > 0 {
		l.term.Event(claim, runner.IPAddressClaims, false, reasonRecordLeft, fmt.Sprintf("The host record %s in the network view %s keeps the addresses %v, which are not this claim's. "+
			"Remove from it those that nobody uses.", at.name, at.networkView, left))
	}
	return len(stays) > 0, nil
}
