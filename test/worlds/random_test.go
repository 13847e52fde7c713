package worlds

import (
	"fmt"
	"testing"
	"time"

	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	"github.com/multicidr/controller-manager/test/seeds"
)

// TestWorlds runs whole processes, with client-go's informers, elector, queues and clients, against a small API server. Time is simulated, so
// minutes take a second. Which of two goroutines comes first is not decided by the seed: a world that ends badly may not do so again.
//
// Every world has two or three rounds of trouble and calm. In the calm everything must come to rest as it should, and a new Node is served promptly.
// In one world of three every watch ends after 1 to 3 s, all the time. Some worlds end with an hour in which nothing happens.
func TestWorlds(t *testing.T) {
	seeds.Each(t, 5, func(t *testing.T, seed uint64) { inWorld(t, seed, randomWorld) })
}

// settings are what stays the same in a random world.
type settings struct {
	replicas   int // at most
	perMille   int // of requests that fail
	troubles   int // one step of that many has trouble
	pace       int // of steps, at most that many milliseconds
	cut, quiet bool
	flags      int // 0: other ones at each start; 1: always the same; otherwise none
}

// setFlags sets those of the processes that are started from now on.
func (w *world) setFlags(set settings) {
	all := []fromflags.Flags{
		{Allocate: true, ClusterCIDR: "10.0.1.0/26", NodeMaskSize: 28}, {},
		{Allocate: true, ClusterCIDR: "10.0.0.128/25,fd00:1::/120", NodeMaskSizeIPv4: 28, NodeMaskSizeIPv6: 124},
	}
	w.do(func() {
		switch set.flags {
		case 0:
			w.flags = pickOf(w.rng, all...)
		case 1:
			w.flags = all[0]
		}
	})
}

func randomWorld(w *world) {
	var set settings
	w.do(func() {
		set = settings{replicas: 1 + w.rng.Intn(3), perMille: pickOf(w.rng, 0, 30, 120), troubles: pickOf(w.rng, 3, 8, 20), pace: 20 + w.rng.Intn(1500), cut: w.rng.Intn(3) == 0, quiet: w.rng.Intn(5) == 0}
		w.early, w.watchLists, w.workers = w.rng.Intn(4) == 0, w.rng.Intn(3) > 0, 1+w.rng.Intn(10)
		w.bookmarks = pickOf(w.rng, 0, 10*time.Second, time.Minute)
		if w.rng.Intn(5) == 0 {
			w.lease, set.replicas = "", 1
		}
		set.flags = w.rng.Intn(4)
		if set.cut {
			w.cutAll()
		}
	})
	w.judge.logf("%+v, lease %q, early %t, watch lists %t, bookmarks %v", set, w.lease, w.early, w.watchLists, w.bookmarks)
	troubled := false
	w.faults = func(l *link) func(request) fault {
		return func(r request) fault {
			if !troubled {
				return fault{}
			}
			return w.randomFault(l, r, set.perMille)
		}
	}
	w.before()
	w.setFlags(set)
	w.start()
	for range 2 + w.random(2) {
		w.do(func() { troubled = true })
		w.troubledTime(set)
		w.do(func() { troubled = false })
		w.calm()
		if w.judge.failed() {
			return
		}
	}
	if set.quiet {
		w.silence()
	}
}

// before is what there is when the first process starts: Nodes with podCIDRs, and perhaps a stock manager whose last PATCHes are on their way.
func (w *world) before() {
	stocked := w.lease != "" && w.random(3) == 0
	for i := range w.random(5) {
		var block string
		w.do(func() { block = w.randomBlock() })
		if !w.taken(block) {
			w.stockPatch(0, w.node(fmt.Sprintf("stock%d", i), "a=1"), block)
		}
	}
	for i := range 2 {
		block := fmt.Sprintf("10.0.0.%d/28", 16*w.random(16))
		if !w.taken(block) && stocked {
			w.stockPatch(0, w.node(fmt.Sprintf("stock%d", 10+i)), fmt.Sprintf("10.9.%d.0/24", i))
			w.stockPatch(time.Duration(w.random(19000))*time.Millisecond, w.node(fmt.Sprintf("stock%d", 20+i)), block)
			break
		}
	}
}

// troubledTime is a minute or so in which users work and much goes wrong.
func (w *world) troubledTime(set settings) {
	for end := time.Now().Add(time.Duration(20+w.random(60)) * time.Second); time.Now().Before(end) && !w.judge.failed(); {
		w.do(func() {
			for range pickOf(w.rng, 1, 1, 1, 1, 1, 1, 1, 1, 1, 10) {
				w.users()
			}
			if w.rng.Intn(set.troubles) == 0 && len(w.replicas) > 0 {
				w.trouble(pickOf(w.rng, w.replicas...))
			}
		})
		w.setFlags(set)
		late := false
		for _, r := range w.replicas {
			w.do(func() { late = late || r.sentLate; r.sentLate = false })
		}
		switch chance := w.random(100); {
		case len(w.replicas) > 0 && (chance == 0 || late && chance < 50): // The next process must not allocate what is still on its way.
			w.kill(w.replicas[w.random(len(w.replicas))])
			if w.random(2) == 0 {
				w.start()
			}
		case len(w.replicas) > 0 && chance == 1:
			w.stop(w.replicas[w.random(len(w.replicas))])
		case len(w.replicas) == 0 && chance < 20, len(w.replicas) < set.replicas && chance < 4:
			w.start()
		}
		time.Sleep(time.Duration(1+w.random(set.pace)) * time.Millisecond)
	}
}

// calm ends all trouble, and judges what comes of it.
func (w *world) calm() {
	w.judge.logf("CALM")
	w.do(func() {
		w.admit = nil
		for resource := range w.lag {
			w.lag[resource] = min(w.lag[resource], 500*time.Millisecond)
		}
		for _, r := range w.replicas {
			r.refusing, r.silent, r.stopped, r.slow = time.Time{}, time.Time{}, time.Time{}, nil
		}
	})
	if len(w.replicas) == 0 {
		w.start()
	}
	// Keep-alives, the back-off of watches, a Lease that runs out, the start of a process, and the wait for other allocators.
	w.settle(3 * time.Minute)
	name := ""
	w.do(func() {
		for i := range 100 {
			if name = fmt.Sprintf("probe%d", i); w.objects[nodes][name] == nil {
				break
			}
		}
		o := w.randomNode(name)
		delete(meta(o), "finalizers")
		w.create(request{resource: nodes, body: encode(o)}, write{by: user})
	})
	w.settle(4 * time.Second)
	if w.random(2) == 0 {
		w.delete(nodes, name)
	}
}

// silence is an hour in which nothing happens. Nobody writes anything but Leases, and then a Node is served promptly.
func (w *world) silence() {
	w.settle(time.Minute)
	count := func() (n int) {
		w.do(func() { n = w.writes[nodes] + w.writes[clusterCIDRs] + w.writes["events"] })
		return n
	}
	before := count()
	time.Sleep(time.Hour)
	if n := count() - before; n > 0 {
		w.judge.bad("%d writes in an hour in which nothing happened", n)
	}
	w.node("after-silence", "a=1")
	w.settle(4 * time.Second)
}
