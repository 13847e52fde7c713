package allocator

import (
	"fmt"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
	"github.com/multicidr/controller-manager/controllers/text"
)

// Reason is why a Node is pending, in one word. There are few values, and metrics always show all of them.
type Reason string

const (
	noClusterCIDR Reason = "NoClusterCIDR"
	notSelected   Reason = "NotSelected"
	full          Reason = "Full"
)

var Reasons = []Reason{noClusterCIDR, notSelected, full, Reason(ipam.Disabled.String()), Reason(ipam.Terminating.String()), Reason(ipam.Invalid.String())}

// Refusal is why a ClusterCIDR that selects a Node cannot serve it.
type Refusal struct{ ClusterCIDR, Why string }

// PendingView says why a Node is pending, and what to do about it.
type PendingView struct {
	UID     types.UID
	Reason  Reason
	Message string
	// Gist is Message without what makes no difference to a reader, such as how many ClusterCIDRs there are.
	Gist string
	// Refusals are those of the pools that are tried first, in this order.
	Refusals []Refusal
}

// maxRefusals limits the refusals that are told: thousands of full ClusterCIDRs may select the same Nodes. It is one more than messages name.
const maxRefusals = text.MaxNamed + 1

// Pending says why the Node of this name is pending. ok is false if it is not: it holds blocks, it is being deleted, it needs none, or a
// ClusterCIDR can serve it and its worker is coming, such as after a refused write.
func (s *State) Pending(name string) (view PendingView, ok bool) {
	n, ok := s.nodes[name]
	if !ok || n.state != None || n.object == nil || n.object.DeletionTimestamp != nil {
		return PendingView{}, false
	}
	reason, pending := s.reasonFor(n.object)
	if !pending {
		return PendingView{}, false
	}
	view = PendingView{UID: n.uid, Reason: reason}
	refusals := s.refusals(n.object)
	for _, r := range refusals {
		view.Refusals = append(view.Refusals, Refusal{ClusterCIDR: r.pool.Name, Why: r.String()})
	}
	view.Message, view.Gist = s.notAvailable(refusals)
	return view, true
}

// refusals returns why the first pools that select a Node cannot serve it.
func (s *State) refusals(object *v1.Node) (refusals []refusal) {
	for p := range s.candidates.Of(object) {
		if refusals = append(refusals, s.refuse(p)); len(refusals) == maxRefusals {
			break
		}
	}
	return refusals
}

// reasonFor says in one word why an object without blocks is pending: full if any pool only lacks space; otherwise the state of the first one,
// which somebody has to change. pending is false if its search ends at a pool with allocation None, or with a free block.
func (s *State) reasonFor(object *v1.Node) (reason Reason, pending bool) {
	for p := range s.candidates.Of(object) {
		switch {
		case s.endsSearch(p):
			return "", false
		case p.State == ipam.Enabled:
			reason = full
		case reason == "":
			reason = Reason(p.State.String())
		}
	}
	switch {
	case reason != "":
		return reason, true
	case len(s.pools) == 0:
		return noClusterCIDR, true
	}
	return notSelected, true
}

// endsSearch reports whether a Node that p selects gets no further than p.
func (s *State) endsSearch(p *pool.Pool) bool {
	return p.State == ipam.None || p.State == ipam.Enabled && len(s.ledger.Full(&p.Pool)) == 0
}

// NeedsNothing returns the name of the ClusterCIDR with allocation None that ends the search for a Node; empty if there is none.
func (s *State) NeedsNothing(object *v1.Node) string {
	for p := range s.candidates.Of(object) {
		if s.endsSearch(p) {
			if p.State == ipam.None {
				return p.Name
			}
			break
		}
	}
	return ""
}

// countPending counts pending Nodes by reason.
func (s *State) countPending() map[Reason]int {
	counts := map[Reason]int{}
	for _, n := range s.waiting {
		if n.state != None || n.object.DeletionTimestamp != nil {
			continue
		}
		if reason, pending := s.reasonFor(n.object); pending {
			counts[reason]++
		}
	}
	return counts
}

// refusal is why a pool that selects a Node cannot serve it.
type refusal struct {
	pool     *pool.Pool
	full     []ipam.Family // if the pool's State is Enabled
	cover    string        // Nodes that hold a whole range of the pool
	services []string      // service ranges in its full ranges
	used     bool          // Nodes hold blocks in its full ranges
	excludes bool          // its full ranges have exclusions, which may contain unused blocks
}

// Refusal says why p cannot serve a Node that it selects; empty if it can.
func (s *State) Refusal(p *pool.Pool) string {
	r := s.refuse(p)
	if p.State == ipam.Enabled && len(r.full) == 0 {
		return ""
	}
	return r.String()
}

func (s *State) refuse(p *pool.Pool) refusal {
	r := refusal{pool: p}
	if p.State == ipam.Enabled {
		r.full = s.ledger.Full(&p.Pool)
	}
	var texts []string
	for _, of := range p.Ranges {
		if h, covered := s.coveredBy(of); covered {
			texts = append(texts, fmt.Sprintf("%s holds %v", s.NameOf(h.Owner), h.Prefix))
		}
		if slices.Contains(r.full, of.Family()) {
			r.excludes = r.excludes || p.Excluded.Overlaps(of.Prefix)
			r.services = append(r.services, s.servicesIn(p, of.Prefix)...)
		}
	}
	r.cover, r.used = text.Listed(texts), s.used(p, r.full)
	return r
}

func (r refusal) String() string {
	switch {
	case r.pool.State != ipam.Enabled && r.pool.Problem != "":
		return fmt.Sprintf("%s is %s (%s)", r.pool.Name, strings.ToLower(r.pool.State.String()), r.pool.Problem)
	case r.pool.State != ipam.Enabled:
		return fmt.Sprintf("%s is %s", r.pool.Name, strings.ToLower(r.pool.State.String()))
	}
	why := text.Families(r.full)
	if r.cover != "" {
		why += "; " + r.cover
	}
	if r.excludes {
		why += "; it has spec.excludedCIDRs"
	}
	services := ""
	if len(r.services) > 0 {
		services = "; service ranges in it are never allocated: " + text.ListedFew(slices.Sorted(slices.Values(r.services)))
	}
	return fmt.Sprintf("%s is full (%s)", r.pool.Name, why) + services
}

// notAvailable says why a Node is pending and what to do about it.
func (s *State) notAvailable(refusals []refusal) (message, gist string) {
	switch {
	case len(s.pools) == 0:
		return "No ClusterCIDR exists. Create one that selects this Node.", "no ClusterCIDR"
	case len(refusals) == 0:
		return fmt.Sprintf("None of the %d ClusterCIDRs selects this Node. Change its labels or create a ClusterCIDR that selects it.", len(s.pools)), "no ClusterCIDR that selects it"
	}
	var texts []string
	for _, r := range refusals {
		texts = append(texts, r.String())
	}
	gist = text.ListedFirst(texts)
	return fmt.Sprintf("No ClusterCIDR that selects this Node can serve it: %s. %s.", gist, wayOut(refusals)), gist
}

// wayOut says what to do about refusals.
func wayOut(refusals []refusal) string {
	ways := []string{"Create another one"}
	if slices.ContainsFunc(refusals, func(r refusal) bool { return len(r.services) > 0 }) {
		ways[0] += " with other addresses"
	}
	if slices.ContainsFunc(refusals, func(r refusal) bool { return r.pool.State == ipam.Disabled && !r.pool.Superseded }) {
		ways = append(ways, "set spec.allocation: Enabled")
	}
	if slices.ContainsFunc(refusals, func(r refusal) bool { return r.pool.State == ipam.Enabled && r.used }) {
		ways = append(ways, "delete Nodes that are not needed")
	}
	if slices.ContainsFunc(refusals, func(r refusal) bool { return r.excludes }) {
		ways = append(ways, "shorten spec.excludedCIDRs where the condition Ready names some")
	}
	return strings.Join(ways, ", or ")
}

// maxWalked limits how many holdings inside a range are looked at for one message.
const maxWalked = 10_000

// coveredBy returns a Node's podCIDR that contains a whole range and is larger than one of its blocks.
func (s *State) coveredBy(r ipam.Range) (h ipam.Holding, covered bool) {
	for h := range s.ledger.Holdings(r.Prefix) {
		switch {
		case h.Prefix.Bits() > r.Prefix.Bits():
			return ipam.Holding{}, false // holdings that contain the range come first
		case h.Owner.Kind == ipam.Node && h.Prefix.Bits() < r.BlockBits:
			return h, true
		}
	}
	return ipam.Holding{}, false
}

// exhausted is the message of the condition Ready when families of p have no free block. It names whoever takes many blocks at once, because
// the event repeats this message, and that is what users read first.
func (s *State) exhausted(p *pool.Pool, full []ipam.Family) string {
	message := fmt.Sprintf("No free block for %s.", text.Families(full))
	excluding := s.excluding(p, full)
	if excluding != "" {
		message += fmt.Sprintf(" Blocks that nobody holds are in spec.excludedCIDRs: %s. Remove from it what this ClusterCIDR may allocate.", excluding)
	}
	if larger := s.largerThanBlocks(p, full); larger != "" {
		message += fmt.Sprintf(" These podCIDRs are larger than a block, so that one Node takes many: %s. Delete the Nodes that should not have them and reboot their machines, which registers them again.", larger)
	}
	switch {
	case s.used(p, full):
		return message + " Create another ClusterCIDR, or delete Nodes that are not needed."
	case excluding == "":
		return message + " All of it is in service ranges. Create another ClusterCIDR with other addresses."
	default:
		return message + " Or create another ClusterCIDR."
	}
}

// largerThanBlocks names Nodes with podCIDRs larger than a block of p, in the families that are full.
func (s *State) largerThanBlocks(p *pool.Pool, full []ipam.Family) string {
	var texts []string
	for _, r := range p.Ranges {
		if !slices.Contains(full, r.Family()) || !s.unavailable(p, r) {
			continue // Blocks inside such a podCIDR count as unavailable.
		}
		walked := 0
		for h := range s.ledger.Holdings(r.Prefix) {
			if h.Owner.Kind == ipam.Node && h.Prefix.Bits() < r.BlockBits {
				texts = append(texts, fmt.Sprintf("%s (%v)", s.NameOf(h.Owner), h.Prefix))
			}
			if walked++; walked == maxWalked || len(texts) > text.MaxNamed {
				break
			}
		}
	}
	return text.ListedFew(texts)
}

// excluding names exclusions without which p would not be full in these families, perhaps not all of them.
func (s *State) excluding(p *pool.Pool, full []ipam.Family) string {
	var texts []string
	for _, r := range p.Ranges {
		if slices.Contains(full, r.Family()) {
			for _, excluded := range s.ledger.Excluding(&p.Pool, r, text.MaxNamed+1) {
				texts = append(texts, excluded.String())
			}
		}
	}
	return text.ListedFew(texts)
}

// used reports whether deleting Nodes would free blocks in p's ranges of these families.
func (s *State) used(p *pool.Pool, full []ipam.Family) bool {
	for _, r := range p.Ranges {
		if !slices.Contains(full, r.Family()) {
			continue
		}
		walked := 0
		for h := range s.ledger.Holdings(r.Prefix) {
			// Blocks inside a service range are not free even when their Node is gone.
			mayHelp := h.Owner.Kind == ipam.Node && (h.Prefix.Bits() < r.BlockBits || !s.isService(h.Prefix))
			if walked++; mayHelp || walked == maxWalked {
				return true
			}
		}
	}
	return false
}

// unavailable reports whether blocks of r are neither free nor allocated.
func (s *State) unavailable(p *pool.Pool, r ipam.Range) bool {
	usage, total := s.ledger.Usage(&p.Pool, r), r.Blocks()
	if total == math.MaxUint64 { // capped, as the number of free blocks may be
		return s.ledger.Taken(&p.Pool, r) > usage.Allocated
	}
	return total-usage.Free > usage.Allocated
}
