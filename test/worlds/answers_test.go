package worlds

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"
)

func (w *world) nodeHeld(name string, labels ...string) {
	w.do(func() {
		o := newNode(name, labels...)
		meta(o)["finalizers"] = []any{"example.com/hold"}
		w.create(request{resource: nodes, body: encode(o)}, write{by: user})
	})
}

func (w *world) freeNode(name string) {
	w.do(func() { w.change(nodes, name, func(o object) { delete(meta(o), "finalizers") }) })
}

// healthy notes what the health check says.
func (w *world) healthy(r *replica) {
	if err := r.health(); err != nil {
		w.judge.bad("the health check still says: %v", err)
	}
}

// readBackIsLate has n1 deleted, and kept by a finalizer, after its first PATCH arrived at the last moment and was never answered. The watch of
// Nodes is half a second late, and the answer to the read that decides takes two. It returns when that answer is on its way.
func (w *world) readBackIsLate(labels ...string) {
	patched, reads := false, 0
	w.faults = func(l *link) func(request) fault {
		return func(r request) (f fault) {
			switch {
			case r.resource != nodes || r.name != "n1":
			case r.method == http.MethodPatch && !patched:
				patched = true
				return late(l)
			case r.method == http.MethodGet:
				reads++
				f.answerLate = 2 * time.Second
			}
			return f
		}
	}
	w.serving()
	w.do(func() { w.lag[nodes] = 500 * time.Millisecond })
	w.nodeHeld("n1", labels...)
	time.Sleep(time.Second)
	w.delete(nodes, "n1")
	w.within(20*time.Second, "a read", func() bool { return reads > 0 })
	time.Sleep(100 * time.Millisecond)
}

// A read does not bring back a Node that the watch has shown to be gone while the answer was on its way.
func TestReadBackOfAGoneNode(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.pool("a", "10.0.0.0/24", 8)
		w.readBackIsLate()
		w.freeNode("n1") // gone; the watch shows it half a second later
		time.Sleep(3 * time.Second)
		w.served(20*time.Second, w.node("n2"))
		w.delete(nodes, "n2")
		w.delete(clusterCIDRs, "a")
		w.within(20*time.Second, "ClusterCIDR a goes", func() bool { return w.objects[clusterCIDRs]["a"] == nil })
	})
}

// Nor does it end a Node of the same name that was registered meanwhile.
func TestReadBackOfAReplacedNode(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.pool("a", "10.0.0.0/23", 8)
		w.readBackIsLate()
		w.freeNode("n1")
		w.node("n1")
		w.served(20*time.Second, "n1")
		w.settle(5 * time.Second)
	})
}

// The podCIDRs with which that one was registered stay its own.
func TestReadBackOfANodeReplacedWithPodCIDRs(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.pool("a", "10.0.0.0/24", 8, "a")
		w.pool("b", "10.1.0.0/24", 8, "b")
		w.readBackIsLate("a=1")
		w.freeNode("n1")
		w.do(func() {
			o := newNode("n1")
			o["spec"] = object{"podCIDR": "10.1.0.0/24", "podCIDRs": []any{"10.1.0.0/24"}}
			w.create(request{resource: nodes, body: encode(o)}, write{by: user})
		})
		time.Sleep(3 * time.Second)
		w.node("n2", "b=1")
		time.Sleep(10 * time.Second)
		w.do(func() {
			if one, two := w.podCIDRs("n1"), w.podCIDRs("n2"); len(two) > 0 && one[0] == two[0] {
				w.judge.bad("n1, which was seen with it 3 s before n2 came, and n2 have %v", one)
			}
		})
	})
}

// A proxy without a server behind it answers the read with a 404 of its own. That does not prove that the Node is gone.
func TestReadBackThroughAProxy(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		patched, asked := false, false
		w.faults = func(l *link) func(request) fault {
			return func(r request) (f fault) {
				switch {
				case r.resource != nodes || r.name != "n1":
				case r.method == http.MethodPatch && !patched:
					patched = true
					return late(l)
				case r.method == http.MethodGet && !asked:
					asked = true
					return fault{refused: http.StatusNotFound, text: "default backend - 404"}
				}
				return f
			}
		}
		w.pool("a", "10.0.0.0/24", 8, "a")
		w.serving()
		w.do(func() { w.lag[nodes] = 30 * time.Second })
		w.node("n1", "a=1")
		w.within(40*time.Second, "a PATCH", func() bool { return patched })
		w.disable("a")
		w.pool("b", "10.0.0.0/24", 8, "b")
		w.node("n2", "b=1")
		w.within(time.Minute, "a read", func() bool { return asked })
		w.settle(2 * time.Minute)
		w.inRange("n1", "10.0.0.0/24")
	})
}

// Heartbeats from before a late PATCH, which the watch shows after a read has shown what it did, are no sign that its podCIDRs were dropped.
func TestOldEventsBehindTheRead(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		sent := w.firstPatch("n1", late)
		w.pool("a", "10.0.0.0/24", 8)
		w.serving()
		w.do(func() { w.lag[nodes] = 300 * time.Millisecond })
		w.node("n1")
		w.within(time.Second, "a PATCH", func() bool { return *sent })
		w.disable("a")
		for range 200 {
			time.Sleep(100 * time.Millisecond)
			w.do(func() {
				w.change(nodes, "n1", func(o object) { o["status"] = object{"heartbeat": time.Now().String()} })
			})
		}
		w.settle(20 * time.Second)
		for _, e := range w.told {
			if strings.Contains(e, "CIDRWriteFailed") {
				w.judge.bad("an event that is not true: %s", e)
			}
		}
	})
}

// The API server is busy: a PATCH takes a second and is answered with 429. Meanwhile the Node is deleted, and stays because of its finalizer. Its
// blocks were not written, and another Node gets them.
func TestTooManyRequestsWhileDeleted(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		sent := w.firstPatch("n1", func(*link) fault { return fault{slow: time.Second, refused: http.StatusTooManyRequests} })
		w.pool("a", "10.0.0.0/24", 8)
		w.serving()
		w.nodeHeld("n1")
		w.within(time.Second, "a PATCH", func() bool { return *sent })
		time.Sleep(300 * time.Millisecond)
		w.delete(nodes, "n1")
		w.node("n2")
		w.served(5*time.Minute, "n2")
		w.settle(5 * time.Second)
	})
}

// firstOf makes f happen to the first PATCH of a ClusterCIDR that match is true for.
func (w *world) firstOf(f fault, match func(request) bool) {
	done := false
	w.faults = func(*link) func(request) fault {
		return func(r request) fault {
			if done || r.method != http.MethodPatch || r.resource != clusterCIDRs || !match(r) {
				return fault{}
			}
			done = true
			return f
		}
	}
}

// The answer to one write about a ClusterCIDR is lost, and it was carried out. The health check does not go on saying that it cannot be written.
func TestLostAnswerAboutAClusterCIDR(t *testing.T) {
	status := func(r request) bool { return r.subresource == "status" }
	for name, f := range map[string]struct {
		fault
		match func(request) bool
	}{
		"status, reset":     {fault{reset: true}, status},
		"status, 504":       {fault{answered: 504}, status},
		"finalizer, silent": {fault{silent: true}, func(r request) bool { return r.subresource == "" }},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				w.firstOf(f.fault, f.match)
				w.pool("a", "10.0.0.0/24", 8)
				r := w.serving()
				time.Sleep(time.Hour)
				w.healthy(r)
			})
		})
	}
	t.Run("the finalizer goes, silent", func(t *testing.T) {
		inWorld(t, 1, func(w *world) {
			w.firstOf(fault{silent: true}, func(r request) bool {
				return r.subresource == "" && strings.Contains(string(r.body), `"finalizers":[]`)
			})
			w.pool("a", "10.0.0.0/24", 8)
			r := w.serving()
			time.Sleep(5 * time.Second)
			w.delete(clusterCIDRs, "a")
			time.Sleep(time.Hour)
			w.healthy(r)
		})
	})
}

// The metric is true also if the watch shows podCIDRs before the answer comes.
func TestAssignmentDuration(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.firstPatch("n1", func(*link) fault { return fault{answerLate: 500 * time.Millisecond} })
		w.pool("a", "10.0.0.0/23", 8)
		w.serving()
		w.served(time.Second, w.node("n1"))
		time.Sleep(5 * time.Second)
		all, err := legacyregistry.DefaultGatherer.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range all {
			if strings.HasSuffix(family.GetName(), "assignment_duration_seconds") {
				if h := family.Metric[0].Histogram; h.GetSampleSum() > 1e6 {
					w.judge.bad("%d assignments have taken %.0f s", h.GetSampleCount(), h.GetSampleSum())
				}
			}
		}
	})
}

// Somebody corrects the annotation that says which of two ClusterCIDRs with the same addresses a Node belongs to, while one is being deleted: it
// goes.
func TestAnnotationChanges(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.pool("a", "10.0.0.0/24", 8)
		w.pool("b", "10.0.0.0/23", 8)
		w.serving()
		w.served(time.Second, w.node("n1"))
		w.delete(clusterCIDRs, "a")
		time.Sleep(5 * time.Second)
		w.do(func() {
			w.change(nodes, "n1", func(o object) { meta(o)["annotations"].(object)["networking.x-k8s.io/cluster-cidr"] = "b" })
		})
		w.within(time.Hour, "ClusterCIDR a goes", func() bool { return w.objects[clusterCIDRs]["a"] == nil })
	})
}

// The API server refuses the finalizer. The status, which it stores, is written.
func TestStatusWithoutFinalizer(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.admit = func(resource, name string, after object, by string) *metav1.Status {
			if resource == clusterCIDRs && finalized(after) {
				return failed(http.StatusForbidden, "no finalizers here")
			}
			return nil
		}
		w.pool("a", "10.0.0.0/24", 8)
		w.serving()
		w.served(time.Second, w.node("n1"))
		w.disable("a")
		w.within(time.Hour, "a status", func() bool { return field(w.objects[clusterCIDRs]["a"], "status", "conditions") != nil })
	})
}

// A policy refuses every write of podCIDRs, for good, and there are more Nodes than free blocks. A Node that finds its pool full keeps its
// back-off.
func TestRefusalsInAFullRange(t *testing.T) {
	for _, n := range []int{1, 20} {
		t.Run(fmt.Sprintf("%d Nodes, 1 block", n), func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				w.admit = func(resource, name string, after object, by string) *metav1.Status {
					if resource == nodes {
						return failed(http.StatusForbidden, "the Lease has another holder")
					}
					return nil
				}
				w.pool("a", "10.0.0.0/24", 8)
				w.serving()
				names := w.many(n)
				time.Sleep(time.Minute)
				all := 0
				w.do(func() {
					for _, name := range names {
						all += w.patches[name]
					}
				})
				t.Logf("%d PATCHes of %d Nodes in a minute", all, n)
				if most := n * (15 + 6); all > most {
					w.judge.bad("%d PATCHes in a minute, want at most %d", all, most)
				}
			})
		})
	}
}

// A policy refuses every write of podCIDRs. Changes of the Node, here once a second, do not shorten its back-off.
func TestRefusalsAndHeartbeats(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.admit = func(resource, name string, after object, by string) *metav1.Status {
			if resource == nodes && by != user {
				return failed(http.StatusForbidden, "the Lease has another holder")
			}
			return nil
		}
		w.pool("a", "10.0.0.0/24", 8)
		w.serving()
		w.node("n1")
		for range 300 {
			time.Sleep(time.Second)
			w.do(func() {
				w.change(nodes, "n1", func(o object) { o["status"] = object{"heartbeat": time.Now().String()} })
			})
		}
		w.patchedAtMost(15+5*6, "n1")
	})
}

// A write was refused, and by the next try another Node has the block. Who is pending is no failing write.
func TestPendingAfterARefusal(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		refused := w.firstPatch("n1", func(*link) fault { return fault{refused: http.StatusForbidden} })
		w.pool("a", "10.0.0.0/24", 8)
		r := w.serving()
		w.do(func() {
			for _, name := range []string{"n1", "n2"} {
				w.create(request{resource: nodes, body: encode(newNode(name))}, write{by: user})
			}
		})
		w.within(time.Second, "a refusal", func() bool { return *refused })
		w.within(time.Second, "podCIDRs of n2", func() bool { return len(w.podCIDRs("n2")) > 0 })
		time.Sleep(time.Minute)
		w.healthy(r)
	})
}

// An API server dies with a write on its way, and the next one refuses everything until it has read who may do what.
func TestRefusalsOfAStartingAPIServer(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		sent := w.firstPatch("n1", func(*link) fault { return fault{lost: true, reset: true} })
		refuses := true
		w.admit = func(resource, name string, after object, by string) *metav1.Status {
			if resource == nodes && by != user && refuses {
				return failed(http.StatusForbidden, "cannot patch resource nodes at the cluster scope")
			}
			return nil
		}
		w.pool("a", "10.0.0.0/24", 8)
		w.serving()
		w.node("n1")
		w.within(time.Second, "a PATCH", func() bool { return *sent })
		time.Sleep(200 * time.Millisecond)
		w.do(func() { refuses = false })
		w.served(time.Second, "n1")
	})
}

// A ClusterCIDR that is being deleted and kept by a finalizer of somebody else shows that it gives nothing any more.
func TestKeptByOthers(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.pool("a", "10.0.0.0/24", 8)
		w.serving()
		w.do(func() {
			w.change(clusterCIDRs, "a", func(o object) { meta(o)["finalizers"] = append(meta(o)["finalizers"].([]any), "example.com/hold") })
		})
		w.delete(clusterCIDRs, "a")
		w.within(10*time.Second, "Ready says that it is being deleted", func() bool {
			return strings.Contains(string(encode(w.objects[clusterCIDRs]["a"])), `"reason":"Terminating"`)
		})
	})
}
