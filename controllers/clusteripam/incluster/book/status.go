package book

import (
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
	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
)

// Reasons of the conditions, besides those of Cluster API.
const (
	ReasonReady              = "Ready"
	ReasonAddressesAvailable = "AddressesAvailable"
	ReasonInvalid            = "Invalid"
	ReasonNoAddresses        = "NoAddresses"
	ReasonTerminating        = "Terminating"
	ReasonConflict           = "AddressConflict"
	// ReasonUnreadable is in no condition: nothing is written to a claim that cannot be read.
	ReasonUnreadable = "Unreadable"
)

// claimStatus returns the request that writes the status of a claim; nil if it is as it should be.
func (b *Book) claimStatus(c *claim, now time.Time, n *Next) *Request {
	ready := metav1.Condition{Type: v1beta2.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: c.object.Generation}
	status := map[string]any{}
	name, edits := c.object.Status.AddressRef.Name, ""
	if c.state == Assigned || c.stored {
		name, edits = c.key.Name, b.edits(c)
		ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, ReasonReady, fmt.Sprintf("The address is %v.", c.addr)+edits
	} else if ready.Reason, ready.Message = b.why(c); ready.Reason == "" {
		return nil
	}
	before := find(c.object.Status.Conditions, ready.Type)
	if name == c.object.Status.AddressRef.Name && before != nil && same(*before, ready) {
		return nil
	}
	status["addressRef"] = map[string]any{"name": name}
	if name == "" {
		delete(status, "addressRef")
	}
	status["conditions"] = with(c.object.Status.Conditions, ready, now)
	if warns(before, ready) {
		n.Events = append(n.Events, Event{Key: c.key, UID: c.uid(), Reason: ready.Reason, Message: ready.Message})
	}
	if edits != "" {
		n.Events = append(n.Events, Event{Key: c.key, UID: c.uid(), Reason: EventEdited, Message: ready.Message})
	}
	return &Request{Verb: PatchStatus, Key: c.key, UID: c.uid(), Body: statusPatch(c.object, status), claim: c, What: "write the status"}
}

// warns reports whether a condition says that something is wrong, and did not say so before.
func warns(before *metav1.Condition, now metav1.Condition) bool {
	return now.Status == metav1.ConditionFalse && (before == nil || before.Status != now.Status || before.Reason != now.Reason)
}

// edits says what somebody has changed in the spec of a claim that has an address, or of its IPAddress, and what to do.
func (b *Book) edits(c *claim) (said string) {
	if c.pool != c.ref {
		said = fmt.Sprintf(" It is of %v, and stays so: set spec.poolRef back, or create another IPAddressClaim.", c.pool.key)
	}
	if own, _ := b.own(c); own != nil && own.edited() {
		said += fmt.Sprintf(" The IPAddress was edited, and says %.40q of %s %s: set its spec back, or delete this claim when its machine is gone.",
			own.object.Spec.Address, own.object.Spec.PoolRef.Kind, own.object.Spec.PoolRef.Name)
	}
	return said
}

func statusPatch(o metav1.Object, status any) []byte {
	return marshal(map[string]any{"metadata": map[string]any{"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion()}, "status": status})
}

func find(conditions []metav1.Condition, kind string) *metav1.Condition {
	for i := range conditions {
		if conditions[i].Type == kind {
			return &conditions[i]
		}
	}
	return nil
}

// same reports whether two conditions say the same. Old API versions do not store the generation.
func same(a, b metav1.Condition) bool {
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}

// with returns the conditions with c in place of the one of its type.
func with(conditions []metav1.Condition, c metav1.Condition, now time.Time) []metav1.Condition {
	c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	all := slices.Clone(conditions)
	before := find(all, c.Type)
	if before == nil {
		return append(all, c)
	}
	if before.Status == c.Status {
		c.LastTransitionTime = before.LastTransitionTime
	}
	*before = c
	return all
}

// statusEvery is how often the status of a pool is written at most.
const statusEvery = time.Second

// NextForPool returns what to do next about a pool. The caller must not ask about the same pool again before it has told the answer.
func (b *Book) NextForPool(key Key, now time.Time) (n Next) {
	p, ok := b.pools[key]
	if !ok || p.object == nil || !b.started || p.isPaused() {
		return Next{}
	}
	finalizers := p.object.Finalizers
	protected := slices.Contains(finalizers, v1beta2.FinalizerProtectPool)
	switch deleting := p.object.DeletionTimestamp != nil; {
	case !deleting && !protected:
		n.Request = b.patchMeta(key, p.object, map[string]any{"finalizers": append(slices.Clone(finalizers), v1beta2.FinalizerProtectPool)})
		n.Request.What = "add the finalizer"
		return n
	case deleting && protected && !p.inUse():
		n.Request = b.patchMeta(key, p.object, map[string]any{"finalizers": without(finalizers, v1beta2.FinalizerProtectPool)})
		n.Request.What = "release the pool"
		return n
	}
	if p.object.DeletionTimestamp == nil || protected {
		b.poolStatus(p, now, &n)
	}
	return n
}

// inUse reports whether an IPAddress of p exists or may be created.
func (p *pool) inUse() bool {
	if len(p.unreadable) > 0 {
		return true
	}
	for _, h := range p.holdings {
		if len(h.addresses) > 0 || slices.ContainsFunc(h.claims, func(c *claim) bool { return c.unresolved() || c.state == Sent }) {
			return true
		}
	}
	return false
}

// poolStatus plans the request that writes the status of a pool, if it is not as it should be.
func (b *Book) poolStatus(p *pool, now time.Time, n *Next) {
	counts := p.usage.Counts()
	wanted := v1alpha2.InClusterIPPoolStatus{
		IPAddresses: &v1alpha2.PoolUsage{Total: counts.Total, Free: counts.Free, Used: counts.Used, OutOfRange: counts.OutOfRange},
	}
	stored := p.object.Status
	said := p.conditions()
	wanted.Conditions = stored.Conditions
	news := false
	for _, c := range said {
		before, told := find(stored.Conditions, c.Type), find(p.said, c.Type)
		if before != nil && same(*before, c) || told != nil && same(*told, c) {
			continue
		}
		news = true
		wanted.Conditions = with(wanted.Conditions, c, now)
	}
	if !news && stored.IPAddresses != nil && equality.Semantic.DeepEqual(stored.IPAddresses, wanted.IPAddresses) {
		return
	}
	if next := p.statusAt.Add(statusEvery); now.Before(next) {
		n.sooner(next)
		return
	}
	p.statusAt = now
	if news {
		n.Events = b.poolEvents(p)
	}
	n.Request = &Request{Verb: PatchStatus, Key: p.key, UID: p.object.UID, Body: statusPatch(p.object, wanted), said: said, What: "write the status"}
}

// conditions returns the conditions of a pool. That it has no conflicts is said only if conflicts were reported before.
func (p *pool) conditions() []metav1.Condition {
	all := []metav1.Condition{p.ready()}
	if c := p.conflicted(); c.Status == metav1.ConditionTrue || find(p.object.Status.Conditions, c.Type) != nil {
		all = append(all, c)
	}
	return all
}

// source returns where users add addresses. What they write into the pool of a ClusterIPAMClaim is taken back.
func (p *pool) source() string {
	if claim := v1beta1.ClaimOf(p.object); claim != "" {
		return "spec.nodeNetwork of the ClusterIPAMClaim " + claim
	}
	return "the pool"
}

// ready returns the condition Ready of a pool.
func (p *pool) ready() metav1.Condition {
	c := metav1.Condition{Type: v1alpha2.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: p.object.Generation}
	switch {
	case p.object.DeletionTimestamp != nil:
		c.Reason, c.Message = ReasonTerminating, "The pool is being deleted. It goes when no IPAddress of it exists: delete their IPAddressClaims."
	case p.compiled == nil:
		c.Reason, c.Message = ReasonInvalid, "The pool is not valid: "+p.invalid+". IPAddresses that exist stay as they are."
	case p.compiled.Total() == 0:
		c.Reason, c.Message = ReasonNoAddresses, upper(p.compiled.WithoutAddresses())+"."
	case p.usage.Counts().Free == 0:
		c.Reason = v1beta2.ReasonPoolExhausted
		c.Message = fmt.Sprintf("The pool is full: all %d addresses are in use. Add addresses to %s, or delete IPAddressClaims.", p.compiled.Total(), p.source())
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonAddressesAvailable, "Addresses can be allocated."
	}
	for _, more := range []string{p.shared(), p.without(), p.unread(), p.changed()} {
		if more != "" {
			c.Message += " " + more
		}
	}
	return c
}

// shared names pools that have addresses of p.
func (p *pool) shared() string {
	var texts []string
	for _, o := range p.overlaps {
		texts = append(texts, fmt.Sprintf("%v (%v)", o.pool.key, o.at))
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
		len(p.strays), names(p.strays, func(o *v1beta2.IPAddress) string { return o.Namespace + "/" + o.Name }))
}

// unread names IPAddresses whose address cannot be read.
func (p *pool) unread() string {
	if len(p.unreadable) == 0 {
		return ""
	}
	return fmt.Sprintf("IPAddresses whose spec.address cannot be read: %d (%s). Other claims may get these addresses: write them correctly, or add them to spec.excludedAddresses.",
		len(p.unreadable), names(p.unreadable, func(o *v1beta2.IPAddress) string {
			return fmt.Sprintf("%s/%s %.40q", o.Namespace, o.Name, o.Spec.Address)
		}))
}

// changed names IPAddresses that say something else than the address of p that was allocated.
func (p *pool) changed() string {
	if len(p.edited) == 0 {
		return ""
	}
	var all []string
	for a := range p.edited {
		all = append(all, fmt.Sprintf("%s/%s was %v", a.object.Namespace, a.object.Name, a.first().addr))
	}
	slices.Sort(all)
	return fmt.Sprintf("IPAddresses that were edited: %d (%s). Nobody else gets the former addresses until the controller restarts: set spec back.",
		len(all), strings.Join(all[:min(len(all), atMost)], ", "))
}

// names returns the first names of IPAddresses.
func names(of map[*address]bool, name func(*v1beta2.IPAddress) string) string {
	var all []string
	for a := range of {
		all = append(all, name(a.object))
	}
	slices.Sort(all)
	return strings.Join(all[:min(len(all), atMost)], ", ")
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// atMost is how many conflicts or overlaps a text names.
const atMost = 5

// conflicted returns the condition Conflicted of a pool.
func (p *pool) conflicted() metav1.Condition {
	c := metav1.Condition{Type: v1alpha2.ConditionConflicted, Status: metav1.ConditionFalse, ObservedGeneration: p.object.Generation,
		Reason: "NoConflicts", Message: "No address belongs to two IPAddresses."}
	if len(p.conflicts) == 0 {
		return c
	}
	var texts []string
	all := slices.SortedFunc(maps.Keys(p.conflicts), netip.Addr.Compare)
	for _, at := range all[:min(len(all), atMost)] {
		texts = append(texts, fmt.Sprintf("%v belongs to %s", at, strings.Join(p.holders(at), ", ")))
	}
	c.Status, c.Reason = metav1.ConditionTrue, ReasonConflict
	c.Message = fmt.Sprintf("Addresses that belong to several IPAddresses: %d. %s. Delete the claims of all but one; the address stays in use until the last is gone.",
		len(all), strings.Join(texts, "; "))
	return c
}

// holders names the IPAddresses that have an address.
func (p *pool) holders(at netip.Addr) (names []string) {
	for _, a := range p.holdings[at].addresses {
		names = append(names, a.object.Namespace+"/"+a.object.Name)
	}
	slices.Sort(names)
	return names[:min(len(names), atMost)]
}

// poolEvents returns events for what is wrong with a pool.
func (b *Book) poolEvents(p *pool) (events []Event) {
	about := func(reason, message string) {
		events = append(events, Event{Key: p.key, UID: p.object.UID, Reason: reason, Message: message})
	}
	if c := p.ready(); c.Status == metav1.ConditionFalse && c.Reason != ReasonTerminating {
		about(c.Reason, c.Message)
	}
	if c := p.conflicted(); c.Status == metav1.ConditionTrue {
		about(c.Reason, c.Message)
	}
	for reason, what := range map[string]string{EventOverlap: p.shared(), EventWithoutClaim: p.without(), EventUnreadable: p.unread(), EventEdited: p.changed()} {
		if what != "" {
			about(reason, what)
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(p.conflicts), netip.Addr.Compare) {
		for _, a := range p.holdings[at].addresses {
			events = append(events, Event{Key: addressKey(claimOf(a.object)), UID: a.object.UID, Reason: EventConflict,
				Message: fmt.Sprintf("The address %v of %v belongs to several IPAddresses: %s. Delete the claims of all but one.", at, p.key, strings.Join(p.holders(at), ", "))})
		}
		if len(events) > 100 {
			break
		}
	}
	return events
}
