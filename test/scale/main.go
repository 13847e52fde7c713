// scale is the command behind `make scale`: our controllers, the originals and a bare loop of requests on a real etcd and kube-apiserver, with as
// many Nodes, claims or clusters as one likes. docs/engineering/performance.md says what it measures, and what it has.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/multicidr/controller-manager/test/results"
)

// scale is what the flags say.
type scale struct {
	nodes       []int
	contestants []string
	rounds      int
	turns       int
	apart       bool
	interleaved bool
	json        string
	profileDir  string
	profileTime time.Duration
	// clientsList are numbers of clients that create Nodes, each measured after the other, and clients is the current one; 0 is as many as
	// usual, on one connection.
	clientsList []int
	clients     int
	// part is how many Nodes are created before others have their turn, and profileName begins the names of profiles; zero is a burst's.
	part        int
	profileName string
	// meet lets the other contestants have their turn; nil if they do not run interleaved.
	meet func() error
}

// scenario is what is measured.
type scenario struct {
	name, about string
	nodes       []int    // by default
	contestants []string // all, of which users may choose
	run         func(*scale, context.Context, contestant, int) (sample, error)
	marks       func(nodes int, round map[string]sample) []results.Mark
	columns     []column // of its table
	// of are who can take part, and what is counted; without them it is contestants, with Nodes.
	of     []contestant
	counts string
	// limited says that a contestant's own limit of requests, if it has one, decides what comes out, however fast the machine is: one turn in
	// a round is enough for it.
	limited bool
	// clients are the numbers of clients by default; nil if that is no matter of the scenario.
	clients []int
}

var scenarios = []scenario{
	{"burst", "Nodes join as fast as the API server takes them", []int{5000}, []string{bare, ours, upstreamRaised, oursLimited, upstream}, (*scale).burst, burstMarks, burstColumns, nil, "", true, nil},
	{"overload", "More clients create Nodes at once than a contestant has workers", []int{3000, 20000}, []string{bare, ours, upstreamRaised}, (*scale).overload, overloadMarks, overloadColumns, overloaded, "", false, []int{50, 200}},
	{"restart", "A manager starts where all Nodes but one have podCIDRs", []int{100000}, []string{ours, upstream}, (*scale).restart, restartMarks, restartColumns, nil, "", false, nil},
	{"waiting", "Nodes wait for a full range, and a range is added", []int{5000}, []string{bare, ours}, (*scale).waiting, waitingMarks, waitingColumns, nil, "", false, nil},
	{"idle", "Kubelets report every ten seconds, and there is nothing to do", []int{5000}, []string{ours, upstreamRaised}, (*scale).idle, idleMarks, idleColumns, nil, "", false, nil},
	{"addresses", "IPAddressClaims for one pool come as fast as the API server takes them, and then nothing happens for a minute", []int{1000}, []string{bare, ours, original}, (*scale).addresses, addressesMarks, addressesColumns, allocators, "IPAddressClaims", false, nil},
	{"bound", "One cluster after the other gets its pool: claims, and ClusterDeployments that wait for them", []int{20}, []string{ours}, (*scale).bound, boundMarks, boundColumns, binders, "clusters", false, nil},
}

// what is what a scenario counts.
func (what scenario) what() string { return cmp.Or(what.counts, "Nodes") }

func main() {
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, release) // A second Ctrl-C ends us at once; the kernel then ends our children.
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{Use: "scale", Short: "Measure who allocates podCIDRs and addresses, and how fast", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(&cobra.Command{
		Use: loopCommand + " KUBECONFIG TOKENFILE WORKERS", Hidden: true, Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			workers, err := strconv.Atoi(args[2])
			if err != nil {
				return err
			}
			return runLoop(cmd.Context(), args[0], args[1], workers)
		},
	})
	root.AddCommand(&cobra.Command{
		Use: allocatorLoop + " KUBECONFIG", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runAllocatorLoop(cmd.Context(), args[0]) },
	})
	root.AddCommand(&cobra.Command{
		Use: "report FILE", Short: "Print results that were written with --json as Markdown", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return report(cmd.OutOrStdout(), args[0]) },
	}, &cobra.Command{
		Use: "report-into DOCUMENT", Short: "Write results into the places that a document has for them", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return reportInto(args[0]) },
	})
	for _, what := range scenarios {
		s := &scale{}
		cmd := &cobra.Command{Use: what.name, Short: what.about, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return s.measure(cmd.Context(), what) }}
		cmd.Flags().IntSliceVar(&s.nodes, "nodes", what.nodes, "how many "+what.what()+"; a list measures one number after the other")
		cmd.Flags().StringSliceVar(&s.contestants, "contestants", what.contestants, "who takes part")
		if what.clients != nil {
			cmd.Flags().IntSliceVar(&s.clientsList, "clients", what.clients, "how many clients create Nodes, each one at a time and on a connection of its own; a list measures one number after the other")
		}
		cmd.Flags().IntVar(&s.rounds, "rounds", 1, "how often everything is measured; each round is held against the marks")
		cmd.Flags().IntVar(&s.turns, "turns", 1, "how often each contestant's turn comes in a round, first in one order, then in the other; marks are of all its turns together; who has a limit of its own has one turn in a round of a burst")
		cmd.Flags().BoolVar(&s.apart, "apart", false, "the contestant has the last CPU to itself and all else has the others, so that its own CPU time is not taken from the API server; needs taskset of util-linux")
		cmd.Flags().BoolVar(&s.interleaved, "interleaved", false, "contestants without a limit of their own each have a control plane at the same time and take turns every few seconds, so that a machine that is faster now and slower then is so for all of them; for burst and waiting, and without profiles")
		cmd.Flags().StringVar(&s.json, "json", "", "write the results to this file as well")
		cmd.Flags().StringVar(&s.profileDir, "profile-dir", "", "take profiles of managers and API servers to this directory, which costs some speed")
		cmd.Flags().DurationVar(&s.profileTime, "profile-time", 5*time.Second, "how long a CPU profile is")
		root.AddCommand(cmd)
	}
	return root
}

// measure runs a scenario and prints what it finds as it goes.
func (s *scale) measure(ctx context.Context, what scenario) error {
	who, err := pick(s.contestants, what.of)
	if err != nil {
		return err
	}
	if s.profileDir != "" && s.interleaved {
		return errors.New("--profile-dir and --interleaved: a turn is over before a profile is; choose one")
	}
	if s.profileDir != "" {
		if err := os.MkdirAll(s.profileDir, 0o755); err != nil {
			return err
		}
	}
	if err := s.moveApart(os.Getpid(), false); err != nil {
		return err
	}
	file := results.File{Header: results.Collect("bin/scale " + strings.Join(os.Args[1:], " "))}
	for _, nodes := range s.nodes {
		for _, s.clients = range s.numbersOfClients() {
			for round := range s.rounds {
				if err := s.round(ctx, what, who, nodes, round, &file); err != nil {
					return err
				}
			}
		}
	}
	if s.json == "" {
		return nil
	}
	return results.Write(s.json, file)
}

// round measures all turns of all contestants, and holds them against the marks.
func (s *scale) round(ctx context.Context, what scenario, who []contestant, nodes, round int, file *results.File) error {
	found := map[string][]sample{}
	by := "" // part of the results' names, by which a report has one row of each
	if s.clients > 0 {
		by = fmt.Sprintf(", %d clients", s.clients)
	}
	for turn := range s.turns {
		order := slices.Clone(who)
		if turn%2 == 1 {
			slices.Reverse(order)
		}
		if turn > 0 && what.limited {
			order = slices.DeleteFunc(order, func(c contestant) bool { return c.qps > 0 })
		}
		for _, group := range s.groups(order) {
			fmt.Printf("%s: %s, %d %s%s, round %d of %d, turn %d of %d\n", what.name, names(group), nodes, what.what(), by, round+1, s.rounds, turn+1, s.turns)
			all, err := s.run(ctx, what, group, nodes)
			if err != nil {
				return err
			}
			for i, c := range group {
				fmt.Printf("%s: %s\n", what.name, c.name)
				show(all[i].values)
				found[c.name] = append(found[c.name], all[i])
				file.Results = append(file.Results, results.Result{Name: what.name + "/" + c.name + by, Nodes: nodes, Values: all[i].values})
			}
		}
	}
	marks := what.marks(nodes, together(found))
	showMarks(marks)
	file.Marks = append(file.Marks, marks...)
	return nil
}

func show(values map[string]float64) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, name := range sortedKeys(values) {
		fmt.Fprintf(w, "\t%s\t%.2f\t\n", name, values[name])
	}
	w.Flush()
}

func showMarks(marks []results.Mark) {
	for _, m := range marks {
		verdict := "held"
		if !m.Held {
			verdict = "NOT HELD"
		}
		fmt.Printf("  mark: %s: %v %s, limit %v: %s\n", m.Name, m.Got, m.Unit, m.Limit, verdict)
	}
}
