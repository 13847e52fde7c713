package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/multicidr/controller-manager/test/chaos/checker"
	"github.com/multicidr/controller-manager/test/chaos/faultproxy"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// faults does things to managers, their network and the servers. One thing at a time to each manager and to the servers, but to several
// of them at once.
type faults struct {
	s        settings
	cp       *controlplane.ControlPlane
	managers []*manager
	checker  *checker.Checker
	rng      *rand.Rand
	broken   context.CancelCauseFunc // the run cannot go on

	servers sync.Mutex // held by who does something to etcd or the API server
	going   sync.WaitGroup

	mu     sync.Mutex
	counts map[string]int
}

// onManager is a fault of one manager; it returns when it is over. Everything it draws it draws before it starts.
type onManager struct {
	name   string
	weight int
	// leader: it only makes sense for who has the lease.
	leader bool
	do     func(f *faults, m *manager, share float64) (hit bool, over func())
}

// A fault lasts a share of its longest time.
func (f *faults) between(shortest, longest time.Duration, share float64) time.Duration {
	return shortest + time.Duration(share*float64(longest-shortest))
}

var managerFaults = []onManager{
	{name: "kill -9", weight: 4, leader: true, do: func(f *faults, m *manager, _ float64) (bool, func()) {
		return m.do((*controlplane.Process).Kill), nil
	}},
	{name: "kill -9 of a follower", weight: 1, do: func(f *faults, m *manager, _ float64) (bool, func()) {
		return m.do((*controlplane.Process).Kill), nil
	}},
	{name: "pause shorter than the lease", weight: 3, leader: true, do: func(f *faults, m *manager, share float64) (bool, func()) {
		return f.pause(m, f.between(time.Second, f.s.Lease*9/10, share))
	}},
	{name: "pause longer than the lease", weight: 4, leader: true, do: func(f *faults, m *manager, share float64) (bool, func()) {
		return f.pause(m, f.between(f.s.Lease*11/10, f.s.Lease*2, share))
	}},
	{name: "bad network", weight: 4, do: func(f *faults, m *manager, share float64) (bool, func()) {
		return f.network(m, faultproxy.Faults{LoseAnswers: .15, DelayRequests: .15, DelayAnswers: .1, Refuse: .15, Drop: .03}, share)
	}},
	{name: "lost answers", weight: 3, leader: true, do: func(f *faults, m *manager, share float64) (bool, func()) {
		return f.network(m, faultproxy.Faults{LoseAnswers: .7}, share)
	}},
	{name: "late requests", weight: 3, leader: true, do: func(f *faults, m *manager, share float64) (bool, func()) {
		return f.network(m, faultproxy.Faults{DelayRequests: .8}, share)
	}},
	{name: "refusals", weight: 2, leader: true, do: func(f *faults, m *manager, share float64) (bool, func()) {
		return f.network(m, faultproxy.Faults{Refuse: .7}, share)
	}},
	{name: "hanging events", weight: 3, do: func(f *faults, m *manager, share float64) (bool, func()) {
		return f.network(m, faultproxy.Faults{HangEvents: 1}, share)
	}},
	{name: "held-up PATCHes", weight: 6, leader: true, do: func(f *faults, m *manager, share float64) (bool, func()) {
		return f.holdUp(m, share)
	}},
	{name: "cut watches", weight: 2, do: func(_ *faults, m *manager, _ float64) (bool, func()) {
		m.proxy.CutWatches()
		return true, nil
	}},
	{name: "closed connections", weight: 2, do: func(_ *faults, m *manager, _ float64) (bool, func()) {
		m.proxy.CloseConnections()
		return true, nil
	}},
	{name: "partition", weight: 3, leader: true, do: func(f *faults, m *manager, share float64) (bool, func()) {
		if !f.s.Late { // what it holds back would arrive at the end
			return false, nil
		}
		m.proxy.Partition()
		return true, f.after(f.between(time.Second, f.s.Lease*2, share), m.proxy.Heal)
	}},
	{name: "severed network", weight: 2, do: func(f *faults, m *manager, share float64) (bool, func()) {
		m.proxy.Sever()
		return true, f.after(f.between(time.Second, f.s.Lease*2, share), m.proxy.Heal)
	}},
}

// serverFaults hit everybody.
var serverFaults = []struct {
	name   string
	weight int
	do     func(ctx context.Context, f *faults, share float64) error
}{
	{name: "API server stopped", weight: 1, do: func(ctx context.Context, f *faults, share float64) error {
		// It listens no more and waits for the watches of its clients, up to a minute. A kubelet does not wait for that either.
		if err := syscall.Kill(f.cp.APIServer().PID(), syscall.SIGTERM); err != nil {
			return err
		}
		grace, cancel := context.WithTimeout(ctx, f.between(time.Second, 5*time.Second, share))
		defer cancel()
		_, _ = f.cp.APIServer().Wait(grace) // Kill is for what still runs.
		if err := f.cp.APIServer().Kill(); err != nil {
			return err
		}
		return f.cp.StartAPIServer(ctx)
	}},
	{name: "API server killed", weight: 1, do: func(ctx context.Context, f *faults, _ float64) error {
		if err := f.cp.APIServer().Kill(); err != nil {
			return err
		}
		return f.cp.StartAPIServer(ctx)
	}},
	{name: "API server paused", weight: 1, do: func(ctx context.Context, f *faults, share float64) error {
		return f.pauseServer(f.cp.APIServer(), share)
	}},
	{name: "etcd killed", weight: 1, do: func(ctx context.Context, f *faults, _ float64) error {
		if err := f.cp.Etcd().Kill(); err != nil {
			return err
		}
		return f.cp.StartEtcd(ctx)
	}},
	{name: "etcd paused", weight: 1, do: func(ctx context.Context, f *faults, share float64) error {
		return f.pauseServer(f.cp.Etcd(), share)
	}},
}

// serverShare is how many faults of all are the servers'.
const serverShare = 0.08

// run does things until ctx is done, and returns when all of them are over.
func (f *faults) run(ctx context.Context) {
	defer f.going.Wait()
	for sleep(ctx, time.Duration((0.3+1.4*f.rng.Float64())*float64(f.s.Interval))) {
		share := f.rng.Float64()
		if f.rng.Float64() < serverShare {
			f.hitServers(share)
		} else {
			f.hitManager(share)
		}
	}
}

func (f *faults) hitManager(share float64) {
	weights := 0
	for _, fault := range managerFaults {
		weights += fault.weight
	}
	drawn := f.rng.IntN(weights)
	i := slices.IndexFunc(managerFaults, func(fault onManager) bool {
		drawn -= fault.weight
		return drawn < 0
	})
	fault, m := managerFaults[i], f.managers[f.rng.IntN(len(f.managers))]
	role := ""
	if leads, ok := leader(f.managers, f.s.Lease); ok {
		if fault.leader {
			m = leads
		}
		if m == leads {
			role = ", the leader"
		}
	} else if fault.leader {
		return // nobody leads at the moment
	}
	if !m.faulted.TryLock() {
		return // it has enough to do
	}
	hit, over := fault.do(f, m, share)
	if hit {
		f.count(fault.name)
		f.checker.Note("%s: %s%s", fault.name, m.name, role)
	}
	f.going.Go(func() {
		defer m.faulted.Unlock()
		if over != nil {
			over()
			f.checker.Note("%s: %s, over", fault.name, m.name)
		}
	})
}

func (f *faults) hitServers(share float64) {
	if !f.servers.TryLock() {
		return
	}
	weights := 0
	for _, fault := range serverFaults {
		weights += fault.weight
	}
	drawn := f.rng.IntN(weights)
	for _, fault := range serverFaults {
		if drawn -= fault.weight; drawn >= 0 {
			continue
		}
		f.count(fault.name)
		f.checker.Note("%s", fault.name)
		f.going.Go(func() {
			defer f.servers.Unlock()
			// Not with the run's context: at its end the server has to be back.
			if err := fault.do(context.Background(), f, share); err != nil {
				f.broken(fmt.Errorf("%s: %w", fault.name, err))
			}
			f.checker.Note("%s, over", fault.name)
		})
		return
	}
}

// pause stops a process now and lets it go on at the end.
func (f *faults) pause(m *manager, d time.Duration) (bool, func()) {
	hit := m.do((*controlplane.Process).Pause)
	return hit, f.after(d, func() { m.do((*controlplane.Process).Continue) })
}

func (f *faults) pauseServer(p *controlplane.Process, share float64) error {
	if err := p.Pause(); err != nil {
		return err
	}
	time.Sleep(f.between(time.Second, 5*time.Second, share))
	return p.Continue()
}

func (f *faults) network(m *manager, faults faultproxy.Faults, share float64) (bool, func()) {
	faults.MaxDelay = f.s.MaxDelay
	m.proxy.Set(faults)
	return true, f.after(f.between(2*time.Second, max(10*time.Second, f.s.Lease), share), func() { m.proxy.Set(faultproxy.Faults{}) })
}

// A PATCH is held up for a time between these.
const minHold, maxHold = time.Second, 10 * time.Second

// holdUp has PATCHes of podCIDRs held up on their way. Without the server-side fence the promise is only for those whose way and timeout end
// before the lease does (docs/operate/policies.md). The proxy sees to that, and here no server is paused meanwhile, which would add to their way.
func (f *faults) holdUp(m *manager, share float64) (bool, func()) {
	if !f.s.Fence && !f.servers.TryLock() {
		return false, nil
	}
	_, over := f.network(m, faultproxy.Faults{HoldPatches: .7, MinHold: minHold, MaxHold: maxHold}, share)
	return true, func() {
		over()
		if !f.s.Fence {
			time.Sleep(f.s.Lease) // until the last of them has ended
			f.servers.Unlock()
		}
	}
}

// after returns what waits for the time and then acts. A fault is not cut short at the end of the run: a pause longer than the
// lease is to be one.
func (f *faults) after(d time.Duration, act func()) func() {
	return func() {
		time.Sleep(d)
		act()
	}
}

func (f *faults) count(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[name]++
}

// total returns how many faults there were so far.
func (f *faults) total() int {
	total := 0
	for _, n := range f.counted() {
		total += n
	}
	return total
}

func (f *faults) counted() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.counts)
}
