package nodeipam

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/multicidr/controller-manager/controllers/lease"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// etcd was restored in the life of the leader; n1 is there again, without the podCIDRs that it had. A policy answers each PATCH of it with 200 and
// leaves them out. Health has to say so, as it does of any other Node.
func TestNotKeptAfterARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeader(t, true)
		l.renewing.Store(true)
		r := &answeringAs{leader: l}
		r.answer = func(name string, _ []byte) (error, bool) { return nil, name == "n1" }
		l.api = r
		stop := l.start(t)
		l.renewed(lease.Renewals{Sent: 100, Proven: 100, WentBack: 90})
		l.watch("n1", Node("n1"))
		time.Sleep(time.Minute)
		if err := l.health.Check(nil); err == nil {
			t.Errorf("a minute later health says ok, after %d PATCHes of n1 that were answered with 200; n1 has %q", r.tries, l.node("n1").Spec.PodCIDR)
		}
		stop()
	})
}
