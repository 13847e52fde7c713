package incluster

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/text"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Reasons of the conditions of a pool, besides those of Cluster API.
const (
	reasonAvailable   = "AddressesAvailable"
	reasonInvalid     = "Invalid"
	reasonNoAddresses = "NoAddresses"
	reasonTerminating = "Terminating"
	reasonConflict    = "AddressConflict"
	// reasonCopied (False): a Global pool carries the UID of another one.
	reasonCopied = "PoolWasCopied"
	// reasonMoved (False): clusterctl has begun to move what the pool has given.
	reasonMoved = "PoolWasMoved"
)

// state says whether a pool gives addresses: the reason of its condition, and if it has none for the next claim, the end of a sentence about it. gives is whether a
// claim that holds one gets it.
func (p *pool) state() (reason, text string, gives bool) {
	_, free := p.usage.Next()
	switch o := p.object; {
	case o == nil:
		return "", " does not exist. Create it, or correct spec.poolRef.", false
	case o.DeletionTimestamp != nil:
		return reasonTerminating, " is being deleted, and goes with its last IPAddress: delete its IPAddressClaims. Name another pool in spec.poolRef of new ones.", false
	case o.compiled == nil:
		return reasonInvalid, " is not valid: " + o.invalid.Error() + ". IPAddresses that exist stay as they are.", false
	case o.copiedFrom() != "":
		return reasonCopied, fmt.Sprintf(" was copied from another cluster, where its UID is %s. Two clusters must not allocate from it. "+
			"If the other one does not any more, and IPAddresses and IPAddressClaims were moved here, remove the annotation %s of the pool.", o.copiedFrom(), AnnotationPoolUID), false
	case p.moves || o.moved():
		return reasonMoved, " gives no addresses: clusterctl has moved IPAddressClaims or IPAddresses of it to another cluster, where their addresses stay in use. " +
			"If nothing was moved, remove the annotation " + AnnotationPoolMoved + " of the pool.", false
	case o.compiled.Total() == 0:
		return reasonNoAddresses, fmt.Sprintf(" is valid, but no %s can be allocated: all are excluded, the gateway, or reserved in their subnet. Add %s to %s.",
			strings.TrimSuffix(o.kind.things(), "es"), o.kind.things(), contract.Correct(o, "the pool", "spec.nodeNetwork")), true
	case !free:
		text = fmt.Sprintf(" is full: all %d %s are in use.", o.compiled.Total(), o.kind.things())
		if o.spec.grace > 0 {
			text += fmt.Sprintf(" Those of deleted IPAddressClaims stay in use for %v (spec.addressReuseGracePeriodSeconds).", o.spec.grace)
		}
		return v1beta2.ReasonPoolExhausted, text + fmt.Sprintf(" Add %s to %s, or delete IPAddressClaims.", o.kind.things(), contract.Correct(o, "the pool", "spec.nodeNetwork")), true
	}
	return reasonAvailable, "", true
}

// unable says why a claim that holds block, or nothing, cannot have an IPAddress with it. by has an address of the block, too.
func (c *claim) unable(block netip.Prefix, by string) error {
	reason, text, gives := c.pool.state()
	waits := contract.Waits{Reason: v1beta2.ReasonPoolNotReady, Message: c.pool.key.String() + text}
	if reason == v1beta2.ReasonPoolExhausted {
		waits.Reason = reason
	}
	switch {
	case !gives:
		return waits
	case by != "":
		return contract.Waits{Reason: v1beta2.ReasonAllocationFailed, Message: fmt.Sprintf(
			"The annotation %s says that this claim has %s, and the %s has that. Delete what no machine uses: that, or this claim. "+
				"Without the annotation this claim gets another address.", AnnotationAddress, textOf(block), by)}
	case !c.pool.eligible(): // It is paused, gets its finalizer, or goes. The contract says so of the last one.
		return writes.Pending{}
	case block.IsValid():
		return nil
	case text == "": // The claim has an IPAddress by now.
		return writes.Pending{}
	}
	return waits
}

// things is what pools of a kind have.
func (k kindOf) things() string {
	if k.prefixes {
		return "prefixes"
	}
	return "addresses"
}

// reportEvery is how often the status of a pool is made and written at most: it looks at all its IPAddresses.
const reportEvery = time.Second

// syncPool gives its addresses to claims that wait, writes its finalizer and annotations, and then its status.
func (l *logic) syncPool(ctx context.Context, key runner.Key) error {
	var is, want *object
	var now []metav1.Condition
	var rest time.Duration
	l.change(func(a *allocator) {
		p := a.pools[key]
		if p == nil || p.object == nil {
			return
		}
		a.serve(p)
		is, want = p.object, p.wanted()
		if rest = time.Until(p.reported.Add(reportEvery)); rest <= 0 && equality.Semantic.DeepEqual(is.ObjectMeta, want.ObjectMeta) {
			p.reported = time.Now()
			usage := v1alpha2.PoolUsage(p.usage.Counts())
			now, want.Status.IPAddresses = l.conditions(p), &usage
		}
	})
	switch {
	case is == nil || contract.Paused(is) || contract.GoingAway(is):
		return nil
	case len(now) == 0 && equality.Semantic.DeepEqual(is.ObjectMeta, want.ObjectMeta):
		return writes.Later(rest)
	}
	return l.Report(ctx, key.Kind, is, want, &want.Status.Conditions, now...)
}

// wanted returns the object of a pool with the metadata that it should have: its finalizer until it is deleted and not in use any more, a Global pool its own
// UID, and one that clusterctl has begun to move says so.
func (p *pool) wanted() *object {
	want := *p.object
	p.object.DeepCopyInto(&want.ObjectMeta)
	contract.Protect(&want, !p.usage.Empty()) // An IPAddress of it exists or may be created.
	switch {
	case p.moves:
		metav1.SetMetaDataAnnotation(&want.ObjectMeta, AnnotationPoolMoved, string(want.UID))
	case want.kind.global && want.DeletionTimestamp == nil && want.Annotations[AnnotationPoolUID] == "":
		metav1.SetMetaDataAnnotation(&want.ObjectMeta, AnnotationPoolUID, string(want.UID))
	}
	return &want
}

// conditions returns the conditions of a pool. That it has no conflicts is said only if conflicts were reported before.
func (l *logic) conditions(p *pool) (all []metav1.Condition) {
	reason, why, _ := p.state()
	ready := metav1.Condition{Type: v1alpha2.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: "The pool" + why}
	if why == "" {
		ready.Status, ready.Message = metav1.ConditionTrue, "The pool has free "+p.object.kind.things()+"."
	}
	ready.Message += l.shared(p) + l.WithoutClaim(slices.Collect(maps.Keys(p.addresses)))
	conflicted := metav1.Condition{Type: v1alpha2.ConditionConflicted, Status: metav1.ConditionFalse, Reason: "NoConflicts", Message: "No address belongs to two IPAddresses."}
	switch texts := conflicts(p); {
	case len(texts) > 0:
		conflicted.Status, conflicted.Reason = metav1.ConditionTrue, reasonConflict
		conflicted.Message = fmt.Sprintf("Addresses that belong to several IPAddresses: %d. %s. Delete the claims of all but one; the address stays in use until the last is gone.",
			len(texts), text.ListedFirst(texts))
	case contract.Find(p.object.Status.Conditions, conflicted.Type) == nil:
		return []metav1.Condition{ready}
	}
	return []metav1.Condition{ready, conflicted}
}

// shared names pools that have addresses of p. Networks of different machines may have equal addresses, so this is only reported.
func (l *logic) shared(p *pool) string {
	var texts []string
	for _, o := range l.allocator.pools {
		if at, ok := o.shares(p); ok {
			texts = append(texts, fmt.Sprintf("%v (%v)", o.key, at))
		}
	}
	if len(texts) == 0 {
		return ""
	}
	slices.Sort(texts)
	return fmt.Sprintf(" Addresses of this pool are in other pools, too: %s. If their machines are in one network, give each pool addresses of its own.", text.ListedFirst(texts))
}

// conflicts names IPAddresses of a pool that have an address in common.
func conflicts(p *pool) (texts []string) {
	for _, together := range p.clashes() {
		texts = append(texts, fmt.Sprintf("%s belongs to %s", textOf(together[0].block), namesOf(together)))
	}
	return texts
}

// namesOf returns the first names of IPAddresses.
func namesOf(all []*address) string {
	var names []string
	for _, at := range all {
		names = append(names, contract.NameOf(at.object).String())
	}
	slices.Sort(names)
	return text.ListedFirst(names)
}
