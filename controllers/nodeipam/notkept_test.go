package nodeipam

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	applyv1 "github.com/multicidr/controller-manager/apis/generated/applyconfiguration/networking/v1"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam/events"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	"github.com/multicidr/controller-manager/controllers/queues"
)

// forgetful is an API server with a policy that answers 200 and leaves objects as they are, or their statuses, until a time. Then it enables
// ClusterCIDRs, or lets them go.
type forgetful struct {
	*leader
	until    time.Time
	ofStatus bool
	statuses int
	told     int // events of writes that fail
}

func (f *forgetful) PatchNode(ctx context.Context, name string, patch []byte) error {
	if !f.ofStatus && time.Now().Before(f.until) {
		return nil
	}
	return f.leader.PatchNode(ctx, name, patch)
}

func (f *forgetful) PatchClusterCIDR(_ context.Context, name string, _ []byte) error {
	if !f.ofStatus && time.Now().Before(f.until) {
		return nil
	}
	cc, err := f.Controller.clusterCIDRs.Get(name)
	if err != nil {
		return err
	}
	if cc.DeletionTimestamp != nil {
		err := f.clusterCIDRs.Delete(cc)
		f.heardOfClusterCIDR(name)
		return err
	}
	cc = cc.DeepCopy()
	cc.Finalizers = []string{networkingv1.Finalizer}
	cc.Spec.Allocation = networkingv1.AllocationEnabled
	delete(cc.Annotations, networkingv1.AnnotationSuperseded)
	if err := f.clusterCIDRs.Update(cc); err != nil {
		return err
	}
	f.heardOfClusterCIDR(name)
	return nil
}

func (f *forgetful) ApplyStatus(ctx context.Context, patch *applyv1.ClusterCIDRApplyConfiguration) (networkingv1.ClusterCIDRStatus, error) {
	if f.statuses++; f.ofStatus && time.Now().Before(f.until) {
		return networkingv1.ClusterCIDRStatus{}, nil
	}
	return f.leader.ApplyStatus(ctx, patch)
}

func (f *forgetful) CreateEvent(_ context.Context, e *v1.Event) error {
	if e.Reason == events.ReasonWriteFailed {
		f.told++
	}
	return nil
}

// What is answered with 200 and not kept is written again, and while that lasts, health says so the whole time. Once what does it is gone, the
// Node is served without a restart.
func TestWritesThatAreNotKept(t *testing.T) {
	const lasts = 2 * time.Minute
	spec := Spec4("10.2.0.0/24", 4, nil)
	for name, tc := range map[string]struct {
		cc      *networkingv1.ClusterCIDR
		podCIDR string
		told    bool
		status  bool // is what is not kept
		joins   bool // a Node joins and goes every three seconds, so it is another status each time
	}{
		"a status":                   {cc: ClusterCIDR("b", spec), podCIDR: "10.2.0.0/28", status: true},
		"statuses that change":       {cc: ClusterCIDR("b", spec), podCIDR: "10.2.0.0/28", status: true, joins: true},
		"a finalizer":                {cc: ClusterCIDR("b", spec, NoFinalizer), podCIDR: "10.2.0.0/28"},
		"podCIDRs":                   {cc: ClusterCIDR("b", spec), podCIDR: "10.2.0.0/28", told: true},
		"the removal of a finalizer": {cc: ClusterCIDR("b", spec, Deleted)},
		"spec.allocation of the ClusterCIDR of flags that are back": {cc: ClusterCIDR(fromflags.NameOf(&spec), *spec.DeepCopy(), func(cc *networkingv1.ClusterCIDR) {
			cc.Labels = map[string]string{networkingv1.LabelCreatedFromFlags: "true"}
			cc.Annotations = map[string]string{networkingv1.AnnotationSuperseded: "true"}
			cc.Spec.Allocation = networkingv1.AllocationDisabled
		}), podCIDR: "10.2.0.0/28"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeader(t, true)
				l.renewing.Store(true)
				if fromflags.Made(tc.cc) {
					l.flags = &spec
				}
				server := &forgetful{leader: l, until: time.Now().Add(lasts), ofStatus: tc.status}
				l.api = server
				l.health.WaitFor(health.Problem{})
				l.setRange(t, tc.cc)
				defer l.start(t)()
				l.watch("n", Node("n"))
				begun := time.Now()
				pass := func() bool { time.Sleep(101 * time.Millisecond); return time.Now().Before(server.until) }
				for i := 0; pass(); i++ {
					if tc.joins && i%30 == 0 {
						l.watch("joins", Node("joins", UID(types.UID(fmt.Sprint("joins", i)))))
					} else if tc.joins && i%30 == 15 {
						l.watch("joins", nil)
					}
					synctest.Wait()
					if err := l.health.Check(nil); err == nil && time.Since(begun) > 2*queues.RetryMax {
						t.Fatalf("health says ok after %v", time.Since(begun))
					}
				}
				time.Sleep(2 * queues.RetryMax)
				synctest.Wait()
				if podCIDR := l.node("n").Spec.PodCIDR; podCIDR != tc.podCIDR {
					t.Errorf("the Node has %q, want %q", podCIDR, tc.podCIDR)
				}
				if _, err := l.Controller.clusterCIDRs.Get(tc.cc.Name); (err != nil) != (tc.cc.DeletionTimestamp != nil) {
					t.Errorf("the ClusterCIDR: %v", err)
				}
				if err := l.health.Check(nil); err != nil {
					t.Errorf("afterwards health says %v", err)
				}
				if (server.told > 0) != tc.told {
					t.Errorf("the Node is told %d times that its podCIDRs cannot be written", server.told)
				}
				if server.statuses < 10 == tc.status {
					t.Errorf("statuses were written %d times", server.statuses)
				}
			})
		})
	}
}

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
