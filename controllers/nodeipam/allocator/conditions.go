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
	return &networkingv1.RangeStatus{
		CIDR:              r.Prefix.String(),
		BlockPrefixLength: int32(r.BlockBits),
		Total:             capped(r.Blocks()),
		Allocated:         capped(usage.Allocated),
		Free:              capped(usage.Free),
		Unavailable:       capped(usage.Unavailable),
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
		return networkingv1.ReasonInvalid, p.Problem + ". Nothing is allocated, and Nodes keep what they have. Correct it, or if it cannot be changed, delete this ClusterCIDR and create one that is right."
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
	return networkingv1.ReasonAvailable, "Blocks can be allocated."
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

// waitsForNodes names the Nodes that still use a terminating ClusterCIDR.
func (s *State) waitsForNodes(p *pool.Pool) string {
	names := slices.Sorted(s.Members(p))
	if len(names) == 0 {
		return "No Node belongs to it any more."
	}
	return fmt.Sprintf("%s to it: %s. It is removed when they are deleted.", text.Counted(len(names), "Node belongs", "Nodes belong"), text.Listed(names))
}

// Overlapping reports what else uses addresses that p can allocate. Excluded addresses do not count.
func (s *State) Overlapping(p *pool.Pool) metav1.Condition {
	var services, addresses, special []string
	nodes := 0
	for _, r := range p.Ranges {
		services = append(services, s.servicesIn(p, r.Prefix)...)
		few, n := s.addressesIn(p, r.Prefix)
		addresses, nodes = append(addresses, few...), nodes+n
		for excludable, use := range p.Special(r) {
			special = append(special, fmt.Sprintf("%v (%s)", excludable, use))
		}
	}
	sharers := s.sharers(p)
	reason, messages := "", []string(nil)
	for _, use := range []struct {
		reason, message string
		by              []string
		n               int // of which by are the first
	}{
		{networkingv1.ReasonServiceRange, "Service ranges, which are never allocated: %s.", services, len(services)},
		{networkingv1.ReasonNodeAddress, "Addresses of Nodes, which Pods would get too; exclude them or use another range: %s.", addresses, nodes},
		{networkingv1.ReasonSpecialAddresses, "Addresses that hosts do not accept for Pods; exclude them or use another range: %s.", special, len(special)},
		{networkingv1.ReasonClusterCIDR, "Other ClusterCIDRs, which share what is free: %s. If that is not meant, exclude in one of them what only the other is to allocate.", sharers, len(sharers)},
	} {
		if len(use.by) > 0 {
			slices.Sort(use.by)
			messages = append(messages, fmt.Sprintf(use.message, text.ListedOf(use.by, use.n)))
			reason = cmp.Or(reason, use.reason)
		}
	}
	if reason == "" {
		return metav1.Condition{Type: networkingv1.ConditionOverlapping, Status: metav1.ConditionFalse, Reason: networkingv1.ReasonNoOverlap, Message: "No service range, Node address or other ClusterCIDR has these addresses."}
	}
	return metav1.Condition{Type: networkingv1.ConditionOverlapping, Status: metav1.ConditionTrue, Reason: reason, Message: strings.Join(messages, " ")}
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
	counted := map[string]bool{} // A Node can have several addresses there.
	for nodes := range s.addresses.Values(prefix) {
		for _, node := range nodes {
			i := slices.IndexFunc(node.addresses, func(a netip.Prefix) bool { return prefix.Overlaps(a) && p.Gives(a) })
			if i < 0 || counted[node.name] {
				continue
			}
			counted[node.name] = true
			if n++; n <= text.MaxNamed {
				few = append(few, fmt.Sprintf("%v of %s", node.addresses[i], node.name))
			}
		}
	}
	return few, n
}

// sharers names the other pools with addresses that p can allocate.
func (s *State) sharers(p *pool.Pool) (names []string) {
	for _, r := range p.Extent {
		for o := range s.poolsAround(r) {
			if o.Name != p.Name && p.SharesWith(o) {
				names = append(names, o.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names) // It may share addresses of both families.
}

// Conflicted reports which owners hold the same addresses inside p's ranges.
func (s *State) Conflicted(p *pool.Pool) metav1.Condition {
	var pairs []string
	for _, r := range p.Ranges {
		for x, y := range s.ledger.Shared(r.Prefix) {
			pair := []string{nameOf(x), nameOf(y)}
			slices.Sort(pair)
			if pairs = append(pairs, strings.Join(pair, " and ")); len(pairs) > text.MaxNamed {
				break
			}
		}
	}
	if len(pairs) == 0 {
		return metav1.Condition{Type: networkingv1.ConditionConflicted, Status: metav1.ConditionFalse, Reason: networkingv1.ReasonNoOverlap, Message: "No address is held twice."}
	}
	return metav1.Condition{Type: networkingv1.ConditionConflicted, Status: metav1.ConditionTrue, Reason: networkingv1.ReasonOverlap,
		Message: fmt.Sprintf("The same addresses are held by %s. Replace each Node that should not have them: %s.", text.ListedFew(pairs), text.Replace)}
}

// nameOf formats a holding for messages: who holds what.
func nameOf(h ipam.Holding) string {
	if h.Owner.Kind == ipam.Service {
		return fmt.Sprintf("service range %s (%v)", h.Owner.ID, h.Prefix)
	}
	return fmt.Sprintf("Node %s (%v)", h.Owner.ID, h.Prefix)
}
