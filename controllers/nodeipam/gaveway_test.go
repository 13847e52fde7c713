package nodeipam

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// A webhook refused the oldest Node for 30 seconds, a day ago. Since then nobody refuses it, and every minute one Node joins and then one goes, as an
// autoscaler does it. The Node waits for ever, behind every younger one.
func TestNodeThatGaveWayOnce(t *testing.T) {
	// ahead is how far the clock of this machine is ahead of that of the API server, which says when a Node was created.
	for name, tc := range map[string]struct{ outage, ahead time.Duration }{
		"no outage": {}, "outage of 30 s": {outage: 30 * time.Second}, "clocks differ": {outage: 30 * time.Second, ahead: 48 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeader(t, true)
				begin := time.Now()
				r := &answeringAs{leader: l}
				r.answer = func(name string, _ []byte) (error, bool) {
					return forbidden6(name), name == "old" && time.Since(begin) < tc.outage
				}
				l.api = r
				stop := l.start(t)
				l.watch("n2", nil)
				l.watch("old", Node("old", Created(time.Now().Add(-tc.ahead).Unix()-60)))
				time.Sleep(time.Second)
				l.watch("late0", Node("late0", Created(time.Now().Add(-tc.ahead).Unix())))
				time.Sleep(time.Minute)
				served := 0
				for i := 1; i <= 24*60 && l.node("old").Spec.PodCIDR == ""; i++ {
					l.watch(fmt.Sprint("late", i), Node(fmt.Sprint("late", i), Created(time.Now().Add(-tc.ahead).Unix())))
					time.Sleep(30 * time.Second)
					l.watch(fmt.Sprint("late", i-1), nil)
					time.Sleep(30 * time.Second)
					if l.node(fmt.Sprint("late", i)).Spec.PodCIDR != "" {
						served++
					}
				}
				if l.node("old").Spec.PodCIDR == "" {
					t.Errorf("a day later the oldest Node is pending; %d PATCHes of it were refused, none since the first minute; %d younger Nodes were served meanwhile; health: %v",
						r.tries, served, l.health.Check(nil))
				}
				stop()
			})
		})
	}
}

// The API server refuses two Nodes for good. Whatever the clocks say, they do not hand the last block to and fro for long while another Node is pending.
func TestRefusedNodesAndClocksThatDiffer(t *testing.T) {
	for _, behind := range []time.Duration{0, time.Hour, -time.Hour} {
		t.Run(behind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeader(t, true)
				r := &answeringAs{leader: l}
				r.answer = func(name string, _ []byte) (error, bool) { return forbidden6(name), strings.HasPrefix(name, "bad") }
				l.api = r
				stop := l.start(t)
				l.watch("n2", nil)
				created := func() func(*v1.Node) { return Created(time.Now().Add(behind).Unix()) }
				l.watch("bad1", Node("bad1", created()))
				time.Sleep(time.Second)
				l.watch("bad2", Node("bad2", created()))
				time.Sleep(time.Minute)
				l.watch("late", Node("late", created()))
				time.Sleep(time.Minute)
				if l.node("late").Spec.PodCIDR == "" {
					t.Errorf("a minute later the Node that nobody refuses is pending, after %d refusals of the others", r.tries)
				}
				stop()
			})
		})
	}
}

// One block is free. The webhook that looks at one Node is down, so each PATCH of that Node is a 500 or gets no answer, and each may have been
// carried out, as far as anybody can tell. A Node to which that webhook does not belong is served all the same.
func TestNodeWhoseWritesGetNoAnswer(t *testing.T) {
	for name, answer := range map[string]func(n int) error{
		"500":     func(int) error { return webhookDown },
		"timeout": func(int) error { time.Sleep(5 * time.Second); return context.DeadlineExceeded },
		"500 and 403, of two replicas of a webhook": func(n int) error {
			if n%2 == 0 {
				return webhookDown
			}
			return forbidden6("bad")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeader(t, true)
				l.fence = slowFence{leaseFence{l}}
				l.renewing.Store(true)
				r := &answeringAs{leader: l}
				r.answer = func(name string, _ []byte) (error, bool) {
					if name != "bad" {
						return nil, false
					}
					return answer(r.tries), true
				}
				l.api = r
				stop := l.start(t)
				l.watch("n2", nil)
				l.watch("bad", Node("bad", Created(10)))
				time.Sleep(time.Second)
				l.watch("late", Node("late", Created(100)))
				time.Sleep(time.Minute)
				if l.node("late").Spec.PodCIDR == "" {
					t.Errorf("a minute later it is pending, after %d PATCHes of the other Node; health: %v", r.tries, l.health.Check(nil))
				}
				stop()
			})
		})
	}
}

// slowFence is a leaseFence that says of writes without an answer what a lease of 15 seconds says: they can be carried out for that long.
type slowFence struct{ leaseFence }

func (slowFence) Unanswered() time.Duration { return 13 * time.Second }

// One block is free. A policy leaves the podCIDRs of one Node out and answers 200, for good, or an answer of another sort comes in between. Another Node,
// which the policy does not look at, waits for the block.
func TestNodeWhosePodCIDRsAreLeftOutForGood(t *testing.T) {
	for name, other := range map[string]error{"200": nil, "200 and 403": forbidden6("bad"), "200 and 500": webhookDown} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeader(t, true)
				l.fence = slowFence{leaseFence{l}}
				l.renewing.Store(true)
				r := &answeringAs{leader: l}
				r.answer = func(name string, _ []byte) (error, bool) {
					if name == "bad" && r.tries%2 == 1 {
						return other, true
					}
					return nil, name == "bad"
				}
				l.api = r
				stop := l.start(t)
				l.watch("n2", nil)
				l.watch("bad", Node("bad", Created(10)))
				time.Sleep(time.Second)
				l.watch("late", Node("late", Created(100)))
				time.Sleep(time.Hour)
				if l.node("late").Spec.PodCIDR == "" {
					t.Errorf("an hour later the other Node is pending, after %d PATCHes of the first; health: %v", r.tries, l.health.Check(nil))
				}
				stop()
			})
		})
	}
}
