package nodeipam

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// A webhook refused the oldest Node for 30 seconds, a day ago. Since then nobody refuses it, and every minute one Node joins and then one goes, as an
// autoscaler does it. The Node waits for ever, behind every younger one.
func TestNodeThatGaveWayOnce(t *testing.T) {
	for name, outage := range map[string]time.Duration{"no outage": 0, "outage of 30 s": 30 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeader(t, true)
				begin := time.Now()
				r := &answeringAs{leader: l}
				r.answer = func(name string, _ []byte) (error, bool) {
					return forbidden6(name), name == "old" && time.Since(begin) < outage
				}
				l.Controller.api = r
				stop := l.start(t)
				l.watch("n2", nil)
				l.watch("old", Node("old", Created(time.Now().Unix()-60)))
				time.Sleep(time.Second)
				l.watch("late0", Node("late0", Created(time.Now().Unix())))
				time.Sleep(time.Minute)
				served := 0
				for i := 1; i <= 24*60 && l.node("old").Spec.PodCIDR == ""; i++ {
					l.watch(fmt.Sprint("late", i), Node(fmt.Sprint("late", i), Created(time.Now().Unix())))
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
