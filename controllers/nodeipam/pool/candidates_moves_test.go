package pool

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/internal/race"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

var (
	firstFlag = flag.Uint64("simulation.first", 1, "the seed of the first history")
	seedsFlag = flag.Uint64("simulation.seeds", race.Part(uint64(20)), "how many histories TestCandidatesOnTheMove makes")
)

// TestCandidatesOnTheMove adds and removes pools of few labels, many of which are common to most, so that entries move between attributes again and
// again. After each step the index has exactly what its pools require, and now and then Nodes find the pools that a scan of all finds.
func TestCandidatesOnTheMove(t *testing.T) {
	moved := 0
	for seed := *firstFlag; seed < *firstFlag+*seedsFlag; seed++ {
		d := rand.New(rand.NewPCG(seed, 1))
		var c Candidates
		var pools []*Pool
		selectors := map[string]*v1.NodeSelector{}
		grow := 1 + d.IntN(9) // how many of ten steps add a pool
		for i := range 600 {
			switch n := d.IntN(10); {
			case i%100 == 0:
				grow = 1 + d.IntN(9)
			case n < grow || len(pools) == 0:
				name := fmt.Sprint("cc", i)
				selectors[name] = drawMoving(d)
				p := Compile(ClusterCIDR(name, networkingv1.ClusterCIDRSpec{
					IPv4: fmt.Sprintf("10.%d.0.0/%d", d.IntN(3), 16+d.IntN(2)), PerNodeHostBits: 8, Priority: int32(d.IntN(2)), NodeSelector: selectors[name],
				}))
				pools = append(pools, p)
				c.Add(p)
			default:
				j := d.IntN(len(pools))
				c.Remove(pools[j])
				delete(selectors, pools[j].Name)
				pools = slices.Delete(pools, j, j+1)
			}
			if why := c.unsound(pools); why != "" {
				t.Fatalf("seed %d, step %d: %s", seed, i, why)
			}
			if i%20 > 0 {
				continue
			}
			byName := map[string]*Pool{}
			for _, p := range pools {
				byName[p.Name] = p
			}
			for range 5 {
				n := Node(fmt.Sprint("n", d.IntN(5)))
				for range d.IntN(6) {
					Label(drawMovingKey(d), drawLabel(d))(n)
				}
				if got, want := poolNames(slices.Collect(c.Of(n))), slowly(byName, selectors, n); !slices.Equal(got, want) {
					t.Fatalf("seed %d, step %d, Node %s with %v: %v, want %v", seed, i, n.Name, n.Labels, got, want)
				}
			}
		}
		moved += c.moved
		for _, p := range pools {
			c.Remove(p)
		}
		if left := len(c.entries) + len(c.by) + len(c.rest) + len(c.keys) + len(c.common); left > 0 {
			t.Fatalf("seed %d: %d entries are left when all pools are gone", seed, left)
		}
	}
	if t.Logf("entries moved %d times", moved); moved == 0 {
		t.Error("no entry has moved")
	}
}

// unsound says what of the index does not follow from the pools; empty if all does.
func (c *Candidates) unsound(pools []*Pool) string {
	by, keys, terms := map[attribute]int{}, map[string]int{}, map[attribute]int{}
	rest := 0
	for _, p := range pools {
		if len(c.entries[p]) == 0 && p.Selective != (len(p.terms) == 0) {
			return fmt.Sprintf("%s has no entry", p.Name)
		}
		for _, e := range c.entries[p] {
			one := len(e.alternatives) == 1
			if one && (len(e.alternatives[0].oneOf) > 0) != (len(e.in) > 0) ||
				len(e.in) > 0 && !slices.ContainsFunc(e.alternatives[0].oneOf, func(some []attribute) bool { return slices.Equal(some, e.in) }) {
				return fmt.Sprintf("%s is indexed by %v", p.Name, e.in)
			}
			if len(e.in) == 0 {
				if rest++; !slices.Contains(c.rest, e) {
					return fmt.Sprintf("%s is not in the rest", p.Name)
				}
			}
			for _, a := range e.in {
				by[a]++
				if keys[a.key]++; !slices.Contains(c.by[a], e) {
					return fmt.Sprintf("%s is not in %v", p.Name, a)
				}
			}
			for _, alternative := range e.alternatives {
				for _, some := range alternative.oneOf {
					for _, a := range some {
						terms[a]++
					}
				}
			}
		}
	}
	lists := map[attribute]entries{{}: c.rest}
	maps.Copy(lists, c.by)
	for a, list := range lists {
		if a != (attribute{}) && len(list) != by[a] || !slices.IsSortedFunc(list, compareEntries) {
			return fmt.Sprintf("%v has %d entries, want %d, in order", a, len(list), by[a])
		}
	}
	got := map[attribute]int{}
	for a, demand := range c.common {
		got[a] = demand.terms
	}
	if len(c.by) != len(by) || len(c.rest) != rest || len(c.entries) != len(pools) || !maps.Equal(c.keys, keys) || !maps.Equal(got, terms) {
		return fmt.Sprintf("%d lists and %d in the rest, want %d and %d; keys %v, want %v; terms %v, want %v", len(c.by), len(c.rest), len(by), rest, c.keys, keys, got, terms)
	}
	return ""
}

func drawMovingKey(d *rand.Rand) string { return []string{"a", "b", "c", "d", "e", "a"}[d.IntN(6)] }

// drawMoving draws a selector whose requirements are common or not by chance.
func drawMoving(d *rand.Rand) *v1.NodeSelector {
	if d.IntN(20) == 0 {
		return nil
	}
	s := &v1.NodeSelector{}
	for range 1 + d.IntN(2)*d.IntN(3) {
		var t v1.NodeSelectorTerm
		for range d.IntN(5) {
			r := v1.NodeSelectorRequirement{Key: drawMovingKey(d), Operator: []v1.NodeSelectorOperator{"In", "In", "In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"}[d.IntN(9)]}
			switch r.Operator {
			case "In", "NotIn":
				for range 1 + d.IntN(2)*d.IntN(3) {
					r.Values = append(r.Values, drawValue(d))
				}
			case "Gt", "Lt":
				r.Values = []string{drawValue(d)}
			}
			t.MatchExpressions = append(t.MatchExpressions, r)
		}
		if d.IntN(8) == 0 {
			t.MatchFields = []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: []v1.NodeSelectorOperator{"In", "NotIn"}[d.IntN(2)], Values: []string{fmt.Sprint("n", d.IntN(5))}}}
		}
		s.NodeSelectorTerms = append(s.NodeSelectorTerms, t)
	}
	return s
}

// Very many ClusterCIDRs can require the same two labels, which is no reason to move any.
func TestEqualAttributesDoNotMove(t *testing.T) {
	var c Candidates
	for i := range 100 {
		c.Add(Compile(ClusterCIDR(fmt.Sprint("cc", i), Spec4("10.0.0.0/8", 8, AnyOf(AllOf(In("os", "linux"), In("role", "worker")))))))
	}
	if c.moved > 0 {
		t.Errorf("%d entries were moved", c.moved)
	}
}
