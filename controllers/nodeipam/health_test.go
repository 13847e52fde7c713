package nodeipam

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/multicidr/controller-manager/controllers/lease"
)

func TestHealth(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n", errors.New("no"))
	type say struct {
		step func(h *health) (changed bool)
		// changed is what is logged once: what is new.
		changed bool
		want    string
	}
	waitFor := func(t trouble) func(h *health) bool { return func(h *health) bool { return h.waitFor(t) } }
	read := func(t trouble) func(h *health) bool { return func(h *health) bool { return h.read(t) } }
	wrote := func(kind, name string, err error) func(h *health) bool {
		return func(h *health) bool { return h.wrote(kind, name, err) }
	}
	for name, history := range map[string][]say{
		"it fails until it serves": {
			{waitFor(trouble{what: "the start"}), true, "not serving Nodes yet; waiting for the start"},
			{waitFor(trouble{what: "the start"}), false, "not serving Nodes yet; waiting for the start"},
			{waitFor(trouble{}), true, ""},
		},
		"the same trouble in other words is not new, and the last words are shown": {
			{read(trouble{"unreadable", errors.New("port 1")}), true, "changes of ClusterCIDRs are not seen: unreadable (port 1)"},
			{read(trouble{"unreadable", errors.New("port 2")}), false, "changes of ClusterCIDRs are not seen: unreadable (port 2)"},
			{read(trouble{}), true, ""},
			{read(trouble{}), false, ""},
		},
		"of many forbidden writes the first and the end of the last are new": {
			{wrote("Node", "b", refused), true, `Node b cannot be written: the API server forbids it: apply manifests/rbac (nodes "n" is forbidden: no)`},
			{wrote("Node", "a", refused), false, `Node a and 1 more cannot be written: the API server forbids it: apply manifests/rbac (nodes "n" is forbidden: no)`},
			{wrote("Node", "b", lease.ErrClosed), false, `Node a and 1 more cannot be written: the API server forbids it: apply manifests/rbac (nodes "n" is forbidden: no)`},
			{wrote("Node", "a", nil), false, `Node b cannot be written: the API server forbids it: apply manifests/rbac (nodes "n" is forbidden: no)`},
			{wrote("Node", "b", errors.New("timeout")), true, ""},
			{wrote("Node", "b", nil), false, ""},
		},
		"kinds of writes are told apart": {
			{wrote("Node", "a", refused), true, `Node a cannot be written: the API server forbids it: apply manifests/rbac (nodes "n" is forbidden: no)`},
			{wrote("ClusterCIDR", "a", nil), false, `Node a cannot be written: the API server forbids it: apply manifests/rbac (nodes "n" is forbidden: no)`},
			{read(trouble{what: "unreadable"}), true, `changes of ClusterCIDRs are not seen: unreadable; Node a cannot be written: the API server forbids it: apply manifests/rbac (nodes "n" is forbidden: no)`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var h health
			for i, tc := range history {
				if changed := tc.step(&h); changed != tc.changed {
					t.Errorf("step %d: new is %t, want %t", i, changed, tc.changed)
				}
				got := ""
				if err := h.Check(nil); err != nil {
					got = err.Error()
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("step %d (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}
