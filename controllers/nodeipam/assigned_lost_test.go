package nodeipam

import (
	"net/netip"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/lease"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// TestPodCIDRsLostInARestore: etcd is restored in the life of a leader, and a Node that had podCIDRs shows none. Its machine may use them. They
// are written again if nothing has happened to them, and never if they are another Node's by now or could not be allocated any more: then they
// are in doubt, and nobody gets them.
func TestPodCIDRsLostInARestore(t *testing.T) {
	const block = "10.0.0.16/28"
	change := func(opts ...func(*networkingv1.ClusterCIDR)) func(*testing.T, *leader) {
		return func(t *testing.T, l *leader) { l.setRange(t, ClusterCIDR("a", Spec4("10.0.0.0/27", 4, nil), opts...)) }
	}
	for name, tc := range map[string]struct {
		change func(t *testing.T, l *leader)
		shows  string
		doubt  bool
	}{
		"nothing has happened": {change: func(*testing.T, *leader) {}, shows: block},
		"excluded":             {change: change(func(cc *networkingv1.ClusterCIDR) { cc.Spec.ExcludedCIDRs = []string{block} }), doubt: true},
		"disabled":             {change: change(func(cc *networkingv1.ClusterCIDR) { cc.Spec.Allocation = networkingv1.AllocationDisabled }), doubt: true},
		"terminating":          {change: change(Deleted), doubt: true},
		"the ClusterCIDR is gone": {doubt: true, change: func(t *testing.T, l *leader) {
			if err := l.clusterCIDRs.Delete(ClusterCIDR("a", Spec4("10.0.0.0/27", 4, nil))); err != nil {
				t.Fatal(err)
			}
			l.heardOfClusterCIDR("a")
		}},
		"a service range": {doubt: true, change: func(_ *testing.T, l *leader) { l.state.SetService("x", []netip.Prefix{Pfx(block)}) }},
		"another Node's": {change: func(_ *testing.T, l *leader) {
			l.watch("r", Node("r", From("a"), func(n *v1.Node) { n.Spec.PodCIDR, n.Spec.PodCIDRs = block, []string{block} }))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeader(t, true)
				l.renew()
				l.run(t)
				if got := l.node("n2").Spec.PodCIDR; got != block {
					t.Fatalf("n2 shows %q, want %s", got, block)
				}
				l.said = lease.Renewals{Sent: 100, Proven: 99, WentBack: 100} // the restore, which the Lease shows
				l.renew()
				tc.change(t, l)
				l.run(t)
				l.watch("n2", Node("n2"))
				l.run(t)
				for range 3 {
					l.renew()
					l.run(t)
				}
				if got := l.node("n2").Spec.PodCIDR; got != tc.shows {
					t.Errorf("n2 shows %q, want %q", got, tc.shows)
				}
				if doubt := l.state.InDoubt("n2"); (len(doubt) > 0) != tc.doubt {
					t.Errorf("in doubt: %v, want any: %t", doubt, tc.doubt)
				}
			})
		})
	}
}
