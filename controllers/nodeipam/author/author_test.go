package author

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// named is a Node with a name on it, as who has written podCIDRs leaves it.
func named(node, holder string) *v1.Node {
	n := Node(node)
	n.Annotations = map[string]string{networkingv1.AnnotationLeaseHolder: holder}
	return n
}

// written is a Node with podCIDRs that a process has written.
func written(node, holder string) *v1.Node {
	n := named(node, holder)
	n.Spec.PodCIDRs = []string{"10.0.0.0/24"}
	return n
}

func TestOther(t *testing.T) {
	for name, tc := range map[string]struct {
		was, is *v1.Node
		sent    bool
		want    Change
		other   bool
	}{
		"this process writes":                                {Node("n"), written("n", "self"), true, Change{}, false},
		"another one does":                                   {Node("n"), written("n", "other"), false, Change{Holder: "other"}, true},
		"one without a name does":                            {Node("n"), written("n", ""), false, Change{}, true},
		"both choose the same, and the other one is later":   {written("n", "self"), written("n", "other"), true, Change{"other", true}, true},
		"both choose the same, and this process is later":    {written("n", ""), written("n", "self"), true, Change{}, true},
		"it was saved, and created again with this name":     {named("n", "self"), written("n", "self"), false, Change{}, true},
		"the same, and this process serves it again":         {named("n", "self"), written("n", "self"), true, Change{}, false},
		"somebody takes the name away":                       {written("n", "self"), written("n", ""), true, Change{}, false},
		"a Node that this process has not served is renamed": {written("n", "third"), written("n", "other"), false, Change{Holder: "other"}, false},
		"nothing has changed":                                {written("n", "self"), written("n", "self"), true, Change{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			by, other := Other(tc.was, tc.is, "self", func() bool { return tc.sent })
			if other != tc.other || other && by != tc.want {
				t.Errorf("got %+v, %t", by, other)
			}
		})
	}
}

// TestEarlier: an earlier leader's late write can only concern a Node that was there and pending when this leader read all Nodes, and only for
// so long.
func TestEarlier(t *testing.T) {
	start := time.Unix(1000, 0)
	e := FindEarlier([]*v1.Node{written("old", "before-last"), written("unnamed", ""), Node("pending")}, "last", start)
	for name, tc := range map[string]struct {
		node  *v1.Node
		after time.Duration
		want  bool
	}{
		"the last leader's":            {written("pending", "last"), earlierLasts - 1, true},
		"of a leader before that":      {written("pending", "before-last"), 0, true},
		"of nobody who has led":        {written("pending", "other"), 0, false},
		"of nobody who said a name":    {written("pending", ""), 0, false},
		"of a Node that is new":        {written("new", "last"), 0, false},
		"of one that it had served":    {written("old", "last"), 0, false},
		"of one that was later served": {written("pending", "last"), earlierLasts, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := e.Wrote(tc.node, start.Add(tc.after)); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
	if (Earlier{}).Wrote(written("pending", "last"), start) {
		t.Error("without leader election there is no earlier leader")
	}
}
