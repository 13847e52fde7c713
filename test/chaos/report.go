package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/multicidr/controller-manager/test/chaos/checker"
	"github.com/multicidr/controller-manager/test/chaos/faultproxy"
)

// report is what a run has shown.
type report struct {
	Settings   settings
	Machine    string
	Begin      time.Time
	End        time.Time
	Faults     map[string]int // by name
	Requests   map[string]int // of all managers, by what happened to them
	Restarts   int
	Operations int // of churn

	// Chaos is the summary of the chaotic part; Summary is that of the whole run.
	Chaos   checker.Summary
	Summary checker.Summary
	// Recovery is from the end of the last fault until nothing was left to do; 0 if that did not come.
	Recovery time.Duration
	// Probes is how long Nodes took to be served at rest, while watches were cut.
	Probes *checker.Percentiles
	// Filled ranges got Nodes for all that was free, Unfilled ones would have needed more than allowed.
	Filled   int
	Unfilled int
	Fillers  int

	Violations []checker.Violation
}

func (r *report) addRequests(fault faultproxy.Fault, n int) {
	if r.Requests == nil {
		r.Requests = map[string]int{}
	}
	r.Requests[cmp.Or(string(fault), "passed")] += n
}

// maxShown is how many violations are printed with their histories.
const maxShown = 5

func (r *report) print(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	s, c := r.Summary, r.Chaos
	fmt.Fprintf(w, "\n")
	row("seed", "%d", r.Settings.Seed)
	row("machine", "%s", r.Machine)
	row("took", "%s", r.End.Sub(r.Begin).Round(time.Second))
	row("faults", "%s", counted(r.Faults))
	row("requests of managers", "%s", counted(r.Requests))
	row("managers", "%d leaders, %d restarts", s.Leaders, r.Restarts)
	row("churn", "%d operations: %d Nodes created, %d of them with podCIDRs, %d gone; %d ClusterCIDRs created", r.Operations, c.Created, c.Foreign, c.Deleted, c.ClusterCIDRs)
	row("served", "%d Nodes in chaos; creation to podCIDRs p50 %s, p90 %s, p99 %s, max %s", c.Served, short(c.Latency.P50), short(c.Latency.P90), short(c.Latency.P99), short(c.Latency.Max))
	row("late decisions", "%d Nodes were served what had been taken back up to %s before", s.Late, short(s.MaxLag))
	row("deposed leaders", "%d Nodes were served by one whose lease was another's by then", s.Deposed)
	row("not the managers' doing", "%d Nodes created with addresses that others had, %d with addresses that were on their way to others", s.ForeignOverlaps, s.ForeignRaces)
	recovery := short(r.Recovery)
	if r.Recovery == 0 {
		recovery = "not within " + restPatience.String()
	}
	row("recovery", "%s from the end of the last fault until nothing was left to do", recovery)
	if p := r.Probes; p != nil {
		row("while watches are cut", "%d Nodes; creation to podCIDRs p50 %s, p90 %s, max %s", probes, short(p.P50), short(p.P90), short(p.Max))
	}
	row("last blocks", "%d ranges filled with %d Nodes, %d too large for that", r.Filled, r.Fillers, r.Unfilled)
	row("violations", "%s", violationsOf(r.Violations))
	w.Flush()
	for i, v := range r.Violations {
		if i == maxShown {
			fmt.Fprintf(to, "\n... and %d more\n", len(r.Violations)-maxShown)
			break
		}
		fmt.Fprintf(to, "\n%v\n", v)
	}
}

func violationsOf(violations []checker.Violation) string {
	if len(violations) == 0 {
		return "none"
	}
	byRule := map[string]int{}
	for _, v := range violations {
		byRule[string(v.Rule)]++
	}
	return fmt.Sprintf("%d (%s)", len(violations), counted(byRule))
}

// counted lists what there is of each name, most first.
func counted(counts map[string]int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = fmt.Sprintf("%s %d", name, counts[name])
	}
	return strings.Join(texts, ", ")
}

func short(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second / 10).String()
}
