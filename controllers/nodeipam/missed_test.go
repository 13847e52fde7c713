package nodeipam

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/events"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fresh"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pending"
	"github.com/multicidr/controller-manager/controllers/nodeipam/seen"
)

// told is a leader whose events are kept.
type told struct {
	*answeringAs
	messages []string
}

func (l *told) CreateEvent(_ context.Context, e *v1.Event) error {
	if e.Reason == events.ReasonNotAvailable {
		l.messages = append(l.messages, e.InvolvedObject.Name+": "+e.Message)
	}
	return nil
}

// TestNodesWaitForWhatWasMissed: while ClusterCIDRs may not be read, a Node that joins gets nothing, and one event says why; podCIDRs that may have been
// written are written again.
func TestNodesWaitForWhatWasMissed(t *testing.T) {
	for name, tc := range map[string]struct {
		sent  bool // a write got no answer before
		lasts time.Duration
		event bool
	}{
		"a Node that joins":              {false, time.Minute, true},
		"for some seconds":               {false, 5 * time.Second, false},
		"what was written, and not kept": {true, time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeader(t, true)
				l.renewing.Store(true)
				var keeps atomic.Bool // what is written; else it is answered with 200, and left out
				keeps.Store(!tc.sent)
				to := &told{answeringAs: &answeringAs{leader: l, answer: func(string, []byte) (error, bool) { return nil, !keeps.Load() }}}
				l.api = to
				changes := health.NewChanges("ClusterCIDRs", nil)
				l.seen = seen.New(seen.Kind{Gap: changes.Gap, Know: func(context.Context) bool { return true }})
				stop := l.start(t)
				l.watch("n2", nil)
				if tc.sent {
					l.watch("late", Node("late"))
					time.Sleep(time.Second)
				}
				_, _ = health.Listed(t.Context(), changes, metav1.ListOptions{}, func(context.Context, metav1.ListOptions) (*v1.NodeList, error) {
					return nil, apierrors.NewForbidden(v1.Resource("clustercidrs"), "", errors.New("no"))
				})
				keeps.Store(true)
				l.watch("late", Node("late"))
				for end := time.Now().Add(tc.lasts); time.Now().Before(end); time.Sleep(time.Second) {
					l.watch("late", l.node("late").DeepCopy()) // as its kubelet does
				}
				if got := l.node("late").Spec.PodCIDR; (got != "") != tc.sent {
					t.Errorf("while ClusterCIDRs are not seen, late has %q", got)
				}
				const want = "late: Nothing is allocated, because a block may be in use that the controller does not know of: changes of ClusterCIDRs are not seen: the API server does not let"
				if n := len(to.messages); n > 1 || (n == 1) != tc.event || n == 1 && !strings.HasPrefix(to.messages[0], want) {
					t.Errorf("events %q", to.messages)
				}
				w := watch.NewFake()
				got, err := changes.Watched(t.Context(), metav1.ListOptions{}, func(context.Context, metav1.ListOptions) (watch.Interface, error) { return w, nil })
				if err != nil || !l.seen.CatchUp(t.Context()) {
					t.Fatal(err)
				}
				l.caughtUp()
				synctest.Wait()
				if l.node("late").Spec.PodCIDR == "" {
					t.Error("late waits although nothing is missed any more")
				}
				got.Stop()
				stop()
			})
		})
	}
}

// TestVersionsThatWentBack: etcd was restored, and what exists now has lower versions than what was known before.
func TestVersionsThatWentBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeader(t, false)
		exist, asOf := map[string]string{"a": "800"}, "900"
		l.reads = map[string]fresh.Read{"ClusterCIDRs": func(context.Context, string) (map[string]string, string, error) { return exist, asOf, nil }}
		l.readNodes = func(context.Context) (string, error) { return asOf, nil }
		l.nodesVersion = func() string { return asOf }
		shows := func(name, version string) {
			_ = l.clusterCIDRs.Update(ClusterCIDR(name, Spec4("10.0.0.0/27", 4, nil), func(cc *networkingv1.ClusterCIDR) { cc.ResourceVersion = version }))
		}
		knows := func() {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if !l.knowClusterCIDRs(ctx) || !l.knowNodes(ctx) {
				t.Fatal("the cache shows all, and that is not known")
			}
		}
		shows("a", "800")
		l.heardVersion = "900"
		knows()
		exist, asOf = map[string]string{"a": "400", "b": "405"}, "410"
		shows("a", "400")
		shows("b", "405")
		knows()
		if _, ok := l.state.Pool("b"); !ok {
			t.Error("ClusterCIDR b, which was created after the restore, is not there")
		}
		n := Node("n")
		if n.ResourceVersion = "420"; !l.ahead(n) {
			t.Error("a Node that no handler has heard of does not count as ahead")
		}
		asOf = "415"
		// A handler hears of a Node between the read and what follows from it.
		l.readNodes = func(context.Context) (string, error) {
			l.heard(n)
			return asOf, nil
		}
		if knows(); l.ahead(n) {
			t.Error("a Node that a handler has heard of counts as ahead")
		}
	})
}

// TestKnownWhenHeard: after a gap the cache shows that Node z is back with the podCIDRs that it once had, and no handler has heard of that.
func TestKnownWhenHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeader(t, true)
		l.readNodes = func(context.Context) (string, error) { return "900", nil }
		l.nodesVersion = func() string { return "900" }
		l.watch("n2", nil)
		z := Node("z", From("a"), func(n *v1.Node) { n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.0.0.16/28", []string{"10.0.0.16/28"} })
		_ = l.cache.Update(z)
		if !l.knowNodes(t.Context()) {
			t.Fatal("not known")
		}
		l.watch("late", Node("late"))
		l.run(t)
		l.nodeEvent("z", nil, z)
		l.run(t)
		if got := l.node("late").Spec.PodCIDR; got != "" {
			t.Errorf("late has %s, and so has z", got)
		}
	})
}

// breaks makes changes of a kind be missed, and mends makes all that was missed known.
func breaks(t *testing.T, changes *health.Changes) {
	_, _ = health.Listed(t.Context(), changes, metav1.ListOptions{}, func(context.Context, metav1.ListOptions) (*v1.NodeList, error) {
		return nil, apierrors.NewForbidden(v1.Resource("any"), "", errors.New("no"))
	})
}

func (l *leader) mends(t *testing.T, changes *health.Changes) {
	w := watch.NewFake()
	got, err := changes.Watched(t.Context(), metav1.ListOptions{}, func(context.Context, metav1.ListOptions) (watch.Interface, error) { return w, nil })
	if err != nil || !l.seen.CatchUp(t.Context()) {
		t.Fatal("still missed: ", l.seen.Missed(), err)
	}
	t.Cleanup(got.Stop) // An early end would be the next gap.
	l.caughtUp()
}

// misses returns the changes of Nodes of this leader, which nothing but a read makes known.
func (l *leader) misses() *health.Changes {
	changes := health.NewChanges("Nodes", nil)
	l.seen = seen.New(seen.Kind{Gap: changes.Gap, Know: func(context.Context) bool { return true }})
	return changes
}

// TestNodesThatNeedNothingDoNotWait: no event says that nothing is allocated for a Node that needs nothing any more.
func TestNodesThatNeedNothingDoNotWait(t *testing.T) {
	for name, tc := range map[string]struct {
		then  *v1.Node
		event bool
	}{
		"it is still there":   {Node("late"), true},
		"it is gone":          {nil, false},
		"it is being deleted": {Node("late", func(n *v1.Node) { n.DeletionTimestamp = &metav1.Time{Time: time.Now()} }), false},
		"it got podCIDRs":     {Node("late", func(n *v1.Node) { n.Spec.PodCIDR, n.Spec.PodCIDRs = "192.168.0.0/28", []string{"192.168.0.0/28"} }), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeader(t, false)
				to := &told{answeringAs: &answeringAs{leader: l}}
				l.api = to
				changes := l.misses()
				stop := l.start(t)
				breaks(t, changes)
				l.watch("late", Node("late"))
				time.Sleep(time.Second)
				l.watch("late", tc.then)
				time.Sleep(time.Minute)
				synctest.Wait()
				said := false
				for _, message := range to.messages {
					said = said || strings.Contains(message, "Nothing is allocated")
				}
				if said != tc.event {
					t.Errorf("events %q", to.messages)
				}
				if f, _, _ := (shown{l.Controller}).Known(); (f.Pending[pending.Missed] == 1) != tc.event {
					t.Errorf("the metric counts %v", f.Pending)
				}
				l.mends(t, changes)
				stop()
			})
		})
	}
}

// letsGo notes which ClusterCIDRs lose their finalizer or are deleted.
type letsGo struct {
	*leader
	asked []string
}

func (l *letsGo) PatchClusterCIDR(_ context.Context, name string, _ []byte) error {
	l.asked = append(l.asked, "patch "+name)
	return nil
}

func (l *letsGo) DeleteClusterCIDR(_ context.Context, name string, _ types.UID, _ string) error {
	l.asked = append(l.asked, "delete "+name)
	return nil
}

// TestClusterCIDRsStayWhileSomethingIsMissed: a Node that the controller does not know of may use them.
func TestClusterCIDRsStayWhileSomethingIsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeader(t, false)
		to := &letsGo{leader: l}
		l.api = to
		changes := l.misses()
		breaks(t, changes)
		earlier := Spec4("10.245.0.0/24", 4, nil)
		old := fromflags.NameOf(&earlier)
		l.setRange(t, ClusterCIDR("b", Spec4("10.1.0.0/24", 4, nil), Deleted))
		l.setRange(t, ClusterCIDR(old, earlier, func(cc *networkingv1.ClusterCIDR) {
			cc.Labels, cc.Annotations = map[string]string{networkingv1.LabelCreatedFromFlags: "true"}, map[string]string{networkingv1.AnnotationSuperseded: "true"}
			cc.Spec.Allocation = networkingv1.AllocationDisabled
		}))
		l.run(t)
		if len(to.asked) > 0 {
			t.Errorf("while changes of Nodes are not seen: %q", to.asked)
		}
		l.mends(t, changes)
		l.run(t)
		slices.Sort(to.asked)
		if want := []string{"delete " + old, "patch b"}; !slices.Equal(to.asked, want) {
			t.Errorf("when all is known: %q, want %q", to.asked, want)
		}
	})
}
