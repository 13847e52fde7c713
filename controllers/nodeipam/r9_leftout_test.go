package nodeipam

import (
	"testing"
	"testing/synctest"
	"time"

	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

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
