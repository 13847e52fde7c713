package worlds

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
)

// Each of these is one history. In all of them the judge looks on.

// serving starts a replica and waits until it serves. There are no podCIDRs yet.
func (w *world) serving() *replica {
	w.start()
	r := w.leader()
	time.Sleep(10 * time.Second)
	return r
}

// firstPatch makes f happen to the first PATCH of a Node. What it returns is true once that was sent.
func (w *world) firstPatch(node string, f func(*link) fault) (sent *bool) {
	sent = new(bool)
	w.faults = func(l *link) func(request) fault {
		return func(r request) fault {
			if r.method != http.MethodPatch || r.resource != nodes || r.name != node || *sent {
				return fault{}
			}
			*sent = true
			return f(l)
		}
	}
	return sent
}

// late is a PATCH that arrives at the last moment, and is never answered.
func late(l *link) fault { return fault{late: l.lateAtMost(), silent: true} }

func (w *world) disable(pool string) {
	w.do(func() {
		w.change(clusterCIDRs, pool, func(o object) { o["spec"].(object)["allocation"] = "Disabled" })
	})
}

// inRange notes it if a Node has no block in a range.
func (w *world) inRange(node, want string) {
	var has []string
	w.do(func() { has = w.podCIDRs(node) })
	if len(has) != 1 || !netip.MustParsePrefix(want).Overlaps(netip.MustParsePrefix(has[0])) {
		w.judge.bad("Node %s has %v, want one block in %s", node, has, want)
	}
}

// patchedAtMost notes it if more PATCHes of a Node were sent.
func (w *world) patchedAtMost(n int, node string) {
	w.do(func() {
		if w.patches[node] > n {
			w.judge.bad("Node %s was patched %d times, want at most %d", node, w.patches[node], n)
		}
	})
}

func (w *world) many(n int) (names []string) {
	for i := range n {
		names = append(names, w.node(fmt.Sprintf("many%d", i)))
	}
	return names
}

func TestServes(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.pool("a", "10.0.0.0/22", 8)
		w.serving()
		w.served(time.Second, w.node("n1"), w.node("n2"))
		w.settle(5 * time.Second)
		w.delete(nodes, "n1")
		w.delete(clusterCIDRs, "a")
		time.Sleep(5 * time.Second)
		w.delete(nodes, "n2")
		w.within(2*time.Second, "ClusterCIDR a goes", func() bool { return w.objects[clusterCIDRs]["a"] == nil })
		w.settle(5 * time.Second)
	})
}

// A write without an answer is on its way until the lease is over, while a policy refuses its repetitions. That frees nothing.
func TestLatePatchAndRefusals(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		sent := w.firstPatch("n1", late)
		w.pool("a", "10.0.0.0/24", 8)
		w.serving()
		w.node("n1")
		w.within(time.Second, "a PATCH", func() bool { return *sent })
		w.node("n2")
		until := time.Now().Add(8 * time.Second)
		w.do(func() {
			w.admit = func(resource, name string, after object, by string) *metav1.Status {
				if resource == nodes && time.Now().Before(until) {
					return failed(http.StatusForbidden, "the Lease has another holder")
				}
				return nil
			}
		})
		time.Sleep(30 * time.Second)
		w.delete(nodes, "n1")
		w.delete(nodes, "n2")
		w.served(12*time.Second, w.node("n3"))
		w.settle(20 * time.Second)
	})
}

// The clock that counts the time of suspensions runs 30 s ahead. The unanswered write is as late as before.
func TestClockForwardWhileUnanswered(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		sent := w.firstPatch("n1", late)
		w.pool("a", "10.0.0.0/24", 8, "a")
		r := w.serving()
		w.node("n1", "a=1")
		w.within(time.Second, "a PATCH", func() bool { return *sent })
		w.do(func() { r.ahead += 30 * time.Second })
		w.disable("a")
		w.pool("b", "10.0.0.0/24", 8, "b")
		w.node("n2", "b=1")
		w.settle(40 * time.Second)
		w.inRange("n1", "10.0.0.0/24")
	})
}

// A Node has podCIDRs outside of all ClusterCIDRs, and one that contains them comes later.
func TestOutsideOfAll(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.pool("a", "10.1.0.0/24", 8)
		w.stockPatch(0, w.node("s1"), "10.0.0.0/25")
		w.takeover = 0
		w.serving()
		w.served(time.Second, w.node("n1"))
		w.pool("b", "10.0.0.0/23", 8)
		w.served(time.Second, w.node("n2"))
		w.inRange("n2", "10.0.1.0/24")
		w.settle(5 * time.Second)
	})
}

// Its ClusterCIDR is disabled before the write that was lost is repeated: nothing more comes from it. Another one serves the Node.
func TestDisabledBeforeRetry(t *testing.T) {
	for name, f := range map[string]fault{"stored": {silent: true}, "not stored": {lost: true}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				sent := w.firstPatch("n1", func(*link) fault { return f })
				w.pool("a", "10.0.0.0/24", 8)
				w.serving()
				w.node("n1")
				w.within(time.Second, "a PATCH", func() bool { return *sent })
				time.Sleep(time.Second)
				w.disable("a")
				w.pool("b", "10.1.0.0/24", 8)
				w.served(25*time.Second, "n1")
				w.inRange("n1", map[bool]string{true: "10.0.0.0/24", false: "10.1.0.0/24"}[name == "stored"])
				w.settle(5 * time.Second)
			})
		})
	}
}

// Two of three renewals fail, so the fence is closed for one second in six. That costs the Nodes no more than that second.
func TestFenceClosesAgainAndAgain(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var renewed time.Time
		flaky := false
		w.faults = func(*link) func(request) fault {
			return func(r request) (f fault) {
				switch {
				case r.resource == nodes && r.method == http.MethodPatch:
					f.slow = 50 * time.Millisecond
				case r.resource != leases || r.method != http.MethodPut || !flaky:
				case time.Since(renewed) < 5*time.Second:
					f.refused = http.StatusInternalServerError
				default:
					renewed = time.Now()
				}
				return f
			}
		}
		w.pool("a", "10.0.0.0/16", 4)
		w.serving()
		w.do(func() { flaky = true })
		time.Sleep(10 * time.Second)
		w.served(20*time.Second, w.many(2000)...) // 200 a second
		w.settle(10 * time.Second)
	})
}

// The informers run before the process leads, no bookmark ever comes, and nothing has changed for long.
func TestQuietTakeover(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.early, w.bookmarks = true, 0
		w.watchesLast = func() time.Duration { return 20 * time.Second }
		w.pool("a", "10.0.0.0/24", 4)
		r := w.serving()
		w.served(time.Second, w.node("n1"))
		w.start()
		time.Sleep(10 * time.Minute)
		w.kill(r)
		w.served(25*time.Second, w.node("n2")) // the Lease, a retry period, and the start
		w.settle(10 * time.Second)
	})
}

// The last PATCH of a stock manager has no deadline but the API server's, and its Lease is another one.
func TestStockPatchIsLate(t *testing.T) {
	for _, lag := range []time.Duration{0, 40 * time.Second} { // With the lag, the cache does not show it when the wait is over.
		inWorld(t, 1, func(w *world) {
			w.takeover, w.watchLists = time.Minute, lag == 0
			w.do(func() { w.lag[nodes] = lag })
			w.stockPatch(0, w.node("s1"), "10.0.0.0/24")
			w.stockPatch(30*time.Second, w.node("s2"), "10.0.1.0/24")
			w.pool("a", "10.0.0.0/22", 8)
			w.node("n1")
			w.start()
			w.served(70*time.Second+lag, "n1", "s2")
			w.inRange("s2", "10.0.1.0/24")
			w.settle(10*time.Second + 2*lag)
		})
	}
}

// As before, and the leader ends while it waits for that PATCH. The next one waits, too.
func TestStockPatchIsLaterThanALeader(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.takeover = time.Minute
		w.stockPatch(0, w.node("s1"), "10.0.0.0/24")
		w.stockPatch(30*time.Second, w.node("s2"), "10.0.1.0/24")
		w.pool("a", "10.0.0.0/22", 8)
		w.node("n1")
		r := w.start()
		time.Sleep(5 * time.Second) // It has renewed its Lease twice.
		w.kill(r)
		w.start()
		w.served(90*time.Second, "n1", "s2")
		w.inRange("s2", "10.0.1.0/24")
		w.settle(10 * time.Second)
	})
}

// Nodes are refused by a webhook: they cost others nothing, and are not tried more often than every 10 s in the long run.
func TestWebhookRefusesTheOldest(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.pool("a", "10.0.0.0/24", 8)
		refuses := true
		w.admit = func(resource, name string, after object, by string) *metav1.Status {
			if resource == nodes && strings.HasPrefix(name, "bad") && refuses {
				return failed(http.StatusForbidden, "admission webhook denied the request")
			}
			return nil
		}
		w.serving()
		w.node("bad1")
		time.Sleep(time.Second)
		w.served(time.Second, w.node("n1"))
		w.delete(nodes, "n1")
		time.Sleep(5 * time.Minute)
		w.patchedAtMost(15+5*6, "bad1")
		w.served(time.Second, w.node("n2"))
		w.do(func() { refuses = false })
		w.delete(nodes, "n2")
		w.served(11*time.Second, "bad1")
		w.settle(5 * time.Second)
	})
}

// Without leader election a process is killed with a write on its way to a Node that is being deleted and stays.
func TestKilledWithoutElection(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.lease = ""
		sent := w.firstPatch("n1", late)
		w.pool("a", "10.0.0.0/24", 8)
		r := w.serving()
		w.do(func() {
			o := newNode("n1")
			meta(o)["finalizers"] = []any{"example.com/hold"}
			w.create(request{resource: nodes, body: encode(o)}, write{by: user})
		})
		w.within(time.Second, "a PATCH", func() bool { return *sent })
		w.delete(nodes, "n1")
		w.kill(r)
		w.start()
		w.node("n2")
		time.Sleep(time.Minute)
		w.inRange("n1", "10.0.0.0/24")
		w.do(func() { w.change(nodes, "n1", func(o object) { delete(meta(o), "finalizers") }) })
		w.served(time.Second, "n2")
		w.settle(5 * time.Second)
	})
}

// newLeaderAndAStaleCache has a leader start whose cache lags behind what the leader before it has stored, in a cluster with some more Nodes. No block of
// that is free.
func newLeaderAndAStaleCache(t *testing.T, more int, faults func(*link) func(request) fault) {
	inWorld(t, 1, func(w *world) {
		w.watchLists = false
		w.pool("a", "10.0.0.0/22", 8, "n")
		w.many(more)
		w.node("m", "m=1")
		r := w.serving()
		time.Sleep(time.Minute) // By now every cache has m.
		w.served(time.Second, w.node("n", "n=1"))
		w.kill(r)
		w.pool("b", "10.0.0.0/22", 8, "m")
		w.do(func() { w.lag[nodes] = 40 * time.Second })
		w.faults = faults
		w.start()
		w.served(2*time.Minute, "m")
		w.settle(time.Minute)
	})
}

func TestNewLeaderAndAStaleCache(t *testing.T) { newLeaderAndAStaleCache(t, 0, nil) }

// Each later list is cut between two pages. What is not in the part that came is not gone.
func TestNewLeaderAndListsThatAreCut(t *testing.T) {
	newLeaderAndAStaleCache(t, pageSize, func(*link) func(request) fault {
		pages := 0
		return func(r request) (f fault) {
			if r.resource == nodes && r.query.Has("continue") {
				if pages++; pages > 1 {
					f.refused = http.StatusGone
				}
			}
			return f
		}
	})
}

// A proxy without a backend answers the first read of each kind with 404. That does not mean that the API server has no Nodes.
func TestNewLeaderAndAProxyWithoutABackend(t *testing.T) {
	newLeaderAndAStaleCache(t, 0, func(*link) func(request) fault {
		answered := map[string]bool{leases: true}
		return func(r request) (f fault) {
			if r.method == http.MethodGet && !answered[r.resource] {
				answered[r.resource], f = true, fault{refused: http.StatusNotFound, text: "default backend - 404"}
			}
			return f
		}
	})
}

// Without leader election a process is killed with a write on its way to a Node that the cache, from which the next one starts, does not show yet.
func TestKilledWithoutElectionAndAStaleCache(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.lease, w.watchLists = "", false
		sent := w.firstPatch("n1", func(*link) fault { return fault{late: 5 * time.Second, silent: true} })
		w.pool("a", "10.0.0.0/16", 8)
		r := w.serving()
		for i := range 40 {
			w.served(20*time.Second, w.node(fmt.Sprintf("d%d", i)))
		}
		for i := range 40 {
			w.delete(nodes, fmt.Sprintf("d%d", i))
		}
		time.Sleep(20 * time.Second)
		w.node("n1")
		w.within(time.Second, "a PATCH", func() bool { return *sent })
		w.kill(r)
		w.do(func() { w.lag[nodes] = 8 * time.Second })
		w.start()
		time.Sleep(time.Second)
		w.many(60)
		w.settle(60 * time.Second)
	})
}

// A process starts without leader election while Nodes come and go faster than its cache follows, and old versions are compacted: the start ends all the same.
func TestStartUnderChurn(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.lease, w.watchLists, w.bookmarks = "", false, 0
		w.pool("a", "10.0.0.0/16", 8)
		old := w.node("old")
		r := w.serving()
		w.served(20*time.Second, old)
		w.kill(r)
		w.do(func() { w.lag[nodes] = 8 * time.Second })
		ends, done := make(chan bool), make(chan bool)
		go func() {
			defer close(done)
			var live []string
			for i := 0; ; i++ {
				select {
				case <-ends:
					return
				case <-time.After(500 * time.Millisecond):
				}
				if live = append(live, w.node(fmt.Sprintf("c%d", i))); len(live) > 4 {
					w.delete(nodes, live[0])
					live = live[1:]
				}
				if i%40 == 0 {
					w.do(func() { w.compacted = w.revision; w.cutStreams(func(*stream) bool { return true }) })
				}
			}
		}()
		time.Sleep(40 * time.Second)
		w.start()
		w.served(2*time.Minute, w.node("stay"))
		close(ends)
		<-done
	})
}

// While a leader starts with a cache from before they were created, and reads take 100 ms, very many Nodes are deleted, and one is created again. It does not
// ask for each of them.
func TestStartDuringMassDeletion(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.watchLists, w.bookmarks = false, 0
		w.faults = func(*link) func(request) fault {
			return func(r request) (f fault) {
				if r.method == http.MethodGet && r.resource == nodes {
					f.slow = 100 * time.Millisecond
				}
				return f
			}
		}
		w.pool("a", "10.0.0.0/16", 4)
		r := w.serving()
		w.served(time.Second, w.node("old"))
		time.Sleep(time.Minute) // By now every cache has it.
		many := w.many(400)
		w.served(10*time.Second, many...)
		w.kill(r)
		w.do(func() { w.lag[nodes] = time.Minute })
		w.start()
		w.leader()
		time.Sleep(3 * time.Second)
		for _, name := range many {
			w.delete(nodes, name)
		}
		w.node(many[0])
		w.do(func() {
			w.lag[nodes], w.compacted = 0, w.revision
			w.cutStreams(func(*stream) bool { return true })
		})
		w.served(10*time.Second, many[0], w.node("new"))
		w.settle(10 * time.Second)
	})
}

// A leader that cannot read anything ends before it has allocated anything. All leaders are this controller, so the next one does not wait for another
// allocator.
func TestLeaderThatCannotRead(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.takeover = time.Minute
		fails := false
		w.faults = func(*link) func(request) fault {
			return func(r request) (f fault) {
				if fails && r.method == http.MethodGet && r.resource != leases {
					f.refused = http.StatusServiceUnavailable
				}
				return f
			}
		}
		w.pool("a", "10.0.0.0/24", 4)
		r := w.serving()
		w.served(time.Second, w.node("n1"))
		w.do(func() { fails = true })
		w.kill(r)
		w.start()
		time.Sleep(30 * time.Second)
		w.kill(w.leader())
		w.do(func() { fails = false })
		w.start()
		w.served(25*time.Second, w.node("n2")) // the Lease, a retry period, and the start
		w.settle(10 * time.Second)
	})
}

// A leader does not run for half a minute, and then goes on with what it was about to write.
func TestStoppedLeader(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.faults = func(*link) func(request) fault {
			return func(r request) (f fault) {
				if r.resource == nodes && r.method == http.MethodPatch {
					f.slow = 50 * time.Millisecond
				}
				return f
			}
		}
		w.pool("a", "10.0.0.0/22", 4)
		r := w.serving()
		w.served(time.Second, w.node("n1"))
		w.start()
		names := w.many(50)
		time.Sleep(120 * time.Millisecond)
		w.do(func() { r.stopped = time.Now().Add(30 * time.Second) })
		w.delete(nodes, "n1")
		w.served(25*time.Second, names...)
		w.served(2*time.Second, w.node("n2"))
		w.settle(time.Minute)
	})
}

// What a watch shows after the answer is from before it.
func TestOldEventBehindTheAnswer(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.do(func() { w.lag[nodes] = 500 * time.Millisecond })
		w.pool("a", "10.0.0.0/23", 8)
		w.serving()
		w.node("n1")
		for range 4 {
			time.Sleep(110 * time.Millisecond)
			w.do(func() {
				w.change(nodes, "n1", func(o object) { o["status"] = object{"heartbeat": time.Now().String()} })
			})
		}
		w.served(time.Second, "n1", w.node("n2"))
		time.Sleep(10 * time.Second)
		w.patchedAtMost(1, "n1")
		w.node("n3")
		w.settle(10 * time.Second)
	})
}

// While the API server's machine is off, a Node and a ClusterCIDR become others of their names: with a standby that reaches another API server,
// and without leader election.
func TestReplacedDuringOutage(t *testing.T) {
	for _, lease := range []string{"kube-system/controller", ""} {
		t.Run("lease="+lease, func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				w.lease = lease
				w.do(func() {
					w.admit = func(resource, name string, after object, by string) *metav1.Status {
						if resource == clusterCIDRs && name == "a" && finalized(after) {
							return failed(http.StatusForbidden, "no finalizers here")
						}
						return nil
					}
				})
				w.pool("a", "10.0.0.0/24", 8, "a")
				w.pool("b", "10.1.0.0/24", 8, "b")
				r := w.serving()
				w.served(time.Second, w.node("n1", "b=1"))
				if lease != "" {
					w.start()
				}
				w.do(func() { w.off(r.link, time.Minute) })
				time.Sleep(5 * time.Second)
				w.delete(nodes, "n1")
				w.delete(clusterCIDRs, "a")
				w.do(func() { w.admit = nil })
				w.pool("a", "10.2.0.0/24", 8, "a")
				w.node("n1", "a=1")
				w.served(90*time.Second, "n1")
				w.served(2*time.Second, w.node("n2", "b=1"))
				w.settle(10 * time.Second)
			})
		})
	}
}

// At the first start with --cluster-cidr there is no ClusterCIDR yet. No event asks people to create what the controller itself creates.
func TestFirstStartWithFlags(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.flags = fromflags.Flags{Allocate: true, ClusterCIDR: "10.0.0.0/24"}
		w.node("n1")
		w.serving()
		w.served(0, "n1")
		w.node("n2")
		told := func(node string) bool {
			return slices.ContainsFunc(w.told, func(e string) bool { return strings.HasPrefix(e, node+": CIDRNotAvailable: ") })
		}
		w.within(3*time.Second, "an event of n2", func() bool { return told("n2") })
		if told("n1") {
			w.judge.bad("events: %v", w.told)
		}
		w.settle(5 * time.Second)
	})
}

// All writes of Nodes fail for half a minute. After that nobody waits for long.
func TestManyFailedOnce(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		outage := false
		w.faults = func(*link) func(request) fault {
			return func(r request) (f fault) {
				if outage && r.resource == nodes && r.method == http.MethodPatch {
					f.slow, f.refused = 20*time.Millisecond, http.StatusServiceUnavailable
				}
				return f
			}
		}
		w.pool("a", "10.0.0.0/14", 4)
		w.serving()
		w.do(func() { outage = true })
		names := w.many(5000)
		time.Sleep(30 * time.Second)
		w.do(func() { outage = false })
		w.served(15*time.Second, names...)
	})
}

// A proxy ends every watch after 1 to 3 s, and lists take their time.
func TestWatchesAreCut(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.cutAll()
		w.pool("a", "10.0.0.0/16", 4)
		w.serving()
		for i := range 100 {
			w.served(2*time.Second, w.node(fmt.Sprintf("n%d", i)))
		}
		w.settle(10 * time.Second)
	})
}

// A policy answers 200 and drops podCIDRs. The controller goes on, not too often, and the Node gets them when the policy is gone.
func TestPolicyDropsPodCIDRs(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		drops := true
		w.admit = func(resource, name string, after object, by string) *metav1.Status {
			if resource == nodes && name == "n1" && drops {
				after["spec"] = object{}
			}
			return nil
		}
		w.pool("a", "10.0.0.0/23", 8)
		w.serving()
		w.node("n1")
		w.served(time.Second, w.node("n2"))
		time.Sleep(5 * time.Minute)
		w.patchedAtMost(15+5*6, "n1")
		w.do(func() { drops = false })
		w.served(11*time.Second, "n1")
		w.settle(5 * time.Second)
	})
}

// A webhook refuses the controller's finalizer. Allocation does not wait for that. Later it refuses that the finalizer goes, for a moment.
func TestFinalizerIsRefused(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		refuses := func(after object) bool { return finalized(after) }
		w.admit = func(resource, name string, after object, by string) *metav1.Status {
			if resource == clusterCIDRs && refuses(after) {
				return failed(http.StatusForbidden, "no finalizers here")
			}
			return nil
		}
		w.pool("a", "10.0.0.0/24", 8)
		w.serving()
		w.served(time.Second, w.node("n1"))
		w.do(func() { refuses = func(object) bool { return false } })
		w.settle(15 * time.Second)
		until := time.Now().Add(5 * time.Second)
		w.do(func() { refuses = func(after object) bool { return !finalized(after) && time.Now().Before(until) } })
		w.delete(nodes, "n1")
		w.delete(clusterCIDRs, "a")
		w.within(20*time.Second, "ClusterCIDR a goes", func() bool { return w.objects[clusterCIDRs]["a"] == nil })
		w.settle(15 * time.Second)
	})
}

func TestHourOfSilence(t *testing.T) {
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprintf("cut=%t", cut), func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				if cut {
					w.cutAll()
				}
				w.pool("a", "10.0.0.0/24", 4)
				w.serving()
				w.start()
				w.served(time.Second, w.node("n1", "a=1"))
				w.silence()
			})
		})
	}
}
