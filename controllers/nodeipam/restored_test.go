package nodeipam

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/lease"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// answeringAs answers PATCHes as a test says. Where that has no answer, the leader's own server does it.
type answeringAs struct {
	*leader
	answer func(name string, patch []byte) (err error, answered bool)
	tries  int
}

func (a *answeringAs) PatchNode(ctx context.Context, name string, patch []byte) error {
	if err, ok := a.answer(name, patch); ok {
		a.tries++
		return err
	}
	return a.leader.PatchNode(ctx, name, patch)
}

func forbidden6(name string) error {
	return apierrors.NewForbidden(v1.Resource("nodes"), name, errors.New("admission webhook says no"))
}

// etcd was restored; n2 was lost, its machine runs on with 10.0.0.16/28. The Node is back 9 renewals later, and gets its block back in the state; the
// PATCHes of it are refused (or answered with 200 and left out), as are those of any Node whose labels a policy does not like. Its block must not be
// given to another Node: it was stored before the restore, and the machine uses it. A read that shows no podCIDRs says nothing about that.
func TestBlockOfBeforeTheRestore(t *testing.T) {
	for name, err := range map[string]error{"refused": forbidden6("n2"), "left out": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeader(t, true)
				r := &answeringAs{leader: l}
				r.answer = func(name string, _ []byte) (error, bool) { return err, name == "n2" }
				l.api = r
				stop := l.start(t)
				l.renewed(lease.Renewals{Sent: 100, Proven: 100})
				l.list("n2", nil)
				l.renewed(lease.Renewals{Sent: 102, Proven: 102, WentBack: 101})
				l.watch("late", Node("late", Created(100)))
				time.Sleep(18 * time.Second)
				l.renewed(lease.Renewals{Sent: 110, Proven: 110, WentBack: 101})
				l.renewing.Store(true)
				l.watch("n2", Node("n2", UID("again"), Created(1)))
				time.Sleep(5 * time.Minute)
				if n := l.node("late"); n.Spec.PodCIDR != "" {
					t.Errorf("after %d PATCHes of n2: late has %s, which the machine of n2 has used since before the restore", r.tries, n.Spec.PodCIDR)
				}
				stop()
			})
		})
	}
}

// The same, and the ClusterCIDR that n2's block came from is disabled after n2 is back: n2 is given another block while it keeps its own one in use, and
// that one is free.
func TestBlockOfBeforeTheRestoreAndABetterClusterCIDR(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeader(t, true)
		r := &answeringAs{leader: l}
		r.answer = func(name string, patch []byte) (error, bool) {
			return forbidden6(name), name == "n2" && bytes.Contains(patch, []byte("10.0.0.16/28"))
		}
		l.api = r
		stop := l.start(t)
		l.renewed(lease.Renewals{Sent: 100, Proven: 100})
		l.list("n2", nil)
		l.renewed(lease.Renewals{Sent: 110, Proven: 110, WentBack: 101})
		l.renewing.Store(true)
		time.Sleep(2 * time.Second)
		l.watch("n2", Node("n2", UID("again"), Created(1)))
		time.Sleep(2 * time.Second)
		l.setRange(t, ClusterCIDR("b", Spec4("10.9.0.0/24", 4, nil), func(cc *networkingv1.ClusterCIDR) { cc.Spec.Priority = 1 }))
		time.Sleep(time.Minute)
		if n := l.node("n2"); n.Spec.PodCIDR != "" {
			t.Errorf("n2, whose machine uses 10.0.0.16/28, was given %s", n.Spec.PodCIDR)
		}
		stop()
	})
}

// A restore that the lease notices after the read: n's PATCH was answered with 200 and its machine has seen it; the watch has not shown it (the API server
// went down). After the restore the fence is closed for a moment still, and n is read before the Lease is.
func TestRestoreThatTheLeaseNoticesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeader(t, true)
		r := &answeringAs{leader: l}
		var begin time.Time
		r.answer = func(name string, _ []byte) (error, bool) {
			switch d := time.Since(begin); {
			case name != "n":
				return nil, false
			case d < time.Second:
				return nil, true // stored, and lost with the restore
			case d < 7*time.Second:
				return lease.ErrClosed, true
			default:
				return forbidden6(name), true // for some time
			}
		}
		l.api = r
		stop := l.start(t)
		l.watch("n2", nil)
		l.renewed(lease.Renewals{Sent: 100, Proven: 100})
		begin = time.Now()
		l.watch("n", Node("n", Created(1)))
		time.Sleep(6500 * time.Millisecond)
		l.renewed(lease.Renewals{Sent: 103, Proven: 103, WentBack: 102})
		l.watch("late", Node("late", Created(100)))
		time.Sleep(time.Minute)
		if n := l.node("late"); n.Spec.PodCIDR != "" {
			t.Errorf("late has %s, which the API server had stored for n, before a restore that the lease knows of", n.Spec.PodCIDR)
		}
		stop()
	})
}

// A leader lives through a restore of etcd. Every write of n's block was refused before it, so none can have been lost with it; or n was created since then. Days
// later one answer is lost and the others are refusals. Then there is another ClusterCIDR, which comes first and whose podCIDRs are not refused.
func TestLostAnswerLongAfterARestore(t *testing.T) {
	for name, tc := range map[string]struct {
		wentBack int
		younger  bool
	}{"no restore": {}, "restore": {wentBack: 7}, "a Node that is younger than the restore": {wentBack: 7, younger: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeader(t, true)
				r := &answeringAs{leader: l}
				var lose atomic.Bool
				r.answer = func(name string, patch []byte) (error, bool) {
					if !bytes.Contains(patch, []byte("10.0.0.")) {
						return nil, false
					}
					if lose.Swap(false) {
						return errors.New("connection reset"), true
					}
					return forbidden6(name), true
				}
				l.api = r
				stop := l.start(t)
				l.renewed(lease.Renewals{Sent: 5, Proven: 5})
				l.watch("n1", nil)
				if !tc.younger {
					l.watch("n", Node("n", Created(1)))
				}
				time.Sleep(time.Minute)
				l.renewed(lease.Renewals{Sent: 500_000, Proven: 500_000, WentBack: tc.wentBack})
				l.renewing.Store(true)
				time.Sleep(time.Minute)
				lose.Store(true)
				if tc.younger {
					l.watch("n", Node("n", Created(1)))
				}
				time.Sleep(time.Minute)
				l.setRange(t, ClusterCIDR("b", Spec4("10.9.0.0/24", 4, nil), func(cc *networkingv1.ClusterCIDR) { cc.Spec.Priority = 1 }))
				time.Sleep(3 * time.Hour)
				if n := l.node("n"); n.Spec.PodCIDR == "" {
					t.Errorf("three hours later the Node is pending, after %d refusals; b has 16 free blocks; health: %v", r.tries, l.health.Check(nil))
				}
				stop()
			})
		})
	}
}

// The Lease went back at renewal 102. The first write of a Node gets no answer, and all others are refused. If it was sent when the restore was known, it
// is no write that the restore can have lost.
func TestFirstWriteAfterTheRestoreIsLost(t *testing.T) {
	for name, sent := range map[string]int{"before the next renewal": 102, "after it": 103} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeader(t, true)
				r := &answeringAs{leader: l}
				r.answer = func(name string, _ []byte) (error, bool) {
					if r.tries == 0 {
						return errors.New("connection reset"), name == "bad"
					}
					return forbidden6(name), name == "bad"
				}
				l.api = r
				stop := l.start(t)
				l.watch("n2", nil)
				l.renewed(lease.Renewals{Sent: sent, Proven: sent, WentBack: 102})
				l.watch("bad", Node("bad", Created(10)))
				time.Sleep(time.Second)
				l.renewed(lease.Renewals{Sent: 110, Proven: 110, WentBack: 102})
				l.renewing.Store(true)
				l.watch("late", Node("late", Created(100)))
				time.Sleep(time.Minute)
				if l.node("late").Spec.PodCIDR == "" {
					t.Errorf("a minute later the other Node is pending, after %d writes of the first one; health: %v", r.tries, l.health.Check(nil))
				}
				stop()
			})
		})
	}
}

// A write of n's blocks got no answer, and then etcd was restored: its machine may use them. Meanwhile its ClusterCIDR cannot allocate them any more. n gets
// others, and what nobody else has of the first ones is given to nobody.
func TestReservationLostAfterARestore(t *testing.T) {
	newCC := func(change func(*networkingv1.ClusterCIDR)) *networkingv1.ClusterCIDR {
		return ClusterCIDR("b", networkingv1.ClusterCIDRSpec{IPv4: "10.9.0.0/26", IPv6: "fd00::/122", PerNodeHostBits: 4, Priority: 7}, change)
	}
	nothing := func(*networkingv1.ClusterCIDR) {}
	exclude := func(cidrs ...string) func(*networkingv1.ClusterCIDR) {
		return func(cc *networkingv1.ClusterCIDR) { cc.Spec.ExcludedCIDRs = cidrs }
	}
	for name, tc := range map[string]struct {
		foreign []string // podCIDRs of another Node
		change  func(*networkingv1.ClusterCIDR)
		doubt   bool
	}{
		"both blocks are another Node's":            {foreign: []string{"10.9.0.0/28", "fd00::/124"}, change: nothing},
		"one block is another Node's":               {foreign: []string{"10.9.0.0/28"}, change: nothing, doubt: true},
		"half a block is":                           {foreign: []string{"10.9.0.0/29"}, change: nothing, doubt: true},
		"half of one and all of the other":          {foreign: []string{"10.9.0.0/29", "fd00::/124"}, change: nothing, doubt: true},
		"one block is excluded":                     {change: exclude("10.9.0.4/32"), doubt: true},
		"half is another Node's, the rest excluded": {foreign: []string{"10.9.0.0/29"}, change: exclude("10.9.0.8/29"), doubt: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeader(t, true)
				r := &answeringAs{leader: l}
				var lost atomic.Bool
				lost.Store(true)
				r.answer = func(name string, _ []byte) (error, bool) {
					return errors.New("connection reset"), name == "n" && lost.Load()
				}
				l.api = r
				stop := l.start(t)
				l.renewed(lease.Renewals{Sent: 5, Proven: 5})
				l.renewing.Store(true)
				l.setRange(t, newCC(nothing))
				l.watch("n", Node("n", Created(1)))
				time.Sleep(3 * time.Second)
				l.renewed(lease.Renewals{Sent: 100, Proven: 100, WentBack: 50})
				if tc.foreign != nil {
					l.watch("foreign", Node("foreign", func(n *v1.Node) { n.Spec.PodCIDR, n.Spec.PodCIDRs = tc.foreign[0], tc.foreign }))
				}
				l.setRange(t, newCC(tc.change))
				time.Sleep(time.Second)
				lost.Store(false)
				time.Sleep(time.Minute)
				if told := l.health.Check(nil); (told != nil) != tc.doubt {
					t.Errorf("health: %v", told)
				}
				for i := range 4 {
					name := fmt.Sprintf("late%d", i)
					l.watch(name, Node(name, Created(100)))
				}
				time.Sleep(time.Minute)
				if n := l.node("n"); len(n.Spec.PodCIDRs) != 2 {
					t.Errorf("n has %q, and ClusterCIDR b has blocks for it", n.Spec.PodCIDRs)
				}
				first := Pfxs("10.9.0.0/28", "fd00::/124")
				for _, name := range []string{"n", "late0", "late1", "late2", "late3"} {
					for _, block := range Pfxs(l.node(name).Spec.PodCIDRs...) {
						if slices.ContainsFunc(first, block.Overlaps) && (tc.doubt || tc.foreign != nil) {
							t.Errorf("%s has %v; the machine of n may use %v, and another Node has %v", name, block, first, tc.foreign)
						}
					}
				}
				stop()
			})
		})
	}
}
