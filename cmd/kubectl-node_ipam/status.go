package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/cluster"
	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/show"
	"github.com/multicidr/controller-manager/controllers/nodeipam/inspect"
	"github.com/multicidr/controller-manager/controllers/text"
)

// status is the answer of status.
type status struct {
	inspect.Status
	Leaders []cluster.Leader  `json:"leaders"`
	Missing []cluster.Missing `json:"missing,omitempty"`
}

func (p *program) statusCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "Show how full ClusterCIDRs are, which Nodes are pending, and who leads",
		Long: "Shows every ClusterCIDR with its blocks, and pending Nodes by reason. It ends with 1 if Nodes are pending or in conflict. To see whether more Nodes fit, use plan --nodes.\n\n" +
			"Bars show allocated (█), reserved (▓), unavailable (▒) and free (░) blocks. Reserved blocks are a prediction: those that Nodes without podCIDRs get now. debug shows what the leader itself has reserved. Unavailable blocks are excluded, in a service range, or covered by podCIDRs of another size.",
		Example: "  kubectl node-ipam status\n\n  # With all columns and messages\n  kubectl node-ipam status -o wide",
		Args:    exactly(0, "no arguments"),
		RunE:    func(c *cobra.Command, _ []string) error { return p.status(c) },
	}
	p.addOutput(c, show.Table, show.Wide, show.JSON, show.YAML, show.Name)
	return c
}

func (p *program) status(c *cobra.Command) error {
	r, objects, err := p.read(c.Context())
	if err != nil {
		return err
	}
	leaders, missing, err := r.Leaders(c.Context(), objects.Nodes, p.now())
	if err != nil {
		return err
	}
	p.warn(missing)
	s := status{Status: inspect.New(objects.Objects).Status(), Leaders: append([]cluster.Leader{}, leaders...), Missing: append(objects.Missing, missing...)}
	var names []string
	for _, cc := range s.ClusterCIDRs {
		names = append(names, clusterCIDRName+cc.Name)
	}
	if err := p.write(s, names, func(w *show.Writer) { writeStatus(w, s) }); err != nil {
		return err
	}
	if s.Nodes.Pending+len(s.Nodes.Conflicting) > 0 {
		return exit{code: exitAct}
	}
	return nil
}

func writeStatus(w *show.Writer, s status) {
	writeLeaders(w, s)
	writeNodes(w, s.Nodes)
	writeClusterCIDRs(w, s.ClusterCIDRs)
	writePending(w, s.Pending)
}

func writeLeaders(w *show.Writer, s status) {
	leads := func(l cluster.Leader) bool { return !l.Unsure && !l.Expired }
	switch {
	case slices.ContainsFunc(s.Missing, func(m cluster.Missing) bool { return m.Kind == cluster.Leases }):
		w.Printf("Leader:   unknown")
	case !slices.ContainsFunc(s.Leaders, leads):
		w.Printf("Leader:   %s found. In the first minute after a start this is normal, and without leader election it is always so. Otherwise: is the controller enabled (--controllers), and does its Pod run?", w.In(show.Yellow, "none"))
	}
	for _, l := range s.Leaders {
		renewed := fmt.Sprintf("renewed %s ago", l.Age.Round(time.Second))
		if l.Expired {
			renewed = w.In(show.Red, fmt.Sprintf("last renewed %s ago: it has expired", l.Age.Round(time.Second)))
		}
		if l.Unsure {
			w.Printf("          %s holds Lease %s (%s): it does not run this controller, or has led for less than a minute", l.Holder, l.Lease, renewed)
			continue
		}
		title := "Leader:   "
		if l.Expired {
			title = "          "
		}
		w.Printf("%s%s holds Lease %s (%s, %s); %s", title, l.Holder, l.Lease, l.Form, renewed, text.Counted(l.Allocated, "Node", "Nodes")+" allocated by it since it became the leader")
	}
}

func writeNodes(w *show.Writer, n inspect.NodeCounts) {
	line := []string{fmt.Sprintf("Nodes:    %d", n.Total), fmt.Sprintf("%d allocated", n.Allocated)}
	for _, part := range []struct {
		n     int
		what  string
		color show.Color
	}{
		{n.Reserved, "reserved", show.Yellow}, {n.Pending, "pending", show.Red}, {n.Deleting, "being deleted without podCIDRs", 0},
		{len(n.OutOfRange), "out of range", show.Yellow}, {len(n.Conflicting), "in conflict", show.Red},
	} {
		if part.n > 0 {
			line = append(line, w.In(part.color, fmt.Sprintf("%d %s", part.n, part.what)))
		}
	}
	w.Printf("%s", strings.Join(line, ", "))
	const named = 5
	if len(n.OutOfRange) > 0 {
		w.Printf("          out of range: %s. kubectl node-ipam explain NODE says what to do.", show.Few(n.OutOfRange, named))
	}
	if len(n.Conflicting) > 0 {
		w.Printf("          in conflict: %s. kubectl node-ipam explain NODE says what to do.", show.Few(n.Conflicting, named))
	}
}

func writeClusterCIDRs(w *show.Writer, all []inspect.ClusterCIDRStatus) {
	w.Printf("")
	if len(all) == 0 {
		w.Printf("There is no ClusterCIDR.")
		return
	}
	rows := show.NewRows("CLUSTERCIDR", "RANGE", "BLOCK", "USE", "ALLOCATED", "RESERVED", "UNAVAILABLE", "FREE", "+TOTAL", "+NODES", "+PRIORITY", "STATE")
	for _, cc := range all {
		name, state := cc.Name, stateOf(cc)
		for _, r := range cc.Ranges {
			rows.Add(name, r.CIDR, fmt.Sprintf("/%d", r.BlockPrefixLength), w.Bar(r.Total, r.Allocated, r.Reserved, r.Unavailable),
				number(r.Allocated), number(r.Reserved), number(r.Unavailable), number(r.Free), number(r.Total), cc.Members, cc.Priority, state)
			name = " " // a second family
		}
		if len(cc.Ranges) == 0 {
			rows.Add(name, "", "", "", "", "", "", "", "", cc.Members, cc.Priority, state)
		}
	}
	w.Rows(rows)
	for _, cc := range all {
		for _, message := range notes(cc, w.Wide) {
			w.Printf("%s: %s", cc.Name, message)
		}
	}
}

// stateOf is the state of a ClusterCIDR with its other conditions that are True.
func stateOf(cc inspect.ClusterCIDRStatus) show.Colored {
	state := show.Colored{Color: show.Red}
	switch cc.State {
	case networkingv1.ReasonAvailable:
		state.Color = show.Green
	case networkingv1.ReasonDisabled, networkingv1.ReasonTerminating, networkingv1.ReasonSuperseded:
		state.Color = show.Yellow
	}
	texts := []string{cc.State}
	if cc.Conflicted != "" {
		texts, state.Color = append(texts, networkingv1.ConditionConflicted), show.Red
	}
	if cc.Overlapping != "" {
		texts = append(texts, networkingv1.ConditionOverlapping)
	}
	state.Value = strings.Join(texts, ",")
	return state
}

// notes are the messages to act on, or all that say more than the state.
func notes(cc inspect.ClusterCIDRStatus, all bool) (texts []string) {
	switch {
	case cc.State == networkingv1.ReasonDisabled && cc.Members > 0 && !all:
		texts = append(texts, text.Counted(cc.Members, "Node still belongs", "Nodes still belong")+" to it")
	case cc.State != networkingv1.ReasonAvailable && (all || cc.State != networkingv1.ReasonDisabled):
		texts = append(texts, cc.Message)
	}
	if cc.Conflicted != "" {
		texts = append(texts, cc.Conflicted)
	}
	if cc.Overlapping != "" && all {
		texts = append(texts, cc.Overlapping)
	}
	return texts
}

// number formats a number of blocks, which the API caps.
func number(n int64) string {
	if n == math.MaxInt64 {
		return ">=2^63"
	}
	return fmt.Sprint(n)
}

// plural makes a message about a Node one about several.
var plural = strings.NewReplacer("this Node", "these Nodes", "can serve it", "can serve them", "its labels", "their labels", "selects it.", "selects them.")

func writePending(w *show.Writer, all []inspect.PendingNodes) {
	if len(all) == 0 {
		return
	}
	w.Printf("")
	rows := show.NewRows("PENDING", "REASON", "NODES", "MESSAGE")
	for _, p := range all {
		message := p.Message
		if len(p.Nodes) > 1 {
			message = plural.Replace(message)
		}
		rows.Add(len(p.Nodes), show.Colored{Value: p.Reason, Color: show.Red}, show.Few(p.Nodes, 3), message)
	}
	w.Rows(rows)
}
