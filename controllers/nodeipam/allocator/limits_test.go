package allocator

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// Of a Node's addresses the first ones count, and are forgotten with it.
func TestAddressesAreBounded(t *testing.T) {
	b := New()
	cc := ClusterCIDR("a", Spec4("10.0.0.0/8", 8, nil))
	b.SetPool(Compile(cc))
	n := Node("large", ManyAddresses(1000))
	b.Observe(n, nil, AddressesOf(n))
	if got := len(b.addresses.Held(OwnerOf(n.UID))); got != maxAddresses {
		t.Errorf("%d addresses are entered, want %d", got, maxAddresses)
	}
	want := fmt.Sprintf("10.0.0.9 of large; %d more", maxAddresses-MaxNamed)
	if message := b.Overlapping(b.pools["a"]).Message; !strings.Contains(message, want) {
		t.Errorf("it says %q, want %q", message, want)
	}
	b.NodeGone("large", "uid-large")
	if left := b.addresses.Overlapping(Pfx("0.0.0.0/0")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// A large selector finds the Nodes that it found when it was a small one.
func TestLargeSelectorsAreNotIndexed(t *testing.T) {
	for name, selector := range map[string]*v1.NodeSelector{
		"one requirement": OneRequirement(10*maxIndexed, v1.NodeSelectorOpIn),
		"terms":           SmallTerms(10*maxIndexed, v1.NodeSelectorOpIn),
	} {
		p := Compile(ClusterCIDR("large", Spec4("10.0.0.0/8", 8, selector)))
		c := newCandidates(slices.Values([]*Pool{p}))
		if len(c.by) > 0 || len(c.entries) != 1 {
			t.Errorf("%s: %d values in the index and %d entries, want none and 1", name, len(c.by), len(c.entries))
		}
		for value, want := range map[string]int{"0": 1, fmt.Sprintf("%x", 10*maxIndexed-1): 1, "y": 0} {
			if got := len(slices.Collect(c.of(Node("n", Label("a", value))))); got != want {
				t.Errorf("%s: %d ClusterCIDRs match a Node with %s, want %d", name, got, value, want)
			}
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
