package nodeipam

import (
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// TestListIsHeardInTheOrderOfNames: while the watch was down, Node z was put back with the podCIDRs that it once had, and Node a joined. Handlers
// hear of a first, and nothing is chosen for it before they have heard of z.
func TestListIsHeardInTheOrderOfNames(t *testing.T) {
	const block = "10.0.0.16/28"
	z := Node("z", From("a"), func(n *v1.Node) { n.Spec.PodCIDR, n.Spec.PodCIDRs = block, []string{block} })
	newer := z.DeepCopy()
	newer.ResourceVersion, newer.Labels = "900", map[string]string{"changed": "yes"}
	for name, tc := range map[string]struct {
		list func(l *leader) // what is read
		then func(l *leader) // what handlers hear after they have heard of a
		gets string
	}{
		"then they hear of z": {
			then: func(l *leader) { l.nodeEvent("z", nil, z) },
		},
		"z changes before they hear of it": {
			then: func(l *leader) {
				_ = l.cache.Update(newer)
				l.nodeEvent("z", nil, z) // The cache is ahead: this is not what the state is to know.
				l.run(t)
				l.nodeEvent("z", z, newer)
			},
		},
		"z is deleted before they hear of it": {
			then: func(l *leader) {
				_ = l.cache.Delete(z)
				l.nodeEvent("z", nil, z)
				l.run(t)
				l.nodeEvent("z", z, nil)
			},
			gets: block,
		},
		"the next list lacks z": {
			then: func(l *leader) {
				_ = l.cache.Delete(z)
				l.ListBegins()
				l.ListEnds()
				l.nodeEvent("z", nil, z)
				l.run(t)
				l.nodeEvent("z", cache.DeletedFinalStateUnknown{Key: "z", Obj: z}, nil)
			},
			gets: block,
		},
		"a list that failed showed more": {
			list: func(l *leader) {
				l.ListBegins()
				l.ListHas(Node("never", func(n *v1.Node) { n.Spec.PodCIDRs = []string{"192.168.0.0/24"} }))
			},
			then: func(l *leader) { l.nodeEvent("z", nil, z) },
		},
		"z has podCIDRs that cannot be read": {
			list: func(l *leader) {
				l.ListBegins()
				l.ListHas(Node("y", func(n *v1.Node) { n.Spec.PodCIDRs = []string{"none"} }))
				l.ListEnds()
			},
			then: func(l *leader) { l.nodeEvent("z", nil, z) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeader(t, true)
				l.watch("n2", nil) // Its block is free.
				l.run(t)
				if tc.list != nil {
					tc.list(l)
				}
				a := Node("a")
				a.ResourceVersion = "800"
				l.ListBegins()
				l.ListHas(l.node("n1"), a, z)
				l.ListEnds()
				_ = l.cache.Update(a)
				_ = l.cache.Update(z)
				l.nodeEvent("a", nil, a)
				l.run(t)
				if got := l.node("a").Spec.PodCIDR; got != "" {
					t.Fatalf("a got %s before handlers have heard of the whole list", got)
				}
				tc.then(l)
				l.run(t)
				if got := l.node("a").Spec.PodCIDR; got != tc.gets {
					t.Errorf("a shows %q, want %q", got, tc.gets)
				}
				if !l.listed.Complete() {
					t.Errorf("still not heard of all: %v", l.listed)
				}
			})
		})
	}
}
