package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	"github.com/multicidr/controller-manager/test/chaos/checker"
	"github.com/multicidr/controller-manager/test/controlplane"
)

const (
	// startPatience is how long the managers may take until one of them leads.
	startPatience = 2 * time.Minute
	// startAttempts is how often a manager may end meanwhile, for instance because its port was taken.
	startAttempts = 5
	// restPatience is how long after the last fault the managers may take until nothing is left to do. A backoff of the Node's
	// write, a lease that has to run out and the start of the next leader are all in it.
	restPatience = 90 * time.Second
	// slack is for decisions that were made before their write: a write is retried for as long as its leader has the lease, and a
	// leader that cannot write can keep it for the longest fault there is.
	slack = time.Minute
	// showInterval is how often it is said how far things are.
	showInterval = 10 * time.Second
	// mostFillers is how many Nodes may be created at the end to see that every free block can be given.
	mostFillers = 2000
	// restInterval is how often the cluster is looked at for whether it is at rest.
	restInterval = 200 * time.Millisecond
)

// run is one run on a control plane.
type run struct {
	s        settings
	cp       *controlplane.ControlPlane
	kube     kubernetes.Interface
	pools    versioned.Interface
	checker  *checker.Checker
	follower *checker.Follower
	managers []*manager
	faults   *faults
	churn    *churn
	printed  time.Time // the last line of how far things are
}

// execute prepares a run and carries it out.
func execute(ctx context.Context, s settings, cp *controlplane.ControlPlane) (_ *report, err error) {
	ctx, broken := context.WithCancelCause(ctx)
	defer broken(nil)

	services, err := parseServiceRanges()
	if err != nil {
		return nil, err
	}
	r := &run{s: s, cp: cp, checker: checker.New(checker.Options{ServiceRanges: services, Slack: slack, Lease: leaseName})}
	// Straight to the API server and fast: what churn does is not to be held up.
	config := cp.AdminConfig()
	if r.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if r.pools, err = versioned.NewForConfig(config); err != nil {
		return nil, err
	}
	etcd, err := checker.Dial(cp.EtcdEndpoint(), cp.PKIDir())
	if err != nil {
		return nil, err
	}
	defer etcd.Close()

	// What ends with the run, in this order: managers, then who watches them.
	var background, managing sync.WaitGroup
	defer background.Wait()
	following, stopFollowing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopFollowing()
	r.follower = checker.NewFollower(etcd, r.checker.Observe)
	background.Go(func() {
		if err := r.follower.Run(following); err != nil {
			broken(fmt.Errorf("a part of etcd's history is missing: %w", err))
		}
	})
	defer managing.Wait()
	manage, stopManaging := context.WithCancel(ctx)
	defer stopManaging()
	for i := range managers {
		m, err := newManager(s, cp, i, r.checker)
		if err != nil {
			return nil, err
		}
		defer m.proxy.Close()
		r.managers = append(r.managers, m)
		managing.Go(func() {
			if err := m.run(manage); err != nil {
				broken(err)
			}
		})
	}
	r.faults = &faults{s: s, cp: cp, managers: r.managers, checker: r.checker, rng: rand.New(rand.NewPCG(s.Seed, 1)), broken: broken, counts: map[string]int{}}
	r.churn = newChurn(s, r.kube, r.pools, r.checker)

	result, err := r.phases(ctx)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil { // what was found until then is worth knowing, and nobody else will say it
		for _, v := range r.checker.Violations() {
			fmt.Fprintf(os.Stderr, "\n%v\n", v)
		}
	}
	return result, err
}

func parseServiceRanges() ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for text := range strings.SplitSeq(serviceRanges, ",") {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, err
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}

// phases: a leader, then chaos, then rest, then the last blocks.
func (r *run) phases(ctx context.Context) (*report, error) {
	if err := r.waitForLeader(ctx); err != nil {
		return nil, err
	}
	result := &report{Settings: r.s, Machine: machine(), Begin: time.Now()}

	chaotic, calm := context.WithTimeout(ctx, r.s.Duration)
	defer calm()
	// Churn outlives the faults, so that there is something to recover.
	churning, enough := context.WithCancel(ctx)
	defer enough()
	var faults, churn sync.WaitGroup
	faults.Go(func() { r.faults.run(chaotic) })
	churn.Go(func() { r.churn.run(churning) })
	phase("chaos")
	r.show(chaotic)
	phase("the last faults pass")
	faults.Wait()
	enough()
	calmSince := time.Now()
	churn.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	result.Faults, result.Operations = r.faults.counted(), r.churn.operations()
	result.Chaos = r.checker.Summary()

	if err := r.churn.letGo(ctx); err != nil {
		return nil, err
	}
	r.checker.Note("all faults are over, churn has ended, and no Node is being deleted")
	phase("at rest?")
	unsettled, err := r.rest(ctx)
	if err != nil {
		return nil, err
	}
	r.checker.Add(unsettled...)
	if len(unsettled) == 0 {
		result.Recovery = time.Since(calmSince)
	}

	if len(unsettled) == 0 { // else there is no telling why a block is not given
		if r.s.CutWatches {
			phase("Nodes while watches are cut")
			if err := r.probe(ctx, result); err != nil {
				return nil, err
			}
		}
		phase("the last blocks")
		if err := r.fill(ctx, result); err != nil {
			return nil, err
		}
	}

	result.End = time.Now()
	result.Violations = r.checker.Violations()
	result.Summary = r.checker.Summary()
	for _, m := range r.managers {
		result.Restarts += m.restarts()
		for fault, n := range m.proxy.Counts() {
			result.addRequests(fault, n)
		}
	}
	return result, nil
}

func (r *run) waitForLeader(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("no manager took the lease %s within %s", leaseName, startPatience))
	defer cancel()
	for sleep(ctx, restInterval) {
		if _, ok := leader(r.managers, r.s.Lease); ok {
			return nil
		}
		for _, m := range r.managers {
			if m.restarts() >= startAttempts {
				return fmt.Errorf("%s ended %d times by itself before anybody led: look into its log", m.name, m.restarts())
			}
		}
	}
	return context.Cause(ctx)
}

// phase says what begins now.
func phase(name string) { fmt.Println(" ", name) }

// line says how far things are; not every call is shown.
func (r *run) line(text string) {
	if time.Since(r.printed) > showInterval {
		r.printed = time.Now()
		fmt.Println(" ", text)
	}
}

// show says how far things are until ctx is done.
func (r *run) show(ctx context.Context) {
	begin := time.Now()
	for sleep(ctx, showInterval) {
		s := r.checker.Summary()
		r.line(fmt.Sprintf("%s of %s  Nodes %d (%d wait)  served %d  gone %d  ClusterCIDRs %d  leaders %d  faults %d  violations %d",
			time.Since(begin).Round(time.Second), r.s.Duration, s.Nodes, s.Waiting, s.Served, s.Deleted, s.Pools, s.Leaders, r.faults.total(), r.checker.Count()))
	}
}

// rest waits until nothing is left to do, and returns what still is after its patience.
func (r *run) rest(ctx context.Context) ([]checker.Violation, error) {
	deadline := time.Now().Add(restPatience)
	for {
		if err := r.follower.CatchUp(ctx); err != nil {
			return nil, err
		}
		unsettled := r.checker.Unsettled()
		if len(unsettled) == 0 || time.Now().After(deadline) {
			return unsettled, nil
		}
		r.line(fmt.Sprintf("at rest? %d things are left to do; the first: %s", len(unsettled), unsettled[0].Message))
		if !sleep(ctx, restInterval) {
			return nil, ctx.Err()
		}
	}
}

// fill creates Nodes until nothing is free any more, range by range: what cannot be given has leaked.
func (r *run) fill(ctx context.Context, result *report) error {
	budget := mostFillers
	for i := range r.s.ClusterCIDRs {
		name := poolNameOf(i)
		free, exists := r.checker.Free(name)
		if !exists || free == 0 {
			continue
		}
		if free >= uint64(budget) {
			result.Unfilled++
			continue
		}
		// One more than there is room for: it has to wait, or be served from elsewhere.
		nodes := int(free) + 1
		budget -= nodes
		if err := r.createFillers(ctx, name, nodes); err != nil {
			return err
		}
		result.Filled++
		result.Fillers += nodes
	}
	unsettled, err := r.rest(ctx)
	if err != nil {
		return err
	}
	r.checker.Add(unsettled...)
	return nil
}

func (r *run) createFillers(ctx context.Context, pool string, nodes int) error {
	errs := make([]error, nodes)
	workqueue.ParallelizeUntil(ctx, inFlight, nodes, func(i int) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("fill-%s-%04d", pool, i), Labels: map[string]string{labelFill: pool}}}
		_, errs[i] = r.kube.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	})
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return err == nil })...)
}
