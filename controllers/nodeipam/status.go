package nodeipam

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	applyv1 "github.com/multicidr/controller-manager/apis/generated/applyconfiguration/networking/v1"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
)

// statusInterval is the least time between two tries to write one ClusterCIDR's status. Changes in between go into one write.
const statusInterval = time.Second

// statusPatience is for how long a status stays as it is while Nodes are queued: under a limit of requests each write of a status is
// one of podCIDRs less.
const statusPatience = 10 * time.Second

// syncStatus writes what the book says of one ClusterCIDR into its status, unless that is there already.
func (c *Controller) syncStatus(ctx context.Context, name string) error {
	interval := statusInterval
	if c.nodeQueue.Len() > 0 {
		interval = statusPatience
	}
	var (
		cc    *networkingv1.ClusterCIDR
		want  networkingv1.ClusterCIDRStatus
		due   bool          // it is another one than there is
		early time.Duration // by how much
		err   error
	)
	c.with(func(b *book) {
		if early = interval - c.now().Sub(c.statusWritten[name]); early > 0 {
			return
		}
		delete(c.statusQueued, name) // what changes from here on asks again
		if cc, err = c.clusterCIDRs.Get(name); err != nil {
			return
		}
		known := false
		if want, known = b.status(cc); !known {
			return
		}
		c.alarmOf(b, cc, want)
		if due = !statusShows(cc.Status, want); due {
			c.statusWritten[name] = c.now()
		}
	})
	switch {
	case early > 0:
		return later(min(early, statusInterval/4)) // Nodes may be done before
	case apierrors.IsNotFound(err):
		return nil
	case err != nil || !due:
		return err
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if foreign := foreignStatus(cc, want); foreign != nil {
		err = c.api.patchStatus(ctx, name, foreign)
	}
	if err == nil {
		err = c.api.applyStatus(ctx, statusPatch(cc, want))
	}
	switch {
	case notThere(err), apierrors.IsConflict(err):
		// gone, or another one of that name; or a webhook refuses with that code
		return refusedLater{fmt.Errorf("apply status of ClusterCIDR %s: %w", name, err)}
	case err != nil:
		return fmt.Errorf("apply status of ClusterCIDR %s: %w", name, err)
	}
	c.health.stored(writesStatus)
	c.statusQueue.AddAfter(name, retryMax) // No event comes if an admission policy has changed it back.
	return nil
}

// alarmOf hands over what there is to say about the state that a ClusterCIDR comes into. One that is deleted while no Node uses it needs nobody.
func (c *Controller) alarmOf(b *book, cc *networkingv1.ClusterCIDR, now networkingv1.ClusterCIDRStatus) {
	alarmOf := func(status networkingv1.ClusterCIDRStatus) (reason, message string) {
		ready := meta.FindStatusCondition(status.Conditions, networkingv1.ConditionReady)
		if ready == nil {
			return "", ""
		}
		return alarmReasons[ready.Reason], ready.Message
	}
	before, _ := alarmOf(cc.Status)
	reason, message := alarmOf(now)
	if reason == ReasonDeletionBlocked && !b.inUse(cc.Name) {
		reason = ""
	}
	c.alarmed(cc, before, reason, message)
}

// alarmReasons are the reasons of events, by those of the condition Ready that someone should look at.
var alarmReasons = map[string]string{
	networkingv1.ReasonExhausted:   ReasonExhausted,
	networkingv1.ReasonInvalid:     ReasonInvalid,
	networkingv1.ReasonTerminating: ReasonDeletionBlocked,
	networkingv1.ReasonPending:     ReasonFinalizerMissing,
}

// status returns what a ClusterCIDR's status should be. known is false while the book does not know it, or knows that it
// changes in a moment.
func (b *book) status(cc *networkingv1.ClusterCIDR) (status networkingv1.ClusterCIDRStatus, known bool) {
	p, ok := b.pools[cc.Name]
	if !ok || p.ID != string(cc.UID) || p.aboutToServe() {
		return networkingv1.ClusterCIDRStatus{}, false
	}
	for _, r := range p.Ranges {
		if r.Family() == ipam.IPv4 {
			status.IPv4 = b.rangeStatus(p, r)
		} else {
			status.IPv6 = b.rangeStatus(p, r)
		}
	}
	for _, condition := range []metav1.Condition{b.ready(p), b.overlapping(p), b.conflicted(p)} {
		// From the condition as it is, so that an unchanged one keeps the time of its last transition; unless that time is somebody else's.
		// There may be any number of others', which are theirs.
		if known := meta.FindStatusCondition(cc.Status.Conditions, condition.Type); known != nil && !known.LastTransitionTime.IsZero() {
			status.Conditions = append(status.Conditions, *known)
		}
		condition.ObservedGeneration, condition.Message = cc.Generation, cut(condition.Message, maxCondition)
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status, true
}

// statusShows reports whether a status says all that it should.
func statusShows(status, want networkingv1.ClusterCIDRStatus) bool {
	for _, w := range want.Conditions {
		if known := meta.FindStatusCondition(status.Conditions, w.Type); known == nil || !equality.Semantic.DeepEqual(*known, w) {
			return false
		}
	}
	return equality.Semantic.DeepEqual(status.IPv4, want.IPv4) && equality.Semantic.DeepEqual(status.IPv6, want.IPv6)
}

func (b *book) rangeStatus(p *pool, r ipam.Range) *networkingv1.RangeStatus {
	usage := b.ledger.Usage(&p.Pool, r)
	total, used, free := r.Blocks(), usage.Allocated, usage.Free
	s := &networkingv1.RangeStatus{
		CIDR:              r.Prefix.String(),
		BlockPrefixLength: int32(r.BlockBits),
		Total:             capped(total),
		Allocated:         capped(used),
		Free:              capped(free),
		Unavailable:       capped(b.taken(p, r, total, free) - used),
	}
	if cursor := b.ledger.Cursor(&p.Pool, r.Family()); cursor.IsValid() {
		s.Cursor = cursor.String()
	}
	return s
}

// taken returns how many of the total blocks of a range are not free.
func (b *book) taken(p *pool, r ipam.Range, total, free uint64) uint64 {
	if total == math.MaxUint64 { // or more, and so perhaps is free
		return b.ledger.Taken(&p.Pool, r)
	}
	return total - free
}

func capped(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// ready says whether p can serve a Node now.
func (b *book) ready(p *pool) metav1.Condition {
	no := func(reason, message string) metav1.Condition {
		return metav1.Condition{Type: networkingv1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	switch full := b.ledger.Full(&p.Pool); {
	case p.State == ipam.Terminating:
		return no(networkingv1.ReasonTerminating, b.waitsForNodes(p))
	case p.State == ipam.Invalid:
		return no(networkingv1.ReasonInvalid, p.problem+". Delete this ClusterCIDR and create one that is right.")
	case p.superseded:
		return no(networkingv1.ReasonSuperseded, upperFirst(p.problem)+". It allocates nothing, and Nodes keep their podCIDRs. The controller deletes it when no Node uses it, unless a user has changed it. "+
			"To go on with this range, put the flags back, or create a ClusterCIDR of your own with it.")
	case p.State == ipam.Disabled:
		return no(networkingv1.ReasonDisabled, "spec.allocation is Disabled. Nodes keep what they have.")
	case p.State == ipam.Pending && p.cause == causeNotKept:
		return no(networkingv1.ReasonPending, p.problem+whoDoesNotKeepIt)
	case p.State == ipam.Pending:
		return no(networkingv1.ReasonPending, p.problem)
	case len(full) > 0:
		return no(networkingv1.ReasonExhausted, b.exhausted(p, full))
	}
	return metav1.Condition{Type: networkingv1.ConditionReady, Status: metav1.ConditionTrue, Reason: networkingv1.ReasonAvailable, Message: "It can serve Nodes."}
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// waitsForNodes says which Nodes keep a ClusterCIDR that is being deleted.
func (b *book) waitsForNodes(p *pool) string {
	var few []string // the first ones, in order
	n := 0
	for uid := range b.members(p) {
		n++
		if i, _ := slices.BinarySearch(few, b.names[uid]); i < maxNamed {
			few = slices.Insert(few[:min(len(few), maxNamed-1)], i, b.names[uid])
		}
	}
	if n == 0 {
		return "No Node belongs to it any more."
	}
	return fmt.Sprintf("%s to it: %s. It goes when they are deleted.", counted(n, "Node belongs", "Nodes belong"), listedOf(few, n))
}

// overlapping says with what p's ranges share addresses that p can allocate: what it excludes concerns nobody else.
func (b *book) overlapping(p *pool) metav1.Condition {
	found := map[string][]string{}
	addresses := 0
	for _, r := range p.Ranges {
		for service := range b.services.Overlapping(r.Prefix) {
			if !p.Gives(service) {
				continue
			}
			for h := range b.ledger.Holdings(service) {
				if h.Prefix.Bits() > service.Bits() {
					break // Who contains it comes first, and inside it are perhaps very many.
				}
				if h.Owner.Kind == ipam.Service && h.Prefix == service {
					found[networkingv1.ReasonServiceRange] = append(found[networkingv1.ReasonServiceRange], fmt.Sprintf("%v of %s", h.Prefix, h.Owner.ID))
				}
			}
		}
		for h := range b.addresses.Holdings(r.Prefix) { // which may be very many, so no more are written than are named
			if !p.Gives(h.Prefix) {
				continue
			}
			if addresses++; addresses <= maxNamed {
				found[networkingv1.ReasonNodeAddress] = append(found[networkingv1.ReasonNodeAddress], fmt.Sprintf("%v of %s", h.Prefix.Addr(), b.names[types.UID(h.Owner.ID)]))
			}
		}
	}
	for _, r := range p.Ranges {
		if r.BlockBits == 0 {
			found[reasonWholeSpace] = append(found[reasonWholeSpace], r.Prefix.String())
			continue // It has all special addresses, and none can be excluded alone.
		}
		for _, s := range special {
			if r.Prefix.Overlaps(s.prefix) && p.Gives(s.prefix) {
				found[networkingv1.ReasonSpecialAddresses] = append(found[networkingv1.ReasonSpecialAddresses], fmt.Sprintf("%v (%s)", s.prefix, s.use))
			}
		}
	}
	for _, o := range b.pools {
		if o.Name != p.Name && p.shares(o) {
			found[networkingv1.ReasonClusterCIDR] = append(found[networkingv1.ReasonClusterCIDR], o.Name)
		}
	}
	condition := metav1.Condition{Type: networkingv1.ConditionOverlapping, Status: metav1.ConditionFalse, Reason: networkingv1.ReasonNoOverlap, Message: "Nobody else uses these addresses."}
	var messages []string
	for _, kind := range []struct{ reason, message string }{
		{networkingv1.ReasonServiceRange, "Service ranges, which are never handed out: %s."},
		{networkingv1.ReasonNodeAddress, "Addresses of Nodes, which Pods would get too; exclude them or use another range: %s."},
		{reasonWholeSpace, "One block is the whole address space, so that one Node gets every address: %s. Create a ClusterCIDR with another range and block size, and delete this one."},
		{networkingv1.ReasonSpecialAddresses, "Addresses that hosts do not take for a Pod's; exclude them or use another range: %s."},
		{networkingv1.ReasonClusterCIDR, "Other ClusterCIDRs, which share what is free: %s. If that is not meant, exclude in one of them what only the other is to allocate."},
	} {
		if texts := found[kind.reason]; len(texts) > 0 {
			slices.Sort(texts)
			texts = slices.Compact(texts)
			n := len(texts)
			if kind.reason == networkingv1.ReasonNodeAddress {
				n = addresses
			}
			messages = append(messages, fmt.Sprintf(kind.message, listedOf(texts, n)))
			condition.Status, condition.Reason = metav1.ConditionTrue, cmp.Or(reasonIfTrue(condition), strings.TrimPrefix(kind.reason, "Whole"))
		}
	}
	if len(messages) > 0 {
		condition.Message = strings.Join(messages, " ")
	}
	return condition
}

// reasonWholeSpace is for a message of its own under the reason SpecialAddresses.
const reasonWholeSpace = "Whole" + networkingv1.ReasonSpecialAddresses

// special are the addresses that a host sends nowhere, to its own link or to many.
var special = []struct {
	prefix netip.Prefix
	use    string
}{
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
}

func reasonIfTrue(condition metav1.Condition) string {
	if condition.Status == metav1.ConditionTrue {
		return condition.Reason
	}
	return ""
}

// conflicted says which holders hold the same addresses inside p's ranges.
func (b *book) conflicted(p *pool) metav1.Condition {
	none := metav1.Condition{Type: networkingv1.ConditionConflicted, Status: metav1.ConditionFalse, Reason: networkingv1.ReasonNoOverlap, Message: "No address is held twice."}
	if len(b.sharing) == 0 {
		return none // without a look at every Node
	}
	var pairs []string
search: // It ends when there are more than are named: in all there may be as many as the square of the number of Nodes.
	for _, r := range p.Ranges {
		var around []ipam.Holding // those that contain the next one, widest first
		for h := range b.ledger.Holdings(r.Prefix) {
			if h.Owner.Kind == ipam.Kept {
				continue
			}
			for len(around) > 0 && !around[len(around)-1].Prefix.Overlaps(h.Prefix) {
				around = around[:len(around)-1]
			}
			for _, outer := range around {
				if (outer.Owner.Kind == ipam.Node || h.Owner.Kind == ipam.Node) && outer.Owner != h.Owner {
					pair := []string{fmt.Sprintf("%s (%v)", b.nameOf(outer.Owner), outer.Prefix), fmt.Sprintf("%s (%v)", b.nameOf(h.Owner), h.Prefix)}
					slices.Sort(pair) // and not by UID
					if pairs = append(pairs, strings.Join(pair, " and ")); len(pairs) > maxNamed {
						break search
					}
				}
			}
			around = append(around, h)
		}
	}
	if len(pairs) == 0 {
		return none
	}
	return metav1.Condition{Type: networkingv1.ConditionConflicted, Status: metav1.ConditionTrue, Reason: networkingv1.ReasonOverlap,
		Message: fmt.Sprintf("The same addresses are held by %s. Delete the Nodes that should not have them and reboot their machines, which registers them again.", listedFew(pairs))}
}

// foreignStatus is the merge patch that removes what another writer has put into a status and that should not be there: a server-side apply
// removes only what its own field manager has set before. It is nil if there is nothing of that kind. A ClusterCIDR that has changed
// meanwhile is not patched.
func foreignStatus(cc *networkingv1.ClusterCIDR, want networkingv1.ClusterCIDRStatus) []byte {
	remove := map[string]any{} // null removes
	for field, is := range map[string][2]*networkingv1.RangeStatus{"ipv4": {cc.Status.IPv4, want.IPv4}, "ipv6": {cc.Status.IPv6, want.IPv6}} {
		switch now, want := is[0], is[1]; {
		case now == nil:
		case want == nil:
			remove[field] = nil
		case want.Cursor == "" && now.Cursor != "":
			remove[field] = map[string]any{"cursor": nil}
		}
	}
	if len(remove) == 0 {
		return nil
	}
	return encode(map[string]any{"metadata": map[string]any{"uid": cc.UID, "resourceVersion": cc.ResourceVersion}, "status": remove})
}

// statusPatch is the server-side apply of a status. The UID keeps it from another object of the same name.
func statusPatch(cc *networkingv1.ClusterCIDR, status networkingv1.ClusterCIDRStatus) *applyv1.ClusterCIDRApplyConfiguration {
	s := applyv1.ClusterCIDRStatus()
	for _, c := range status.Conditions {
		s.WithConditions(metav1ac.Condition().WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).WithMessage(c.Message).
			WithObservedGeneration(c.ObservedGeneration).WithLastTransitionTime(c.LastTransitionTime))
	}
	if status.IPv4 != nil {
		s.WithIPv4(rangePatch(status.IPv4))
	}
	if status.IPv6 != nil {
		s.WithIPv6(rangePatch(status.IPv6))
	}
	return applyv1.ClusterCIDR(cc.Name).WithUID(cc.UID).WithStatus(s)
}

func rangePatch(r *networkingv1.RangeStatus) *applyv1.RangeStatusApplyConfiguration {
	patch := applyv1.RangeStatus().WithCIDR(r.CIDR).WithBlockPrefixLength(r.BlockPrefixLength).
		WithTotal(r.Total).WithAllocated(r.Allocated).WithUnavailable(r.Unavailable).WithFree(r.Free)
	if r.Cursor != "" {
		patch.WithCursor(r.Cursor)
	}
	return patch
}
