package incluster

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
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

// Reasons of events that are not reasons of conditions.
const (
	eventOverlap      = "PoolsOverlap"
	eventWithoutClaim = "AddressWithoutClaim"
)

// atMost is how many objects a text names.
const atMost = 5

// state says whether a pool gives addresses: the reason of its condition, and if it has none for the next claim, the end of a sentence about it. gives is whether a
// claim that holds one gets it.
func (p *pool) state() (reason, text string, gives bool) {
	switch o, n := p.object, p.counts(); {
	case o == nil:
		return "", " does not exist. Create it, or correct spec.poolRef.", false
	case o.meta.GetDeletionTimestamp() != nil:
		return reasonTerminating, " is being deleted, and goes with its last IPAddress: delete its IPAddressClaims. Name another pool in spec.poolRef of new ones.", false
	case o.compiled == nil:
		return reasonInvalid, " is not valid: " + o.invalid.Error() + ". IPAddresses that exist stay as they are.", false
	case o.copiedFrom() != "":
		return reasonCopied, fmt.Sprintf(" was copied from another cluster, where its UID is %s. Two clusters must not allocate from it. "+
			"If the other one does not any more, and IPAddresses and IPAddressClaims were moved here, remove the annotation %s of the pool.", o.copiedFrom(), AnnotationPoolUID), false
	case p.moves || o.moved():
		return reasonMoved, " gives no addresses: clusterctl has moved IPAddressClaims or IPAddresses of it to another cluster, where their addresses stay in use. " +
			"If nothing was moved, remove the annotation " + AnnotationPoolMoved + " of the pool.", false
	case n.Total == 0:
		return reasonNoAddresses, o.compiled.WithoutAddresses(), true
	case n.Free == 0:
		text = fmt.Sprintf(" is full: all %d %s are in use.", n.Total, o.kind.things())
		if next := p.nextFree(); !next.IsZero() {
			text += fmt.Sprintf(" The next one is free at %s (spec.addressReuseGracePeriodSeconds).", next.UTC().Format(time.RFC3339))
		}
		return v1beta2.ReasonPoolExhausted, text + fmt.Sprintf(" Add %s to %s, or delete IPAddressClaims.", o.kind.things(), o.source()), true
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

// source returns where users add addresses. What they write into the pool of a ClusterIPAMClaim is taken back.
func (o *object) source() string {
	if claim := v1beta1.ClaimOf(o.meta); claim != "" {
		return "spec.nodeNetwork of the ClusterIPAMClaim " + claim
	}
	return "the pool"
}

// reportEvery is how often the status of a pool is made and written at most: it looks at all its IPAddresses.
const reportEvery = time.Second

// syncPool gives its addresses to claims that wait, gives it its finalizer, takes that away when a deleted pool is not used any more, and writes its status.
func (l *logic) syncPool(ctx context.Context, key runner.Key) error {
	var o *object
	var metadata map[string]any
	var rest time.Duration
	l.change(func(a *allocator) {
		if p := a.pools[key]; p != nil && p.object != nil {
			a.serve(p)
			o, metadata, rest = p.object, p.metadata(), time.Until(p.reported.Add(reportEvery))
		}
	})
	switch {
	case o == nil || contract.Paused(o.meta) || contract.GoingAway(o.meta):
		return nil
	case len(metadata) > 0:
		return l.patchPool(ctx, key, runner.MergePatchOfVersion(o.meta, map[string]any{"metadata": metadata}))
	case rest > 0:
		return writes.Later(rest)
	}
	return l.writeStatus(ctx, key)
}

// metadata returns what changes the metadata of a pool to what it is to be: it has its finalizer until it is deleted and not in use any more, a Global pool its own
// UID, and one that clusterctl has begun to move says so.
func (p *pool) metadata() map[string]any {
	o := p.object
	metadata, finalizers := map[string]any{}, o.meta.GetFinalizers()
	protected, goes := slices.Contains(finalizers, v1beta2.FinalizerProtectPool), o.meta.GetDeletionTimestamp() != nil
	switch {
	case !goes && !protected:
		metadata["finalizers"] = append(slices.Clone(finalizers), v1beta2.FinalizerProtectPool)
	case goes && protected && p.counts().Used == 0: // No IPAddress of it exists or may be created.
		metadata["finalizers"] = slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == v1beta2.FinalizerProtectPool })
	}
	switch {
	case p.moves:
		metadata["annotations"] = map[string]any{AnnotationPoolMoved: o.meta.GetUID()}
	case o.kind.global && !goes && o.meta.GetAnnotations()[AnnotationPoolUID] == "":
		metadata["annotations"] = map[string]any{AnnotationPoolUID: o.meta.GetUID()}
	}
	return metadata
}

func (l *logic) patchPool(ctx context.Context, key runner.Key, patch runner.Patch) error {
	return contract.Refused(l.term.API.Patch(ctx, key.Kind, types.NamespacedName{Namespace: key.Namespace, Name: key.Name}, patch, nil), "write the pool")
}

// writeStatus writes the status of a pool, if it is not so already, and events about what is new in it.
func (l *logic) writeStatus(ctx context.Context, key runner.Key) error {
	var o *object
	var wanted v1alpha2.InClusterIPPoolStatus
	var warnings map[string]string
	l.change(func(a *allocator) {
		if p := a.pools[key]; p != nil && p.object != nil {
			o = p.object
			wanted, warnings = l.report(p)
			p.reported = time.Now()
		}
	})
	if o == nil || equality.Semantic.DeepEqual(o.status, wanted) {
		return nil
	}
	news := slices.ContainsFunc(wanted.Conditions, func(c metav1.Condition) bool {
		before := contract.Find(o.status.Conditions, c.Type)
		return before == nil || !contract.Same(*before, c)
	})
	for reason, message := range warnings {
		if news && message != "" {
			l.term.Event(o.meta, key.Kind, false, reason, message)
		}
	}
	patch := runner.MergePatchOfVersion(o.meta, map[string]any{"status": wanted})
	patch.Status = true
	return l.patchPool(ctx, key, patch)
}

// report returns the status of a pool, and warnings about it by their reasons. That it has no conflicts is said only if conflicts were reported before.
func (l *logic) report(p *pool) (status v1alpha2.InClusterIPPoolStatus, warnings map[string]string) {
	reason, why, _ := p.state()
	ready := metav1.Condition{Type: v1alpha2.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: "The pool" + why}
	warnings = map[string]string{eventOverlap: l.shared(p), eventWithoutClaim: l.withoutClaim(p)}
	switch {
	case why == "":
		ready.Status, ready.Message = metav1.ConditionTrue, "The pool has free "+p.object.kind.things()+"."
	case reason != reasonTerminating:
		warnings[reason] = ready.Message
	}
	for _, more := range []string{warnings[eventOverlap], warnings[eventWithoutClaim]} {
		if more != "" {
			ready.Message += " " + more
		}
	}
	conditions := []metav1.Condition{ready}
	conflicted := metav1.Condition{Type: v1alpha2.ConditionConflicted, Status: metav1.ConditionFalse, Reason: "NoConflicts", Message: "No address belongs to two IPAddresses."}
	if all := conflicts(p); all != "" {
		conflicted.Status, conflicted.Reason, conflicted.Message = metav1.ConditionTrue, reasonConflict, all
		warnings[reasonConflict] = all
	}
	if conflicted.Status == metav1.ConditionTrue || contract.Find(p.object.status.Conditions, conflicted.Type) != nil {
		conditions = append(conditions, conflicted)
	}
	usage := p.counts()
	status = v1alpha2.InClusterIPPoolStatus{Conditions: p.object.status.Conditions, IPAddresses: &usage}
	for _, c := range conditions {
		c.ObservedGeneration, c.Message = p.object.meta.GetGeneration(), text.Cut(c.Message, text.MaxCondition)
		if !contract.Stored(status.Conditions, c) {
			status.Conditions = contract.With(status.Conditions, c)
		}
	}
	return status, warnings
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
	return fmt.Sprintf("Addresses of this pool are in other pools, too: %s. If their machines are in one network, give each pool addresses of its own.", some(texts))
}

// withoutClaim names IPAddresses that have no claim although they are protected like those of claims. They stay until somebody deletes them: machines may use them.
func (l *logic) withoutClaim(p *pool) string {
	var all []*address
	for name, at := range p.addresses {
		claim, claimed := l.Claims.Get(name.Namespace, name.Name)
		if (!claimed || !contract.Owns(claim, at.object)) && at.object.DeletionTimestamp == nil && slices.Contains(at.object.Finalizers, v1beta2.FinalizerProtectAddress) {
			all = append(all, at)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("IPAddresses without an IPAddressClaim: %d (%s). They keep their addresses: delete those that no machine uses.", len(all), namesOf(all))
}

// conflicts names IPAddresses of a pool that have an address in common; empty if there are none.
func conflicts(p *pool) string {
	var texts []string
	for _, together := range p.clashes() {
		texts = append(texts, fmt.Sprintf("%s belongs to %s", textOf(together[0].block), namesOf(together)))
	}
	if len(texts) == 0 {
		return ""
	}
	return fmt.Sprintf("Addresses that belong to several IPAddresses: %d. %s. Delete the claims of all but one; the address stays in use until the last is gone.",
		len(texts), strings.Join(texts[:min(len(texts), atMost)], "; "))
}

// namesOf returns the first names of IPAddresses.
func namesOf(all []*address) string {
	var names []string
	for _, at := range all {
		names = append(names, contract.NameOf(at.object).String())
	}
	return some(names)
}

// some returns the first ones of texts.
func some(texts []string) string {
	slices.Sort(texts)
	return strings.Join(texts[:min(len(texts), atMost)], ", ")
}
