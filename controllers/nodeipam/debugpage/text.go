package debugpage

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// write writes a page as text: one table after the other, with a line for each Node.
func (p *Page) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	n := p.Summary
	fmt.Fprintf(w, "%s at %s\n", p.Controller, p.Time.UTC().Format(time.RFC3339))
	if p.Problem != "" {
		fmt.Fprintf(w, "Problem: %s\n", oneLine(p.Problem))
	}
	fmt.Fprintf(w, "Nodes: %d, %d allocated, %d reserved, %d pending, %d being deleted without podCIDRs, %d out of range, %d in conflict\n",
		n.Total, n.Allocated, n.Reserved, n.Pending, n.Deleting, len(n.OutOfRange), len(n.Conflicting))
	p.writeRanges(w)
	if len(p.Pending) > 0 {
		fmt.Fprint(w, "\nPENDING\tREASON\tMESSAGE\n")
		for _, nodes := range p.Pending {
			fmt.Fprintf(w, "%d\t%s\t%s\n", len(nodes.Nodes), nodes.Reason, oneLine(nodes.Message))
		}
	}
	fmt.Fprint(w, "\nNODE\tSTATE\tPODCIDRS\tCLUSTERCIDRS\tMESSAGES\n")
	for _, node := range p.Nodes {
		var blocks []string
		for _, block := range node.PodCIDRs {
			blocks = append(blocks, block.String())
		}
		messages := []string{node.Message}
		for _, f := range node.Findings {
			messages = append(messages, f.Reason+": "+f.Message)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", node.Node, node.State, listed(blocks), listed(node.ClusterCIDRs), cmp.Or(oneLine(strings.Join(messages, " ")), "-"))
	}
	return w.Flush()
}

// writeRanges writes ClusterCIDRs.
func (p *Page) writeRanges(w io.Writer) {
	fmt.Fprint(w, "\nCLUSTERCIDR\tSTATE\tRANGE\tBLOCK\tTOTAL\tALLOCATED\tRESERVED\tUNAVAILABLE\tFREE\tNODES\n")
	for _, cc := range p.ClusterCIDRs {
		if len(cc.Ranges) == 0 {
			fmt.Fprintf(w, "%s\t%s\t-\t-\t-\t-\t-\t-\t-\t%d\n", cc.Name, cc.State, cc.Members)
		}
		for _, r := range cc.Ranges {
			fmt.Fprintf(w, "%s\t%s\t%s\t/%d\t%s\t%s\t%s\t%s\t%s\t%d\n", cc.Name, cc.State, r.CIDR, r.BlockPrefixLength,
				number(r.Total), number(r.Allocated), number(r.Reserved), number(r.Unavailable), number(r.Free), cc.Members)
		}
	}
	for _, cc := range p.ClusterCIDRs {
		if cc.State == networkingv1.ReasonAvailable && cc.Overlapping+cc.Conflicted == "" {
			continue
		}
		fmt.Fprintf(w, "%s: %s\n", cc.Name, oneLine(strings.Join([]string{cc.Message, cc.Overlapping, cc.Conflicted}, " ")))
	}
}

// oneLine keeps a message in its cell of a table.
func oneLine(message string) string { return strings.Join(strings.Fields(message), " ") }

func listed(texts []string) string {
	if len(texts) == 0 {
		return "-"
	}
	return strings.Join(texts, ",")
}

// number formats a number of blocks, which the API caps.
func number(n int64) string {
	if n == math.MaxInt64 {
		return ">=2^63"
	}
	return fmt.Sprint(n)
}
