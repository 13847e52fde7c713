package pool

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
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
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
	for seed := range race.Part(uint64(200)) {
		d := rand.New(rand.NewPCG(seed, 0))
		var c Candidates
		pools := map[string]*Pool{}
		selectors := map[string]*v1.NodeSelector{}
		for i := range 1 + d.IntN(30) {
			name := fmt.Sprint("cc", i)
			selectors[name] = drawSelector(d)
			pools[name] = Compile(ClusterCIDR(name, networkingv1.ClusterCIDRSpec{
				IPv4: fmt.Sprintf("10.%d.0.0/%d", d.IntN(4), 16+d.IntN(3)), PerNodeHostBits: 8, Priority: int32(d.IntN(2)), NodeSelector: selectors[name],
			}))
			c.Add(pools[name])
		}
		for _, name := range slices.Sorted(maps.Keys(pools)) {
			switch p := pools[name]; d.IntN(4) {
			case 0:
				c.Remove(p)
				delete(pools, name)
			case 1:
				c.Remove(p)
				c.Add(p)
			}
		}
		for i := range 10 {
			n := Node(fmt.Sprint("n", i))
			for range d.IntN(4) {
				Label(drawKey(d), drawLabel(d))(n)
			}
			if diff := cmp.Diff(slowly(pools, selectors, n), poolNames(slices.Collect(c.Of(n)))); diff != "" {
				t.Fatalf("seed %d, Node %s with %v (-want +got):\n%s", seed, n.Name, n.Labels, diff)
			}
			for _, p := range pools {
				if why := p.Mismatch(n); (why == "") != p.Matches(n) {
					t.Fatalf("seed %d, Node %s with %v: %s matches is %v, but it %s", seed, n.Name, n.Labels, p.Name, p.Matches(n), why)
				}
			}
		}
		for _, p := range pools {
			c.Remove(p)
		}
		if left := len(c.entries) + len(c.by) + len(c.rest) + len(c.keys) + len(c.common); left > 0 {
			t.Fatalf("seed %d: %d entries are left when all pools are gone", seed, left)
		}
	}
}

func slowly(pools map[string]*Pool, selectors map[string]*v1.NodeSelector, n *v1.Node) []string {
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

func poolNames(pools []*Pool) []string {
	names := []string{}
	for _, p := range pools {
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
		for i := range 2 * maxIndexed {
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

// A large selector finds the Nodes that it found when it was a small one.
func TestLargeSelectorsAreNotIndexed(t *testing.T) {
	for name, selector := range map[string]*v1.NodeSelector{
		"one requirement": OneRequirement(10*maxIndexed, v1.NodeSelectorOpIn),
		"terms":           SmallTerms(10*maxIndexed, v1.NodeSelectorOpIn),
	} {
		p := Compile(ClusterCIDR("large", Spec4("10.0.0.0/8", 8, selector)))
		var c Candidates
		if c.Add(p); len(c.by) > 0 || len(c.entries[p]) != 1 {
			t.Errorf("%s: %d values in the index and %d entries, want none and 1", name, len(c.by), len(c.entries[p]))
		}
		for value, want := range map[string]int{"0": 1, fmt.Sprintf("%x", 10*maxIndexed-1): 1, "y": 0} {
			if got := len(slices.Collect(c.Of(Node("n", Label("a", value))))); got != want {
				t.Errorf("%s: %d ClusterCIDRs match a Node with %s, want %d", name, got, value, want)
			}
		}
	}
}

// Nodes without a label are not compared with the selectors that require it.
func TestSelectorsOfALabelAreIndexed(t *testing.T) {
	requirements := map[string]v1.NodeSelectorRequirement{
		"In":     In("a", "1"),
		"Exists": {Key: "a", Operator: v1.NodeSelectorOpExists},
		"Gt":     {Key: "a", Operator: v1.NodeSelectorOpGt, Values: []string{"0"}},
		"Lt":     {Key: "a", Operator: v1.NodeSelectorOpLt, Values: []string{"2"}},
	}
	var c Candidates
	for name, r := range requirements {
		c.Add(Compile(ClusterCIDR(name, Spec4("10.0.0.0/8", 8, AnyOf(AllOf(r))))))
	}
	if got := len(slices.Collect(c.Of(Node("n", Label("a", "1"))))); got != len(requirements) {
		t.Errorf("%d ClusterCIDRs match a Node with the label, want %d", got, len(requirements))
	}
	c.Checked = 0
	if got := len(slices.Collect(c.Of(Node("n", Label("b", "1"))))); got > 0 || c.Checked > 0 {
		t.Errorf("%d ClusterCIDRs match a Node without the label after %d were checked, want none", got, c.Checked)
	}
}

// A Node is not compared with selectors that have only a label in common with its own which all Nodes have, also not with those that came first.
func TestCommonLabelsAreNotIndexed(t *testing.T) {
	var c Candidates
	for i := range 10 {
		c.Add(Compile(ClusterCIDR(fmt.Sprint("cc", i), Spec4("10.0.0.0/8", 8, AnyOf(AllOf(In("os", "linux"), In("pool", fmt.Sprint(i))))))))
	}
	for i := range 10 {
		c.Checked = 0
		if got := len(slices.Collect(c.Of(Node("n", Label("os", "linux"), Label("pool", fmt.Sprint(i)))))); got != 1 || c.Checked != 1 {
			t.Errorf("%d ClusterCIDRs match a Node of pool %d after %d were checked, want 1 after 1", got, i, c.Checked)
		}
	}
}

// A selector is compiled once, and again if it is another one or one of another ClusterCIDR of that name.
func TestSelectorIsCompiledOnce(t *testing.T) {
	known := SelectorCache{}
	terms := func(selector *v1.NodeSelector) *term {
		return &CompileWith(ClusterCIDR("a", Spec4("10.0.0.0/8", 8, selector)), known).terms[0]
	}
	first := terms(OneRequirement(10, v1.NodeSelectorOpIn))
	if terms(OneRequirement(10, v1.NodeSelectorOpIn)) != first {
		t.Error("the same selector was compiled twice")
	}
	for what, other := range map[string]*v1.NodeSelector{
		"a value more":     OneRequirement(11, v1.NodeSelectorOpIn),
		"another operator": OneRequirement(10, v1.NodeSelectorOpNotIn),
		"a term more":      AnyOf(append(OneRequirement(10, v1.NodeSelectorOpIn).NodeSelectorTerms, AllOf(In("b", "1")))...),
	} {
		if got := terms(other); got == first {
			t.Errorf("%s: it was not compiled", what)
		}
		first = terms(OneRequirement(10, v1.NodeSelectorOpIn))
	}
}
