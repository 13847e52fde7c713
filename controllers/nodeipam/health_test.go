package nodeipam

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/lease"
)

func TestHealth(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n", errors.New("no"))
	terminating := apierrors.NewForbidden(schema.GroupResource{Group: networkingv1.GroupName, Resource: "clustercidrs"}, "a", errors.New("create not allowed while custom resource definition is terminating"))
	notServed := fmt.Errorf("create ClusterCIDR: %w", apierrors.NewGenericServerResponse(http.StatusNotFound, "post", schema.GroupResource{Group: networkingv1.GroupName, Resource: "clustercidrs"}, "", "404 page not found", 0, true))
	const (
		noPermission = `the API server forbids it: apply manifests/rbac, or run helm upgrade if the Helm chart is used (nodes "n" is forbidden: no)`
		goes         = `the CustomResourceDefinition of ClusterCIDR is being deleted, which goes on until the last ClusterCIDR is gone: then apply manifests/crds, or run helm upgrade if the Helm chart is used, and apply the ClusterCIDRs anew ` +
			`(clustercidrs.networking.x-k8s.io "a" is forbidden: create not allowed while custom resource definition is terminating)`
		gone = `the CustomResourceDefinition of ClusterCIDR is not installed: apply manifests/crds, or run helm upgrade if the Helm chart is used (create ClusterCIDR: the server could not find the requested resource (post clustercidrs.networking.x-k8s.io))`
	)
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
			{wrote("Node", "b", refused), true, "Node b cannot be written: " + noPermission},
			{wrote("Node", "a", refused), false, "Node a and 1 more cannot be written: " + noPermission},
			{wrote("Node", "b", lease.ErrClosed), false, "Node a and 1 more cannot be written: " + noPermission},
			{wrote("Node", "a", nil), false, "Node b cannot be written: " + noPermission},
			{wrote("Node", "b", nil), true, ""},
			{wrote("Node", "b", nil), false, ""},
		},
		"what gets no answer is neither forbidden nor permitted": {
			{wrote("Node", "a", errors.New("timeout")), false, ""},
			{wrote("Node", "a", refused), true, "Node a cannot be written: " + noPermission},
			{wrote("Node", "a", errors.New("timeout")), false, "Node a cannot be written: " + noPermission},
			{wrote("Node", "a", nil), true, ""},
		},
		"an object that is not there is no CRD that is not there": {
			{wrote("Node", "a", apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "default")), false, ""},
		},
		"the CRD is deleted, goes, and is there again": {
			{wrote("ClusterCIDR", "a", terminating), true, "ClusterCIDR a cannot be written: " + goes},
			{wrote("ClusterCIDR", "b", terminating), false, "ClusterCIDR a and 1 more cannot be written: " + goes},
			{wrote("ClusterCIDR", "a", notServed), true, "ClusterCIDR a and 1 more cannot be written: " + gone},
			{wrote("ClusterCIDR", "b", notServed), false, "ClusterCIDR a and 1 more cannot be written: " + gone},
			{wrote("ClusterCIDR", "a", nil), false, "ClusterCIDR b cannot be written: " + gone},
			{wrote("ClusterCIDR", "b", nil), true, ""},
		},
		"kinds of writes are told apart": {
			{wrote("Node", "a", refused), true, "Node a cannot be written: " + noPermission},
			{wrote("ClusterCIDR", "a", nil), false, "Node a cannot be written: " + noPermission},
			{read(trouble{what: "unreadable"}), true, "changes of ClusterCIDRs are not seen: unreadable; Node a cannot be written: " + noPermission},
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
