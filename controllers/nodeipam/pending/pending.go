// Package pending says why Nodes are pending and what to do about it.
package pending

import (
	"fmt"
	"slices"
	"strings"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/exhausted"
	"github.com/multicidr/controller-manager/controllers/text"
)

// Reason is why a Node is pending, in one word. There are few values, and metrics always show all of them.
type Reason string

const (
	noClusterCIDR Reason = "NoClusterCIDR"
	notSelected   Reason = "NotSelected"
	full          Reason = "Full"
	Missed        Reason = "ChangesMissed" // That nothing is chosen for it, and why, the allocation state does not know.
)

var Reasons = []Reason{noClusterCIDR, notSelected, full,
	Reason(ipam.Pending.String()), Reason(ipam.Disabled.String()), Reason(ipam.Terminating.String()), Reason(ipam.Invalid.String()), Missed}

// Most is how many refusals of a Node are told: those of the pools that are tried first. Thousands of full ClusterCIDRs may select the same
// Nodes, and to look at all of them for each Node would take minutes.
const Most = text.MaxNamed + 1 // so that messages say if there are more than they name

// ReasonOf sums up why pools refused a Node. It is Full if any pool only lacks space; otherwise it is the state of the first pool,
// which somebody has to change.
func ReasonOf(pools int, refusals []Refusal) Reason {
	switch {
	case pools == 0:
		return noClusterCIDR
	case len(refusals) == 0:
		return notSelected
	case slices.ContainsFunc(refusals, func(r Refusal) bool { return r.Pool.State == ipam.Enabled }):
		return full
	default:
		return Reason(refusals[0].Pool.State.String())
	}
}

// Refusal is why a pool that matches a Node cannot serve it.
type Refusal struct {
	Pool     *clustercidr.Pool
	Full     []ipam.Family // if the pool's State is Enabled
	Cover    string        // Nodes that hold a whole range of the pool
	Used     bool          // Nodes hold blocks in its full ranges
	Excludes bool          // its full ranges have exclusions, which may contain unused blocks
}

// Explain returns why a pool that matches a Node cannot serve it. Which exclusions matter depends on what others hold. A pending Node is not
// rechecked for that; the condition Ready reports it.
func Explain(p *clustercidr.Pool, ranges exhausted.Ranges) Refusal {
	refusal := Refusal{Pool: p}
	if p.State == ipam.Enabled {
		refusal.Full = ranges.Ledger.Full(&p.Pool)
	}
	var texts []string
	for _, r := range p.Ranges {
		if h, covered := ranges.CoveredBy(r); covered {
			texts = append(texts, fmt.Sprintf("%s holds %v", ranges.NameOf(h.Owner), h.Prefix))
		}
		refusal.Excludes = refusal.Excludes || slices.Contains(refusal.Full, r.Family()) && p.Excluded.Overlaps(r.Prefix)
	}
	refusal.Cover, refusal.Used = text.Listed(texts), ranges.Used(p, refusal.Full)
	return refusal
}

// Text formats why pools refused a Node. Equal reasons give equal text.
func Text(refusals []Refusal) string {
	var texts []string
	for _, r := range refusals[:min(len(refusals), Most)] {
		texts = append(texts, r.String())
	}
	return text.ListedFirst(texts)
}

func (r Refusal) String() string {
	switch {
	case r.Pool.State != ipam.Enabled && r.Pool.Problem != "":
		return fmt.Sprintf("%s is %s (%s)", r.Pool.Name, strings.ToLower(r.Pool.State.String()), r.Pool.Problem)
	case r.Pool.State != ipam.Enabled:
		return fmt.Sprintf("%s is %s", r.Pool.Name, strings.ToLower(r.Pool.State.String()))
	}
	why := text.Families(r.Full)
	if r.Cover != "" {
		why += "; " + r.Cover
	}
	if r.Excludes {
		why += "; it has spec.excludedCIDRs"
	}
	return fmt.Sprintf("%s is full (%s)", r.Pool.Name, why)
}

// NotAvailable says why a Node is pending and what to do about it.
func NotAvailable(refusals []Refusal, pools int) string {
	switch {
	case pools == 0:
		return "No ClusterCIDR exists. Create one that selects this Node."
	case len(refusals) == 0:
		return fmt.Sprintf("None of the %d ClusterCIDRs selects this Node. Change its labels or create a ClusterCIDR that selects it.", pools)
	default:
		return fmt.Sprintf("No ClusterCIDR that selects this Node can serve it: %s. %s.", Text(refusals), wayOut(refusals))
	}
}

// Gist is NotAvailable without what makes no difference to a reader. It changes whenever NotAvailable says something else.
func Gist(refusals []Refusal, pools int) string {
	switch {
	case pools == 0: // no matter which ClusterCIDR was the last to go
		return "no ClusterCIDR"
	case len(refusals) == 0:
		return "no ClusterCIDR that selects it"
	default:
		return Text(refusals)
	}
}

// wayOut says what to do about refusals: create another ClusterCIDR, or whatever else would help.
func wayOut(refusals []Refusal) string {
	ways := []string{"Create another one"}
	if slices.ContainsFunc(refusals, func(r Refusal) bool { return r.Pool.State == ipam.Disabled && !r.Pool.Superseded }) {
		ways = append(ways, "set spec.allocation: Enabled")
	}
	if slices.ContainsFunc(refusals, func(r Refusal) bool { return r.Pool.State == ipam.Enabled && r.Used }) {
		ways = append(ways, "delete Nodes that are not needed")
	}
	if slices.ContainsFunc(refusals, func(r Refusal) bool { return r.Excludes }) {
		ways = append(ways, "shorten spec.excludedCIDRs where the condition Ready names some")
	}
	return strings.Join(ways, ", or ")
}
