package allocator

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
	"github.com/multicidr/controller-manager/controllers/text"
)

// Status returns what a ClusterCIDR's status should be. known is false if the state does not know exactly this ClusterCIDR, or if Ready may
// not be shown yet: that nothing is allocated any more is only said when no write from it can still be carried out.
func (s *State) Status(cc *networkingv1.ClusterCIDR) (status networkingv1.ClusterCIDRStatus, known bool) {
	p, ok := s.pools[cc.Name]
	if !ok || p.ID != string(cc.UID) || p.State != ipam.Enabled && s.sending(p) {
		return networkingv1.ClusterCIDRStatus{}, false
	}
	for _, r := range p.Ranges {
		if r.Family() == ipam.IPv4 {
			status.IPv4 = s.RangeStatus(p, r)
		} else {
			status.IPv6 = s.RangeStatus(p, r)
		}
	}
	for _, condition := range []metav1.Condition{s.Ready(p), s.Overlapping(p), s.Conflicted(p)} {
		// Start from the existing condition, so that an unchanged one keeps its transition time. Conditions of other types belong to others.
		if known := meta.FindStatusCondition(cc.Status.Conditions, condition.Type); known != nil && !known.LastTransitionTime.IsZero() {
			status.Conditions = append(status.Conditions, *known)
		}
		condition.ObservedGeneration, condition.Message = cc.Generation, text.Cut(condition.Message, text.MaxCondition)
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status, true
}

// sending reports whether a write of blocks of p is under way, or may still be carried out.
func (s *State) sending(p *pool.Pool) bool {
	return slices.ContainsFunc(s.waiting, func(n *node) bool { return n.state == Sent && n.poolID == p.ID })
}

func (s *State) RangeStatus(p *pool.Pool, r ipam.Range) *networkingv1.RangeStatus {
	usage := s.ledger.Usage(&p.Pool, r)
	total, taken := r.Blocks(), uint64(0)
	if total == math.MaxUint64 { // capped, so the number of free blocks may be, too
		taken = s.ledger.Taken(&p.Pool, r)
	} else {
		taken = total - usage.Free
	}
	return &networkingv1.RangeStatus{
		CIDR:              r.Prefix.String(),
		BlockPrefixLength: int32(r.BlockBits),
		Total:             capped(total),
		Allocated:         capped(usage.Allocated),
		Free:              capped(usage.Free),
		Unavailable:       capped(taken - usage.Allocated),
	}
}

func capped(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// Ready says whether p can serve a Node now.
func (s *State) Ready(p *pool.Pool) metav1.Condition {
	reason, message := s.ready(p)
	status := metav1.ConditionFalse
	if reason == networkingv1.ReasonAvailable {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: networkingv1.ConditionReady, Status: status, Reason: reason, Message: message}
}

func (s *State) ready(p *pool.Pool) (reason, message string) {
	switch p.State {
	case ipam.Terminating:
		return networkingv1.ReasonTerminating, s.waitsForNodes(p)
	case ipam.Invalid:
		if p.Curable {
			return networkingv1.ReasonInvalid, p.Problem + ". Correct this field; until then nothing is allocated, and Nodes keep what they have."
		}
		return networkingv1.ReasonInvalid, p.Problem + ". Delete this ClusterCIDR and create one that is right."
	case ipam.None:
		return networkingv1.ReasonNone, "spec.allocation is None: the Nodes that it selects need no podCIDRs."
	case ipam.Disabled:
		if p.Superseded {
			return networkingv1.ReasonSuperseded, s.superseded(p)
		}
		return networkingv1.ReasonDisabled, "spec.allocation is Disabled. Nodes keep what they have. Set it to Enabled to allocate from this ClusterCIDR."
	}
	if full := s.ledger.Full(&p.Pool); len(full) > 0 {
		return networkingv1.ReasonExhausted, s.exhausted(p, full)
	}
	return networkingv1.ReasonAvailable, "It can serve Nodes."
}

// superseded says what becomes of a ClusterCIDR that was made from other flags.
func (s *State) superseded(p *pool.Pool) string {
	use := "No Node uses it: it can be deleted."
	if n := s.Users(p); n > 0 {
		use = text.Counted(n, "Node uses it and keeps its podCIDRs.", "Nodes use it and keep their podCIDRs.")
	}
	return strings.ToUpper(p.Problem[:1]) + p.Problem[1:] + ". It allocates nothing. " + use +
		" To go on with this range, put the flags back, or create a ClusterCIDR of your own with it."
}

// Users returns how many Nodes use a pool.
func (s *State) Users(p *pool.Pool) (n int) {
	for range s.Members(p) {
		n++
	}
	return n
}

// waitsForNodes names the Nodes that still use a terminating ClusterCIDR.
func (s *State) waitsForNodes(p *pool.Pool) string {
	var few []string // the first ones, sorted
	n := 0
	for uid := range s.Members(p) {
		n++
		if i, _ := slices.BinarySearch(few, s.names[uid]); i < text.MaxNamed {
			few = slices.Insert(few[:min(len(few), text.MaxNamed-1)], i, s.names[uid])
		}
	}
	if n == 0 {
		return "No Node belongs to it any more."
	}
	return fmt.Sprintf("%s to it: %s. It goes when they are deleted.", text.Counted(n, "Node belongs", "Nodes belong"), text.ListedOf(few, n))
}

// wholeSpace selects a message of its own for Overlapping; the condition's reason is still SpecialAddresses.
const wholeSpace = "Whole" + networkingv1.ReasonSpecialAddresses

// Overlapping reports what else uses addresses that p can allocate. Excluded addresses do not count.
func (s *State) Overlapping(p *pool.Pool) metav1.Condition {
	found, addresses := s.overlaps(p)
	condition := metav1.Condition{Type: networkingv1.ConditionOverlapping, Status: metav1.ConditionFalse, Reason: networkingv1.ReasonNoOverlap, Message: "Nobody else uses these addresses."}
	var messages []string
	reason := ""
	for _, kind := range []struct{ reason, message string }{
		{networkingv1.ReasonServiceRange, "Service ranges, which are never allocated: %s."},
		{networkingv1.ReasonNodeAddress, "Addresses of Nodes, which Pods would get too; exclude them or use another range: %s."},
		{wholeSpace, "One block is the whole address space, so that one Node gets every address: %s. Create a ClusterCIDR with another range and block size, and delete this one."},
		{networkingv1.ReasonSpecialAddresses, "Addresses that hosts do not accept for Pods; exclude them or use another range: %s."},
		{networkingv1.ReasonClusterCIDR, "Other ClusterCIDRs, which share what is free: %s. If that is not meant, exclude in one of them what only the other is to allocate."},
	} {
		texts := slices.Compact(slices.Sorted(slices.Values(found[kind.reason])))
		if len(texts) == 0 {
			continue
		}
		n := len(texts)
		if kind.reason == networkingv1.ReasonNodeAddress {
			n = addresses
		}
		messages = append(messages, fmt.Sprintf(kind.message, text.ListedOf(texts, n)))
		reason = cmp.Or(reason, strings.TrimPrefix(kind.reason, "Whole"))
	}
	if len(messages) > 0 {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, reason, strings.Join(messages, " ")
	}
	return condition
}

// overlaps returns, by reason, what else uses addresses of p's ranges, and the total number of Node addresses among them.
func (s *State) overlaps(p *pool.Pool) (found map[string][]string, addresses int) {
	found = map[string][]string{}
	for _, r := range p.Ranges {
		services := s.servicesIn(p, r.Prefix)
		found[networkingv1.ReasonServiceRange] = append(found[networkingv1.ReasonServiceRange], services...)
		few, n := s.addressesIn(p, r.Prefix)
		found[networkingv1.ReasonNodeAddress] = append(found[networkingv1.ReasonNodeAddress], few...)
		addresses += n
		if r.BlockBits == 0 {
			found[wholeSpace] = append(found[wholeSpace], r.Prefix.String())
			continue // It contains every special address, and none can be excluded alone.
		}
		for excludable, use := range p.Special(r) {
			found[networkingv1.ReasonSpecialAddresses] = append(found[networkingv1.ReasonSpecialAddresses], fmt.Sprintf("%v (%s)", excludable, use))
		}
	}
	found[networkingv1.ReasonClusterCIDR] = s.sharers(p)
	return found, addresses
}

// servicesIn names the service ranges in a range of p.
func (s *State) servicesIn(p *pool.Pool, prefix netip.Prefix) (texts []string) {
	for source, ranges := range s.services {
		for _, service := range ranges {
			if service.Overlaps(prefix) && p.Gives(service) {
				texts = append(texts, fmt.Sprintf("%v of %s", service, source))
			}
		}
	}
	return texts
}

// addressesIn counts the Nodes with an address in a range of p. There may be very many: it formats only as many as are named.
func (s *State) addressesIn(p *pool.Pool, prefix netip.Prefix) (few []string, n int) {
	for nodes := range s.addresses.Values(prefix) {
		for _, node := range nodes {
			i := slices.IndexFunc(node.addresses, func(a netip.Prefix) bool { return prefix.Overlaps(a) && p.Gives(a) })
			if i < 0 {
				continue
			}
			if n++; n <= text.MaxNamed {
				few = append(few, fmt.Sprintf("%v of %s", node.addresses[i], node.name))
			}
		}
	}
	return few, n
}

// sharers names the other pools with addresses that p can allocate.
func (s *State) sharers(p *pool.Pool) (names []string) {
	for _, r := range p.Extent() {
		for pools := range s.ranges.Values(r) {
			for _, o := range pools {
				if o.Name != p.Name && p.SharesWith(o) {
					names = append(names, o.Name)
				}
			}
		}
	}
	return names
}

// Conflicted reports which owners hold the same addresses inside p's ranges.
func (s *State) Conflicted(p *pool.Pool) metav1.Condition {
	var pairs []string
	for _, r := range p.Ranges {
		for outer, inner := range ipam.Nested(s.ledger.Holdings(r.Prefix)) {
			if !ipam.Conflicting(outer, inner) {
				continue
			}
			pair := []string{fmt.Sprintf("%s (%v)", s.NameOf(outer.Owner), outer.Prefix), fmt.Sprintf("%s (%v)", s.NameOf(inner.Owner), inner.Prefix)}
			slices.Sort(pair) // by name, not by UID
			if pairs = append(pairs, strings.Join(pair, " and ")); len(pairs) > text.MaxNamed {
				break // The number of pairs can grow with the square of the number of Nodes.
			}
		}
	}
	if len(pairs) == 0 {
		return metav1.Condition{Type: networkingv1.ConditionConflicted, Status: metav1.ConditionFalse, Reason: networkingv1.ReasonNoOverlap, Message: "No address is held twice."}
	}
	return metav1.Condition{Type: networkingv1.ConditionConflicted, Status: metav1.ConditionTrue, Reason: networkingv1.ReasonOverlap,
		Message: fmt.Sprintf("The same addresses are held by %s. Delete the Nodes that should not have them and reboot their machines, which registers them again.", text.ListedFew(pairs))}
}

// NameOf returns an owner's name for messages.
func (s *State) NameOf(o ipam.Owner) string {
	switch o.Kind {
	case ipam.Node:
		return "Node " + s.names[types.UID(o.ID)]
	case ipam.Service:
		return "service range " + o.ID
	default:
		return o.ID
	}
}
