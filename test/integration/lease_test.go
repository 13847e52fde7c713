package integration

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// shortLease makes a failover take seconds. Shorter ones are lost on a machine that compiles meanwhile.
var shortLease = []string{"--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=1s"}

// TestPausedLeaderSendsNothing pauses the leader for longer than its lease, has Nodes created meanwhile, which it learns of
// when it wakes up, and wants it to leave without a single write: the one that has taken over decides.
func TestPausedLeaderSendsNothing(t *testing.T) {
	ctx := t.Context()
	c := freshCluster(t, controlplane.Options{}, slices.Concat(ours, shortLease)...)
	if err := errors.Join(createClusterCIDR(c, []string{"a", "10.0.0.0/16", "hb8"}), c.createNodes(ctx, nil, "before")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.waitServed("before", patience); err != nil {
		t.Fatal(err)
	}
	leader := c.manager
	if err := leader.Pause(); err != nil {
		t.Fatal(err)
	}
	var meanwhile []string
	for i := range 100 {
		meanwhile = append(meanwhile, fmt.Sprintf("meanwhile-%d", i))
	}
	if err := c.createNodes(ctx, nil, meanwhile...); err != nil {
		t.Fatal(err)
	}
	// The successor leaves the Nodes alone, so whatever is written to them comes from the one that was paused.
	successor, err := c.cp.StartManager(ctx, controlplane.ManagerOptions{
		Name: "successor", Args: append([]string{"--controllers=clusterrole-aggregation-controller"}, shortLease...),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := successor.WaitLeading(ctx); err != nil {
		t.Fatal(err)
	}

	// From here on: what was under way when it was paused has been carried out long ago.
	since, err := c.mark()
	if err != nil {
		t.Fatal(err)
	}
	if err := leader.Continue(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := leader.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	all, err := c.writes(since)
	if err != nil {
		t.Fatal(err)
	}
	if writes := byController(all); len(writes) > 0 {
		t.Errorf("after its lease was over the leader wrote:%s", describe(writes))
	}

	// They are served when one leads that serves Nodes.
	if err := errors.Join(successor.Stop(), c.startManager(slices.Concat(ours, shortLease)...)); err != nil {
		t.Fatal(err)
	}
	for _, name := range meanwhile {
		if _, err := c.waitServed(name, patience); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLeaseIsNotRegained lets another process have the Lease between two renewals, as it may while the leader's machine sleeps. The leader
// does not take it back, as client-go's elector would, but ends: who led in between may have given what it still holds for free.
func TestLeaseIsNotRegained(t *testing.T) {
	ctx := t.Context()
	args := slices.Concat(ours, shortLease)
	c := freshCluster(t, controlplane.Options{}, args...)
	leader := c.manager
	leases := c.kube.CoordinationV1().Leases(metav1.NamespaceSystem)
	for _, holder := range []string{"another", ""} {
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			lease, err := leases.Get(ctx, "kube-controller-manager", metav1.GetOptions{})
			if err != nil {
				return err
			}
			lease.Spec.HolderIdentity = &holder
			_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := leader.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(leader.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	if want := "the lease kube-system/kube-controller-manager went to another process after this one had held it"; !strings.Contains(string(log), want) {
		t.Errorf("the log does not say %q", want)
	}
	lease, err := leases.Get(ctx, "kube-controller-manager", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if holder := *lease.Spec.HolderIdentity; holder != "" {
		t.Errorf("%q has the Lease again, want nobody", holder)
	}

	// Its next start is a new process, which reads all before it serves.
	if err := errors.Join(c.startManager(args...), createClusterCIDR(c, []string{"a", "10.0.0.0/16", "hb8"}), c.createNodes(ctx, nil, "n")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.waitServed("n", patience); err != nil {
		t.Fatal(err)
	}
}

// TestWritesHaveADeadline wants the API server to know how long each write may take: at most a third of the lease, less what went by
// before it was sent.
func TestWritesHaveADeadline(t *testing.T) {
	c := sharedCluster(t)
	since, err := c.mark()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(createClusterCIDR(c, []string{"a", "10.0.0.0/16", "hb8"}), c.createNodes(t.Context(), nil, "n")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.waitServed("n", patience); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"nodes": false, "clustercidrs": false, "clustercidrs/status": false}
	err = eventually(patience, func(context.Context) error {
		writes, err := c.writes(since)
		if err != nil {
			return err
		}
		for _, w := range byController(writes) {
			resource := strings.TrimSuffix(w.ObjectRef.Resource+"/"+w.ObjectRef.Subresource, "/")
			if _, ok := want[resource]; !ok {
				continue
			}
			uri, err := url.Parse(w.RequestURI)
			if err != nil {
				t.Fatal(err)
			}
			timeout, err := time.ParseDuration(uri.Query().Get("timeout"))
			if err != nil || timeout <= 0 || timeout > 5*time.Second {
				t.Fatalf("%s: got timeout %v (%v), want more than 0 and at most 5s", w.RequestURI, timeout, err)
			}
			want[resource] = true
		}
		for resource, seen := range want {
			if !seen {
				return fmt.Errorf("no write to %s", resource)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestWithoutLeaderElection: the process has an identity of its own.
func TestWithoutLeaderElection(t *testing.T) {
	c := sharedCluster(t)
	if err := c.stopManager((*controlplane.Process).Stop); err != nil {
		t.Fatal(err)
	}
	args := append(slices.Clone(ours), "--leader-elect=false")
	manager, err := c.cp.StartManager(t.Context(), controlplane.ManagerOptions{Args: args})
	if err != nil {
		t.Fatal(err)
	}
	c.manager, c.managerArgs = manager, args
	// A Node that is there at the start would wait for what an earlier process may have sent.
	if err := errors.Join(passes(manager), createClusterCIDR(c, []string{"a", "10.0.0.0/16", "hb8"}), c.createNodes(t.Context(), nil, "n")); err != nil {
		t.Fatal(err)
	}
	node, err := c.waitServed("n", patience)
	if err != nil {
		t.Fatal(err)
	}
	if node.Annotations[networkingv1.AnnotationLeaseHolder] == "" {
		t.Errorf("no annotation %s", networkingv1.AnnotationLeaseHolder)
	}
}

// TestCoordinatedLeaderElection: the API server writes the Lease first, and the fence is open and the Lease is renewed all the same.
func TestCoordinatedLeaderElection(t *testing.T) {
	c := freshCluster(t,
		controlplane.Options{APIServerArgs: []string{"--feature-gates=CoordinatedLeaderElection=true", "--runtime-config=coordination.k8s.io/v1beta1=true"}},
		slices.Concat(ours, []string{"--feature-gates=CoordinatedLeaderElection=true"})...)
	if err := errors.Join(createClusterCIDR(c, []string{"a", "10.0.0.0/16", "hb8"}), c.createNodes(t.Context(), nil, "n")); err != nil {
		t.Fatal(err)
	}
	node, err := c.waitServed("n", patience)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := c.kube.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), "kube-controller-manager", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if lease.Spec.Strategy == nil {
		t.Error("the Lease has no strategy, so nothing was coordinated")
	}
	if got := node.Annotations[networkingv1.AnnotationLeaseHolder]; got == "" || got != *lease.Spec.HolderIdentity {
		t.Errorf("got annotation %s=%q, want the holder %q", networkingv1.AnnotationLeaseHolder, got, *lease.Spec.HolderIdentity)
	}
	// It knows its own lease again, also by the times in it, and renews it.
	for range 2 {
		before := lease.Spec.RenewTime
		err := eventually(patience, func(ctx context.Context) (err error) {
			if lease, err = c.kube.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "kube-controller-manager", metav1.GetOptions{}); err != nil {
				return err
			}
			if lease.Spec.RenewTime.Equal(before) {
				return fmt.Errorf("the Lease was not renewed since %v", before)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// byController returns the writes of our controller, but not those of other controllers of the same process.
func byController(writes []write) []write {
	return slices.DeleteFunc(writes, func(w write) bool { return w.User.Username != controllerUser })
}
