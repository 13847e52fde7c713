package allocator

import (
	"fmt"
	"iter"
	"math"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/conditions"
	"github.com/multicidr/controller-manager/controllers/nodeipam/exhausted"
	"github.com/multicidr/controller-manager/controllers/text"
)

// Status returns what a ClusterCIDR's status should be. known is false if the state does not know the ClusterCIDR, or if its status is
// about to change.
func (b *State) Status(cc *networkingv1.ClusterCIDR) (status networkingv1.ClusterCIDRStatus, known bool) {
	p, ok := b.pools[cc.Name]
	if !ok || p.ID != string(cc.UID) || p.AwaitsFinalizer() {
		return networkingv1.ClusterCIDRStatus{}, false
	}
	for _, r := range p.Ranges {
		if r.Family() == ipam.IPv4 {
			status.IPv4 = b.RangeStatus(p, r)
		} else {
			status.IPv6 = b.RangeStatus(p, r)
		}
	}
	for _, condition := range []metav1.Condition{b.Ready(p), b.Overlapping(p), b.conflicted(p)} {
		// Start from the existing condition, so that an unchanged one keeps its transition time, unless another writer set that time
		// (package stored then clears it). Conditions of other types belong to others and are left out; there may be any number of them.
		if known := meta.FindStatusCondition(cc.Status.Conditions, condition.Type); known != nil && !known.LastTransitionTime.IsZero() {
			status.Conditions = append(status.Conditions, *known)
		}
		condition.ObservedGeneration, condition.Message = cc.Generation, text.Cut(condition.Message, text.MaxCondition)
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status, true
}

func (b *State) RangeStatus(p *clustercidr.Pool, r ipam.Range) *networkingv1.RangeStatus {
	usage := b.ledger.Usage(&p.Pool, r)
	total, used, free := r.Blocks(), usage.Allocated, usage.Free
	s := &networkingv1.RangeStatus{
		CIDR:              r.Prefix.String(),
		BlockPrefixLength: int32(r.BlockBits),
		Total:             capped(total),
		Allocated:         capped(used),
		Free:              capped(free),
		Unavailable:       capped(b.Taken(p, r, total, free) - used),
	}
	if cursor := b.ledger.Cursor(&p.Pool, r.Family()); cursor.IsValid() {
		s.Cursor = cursor.String()
	}
	return s
}

// Taken returns how many of a range's blocks are not free. total and free are its counts.
func (b *State) Taken(p *clustercidr.Pool, r ipam.Range, total, free uint64) uint64 {
	if total == math.MaxUint64 { // total is capped, so free may be too
		return b.ledger.Taken(&p.Pool, r)
	}
	return total - free
}

func capped(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// Ready reports whether p can serve a Node now.
func (b *State) Ready(p *clustercidr.Pool) metav1.Condition {
	if p.State == ipam.Terminating {
		return conditions.Ready(networkingv1.ReasonTerminating, b.waitsForNodes(p))
	}
	if reason, message := conditions.NotReady(p); reason != "" {
		return conditions.Ready(reason, message)
	}
	if full := b.ledger.Full(&p.Pool); len(full) > 0 {
		return conditions.Ready(networkingv1.ReasonExhausted, b.Exhausted().Message(p, full))
	}
	return conditions.Ready(networkingv1.ReasonAvailable, "It can serve Nodes.")
}

// waitsForNodes names the Nodes that still use a terminating ClusterCIDR.
func (b *State) waitsForNodes(p *clustercidr.Pool) string {
	var few []string // the first ones, sorted
	n := 0
	for uid := range b.Members(p) {
		n++
		if i, _ := slices.BinarySearch(few, b.names[uid]); i < text.MaxNamed {
			few = slices.Insert(few[:min(len(few), text.MaxNamed-1)], i, b.names[uid])
		}
	}
	if n == 0 {
		return "No Node belongs to it any more."
	}
	return fmt.Sprintf("%s to it: %s. It goes when they are deleted.", text.Counted(n, "Node belongs", "Nodes belong"), text.ListedOf(few, n))
}

// Overlapping reports what else uses addresses that p can allocate. Excluded addresses do not count.
func (b *State) Overlapping(p *clustercidr.Pool) metav1.Condition {
	return conditions.Overlapping(b.overlaps(p))
}

// overlaps returns, by reason, what else uses addresses of p's ranges, and the total number of Node addresses among them.
func (b *State) overlaps(p *clustercidr.Pool) (found map[string][]string, addresses int) {
	found = map[string][]string{}
	note := func(reason, format string, args ...any) {
		found[reason] = append(found[reason], fmt.Sprintf(format, args...))
	}
	for _, r := range p.Ranges {
		for h := range b.servicesIn(p, r.Prefix) {
			note(networkingv1.ReasonServiceRange, "%v of %s", h.Prefix, h.Owner.ID)
		}
		for h := range b.addresses.Holdings(r.Prefix) { // There may be very many: only as many are formatted as are named.
			if !p.Gives(h.Prefix) {
				continue
			}
			if addresses++; addresses <= text.MaxNamed {
				note(networkingv1.ReasonNodeAddress, "%v of %s", h.Prefix, b.names[types.UID(h.Owner.ID)])
			}
		}
		if r.BlockBits == 0 {
			note(conditions.WholeSpace, "%v", r.Prefix)
			continue // It contains every special address, and none can be excluded alone.
		}
		for excludable, use := range p.Special(r) {
			note(networkingv1.ReasonSpecialAddresses, "%v (%s)", excludable, use)
		}
	}
	for other := range b.sharingPools(p) {
		note(networkingv1.ReasonClusterCIDR, "%s", other)
	}
	return found, addresses
}

// sharingPools yields the names of the pools that can allocate some of the same addresses as p, some of them more than once.
func (b *State) sharingPools(p *clustercidr.Pool) iter.Seq[string] {
	return func(yield func(string) bool) {
		for o := range b.ranges.Overlapping(p.Extent()...) {
			if o.Name != p.Name && p.SharesWith(o) && !yield(o.Name) {
				return
			}
		}
	}
}

// servicesIn yields the service ranges that contain addresses of range r that p can allocate.
func (b *State) servicesIn(p *clustercidr.Pool, r netip.Prefix) iter.Seq[ipam.Holding] {
	return func(yield func(ipam.Holding) bool) {
		for service := range b.services.Overlapping(r) {
			if !p.Gives(service) {
				continue
			}
			for h := range b.ledger.Holdings(service) {
				if h.Prefix.Bits() > service.Bits() {
					break // Holdings that contain the range come first; there may be very many inside it.
				}
				if h.Owner.Kind == ipam.Service && h.Prefix == service && !yield(h) {
					return
				}
			}
		}
	}
}

// conflicted reports which owners hold the same addresses inside p's ranges.
func (b *State) conflicted(p *clustercidr.Pool) metav1.Condition {
	if len(b.sharing) == 0 {
		return conditions.Conflicted(nil) // saves a walk over all Nodes
	}
	var pairs []string
	for _, r := range p.Ranges {
		for outer, inner := range ipam.Nested(b.ledger.Holdings(r.Prefix)) {
			if !ipam.Conflicting(outer, inner) {
				continue
			}
			pair := []string{fmt.Sprintf("%s (%v)", b.NameOf(outer.Owner), outer.Prefix), fmt.Sprintf("%s (%v)", b.NameOf(inner.Owner), inner.Prefix)}
			slices.Sort(pair) // by name, not by UID
			if pairs = append(pairs, strings.Join(pair, " and ")); len(pairs) > text.MaxNamed {
				break // The number of pairs can grow with the square of the number of Nodes.
			}
		}
	}
	return conditions.Conflicted(pairs)
}

// Exhausted says why pools have no free blocks.
func (b *State) Exhausted() exhausted.Ranges {
	return exhausted.Ranges{Ledger: &b.ledger, Services: &b.services, NameOf: b.NameOf, Known: b.used}
}
