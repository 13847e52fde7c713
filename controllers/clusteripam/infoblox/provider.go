package infoblox

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
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

// errFull is that no subnet of a pool has a free address.
var errFull = errors.New("no subnet has a free address")

const (
	// maxSteps limits the steps of one attempt: somebody else may change the host record all the time.
	maxSteps = 20
	// fullFor is how long a pool that was full is not asked again, unless an address is released.
	fullFor = 30 * time.Second
)

// waits returns the error of a claim that waits until somebody changes something in Infoblox, which nothing tells.
func waits(again time.Duration, format string, args ...any) error {
	return contract.Waits{Reason: v1beta2.ReasonAllocationFailed, Message: text.Cut(fmt.Sprintf(format, args...), text.MaxCondition), Again: again}
}

// failed returns the error of a claim for an error of Infoblox.
func failed(what string, err error) error {
	e, ok := errors.AsType[*wapi.Error](err)
	switch {
	case !ok:
		return err
	case wapi.InFlight(err):
		return waits(settled, "Infoblox %s: %v. The controller tries again.", what, e)
	default:
		return waits(checkFailed, "Infoblox %s: %v. The controller tries again.", what, e)
	}
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

// source returns where a pool allocates from; the error says why it cannot be used.
func (l *logic) source(claim *v1beta2.IPAddressClaim, pool metav1.Object) (from source, err error) {
	notReady := func(format string, args ...any) (source, error) {
		return source{}, contract.Waits{Reason: v1beta2.ReasonPoolNotReady, Message: text.Cut(fmt.Sprintf(format, args...), text.MaxCondition)}
	}
	p, _ := pool.(*v1alpha1.InfobloxIPPool)
	switch name := claim.Spec.PoolRef.Name; {
	case p == nil:
		return notReady("The InfobloxIPPool %s does not exist. Create it.", name)
	case p.DeletionTimestamp != nil:
		return notReady("The InfobloxIPPool %s is being deleted. Use another one.", name)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.verdicts[contract.NameOf(p)]
	if v != nil && !v.ready {
		return notReady("The InfobloxIPPool %s is not ready. %s", p.Name, v.message)
	}
	from, _, inputs := l.sourceOf(p)
	if v == nil || from.client == nil || v.inputs != inputs { // The pool is being checked, which queues its claims.
		return from, writes.Pending{}
	}
	return from, nil
}

// fullFor returns for how long the pool of a claim is not asked because it was full.
func (l *logic) fullFor(claim *v1beta2.IPAddressClaim) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(l.full[types.NamespacedName{Namespace: claim.Namespace, Name: claim.Spec.PoolRef.Name}])
}

func exhausted(claim *v1beta2.IPAddressClaim, again time.Duration) error {
	return contract.Waits{Reason: v1beta2.ReasonPoolExhausted, Again: again,
		Message: fmt.Sprintf("No subnet of the InfobloxIPPool %s has a free address. Add a subnet, "+
			"or delete IPAddressClaims that are not needed.", claim.Spec.PoolRef.Name)}
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
	from, err := l.source(claim, pool)
	if err != nil {
		return nil, err
	}
	if wait := l.fullFor(claim); wait > 0 {
		return nil, exhausted(claim, wait)
	}
	n := naming{claim: claim.Name, hostname: hostname, dnsZone: from.dnsZone}
	if n.dnsZone != "" && n.hostname == "" {
		if n.machine, err = l.machineOf(ctx, claim); err != nil {
			return nil, err
		}
	}
	name, inZone := n.first()
	if !inZone {
		return nil, waits(0, "The host name %s is not in the zone %s of the InfobloxIPPool %s. Correct the annotation %s of the claim: a name without dots gets the zone.",
			text.Cut(hostname, text.MaxValue), from.dnsZone, claim.Spec.PoolRef.Name, v1alpha1.AnnotationHostname)
	}
	return recordName{from.place, name}.annotations(hostname), nil
}

// ownerOf returns a claim as far as its host record is concerned. address may be nil.
func (l *logic) ownerOf(claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress, at recordName, dnsZone string) owner {
	o := owner{token: l.contract.Token(claim, address), namespace: claim.Namespace, name: claim.Name, says: said(claim)}
	if !marked.MatchString(comment([]types.UID{o.token}, "")) { // Somebody has written it who may create claims.
		o.token = claim.UID
	}
	o.shares = shares(at.name, claim.Name, o.token, dnsZone)
	return o
}

// allocate returns what a claim has that carries its host record.
func (l *logic) allocate(ctx context.Context, claim *v1beta2.IPAddressClaim, pool metav1.Object) (contract.Allocation, error) {
	var none contract.Allocation
	from, err := l.source(claim, pool)
	if err != nil {
		return none, err
	}
	at, _ := recordOf(claim)
	o := l.ownerOf(claim, nil, at, from.dnsZone)
	switch wait := l.fullFor(claim); {
	case l.infobloxOf(at.place) != l.infobloxOf(from.place):
		return none, waits(0, "The host record %s of the claim is in the InfobloxInstance %s and the network view %s, "+
			"and the InfobloxIPPool %s names others. Let the pool name these again. "+
			"Or delete the record there if there is one and no machine uses its address, and then remove the annotations %s and %s of the claim.",
			at.name, at.instance, at.networkView, claim.Spec.PoolRef.Name, AnnotationPlace, AnnotationAddress)
	case wait > 0 && !o.says.IsValid():
		return none, exhausted(claim, wait)
	}
	s, err := l.obtain(ctx, from, claim, o, at)
	poolName := types.NamespacedName{Namespace: claim.Namespace, Name: claim.Spec.PoolRef.Name}
	switch {
	case errors.Is(err, errFull):
		l.mu.Lock()
		l.full[poolName] = time.Now().Add(fullFor)
		l.mu.Unlock()
		return none, exhausted(claim, fullFor)
	case err != nil:
		return none, failed("did not allocate an address", err)
	case s.verb != use:
		return none, l.without(ctx, claim, at, o, s)
	}
	a := contract.Allocation{Address: s.address, Prefix: s.subnet.prefix.Bits(), Annotations: at.annotations(claim.Annotations[v1alpha1.AnnotationHostname])}
	a.Annotations[AnnotationAddress] = s.address.String()
	if s.subnet.gateway.IsValid() {
		a.Gateway = s.subnet.gateway.String()
	}
	return a, nil
}

// without returns why a claim gets no address from its host record, and what to do. A name that means something only in the claim's namespace is changed, once: under
// the former one there is nothing of the claim.
func (l *logic) without(ctx context.Context, claim *v1beta2.IPAddressClaim, at recordName, o owner, s step) error {
	switch {
	case s.verb == taken && !o.shares && at.name != ownName(claim.Name, o.token):
		annotations := recordName{at.place, ownName(claim.Name, o.token)}.annotations("")
		if wish := claim.Annotations[v1alpha1.AnnotationHostname]; fold(wish) != at.name {
			delete(annotations, v1alpha1.AnnotationHostname)
		}
		patch := runner.MergePatch(claim, map[string]any{"metadata": map[string]any{"annotations": annotations}})
		if err := l.term.API.Patch(ctx, runner.IPAddressClaims, contract.NameOf(claim), patch, nil); err != nil {
			return err
		}
		return writes.Later(100 * time.Millisecond)
	case s.verb == taken:
		return waits(checkEvery, "Infoblox has a host record %s in the network view %s, or in another one of the same DNS view, "+
			"and it belongs to somebody else. Delete it there if no machine uses its addresses, or create the claim with another annotation %s.",
			at.name, at.networkView, v1alpha1.AnnotationHostname)
	case s.verb == wait && time.Since(claim.CreationTimestamp.Time) < 10*time.Second: // That takes a moment.
		return writes.Later(250 * time.Millisecond)
	case s.verb == wait:
		return waits(5*time.Second, "Another IPAddressClaim shares the host record %s and has no address yet. See its condition Ready. "+
			"If there is no such claim any more, remove its UID from the comment of the record in Infoblox: %s",
			at.name, s.record.Comment)
	case s.verb == unclear:
		return waits(checkEvery, "Nobody knows which address of the host record %s in Infoblox is this claim's: %v. "+
			"There are several that no claim has, or another claim or IPAddress has it, too, or no subnet of the InfobloxIPPool %s has it. "+
			"Delete the other claim if no machine of it uses the address, or put the subnet back. Or remove from the record what nobody uses, and delete it if nothing is left.",
			at.name, s.record.Addresses(), claim.Spec.PoolRef.Name)
	default: // lost
		return waits(checkEvery, "The claim says that it has the address %v, "+
			"and Infoblox has no host record %s with this address and the UID %s in its comment, or the InfobloxIPPool %s has no subnet for it, "+
			"or another claim has the address. "+
			"Put that back. Or remove the annotation %s of the claim if no machine uses the address.", o.says, at.name, o.token, claim.Spec.PoolRef.Name, AnnotationAddress)
	}
}

// record returns a host record as it would be created, without comment and addresses.
func (from source) record(at recordName) wapi.Record {
	r := wapi.Record{Name: at.name, NetworkView: at.networkView}
	if from.dnsZone != "" {
		r.ConfiguredForDNS, r.View = true, from.dnsView
	}
	return r
}

// obtain brings a claim to an address in Infoblox. Whatever was written before, by whom, and whether the answer came: it looks first, and writes only what is missing.
func (l *logic) obtain(ctx context.Context, from source, claim *v1beta2.IPAddressClaim, o owner, at recordName) (s step, err error) {
	done, err := l.work(at)
	if err != nil {
		return s, err
	}
	defer done()
	var useless []netip.Addr
	n := neighbourhood{l, contract.NameOf(claim), at}
	hidden := false // Infoblox has a record of the name that it does not show, such as one in another network view of the DNS view.
	for range maxSteps {
		found, err := from.client.Hosts(ctx, at.name, at.networkView)
		if err != nil {
			return s, err
		}
		o.had = l.had(claim.UID, at, found)
		s = o.next(from.record(at), from.subnets, found, n)
		switch {
		case s.verb == create && hidden:
			s.verb = taken
			return s, nil
		case s.verb != create && s.verb != update:
			return s, nil
		}
		useless = append(useless, s.useless...)
		err = l.sent(at, write(ctx, from, s, useless, n))
		hidden = wapi.IsDuplicate(err)
		if gone := s.verb == update && wapi.IsNotFound(err); err != nil && !hidden && !gone {
			return s, err
		}
	}
	return s, waits(checkEvery, "After %d writes the host record %s has no address that can be used. Find out in Infoblox who else writes it. "+
		"Reserve the gateways there, and addresses that IPAddresses have and Infoblox gives to others. The controller tries again.", maxSteps, at.name)
}

// had returns the addresses in records that were there when this process looked first.
func (l *logic) had(claim types.UID, at recordName, found []wapi.Record) (all []netip.Addr) {
	for _, r := range found {
		all = append(all, r.Addresses()...)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if before := l.looks[claim]; before.at == at {
		all = slices.DeleteFunc(all, func(a netip.Addr) bool { return !slices.Contains(before.found, a) })
	}
	l.looks[claim] = look{at, all}
	return all
}

// write carries out a step, with the first subnet that has a free address. Where Infoblox gave one that is useless, it must not choose any that is.
func write(ctx context.Context, from source, s step, useless []netip.Addr, w neighbourhood) (err error) {
	switch {
	case s.address.IsValid():
		return from.client.UpdateHost(ctx, s.record)
	case s.verb == create && !isIn(from.dnsZone, s.record.Name):
		return waits(0, "The host name %s was chosen before the pool had the zone %s, and is not in it. Remove the annotation %s of the claim, which then gets another name. "+
			"Or let the pool have no zone.", s.record.Name, from.dnsZone, AnnotationPlace)
	}
	for _, n := range from.subnets {
		next := wapi.Next{Network: n.prefix, View: from.networkView}
		if slices.ContainsFunc(useless, n.prefix.Contains) {
			if next.Exclude = w.heldIn(n.prefix); n.gateway.IsValid() {
				next.Exclude = append(next.Exclude, n.gateway)
			}
		}
		if s.verb == create {
			err = from.client.CreateHost(ctx, s.record, next)
		} else {
			err = from.client.UpdateHost(ctx, s.record, next)
		}
		if !wapi.IsFull(err) {
			return err
		}
	}
	return errFull
}

// Confirm implements contract.Provider: Infoblox has a host record with the token and the address. One of another program, which does not mark its records, gets
// the token now.
func (l *logic) Confirm(ctx context.Context, claim *v1beta2.IPAddressClaim, _ metav1.Object, address *v1beta2.IPAddress) error {
	at, ok := recordOf(claim)
	if !ok {
		return waits(checkEvery, "The claim has the IPAddress %s, and nobody knows where its host record is. "+
			"Create the InfobloxIPPool %s again.", address.Name, claim.Spec.PoolRef.Name)
	}
	o := l.ownerOf(claim, address, at, "")
	o.unmarked = unmarked(address)
	o.says, _ = netip.ParseAddr(address.Spec.Address)
	c, problem := l.clientOf(at)
	if problem != "" {
		return waits(checkFailed, "The claim has the IPAddress %s, whose host record is to be looked up. %s", address.Name, problem)
	}
	done, err := l.work(at)
	if err != nil {
		return err
	}
	defer done()
	found, err := c.Hosts(ctx, at.name, at.networkView)
	if err != nil {
		return failed("does not say whether the address is reserved", err)
	}
	ok, adopt := o.reserved(found, neighbourhood{l, contract.NameOf(claim), at})
	if adopt != nil {
		if err := l.sent(at, c.UpdateHost(ctx, *adopt)); err != nil {
			return failed("did not take the comment of the host record", err)
		}
	}
	switch {
	case (ok || adopt != nil) && o.unmarked: // The IPAddress gets the annotation, too.
		patch := runner.MergePatch(claim, map[string]any{"metadata": map[string]any{"annotations": map[string]any{AnnotationName: at.name}}})
		return l.term.API.Patch(ctx, runner.IPAddressClaims, contract.NameOf(claim), patch, nil)
	case ok, claim.DeletionTimestamp != nil: // What is not its own is not released. An event of Release says so.
		return nil
	}
	return waits(checkEvery, "Infoblox has no host record %s with the address %v, which the IPAddress %s says, "+
		"or another IPAddress or claim says this address, too. Delete the claim if no machine uses the address. Otherwise let the record have the address, and the comment %q.",
		at.name, o.says, address.Name, comment([]types.UID{o.token}, ""))
}

// unmarked reports whether another program has allocated an IPAddress, and Infoblox was not asked about it yet.
func unmarked(address *v1beta2.IPAddress) bool { return address.Annotations[AnnotationName] == "" }

// says returns what follows from an IPAddress alone: its address, and, of one that another program has allocated, where its host record is.
func (l *logic) says(address *v1beta2.IPAddress) map[string]string {
	annotations := map[string]string{AnnotationAddress: address.Spec.Address}
	if unmarked(address) {
		if pool, ok := l.pools.Get(address.Namespace, address.Spec.PoolRef.Name); ok {
			annotations[AnnotationPlace] = l.placeOf(pool).String()
		}
	}
	return annotations
}
