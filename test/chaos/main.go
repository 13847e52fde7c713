// chaos is the command behind `make chaos`: managers with leader election on a real etcd and kube-apiserver, each behind a
// proxy of its own, while processes are killed and paused, the network fails, and Nodes and ClusterCIDRs come and go. A
// checker follows etcd's history meanwhile. docs/engineering/testing.md says how to read what it prints.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/multicidr/controller-manager/test/chaos/checker"
	"github.com/multicidr/controller-manager/test/controlplane"
)

const (
	exitViolations = 1
	exitBroken     = 2 // the run says nothing about the manager
)

// settings are what the flags say.
type settings struct {
	Duration     time.Duration
	Seed         uint64
	Managers     int
	Command      string
	Nodes        int
	ClusterCIDRs int
	Ranges       []checker.Range
	Rate         float64
	Interval     time.Duration
	Lease        time.Duration
	MaxDelay     time.Duration
	MaxHold      time.Duration
	Late         bool
	Foreign      float64
	Fence        bool
	Fill         int
	CutWatches   bool

	json string
	dir  string
}

func parse(arguments []string) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("chaos", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), "usage: bin/chaos [flags]\n\nExits with 1 if a rule was broken, and with 2 if the run failed for another reason.\n\n")
		flags.PrintDefaults()
	}
	flags.DurationVar(&s.Duration, "duration", 2*time.Minute, "how long faults and churn last")
	flags.Uint64Var(&s.Seed, "seed", 0, "seed of faults and churn; 0 draws one. It repeats the choices, not the timing of real processes")
	flags.IntVar(&s.Managers, "managers", 3, "how many managers compete for the lease")
	flags.StringVar(&s.Command, "command", "kube-controller-manager --controllers=multi-cidr-node-ipam-controller --node-ipam-takeover-delay=1s",
		"the manager: a program of bin/ (or a path, if it has a slash) with flags, to which those for credentials, ports and lease are added")
	flags.IntVar(&s.Nodes, "nodes", 300, "how many names of Nodes there are; at most about so many Nodes at a time")
	flags.IntVar(&s.ClusterCIDRs, "clustercidrs", 30, "how many names of ClusterCIDRs there are; 0 for an allocator that does not know them")
	ranges := flags.String("ranges", "", "the ranges that --cluster-cidr of the command says, with their block lengths: 10.0.0.0/16:24,fd00::/48:64")
	flags.Float64Var(&s.Rate, "rate", 30, "operations on Nodes and ClusterCIDRs per second")
	flags.DurationVar(&s.Interval, "interval", 3*time.Second, "average time between two faults")
	flags.DurationVar(&s.Lease, "lease", 15*time.Second, "lease duration of the managers; renew deadline and retry period are in the usual proportion")
	flags.DurationVar(&s.MaxDelay, "max-delay", 3*time.Second, "how late the proxies make a request or an answer at most")
	flags.DurationVar(&s.MaxHold, "max-hold", 10*time.Second, "for how long the proxies hold up a PATCH of a Node at most, 1s at least; with --fence=false only as long as the lease of its sender lasts")
	flags.BoolVar(&s.Late, "late", true, "let writes arrive whose sender has given up, by delay or after a partition; without it they are lost")
	flags.BoolVar(&s.Fence, "fence", true, "apply manifests/fencing; another allocator than ours needs --fence=false")
	flags.Float64Var(&s.Foreign, "foreign", 0.06, "share of Nodes that are created with podCIDRs, one half inside and one half outside of all ranges")
	flags.IntVar(&s.Fill, "fill", 2000, "how many Nodes may be created at the end to see that every free block can be given; 0 for no such test")
	flags.BoolVar(&s.CutWatches, "cut-watches", false, "cut every watch of the managers 1s to 3s after it opened, until the end, and see that each new Node is served within a bound")
	flags.StringVar(&s.json, "json", "", "write the report to this file as well")
	flags.StringVar(&s.dir, "dir", "", "keep logs and data of the control plane in this new directory")
	_ = flags.Parse(arguments) // ExitOnError
	if s.Seed == 0 {
		s.Seed = rand.Uint64N(1 << 32)
	}
	if *ranges != "" {
		for text := range strings.SplitSeq(*ranges, ",") {
			r, err := checker.ParseRange(text)
			if err != nil {
				return s, fmt.Errorf("--ranges: %w", err)
			}
			s.Ranges = append(s.Ranges, r)
		}
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("unknown argument %q", flags.Arg(0))
	case strings.TrimSpace(s.Command) == "":
		return s, errors.New("--command is empty")
	case s.ClusterCIDRs == 0 && len(s.Ranges) == 0:
		return s, errors.New("--clustercidrs=0 needs --ranges: else there is nothing to give")
	case s.ClusterCIDRs > 0 && len(s.Ranges) > 0:
		return s, errors.New("--ranges is for --clustercidrs=0")
	case s.Managers < 1, s.Nodes < 1, s.Rate <= 0, s.Interval <= 0, s.Lease < 3*time.Second, s.MaxDelay < 0, s.MaxHold < minHold, s.Foreign < 0, s.Duration <= 0, s.ClusterCIDRs < 0, s.Fill < 0:
		return s, errors.New("a number is too small; --lease is 3s at least, --max-hold 1s")
	}
	return s, nil
}

// binary returns the manager's program for controlplane: a path is one of the working directory, a name one of bin/.
func (s settings) binary() (string, []string, error) {
	words := strings.Fields(s.Command)
	program := words[0]
	if strings.ContainsRune(program, '/') {
		var err error
		if program, err = filepath.Abs(program); err != nil {
			return "", nil, err
		}
	}
	return program, words[1:], nil
}

// managerArgs come before what --command says, which may change them.
func (s settings) managerArgs() []string {
	// client-go wants renew deadline > 1.2 * retry period.
	return []string{
		"--leader-elect=true",
		"--leader-elect-lease-duration=" + s.Lease.String(),
		"--leader-elect-renew-deadline=" + (s.Lease * 2 / 3).String(),
		"--leader-elect-retry-period=" + (s.Lease * 2 / 15).String(),
	}
}

func main() {
	s, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(exitBroken)
	}
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, release) // A second Ctrl-C ends us at once; the kernel then ends our children.
	report, err := chaos(ctx, s)
	if err != nil {
		fmt.Fprintf(os.Stderr, "chaos: the run says nothing about the manager (seed %d): %v\n", s.Seed, err)
		os.Exit(exitBroken)
	}
	report.print(os.Stdout)
	if s.json != "" {
		if err := report.write(s.json); err != nil {
			fmt.Fprintln(os.Stderr, "chaos:", err)
			os.Exit(exitBroken)
		}
	}
	if len(report.Violations) > 0 {
		os.Exit(exitViolations)
	}
}

// chaos is one run from an empty directory to its report.
func chaos(ctx context.Context, s settings) (_ *report, err error) {
	fmt.Printf("chaos: seed %d, %s, %d managers, lease %s, %d Nodes, %d ClusterCIDRs, late writes %t, server-side fence %t\n  %s\n",
		s.Seed, s.Duration, s.Managers, s.Lease, s.Nodes, s.ClusterCIDRs, s.Late, s.Fence, s.Command)
	cp, err := controlplane.Start(ctx, controlplane.Options{
		Dir:          s.dir,
		ServiceRange: serviceRanges,
		// A write that the API server has confirmed must survive etcd being killed, so that what goes missing is the manager's fault.
		EtcdArgs: []string{"--unsafe-no-fsync=false"},
	})
	if err != nil {
		return nil, err
	}
	var r *report
	defer func() {
		stop := cp.Stop
		if err != nil || len(r.Violations) > 0 {
			fmt.Fprintf(os.Stderr, "chaos: logs are kept in %s\n", cp.LogDir())
			stop = cp.StopKeepingLogs
		}
		err = errors.Join(err, stop())
	}()
	root, err := controlplane.ModuleRoot()
	if err != nil {
		return nil, err
	}
	manifests := []string{"crds", "rbac"}
	if s.Fence {
		manifests = append(manifests, "fencing/keep-leases.yaml", "fencing/policy.yaml", "fencing/kube-controller-manager.yaml")
	}
	if s.ClusterCIDRs == 0 {
		manifests = append(manifests, "rbac-user") // Another allocator than ours may have no service account.
	}
	for _, manifest := range manifests {
		if err := cp.Apply(ctx, filepath.Join(root, "manifests", manifest)); err != nil {
			return nil, err
		}
	}
	r, err = execute(ctx, s, cp)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// machine says what the figures of a report were seen on.
func machine() string {
	return fmt.Sprintf("%d CPUs, %s/%s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}
