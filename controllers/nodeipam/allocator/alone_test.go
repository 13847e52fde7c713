package allocator

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/multicidr/controller-manager/controllers/internal/race"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

// A Node alone is decided about in a way of its own. TestAlone makes each history twice, the second time as if there was more to decide each time,
// and after each change compares all that the two states know.
func TestAlone(t *testing.T) {
	alone := 0
	seeds := *seedsFlag
	if seeds == race.Part(uint64(200)) {
		seeds = race.Part(uint64(10))
	}
	for seed := *firstFlag; seed < *firstFlag+seeds && !t.Failed(); seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w, crowd := newWorld(t, seed, map[string]int{}), newWorld(t, seed, map[string]int{})
			crowd.crowd = true
			w.begin()
			crowd.begin()
			for range 300 {
				before := w.b.looks
				w.move()
				if w.b.looks == before+1 {
					alone++
				}
				crowd.move()
				if diff := cmp.Diff(w.all(), crowd.all()); diff != "" {
					w.fail("it differs if there is more to decide (-alone +not alone):\n%s", diff)
				}
			}
		})
	}
	if t.Logf("%d changes had one Node to look at", alone); alone == 0 && !t.Failed() {
		t.Error("no Node was alone")
	}
}

// all is what a state knows, by name.
func (w *world) all() map[string]string {
	b, all := w.b, map[string]string{}
	note := func(what string, value any) { all[what] = fmt.Sprintf("%+v", value) }
	for name := range b.nodes {
		v, _ := b.Node(name)
		note("Node "+name, v)
	}
	for name := range b.pending {
		v, _ := b.Pending(name)
		note("pending "+name, v)
	}
	for i, places := range b.settled.Everybody() {
		for j, p := range slices.DeleteFunc(slices.Clone(places), func(p *clustercidr.Place) bool { return b.waiting(p.Node.Name) != p.Node.UID }) {
			note(fmt.Sprint("line ", i, j), p.Node.Name)
		}
	}
	for o, blocks := range b.ledger.All() {
		note("blocks of "+o.String(), blocks)
	}
	for name, p := range b.pools {
		cc := w.clusterCIDRs[name]
		status, known := b.Status(cc)
		for i := range status.Conditions {
			status.Conditions[i].LastTransitionTime.Reset()
		}
		note("status of "+name, []any{known, status.IPv4 != nil, status.IPv6 != nil, status.Conditions})
		note("cursors of "+name, []any{b.Cursor(p, ipam.IPv4), b.Cursor(p, ipam.IPv6)})
		note("traffic of "+name, *b.traffic.Of(&p.Pool))
		note("not full "+name, b.notFull.Has(p))
	}
	for _, f := range b.Figures().Ranges {
		note(fmt.Sprint("figures of ", f.ClusterCIDR, f.Family), []any{*f.Status, f.Traffic, f.CoveredBy})
	}
	note("told", b.told)
	note("awaiting", b.awaiting)
	note("revocable", b.revocable)
	note("holding", []any{b.holding, len(b.sharing), len(b.outOfRange), len(b.traffic)})
	note("due", slices.Sorted(maps.Keys(w.due)))
	note("in line", slices.Sorted(maps.Keys(w.line)))
	return all
}
