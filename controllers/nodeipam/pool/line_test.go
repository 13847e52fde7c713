package pool

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/internal/race"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// A line finds every Node that a pool selects, in the order of their places, whoever came and left before.
func TestLine(t *testing.T) {
	for seed := range race.Part(uint64(200)) {
		d := rand.New(rand.NewPCG(seed, 1))
		var l Line
		there := map[string]*Place{}
		for i := range 100 {
			name := fmt.Sprint("n", d.IntN(40))
			if _, ok := there[name]; ok {
				l.Leave(name)
				delete(there, name)
				continue
			}
			p := &Place{Node: Node(name), Since: time.Unix(int64(i+d.IntN(10)), 0)}
			for range d.IntN(4) {
				Label(drawKey(d), drawLabel(d))(p.Node)
			}
			l.Enter(p)
			there[name] = p
		}
		for range 10 {
			p := Compile(ClusterCIDR("p", networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/16", PerNodeHostBits: 8, NodeSelector: drawSelector(d)}))
			var want, got []string
			for _, place := range slices.SortedFunc(maps.Values(there), (*Place).Compare) {
				if p.Matches(place.Node) {
					want = append(want, place.Node.Name)
				}
			}
			var turns Turns
			turns.Add(p, l.SelectedBy(p)...)
			for place := turns.Next(); place != nil; place = turns.Next() {
				got = append(got, place.Node.Name)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("seed %d, selector %v (-want +got):\n%s", seed, p.Selector, diff)
			}
		}
		for name := range there {
			l.Leave(name)
		}
		if l.Len()+len(l.by)+len(l.all.places) > 0 {
			t.Fatalf("seed %d: somebody is left", seed)
		}
	}
}
