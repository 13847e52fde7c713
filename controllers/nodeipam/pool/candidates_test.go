package pool_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/internal/race"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
	. "github.com/multicidr/controller-manager/test/objects"
	"github.com/multicidr/controller-manager/test/seeds"
)

// matches reports whether a selector matches the Node as the scheduler has it, and the requirements of the largest term that does.
func matches(selector *v1.NodeSelector, node *v1.Node) (specificity int, ok bool) {
	if selector == nil {
		return 0, true
	}
	for _, t := range selector.NodeSelectorTerms {
		s, err := nodeaffinity.NewNodeSelector(AnyOf(t))
		if err == nil && s.Match(node) {
			specificity, ok = max(specificity, len(t.MatchExpressions)+len(t.MatchFields)), true
		}
	}
	return specificity, ok
}

// The candidates of a Node are the pools that match it, in the order of ipam.Compare, whatever the selectors ask for and whichever pools there
// were before.
func TestCandidates(t *testing.T) {
	found := 0
	seeds.Each(t, race.Part(uint64(100)), func(t *testing.T, seed uint64) {
		defer seeds.Report(t, seed, nil)
		d := rand.New(rand.NewPCG(seed, 0))
		var c pool.Candidates
		pools, selectors := map[string]*pool.Pool{}, map[string]*v1.NodeSelector{}
		for step := range 40 {
			name := fmt.Sprint("cc", d.IntN(20))
			if p, ok := pools[name]; ok {
				c.Remove(p)
				delete(pools, name)
			}
			if d.IntN(4) > 0 {
				selectors[name] = drawSelector(d)
				pools[name] = pool.Compile(ClusterCIDR(name, networkingv1.ClusterCIDRSpec{
					IPv4: fmt.Sprintf("10.%d.0.0/%d", d.IntN(4), 16+d.IntN(3)), PerNodeHostBits: 8, Priority: int32(d.IntN(2)), NodeSelector: selectors[name],
				}), nil)
				c.Add(pools[name])
			}
			n := Node(fmt.Sprint("n", d.IntN(10)))
			for range d.IntN(4) {
				Label(drawKey(d), drawLabel(d))(n)
			}
			got := namesOf(&c, n)
			if diff := cmp.Diff(slowly(pools, selectors, n), got); diff != "" {
				t.Fatalf("step %d, Node %s with %v (-want +got):\n%s", step, n.Name, n.Labels, diff)
			}
			for _, p := range pools {
				if why := p.Mismatch(n); (why == "") != p.Matches(n) || p.Matches(n) != slices.Contains(got, p.Name) {
					t.Fatalf("step %d, Node %s with %v: %s matches is %v, but it %s", step, n.Name, n.Labels, p.Name, p.Matches(n), why)
				}
			}
			found += len(got)
		}
		for p := range maps.Values(pools) {
			c.Remove(p)
		}
		if left := namesOf(&c, Node("n")); len(left) > 0 {
			t.Fatalf("%d pools are found when all are gone", len(left))
		}
	})
	if found < 1000 {
		t.Errorf("%d candidates are too few to compare", found)
	}
}

func slowly(pools map[string]*pool.Pool, selectors map[string]*v1.NodeSelector, n *v1.Node) []string {
	var matching []ipam.Candidate
	for name, p := range pools {
		if specificity, ok := matches(selectors[name], n); ok {
			matching = append(matching, ipam.Candidate{Pool: &p.Pool, Specificity: specificity})
		}
	}
	slices.SortFunc(matching, ipam.Compare)
	names := []string{}
	for _, c := range matching {
		names = append(names, c.Name)
	}
	return names
}

func namesOf(c *pool.Candidates, n *v1.Node) []string {
	names := []string{}
	for p := range c.Of(n) {
		names = append(names, p.Name)
	}
	return names
}

func drawKey(d *rand.Rand) string   { return []string{"a", "b", "c"}[d.IntN(3)] }
func drawValue(d *rand.Rand) string { return []string{"1", "2", "3"}[d.IntN(3)] }

// drawLabel draws a label's value, which need not be a number.
func drawLabel(d *rand.Rand) string { return []string{"1", "2", "3", "1", "2", "3", "x"}[d.IntN(7)] }

func drawSelector(d *rand.Rand) *v1.NodeSelector {
	if d.IntN(6) == 0 {
		return nil
	}
	s := &v1.NodeSelector{}
	var more []string // values that make the selector a large one
	if d.IntN(4) == 0 {
		for i := range 300 {
			more = append(more, fmt.Sprint("x", i))
		}
	}
	for range 1 + d.IntN(3) {
		var t v1.NodeSelectorTerm
		for range d.IntN(4) {
			r := v1.NodeSelectorRequirement{Key: drawKey(d), Operator: []v1.NodeSelectorOperator{"In", "In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"}[d.IntN(8)]}
			switch r.Operator {
			case "In", "NotIn":
				for range 1 + d.IntN(3) {
					r.Values = append(r.Values, drawValue(d))
				}
				r.Values = append(r.Values, more...)
			case "Gt", "Lt":
				r.Values = []string{drawValue(d)}
			}
			t.MatchExpressions = append(t.MatchExpressions, r)
		}
		if d.IntN(4) == 0 {
			t.MatchFields = []v1.NodeSelectorRequirement{{Key: []string{"metadata.name", "metadata.name", "metadata.uid"}[d.IntN(3)], Operator: []v1.NodeSelectorOperator{"In", "NotIn"}[d.IntN(2)], Values: []string{fmt.Sprint("n", d.IntN(10))}}}
		}
		s.NodeSelectorTerms = append(s.NodeSelectorTerms, t)
	}
	return s
}

// A selector that is too large to be listed under its labels selects the same Nodes.
func TestLargeSelectors(t *testing.T) {
	const n = 3000
	one, many := In("a"), &v1.NodeSelector{}
	for i := range n {
		value := fmt.Sprintf("%x", i)
		one.Values = append(one.Values, value)
		many.NodeSelectorTerms = append(many.NodeSelectorTerms, AllOf(In("a", value)))
	}
	for name, selector := range map[string]*v1.NodeSelector{
		"one requirement": AnyOf(AllOf(one)),
		"terms":           many,
	} {
		var c pool.Candidates
		c.Add(pool.Compile(ClusterCIDR("large", Spec4("10.0.0.0/8", 8, selector)), nil))
		for value, want := range map[string]int{"0": 1, fmt.Sprintf("%x", n-1): 1, "y": 0} {
			if got := len(namesOf(&c, Node("n", Label("a", value)))); got != want {
				t.Errorf("%s: %d ClusterCIDRs match a Node with %s, want %d", name, got, value, want)
			}
		}
	}
}

// A Node with many labels costs little for each ClusterCIDR that selects other Nodes: those are not even looked at.
func BenchmarkCandidates(b *testing.B) {
	var c pool.Candidates
	for i := range 1000 {
		c.Add(pool.Compile(ClusterCIDR(fmt.Sprint("cc", i), Spec4("10.0.0.0/8", 8, AnyOf(AllOf(In("os", "linux"), In("group", fmt.Sprint(i)))))), nil))
	}
	n := Node("n", Label("os", "linux"), Label("group", "7"))
	for b.Loop() {
		if got := namesOf(&c, n); len(got) != 1 {
			b.Fatal(len(got))
		}
	}
}
