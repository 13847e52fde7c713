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
	Command      []string // a program of bin/, or a path, with flags, to which those for credentials, ports and lease are added
	Nodes        int      // how many names of Nodes there are; at most about so many Nodes at a time
	ClusterCIDRs int      // how many names of ClusterCIDRs there are
	Interval     time.Duration
	Lease        time.Duration
	MaxDelay     time.Duration
	Late         bool
	Fence        bool
	CutWatches   bool
}

// managers is how many compete for the lease.
const managers = 3

func parse(arguments []string) (settings, error) {
	s := settings{
		Command: []string{"kube-controller-manager", "--controllers=multi-cidr-node-ipam-controller", "--node-ipam-takeover-delay=1s"},
		Nodes:   300, ClusterCIDRs: 30,
	}
	flags := flag.NewFlagSet("chaos", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), "usage: bin/chaos [flags]\n\nExits with 1 if a rule was broken, and with 2 if the run failed for another reason.\n\n")
		flags.PrintDefaults()
	}
	flags.DurationVar(&s.Duration, "duration", 2*time.Minute, "how long faults and churn last")
	flags.Uint64Var(&s.Seed, "seed", 0, "seed of faults and churn; 0 draws one. It repeats the choices, not the timing of real processes")
	flags.DurationVar(&s.Interval, "interval", 3*time.Second, "average time between two faults")
	flags.DurationVar(&s.Lease, "lease", 15*time.Second, "lease duration of the managers; renew deadline and retry period are in the usual proportion")
	flags.DurationVar(&s.MaxDelay, "max-delay", 3*time.Second, "how late the proxies make a request or an answer at most")
	flags.BoolVar(&s.Late, "late", true, "let writes arrive whose sender has given up, by delay or after a partition; without it they are lost")
	flags.BoolVar(&s.Fence, "fence", true, "apply manifests/fencing; without it a PATCH of a Node is held up only as long as the lease of its sender lasts")
	flags.BoolVar(&s.CutWatches, "cut-watches", false, "cut every watch of the managers 1s to 3s after it opened, until the end, and see that each new Node is served within a bound")
	_ = flags.Parse(arguments) // ExitOnError
	if s.Seed == 0 {
		s.Seed = rand.Uint64N(1 << 32)
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("unknown argument %q", flags.Arg(0))
	case s.Interval <= 0, s.Lease < 3*time.Second, s.MaxDelay < 0, s.Duration <= 0:
		return s, errors.New("a number is too small; --lease is 3s at least")
	}
	return s, nil
}

// managerArgs come before those of the command, which may change them.
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
	if len(report.Violations) > 0 {
		os.Exit(exitViolations)
	}
}

// chaos is one run from an empty directory to its report.
func chaos(ctx context.Context, s settings) (_ *report, err error) {
	fmt.Printf("chaos: seed %d, %s, %d managers, lease %s, %d Nodes, %d ClusterCIDRs, late writes %t, server-side fence %t\n  %s\n",
		s.Seed, s.Duration, managers, s.Lease, s.Nodes, s.ClusterCIDRs, s.Late, s.Fence, strings.Join(s.Command, " "))
	cp, err := controlplane.Start(ctx, controlplane.Options{
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
		manifests = append(manifests, "rbac-user") // The manager of the test has no service account.
	}
	for _, manifest := range manifests {
		if err := cp.Apply(ctx, filepath.Join(root, "manifests", manifest)); err != nil {
			return nil, err
		}
	}
	r, err = execute(ctx, s, cp)
	return r, err
}

// machine says what the figures of a report were seen on.
func machine() string {
	return fmt.Sprintf("%d CPUs, %s/%s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}
