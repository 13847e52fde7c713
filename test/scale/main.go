// scale is the command behind `make scale`: our controllers, the originals and a bare loop of requests on a real etcd and kube-apiserver, with as
// many Nodes, claims or clusters as one likes. It prints what it measures as Go's benchmarks do, for benchstat to compare. clusterloader2 and kubemark load a
// cluster that there is: neither starts one allocator after the other on fresh control planes, nor knows what the API server gives to a bare loop.
// docs/engineering/performance.md says what each figure means, and what they were.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// metrics are the values of one measurement, by their units as benchstat shows them.
type metrics map[string]float64

// scenario is what is measured.
type scenario struct {
	name, about string
	count       int // how many there are of what it is about, by default
	contestants []contestant
	run         func(ctx context.Context, who contestant, count int) (metrics, error)
	// limits are what our own program may have at most of count or more, whatever the machine: scale fails if it has more.
	limits metrics
	// marks hold ours against others of the same round, for what the machine makes: scale fails if one is missed.
	marks []mark
}

// mark is what share of another contestant's value ours may have.
type mark struct {
	unit, of    string
	least, most float64 // 0: none
}

var scenarios = []scenario{
	{"burst", "Nodes join as fast as the API server takes them", 5000, nodeAllocators, burst, metrics{"requests/node": 1.05},
		[]mark{{unit: "nodes/s", of: bare, least: .95}, {unit: "p99-ms", of: bare, most: 1.2}}},
	{"overload", "200 clients create Nodes at once, more than a contestant has workers", 3000, nodeAllocators, overload, metrics{"requests/node": 1.05},
		[]mark{{unit: "p50-ms", of: bare, most: 1.3}, {unit: "p99-ms", of: bare, most: 1.3}, {unit: "p50-ms", of: upstream, most: 1}, {unit: "p99-ms", of: upstream, most: 1}}},
	{"restart", "A manager starts where all Nodes but one have podCIDRs", 100_000, nodeAllocators[1:], restart, metrics{"reads-of-all-nodes": 1, "caches-to-node-s": 1}, nil},
	{"idle", "Kubelets report every ten seconds, and there is nothing to do", 5000, nodeAllocators[1:], idle, metrics{"writes": 0}, nil},
	{"addresses", "IPAddressClaims for one pool come as fast as the API server takes them, and then nothing happens for a minute", 1000, addressAllocators, addresses, metrics{"requests/claim": 3.1, "idle-requests": 0},
		[]mark{{unit: "claims/s", of: bare, least: .95}, {unit: "claims/s", of: original, least: 1}}},
	{"bound", "One cluster after the other gets its pool: claims, and ClusterDeployments that wait for them", 20, binders, bound, metrics{"bound-max-ms": 1000, "gate-max-ms": 1000, "inline-max-ms": 1000, "idle-requests": 0}, nil},
}

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
	for name, run := range loops {
		root.AddCommand(&cobra.Command{
			Use: name + " KUBECONFIG TOKENFILE", Hidden: true, Args: cobra.ExactArgs(2),
			RunE: func(cmd *cobra.Command, args []string) error { return runLoop(cmd.Context(), args[0], args[1], run) },
		})
	}
	for _, s := range scenarios {
		var names []string
		for _, c := range s.contestants {
			names = append(names, c.name)
		}
		cmd := &cobra.Command{Use: s.name, Short: s.about, Args: cobra.NoArgs}
		counts := cmd.Flags().IntSlice("nodes", []int{s.count}, "how many Nodes, claims or clusters; a list measures one number after the other")
		rounds := cmd.Flags().Int("rounds", 1, "how often everything is measured; benchstat wants six")
		who := cmd.Flags().StringSlice("contestants", slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == before || name == upstreamLimited }),
			"who takes part, of "+strings.Join(names, ", "))
		cmd.RunE = func(cmd *cobra.Command, _ []string) error {
			for _, name := range *who {
				if !slices.Contains(names, name) {
					return fmt.Errorf("there is no contestant %q: there are %s", name, strings.Join(names, ", "))
				}
			}
			return measure(cmd, s, *who, *counts, *rounds)
		}
		root.AddCommand(cmd)
	}
	return root
}

// measure runs a scenario and prints a line for each contestant and round. What is above a limit, or misses a mark, is said at the end.
func measure(cmd *cobra.Command, s scenario, who []string, counts []int, rounds int) error {
	out := cmd.OutOrStdout()
	commit, _ := exec.Command("git", "describe", "--always", "--dirty").Output() // Empty where there is no git.
	fmt.Fprintf(out, "goos: %s\ngoarch: %s\ncores: %d\ncommit: %s\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), strings.TrimSpace(string(commit)))
	fmt.Fprint(out, "Unit nodes/s better=higher\nUnit claims/s better=higher\n")
	var errs []error
	for _, count := range counts {
		for range rounds {
			round := map[string]metrics{}
			for _, c := range s.contestants {
				if !slices.Contains(who, c.name) {
					continue
				}
				got, err := s.run(cmd.Context(), c, count)
				if err != nil {
					return fmt.Errorf("%s, %s, %d: %w", s.name, c.name, count, err)
				}
				round[c.name] = got
				name := fmt.Sprintf("%s/nodes=%d/who=%s", s.name, count, c.name)
				fmt.Fprintf(out, "Benchmark%s 1%s\n", strings.ToUpper(name[:1])+name[1:], got)
			}
			if count >= s.count { // What comes once a second is much for each of a few.
				errs = append(errs, s.missed(round)...)
			}
		}
	}
	return errors.Join(errs...)
}

// String is as Go's benchmarks print values.
func (m metrics) String() string {
	var b strings.Builder
	for _, unit := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, "\t%.4g %s", m[unit], unit)
	}
	return b.String()
}

// missed returns an error for each value of ours that is above its limit, or missing, and for each mark that is missed beside who took part.
func (s scenario) missed(round map[string]metrics) (errs []error) {
	got, ok := round[ours]
	if !ok {
		return nil
	}
	for unit, limit := range s.limits {
		if value, ok := got[unit]; !ok || value > limit {
			errs = append(errs, fmt.Errorf("%g %s, the limit is %g", value, unit, limit))
		}
	}
	for _, m := range s.marks {
		other, ok := round[m.of]
		if !ok {
			continue
		}
		if share := got[m.unit] / other[m.unit]; !(share >= m.least) || m.most > 0 && !(share <= m.most) { // Nor is NaN enough.
			errs = append(errs, fmt.Errorf("ours has %.3f of the %s of %s, the mark is %g", share, m.unit, m.of, max(m.least, m.most)))
		}
	}
	return errs
}
