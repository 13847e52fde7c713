package incluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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

// unable says why a claim that holds block, or nothing, cannot have an IPAddress with it. by has an address of the block, too.
func (c *claim) unable(block netip.Prefix, by string) error {
	p, name := c.pool, c.pool.key.String()
	switch problem := p.problem(); {
	case problem != "":
		return contract.Waits{Reason: v1beta2.ReasonPoolNotReady, Message: name + problem}
	case by != "":
		return contract.Waits{Reason: v1beta2.ReasonAllocationFailed, Message: fmt.Sprintf(
			"The annotation %s says that this claim has %s, and the %s has that. Delete what no machine uses: that, or this claim. "+
				"Without the annotation this claim gets another address.", AnnotationAddress, textOf(block), by)}
	case !p.eligible(): // It is paused, gets its finalizer, or goes. The contract says so of the last one.
		return writes.Pending{}
	case block.IsValid():
		return nil
	case p.compiled().Total() == 0:
		return contract.Waits{Reason: v1beta2.ReasonPoolNotReady, Message: name + ": " + p.compiled().WithoutAddresses() + "."}
	}
	full := fmt.Sprintf("%s is full: all %d %s are in use.", name, p.compiled().Total(), p.things())
	w := contract.Waits{Reason: v1beta2.ReasonPoolExhausted}
	if next := p.nextFree(); !next.IsZero() {
		full += fmt.Sprintf(" The next one is free at %s (spec.addressReuseGracePeriodSeconds).", next.UTC().Format(time.RFC3339))
		w.Again = max(time.Until(next), time.Second)
	}
	w.Message = fmt.Sprintf("%s Add %s to %s, or delete IPAddressClaims.", full, p.things(), p.source())
	return w
}

// wasMoved says why nothing is allocated from a pool whose addresses are in use in another cluster, as the end of a sentence about it.
const wasMoved = " gives no addresses: clusterctl has moved IPAddressClaims or IPAddresses of it to another cluster, where their addresses stay in use. " +
	"If nothing was moved, remove the annotation " + AnnotationPoolMoved + " of the pool."

// problem says why nothing can be allocated from p until somebody changes it, as the end of a sentence about it. It is empty if nothing is wrong.
func (p *pool) problem() string {
	switch o := p.object; {
	case o == nil:
		return " does not exist. Create it, or correct spec.poolRef."
	case o.meta.GetDeletionTimestamp() != nil:
		return " is being deleted. Name another pool in spec.poolRef."
	case o.compiled == nil:
		return " is not valid: " + o.invalid + "."
	case o.copiedFrom() != "":
		return " was copied from another cluster. See its condition Ready."
	case p.moves || o.moved():
		return wasMoved
	}
	return ""
}

// things is what a pool has.
func (p *pool) things() string {
	if p.object.kind.prefixes {
		return "prefixes"
	}
	return "addresses"
}

// source returns where users add addresses. What they write into the pool of a ClusterIPAMClaim is taken back.
func (p *pool) source() string {
	if claim := v1beta1.ClaimOf(p.object.meta); claim != "" {
		return "spec.nodeNetwork of the ClusterIPAMClaim " + claim
	}
	return "the pool"
}

// statusEvery is how often the status of a pool is written at most.
const statusEvery = time.Second

// syncPool gives a pool its finalizer, takes it away when a deleted pool is not used any more, and writes its status.
func (l *logic) syncPool(ctx context.Context, key runner.Key) error {
	var (
		o          *object
		inUse      bool
		moves      bool
		conditions []metav1.Condition
		events     []event
		usage      v1alpha2.PoolUsage
	)
	l.change(func(a *allocator) {
		a.started = true
		p := a.pools[key]
		if p == nil || p.object == nil {
			return
		}
		counts := p.usage.Counts()
		o, inUse, moves, conditions, events = p.object, p.inUse(), p.moves, a.conditions(p), a.events(p)
		usage = v1alpha2.PoolUsage{Total: counts.Total, Free: counts.Free, Used: counts.Used, OutOfRange: counts.OutOfRange}
	})
	if o == nil || contract.Paused(o.meta) || contract.GoingAway(o.meta) {
		return nil
	}
	if metadata := o.protection(inUse, moves); len(metadata) > 0 {
		return l.patchPool(ctx, key, runner.MergePatchOfVersion(o.meta, map[string]any{"metadata": metadata}))
	}
	return l.writeStatus(ctx, key, o, conditions, usage, events)
}

// protection returns what changes the metadata of a pool to what it is to be: it has its finalizer until it is deleted and not in use any more, and a
// Global pool its own UID. moves is whether it is to say that it was moved.
func (o *object) protection(inUse, moves bool) map[string]any {
	metadata, finalizers := map[string]any{}, o.meta.GetFinalizers()
	protected := slices.Contains(finalizers, v1beta2.FinalizerProtectPool)
	switch {
	case o.meta.GetDeletionTimestamp() == nil && !protected:
		metadata["finalizers"] = append(slices.Clone(finalizers), v1beta2.FinalizerProtectPool)
	case o.meta.GetDeletionTimestamp() != nil && protected && !inUse:
		metadata["finalizers"] = slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == v1beta2.FinalizerProtectPool })
	}
	if o.kind.global && o.meta.GetDeletionTimestamp() == nil && o.meta.GetAnnotations()[AnnotationPoolUID] == "" {
		metadata["annotations"] = map[string]any{AnnotationPoolUID: o.meta.GetUID()}
	}
	if moves {
		metadata["annotations"] = map[string]any{AnnotationPoolMoved: o.meta.GetUID()}
	}
	return metadata
}

func (l *logic) patchPool(ctx context.Context, key runner.Key, patch runner.Patch) error {
	return contract.Refused(l.term.API.Patch(ctx, key.Kind, types.NamespacedName{Namespace: key.Namespace, Name: key.Name}, patch, nil), "write the pool")
}

// writeStatus writes the status of a pool, if it is not so already.
func (l *logic) writeStatus(ctx context.Context, key runner.Key, o *object, conditions []metav1.Condition, usage v1alpha2.PoolUsage, events []event) error {
	l.mu.Lock()
	before := l.told[o.meta.GetUID()]
	l.mu.Unlock()
	wanted := v1alpha2.InClusterIPPoolStatus{Conditions: o.status.Conditions, IPAddresses: &usage}
	news := false
	for _, c := range conditions {
		stored, said := contract.Find(o.status.Conditions, c.Type), contract.Find(before.conditions, c.Type)
		if stored != nil && contract.Same(*stored, c) || said != nil && contract.Same(*said, c) {
			continue
		}
		news = true
		wanted.Conditions = contract.With(wanted.Conditions, c)
	}
	if !news && equality.Semantic.DeepEqual(o.status.IPAddresses, wanted.IPAddresses) {
		return nil
	}
	if rest := time.Until(before.at.Add(statusEvery)); rest > 0 {
		return writes.Later(rest)
	}
	for _, e := range events {
		if news {
			l.term.Event(e.about, e.kind, false, e.reason, e.message)
		}
	}
	patch := runner.MergePatchOfVersion(o.meta, map[string]any{"status": wanted})
	patch.Status = true
	if err := l.patchPool(ctx, key, patch); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told[o.meta.GetUID()] = told{time.Now(), conditions}
	return nil
}

// conditions returns the conditions of a pool. That it has no conflicts is said only if conflicts were reported before.
func (a *allocator) conditions(p *pool) []metav1.Condition {
	all := []metav1.Condition{a.ready(p)}
	if c := p.conflicted(); c.Status == metav1.ConditionTrue || contract.Find(p.object.status.Conditions, c.Type) != nil {
		all = append(all, c)
	}
	return all
}

// ready returns the condition Ready of a pool.
func (a *allocator) ready(p *pool) metav1.Condition {
	c := metav1.Condition{Type: v1alpha2.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: p.object.meta.GetGeneration()}
	switch o := p.object; {
	case o.meta.GetDeletionTimestamp() != nil:
		c.Reason, c.Message = reasonTerminating, "The pool is being deleted. It goes when no IPAddress of it exists: delete their IPAddressClaims."
	case o.compiled == nil:
		c.Reason, c.Message = reasonInvalid, "The pool is not valid: "+o.invalid+". IPAddresses that exist stay as they are."
	case o.copiedFrom() != "":
		c.Reason = reasonCopied
		c.Message = fmt.Sprintf("The pool was copied from another cluster, where its UID is %s. Two clusters must not allocate from it. "+
			"If the other one does not any more, and IPAddresses and IPAddressClaims were moved here, remove the annotation %s.", o.copiedFrom(), AnnotationPoolUID)
	case p.moves || o.moved():
		c.Reason, c.Message = reasonMoved, "The pool"+wasMoved
	case o.compiled.Total() == 0:
		c.Reason, c.Message = reasonNoAddresses, upper(o.compiled.WithoutAddresses())+"."
	case p.usage.Counts().Free == 0:
		c.Reason = v1beta2.ReasonPoolExhausted
		c.Message = fmt.Sprintf("The pool is full: all %d %s are in use. Add %s to %s, or delete IPAddressClaims.",
			o.compiled.Total(), p.things(), p.things(), p.source())
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reasonAvailable, upper(p.things())+" can be allocated."
	}
	for _, more := range []string{a.shared(p), p.without()} {
		if more != "" {
			c.Message += " " + more
		}
	}
	c.Message = text.Cut(c.Message, text.MaxCondition)
	return c
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// shared names pools that have addresses of p. Networks of different machines may have equal addresses, so this is only reported.
func (a *allocator) shared(p *pool) string {
	var texts []string
	for _, o := range a.order {
		if at, ok := o.shares(p.compiled()); ok && o != p {
			if texts = append(texts, fmt.Sprintf("%v (%v)", o.key, at)); len(texts) == atMost {
				break
			}
		}
	}
	if len(texts) == 0 {
		return ""
	}
	return fmt.Sprintf("Addresses of this pool are in other pools, too: %s. If their machines are in one network, give each pool addresses of its own.",
		strings.Join(texts, ", "))
}

// without names IPAddresses that have no claim.
func (p *pool) without() string {
	if len(p.strays) == 0 {
		return ""
	}
	return fmt.Sprintf("IPAddresses without an IPAddressClaim: %d (%s). They keep their addresses: delete those that no machine uses.",
		len(p.strays), namesOf(slices.Collect(maps.Keys(p.strays))))
}

// namesOf returns the first names of IPAddresses.
func namesOf(all []*address) string {
	var names []string
	for _, at := range all {
		names = append(names, contract.NameOf(at.object).String())
	}
	slices.Sort(names)
	return strings.Join(names[:min(len(names), atMost)], ", ")
}

// clashes returns the IPAddresses of which another one has an address, in the order of their addresses.
func (p *pool) clashes() []*address {
	return slices.SortedFunc(maps.Keys(p.conflicts), func(a, b *address) int {
		return cmp.Or(a.block.Compare(b.block), strings.Compare(contract.NameOf(a.object).String(), contract.NameOf(b.object).String()))
	})
}

// conflicted returns the condition Conflicted of a pool.
func (p *pool) conflicted() metav1.Condition {
	c := metav1.Condition{Type: v1alpha2.ConditionConflicted, Status: metav1.ConditionFalse, ObservedGeneration: p.object.meta.GetGeneration(),
		Reason: "NoConflicts", Message: "No address belongs to two IPAddresses."}
	var texts []string
	var last netip.Prefix
	for _, at := range p.clashes() {
		if at.block != last {
			texts = append(texts, fmt.Sprintf("%s belongs to %s", textOf(at.block), namesOf(p.others(at.block, "", ""))))
		}
		last = at.block
	}
	if len(texts) == 0 {
		return c
	}
	c.Status, c.Reason = metav1.ConditionTrue, reasonConflict
	c.Message = text.Cut(fmt.Sprintf("Addresses that belong to several IPAddresses: %d. %s. Delete the claims of all but one; the address stays in use until the last is gone.",
		len(texts), strings.Join(texts[:min(len(texts), atMost)], "; ")), text.MaxCondition)
	return c
}

// event is a warning about an object.
type event struct {
	about           metav1.Object
	kind            *runner.Kind
	reason, message string
}

// events returns what is wrong with a pool and its IPAddresses.
func (a *allocator) events(p *pool) (all []event) {
	about := func(reason, message string) {
		if message != "" {
			all = append(all, event{p.object.meta, p.key.Kind, reason, message})
		}
	}
	if c := a.ready(p); c.Status == metav1.ConditionFalse && c.Reason != reasonTerminating {
		about(c.Reason, c.Message)
	}
	about(eventOverlap, a.shared(p))
	about(eventWithoutClaim, p.without())
	if c := p.conflicted(); c.Status == metav1.ConditionTrue {
		about(c.Reason, c.Message)
	}
	for i, at := range p.clashes() {
		if i < 100 {
			all = append(all, event{at.object, runner.IPAddresses, reasonConflict, fmt.Sprintf(
				"The address %s of %v belongs to several IPAddresses: %s. Delete the claims of all but one.", textOf(at.block), p.key, namesOf(p.others(at.block, "", "")))})
		}
	}
	return all
}
