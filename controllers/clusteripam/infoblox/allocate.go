package infoblox

import (
	"cmp"
	"context"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// maxSteps limits the steps of one attempt: Infoblox may give one useless address after the other, or somebody else may change the host record all the time.
const maxSteps = 5

// allocate returns what a claim has that carries its host record.
func (l *logic) allocate(ctx context.Context, claim *v1beta2.IPAddressClaim, pool metav1.Object) (none contract.Allocation, _ error) {
	from, err := l.sourceFor(claim, pool)
	if err != nil {
		return none, err
	}
	at, _ := recordOf(claim)
	if l.infobloxOf(at.place) != l.infobloxOf(from.place) {
		return none, waits(v1beta2.ReasonAllocationFailed, 0, "The host record %s of the claim is in the InfobloxInstance %s and the network view %s, "+
			"and the InfobloxIPPool %s names others. Let the pool name these again. "+
			"Or delete the record there if there is one and no machine uses its address, and then remove the annotations %s and %s of the claim.",
			at.name, at.instance, at.networkView, claim.Spec.PoolRef.Name, AnnotationPlace, AnnotationAddress)
	}
	o := l.ownerOf(claim, nil)
	o.shares = shares(at.name, claim.Name, o.token, from.dnsZone)
	s, err := l.obtain(ctx, from, claim, o, at)
	switch {
	case wapi.IsFull(err):
		l.mu.Lock()
		defer l.mu.Unlock()
		l.full[contract.NameOf(pool)] = full{pool.GetGeneration(), time.Now().Add(checkEvery)}
		delete(l.mayHave, claim.UID)
		return none, exhausted(claim, checkEvery)
	case err != nil:
		return none, failed(v1beta2.ReasonAllocationFailed, "did not allocate an address", err)
	case s.verb == taken && !o.shares && at.name != ownName(claim.Name, o.token): // Under the former name there is nothing of the claim.
		want := claim.DeepCopy()
		maps.Copy(want.Annotations, recordName{at.place, ownName(claim.Name, o.token)}.annotations(""))
		return none, cmp.Or[error](l.term.Change(ctx, runner.IPAddressClaims, claim, want, nil), writes.Later(100*time.Millisecond))
	case s.verb != use:
		return none, without(claim, at, o, s)
	}
	a := contract.Allocation{Address: s.address, Prefix: s.subnet.prefix.Bits(), Annotations: map[string]string{AnnotationAddress: s.address.String()}}
	if s.subnet.gateway.IsValid() {
		a.Gateway = s.subnet.gateway.String()
	}
	return a, nil
}

// without returns why a claim gets no address from its host record, and what to do.
func without(claim *v1beta2.IPAddressClaim, at recordName, o owner, s step) error {
	switch pool := claim.Spec.PoolRef.Name; {
	case s.verb == taken:
		return waits(v1beta2.ReasonAllocationFailed, checkEvery, "Infoblox has a host record %s in the network view %s, "+
			"and it belongs to somebody else. Delete it there if no machine uses its addresses, or create the claim with another annotation %s.",
			at.name, at.networkView, v1alpha1.AnnotationHostname)
	case s.verb == wait && time.Since(claim.CreationTimestamp.Time) < 10*time.Second: // That takes a moment.
		return writes.Later(250 * time.Millisecond)
	case s.verb == wait:
		return waits(v1beta2.ReasonAllocationFailed, 5*time.Second, "Another IPAddressClaim shares the host record %s, and has no address yet or is not adopted yet, for example while it is paused. "+
			"See its condition Ready. If there is no such claim any more, remove its UID from the comment of the record in Infoblox, and addresses that no machine uses: %s, %v",
			at.name, s.record.Comment, s.record.Addresses())
	case s.verb == unclear:
		return waits(v1beta2.ReasonAllocationFailed, checkEvery, "Nobody knows which address of the host record %s in Infoblox is this claim's: %v. "+
			"There are several that no claim has, or another claim or IPAddress has it, too, or no subnet of the InfobloxIPPool %s has it. "+
			"Delete the other claim if no machine of it uses the address, or put the subnet back. Or remove from the record what nobody uses, and delete it if nothing is left.",
			at.name, s.record.Addresses(), pool)
	default: // lost
		return waits(v1beta2.ReasonAllocationFailed, checkEvery, "The claim says that it has the address %v, "+
			"and Infoblox has no host record %s with this address and the UID %s in its comment, or the InfobloxIPPool %s has no subnet for it, or another claim has the address. "+
			"Put that back. Or remove the annotation %s of the claim if no machine uses the address.", o.says, at.name, o.token, pool, AnnotationAddress)
	}
}

// record returns a host record as it would be created, without comment and addresses.
func (from source) record(name string) wapi.Record {
	return wapi.Record{Name: name, NetworkView: from.networkView, ConfiguredForDNS: from.dnsZone != "", View: from.dnsView}
}

// obtain brings a claim to an address in Infoblox. Whatever was written before, by whom, and whether the answer came: it looks first, and writes only what is missing.
func (l *logic) obtain(ctx context.Context, from source, claim *v1beta2.IPAddressClaim, o owner, at recordName) (s step, err error) {
	done, err := l.work(at)
	if err != nil {
		return s, err
	}
	defer done()
	n := neighbourhood{l, contract.NameOf(claim), at.place}
	for range maxSteps {
		found, err := l.hosts(ctx, from.client, at)
		if err != nil {
			return s, err
		}
		s = o.next(from.record(at.name), from.subnets, found, n)
		if s.verb != create && s.verb != update {
			return s, nil
		}
		l.asks(claim)
		if err := l.write(ctx, from, at, s, o.fresh, n); err != nil {
			return s, err
		}
		o.fresh = o.fresh || !s.address.IsValid()
	}
	return s, waits(v1beta2.ReasonAllocationFailed, checkEvery, "After %d writes the host record %s has no address that can be used. Find out in Infoblox who else writes it. "+
		"Reserve the gateways there, and addresses that IPAddresses have and Infoblox gives to others. The controller tries again.", maxSteps, at.name)
}

// write carries out a step, with the first subnet that has a free address. again: Infoblox has given one that is useless, and must not choose any that is.
func (l *logic) write(ctx context.Context, from source, at recordName, s step, again bool, w neighbourhood) (err error) {
	if s.address.IsValid() {
		return l.put(ctx, from.client, at, s.record)
	}
	send := from.client.UpdateHost
	if s.verb == create {
		send = from.client.CreateHost
	}
	for _, n := range from.subnets {
		next := wapi.Next{Network: n.prefix, View: from.networkView}
		if again {
			if next.Exclude = w.heldIn(n.prefix); n.gateway.IsValid() {
				next.Exclude = append(next.Exclude, n.gateway)
			}
		}
		err = l.send(ctx, at, func(ctx context.Context) error { return send(ctx, s.record, next) })
		if !wapi.IsFull(err) {
			return err
		}
	}
	return err
}
