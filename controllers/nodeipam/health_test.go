package nodeipam

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
	"github.com/multicidr/controller-manager/controllers/nodeipam/text"
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
	const since, none = ", since 2026-01-01T00:00:00Z", ", and no other was written"
	type say struct {
		step func(h *health) (news bool)
		// news is what is logged once.
		news bool
		want string
	}
	now := epoch
	waitFor := func(t problem) func(h *health) bool { return func(h *health) bool { return h.waitFor(t) } }
	read := func(t problem) func(h *health) bool { return func(h *health) bool { return h.read(t) } }
	wrote := func(kind writeKind, name string, err error) func(h *health) bool {
		return func(h *health) bool { news, _ := h.wrote(kind, name, err); return news }
	}
	pass := func(d time.Duration) func(h *health) bool {
		return func(*health) bool { now = now.Add(d); return false }
	}
	stored := func(h *health) bool { h.stored(writesNode); return false }
	const fails = "the API server fails: look at its log, at etcd and at admission webhooks (oops)"
	oops := func() error {
		err := apierrors.NewInternalError(errors.New("oops"))
		err.ErrStatus.Message = "oops"
		return err
	}()
	for name, history := range map[string][]say{
		"it fails until it serves": {
			{waitFor(problem{what: "the start"}), true, "not serving Nodes yet; waiting for the start"},
			{waitFor(problem{what: "the start"}), false, "not serving Nodes yet; waiting for the start"},
			{waitFor(problem{}), true, ""},
		},
		"the same trouble in other words is not new, and the last words are shown": {
			{read(problem{"unreadable", errors.New("port 1")}), true, "changes of ClusterCIDRs are not seen: unreadable (port 1)"},
			{read(problem{"unreadable", errors.New("port 2")}), false, "changes of ClusterCIDRs are not seen: unreadable (port 2)"},
			{read(problem{}), true, ""},
			{read(problem{}), false, ""},
		},
		"of many forbidden writes the first and the end of the last are new": {
			{wrote(writesNode, "b", refused), true, "Node b cannot be written: " + noPermission + since + none},
			{wrote(writesNode, "a", refused), false, "Node a and 1 more cannot be written: " + noPermission + since + none},
			{wrote(writesNode, "b", lease.ErrClosed), false, "Node a and 1 more cannot be written: " + noPermission + since + none},
			{wrote(writesNode, "a", requests.Later(time.Second)), false, "Node a and 1 more cannot be written: " + noPermission + since + none},
			{wrote(writesNode, "a", nil), false, "Node b cannot be written: " + noPermission + since + none},
			{wrote(writesNode, "b", nil), true, ""},
			{wrote(writesNode, "b", nil), false, ""},
		},
		"what may pass by itself is a problem when it has not": {
			{wrote(writesNode, "a", oops), false, ""},
			{pass(failsFor - 1), false, ""},
			{wrote(writesNode, "a", oops), false, ""},
			{pass(1), false, "Node a cannot be written: " + fails + since + none},
			{wrote(writesNode, "a", oops), true, "Node a cannot be written: " + fails + since + none},
			{wrote(writesNode, "a", oops), false, "Node a cannot be written: " + fails + since + none},
			{wrote(writesNode, "a", nil), true, ""},
			{wrote(writesNode, "a", oops), false, ""}, // from the beginning
		},
		"what passes by itself is never told": {
			{wrote(writesNode, "a", oops), false, ""},
			{wrote(writesNode, "a", nil), false, ""},
			{pass(time.Hour), false, ""},
			{wrote(writesNode, "a", oops), false, ""},
		},
		"one Node of many": {
			{wrote(writesNode, "a", oops), false, ""},
			{stored, false, ""},
			{stored, false, ""},
			{pass(failsFor), false, "Node a cannot be written: " + fails + since + ", while 2 others were written"},
		},
		"several causes": {
			{wrote(writesNode, "b", refused), true, "Node b cannot be written: " + noPermission + since + none},
			{wrote(writesNode, "a", oops), false, "Node b cannot be written: " + noPermission + since + none},
			{pass(failsFor), false, "Node a cannot be written: " + fails + since + none + "; Node b cannot be written: " + noPermission + since + none},
			{wrote(writesNode, "a", oops), true, "Node a cannot be written: " + fails + since + none + "; Node b cannot be written: " + noPermission + since + none},
			{wrote(writesNode, "a", nil), false, "Node b cannot be written: " + noPermission + since + none},
		},
		"an object that is not there is no CRD that is not there": {
			{wrote(writesNode, "a", apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "default")), false, ""},
		},
		"the CRD is deleted, goes, and is there again": {
			{wrote(writesClusterCIDR, "a", terminating), true, "ClusterCIDR a cannot be written: " + goes + since + none},
			{wrote(writesClusterCIDR, "b", terminating), false, "ClusterCIDR a and 1 more cannot be written: " + goes + since + none},
			{wrote(writesClusterCIDR, "a", notServed), true, "ClusterCIDR a cannot be written: " + gone + since + none + "; ClusterCIDR b cannot be written: " + goes + since + none},
			{wrote(writesClusterCIDR, "b", notServed), false, "ClusterCIDR a and 1 more cannot be written: " + gone + since + none},
			{wrote(writesClusterCIDR, "a", nil), false, "ClusterCIDR b cannot be written: " + gone + since + none},
			{wrote(writesClusterCIDR, "b", nil), true, ""},
		},
		"kinds of writes are told apart": {
			{wrote(writesNode, "a", refused), true, "Node a cannot be written: " + noPermission + since + none},
			{wrote(writesClusterCIDR, "a", nil), false, "Node a cannot be written: " + noPermission + since + none},
			{read(problem{what: "unreadable"}), true, "changes of ClusterCIDRs are not seen: unreadable; Node a cannot be written: " + noPermission + since + none},
		},
	} {
		t.Run(name, func(t *testing.T) {
			now = epoch
			h := health{now: func() time.Time { return now }}
			for i, tc := range history {
				if news := tc.step(&h); news != tc.news {
					t.Errorf("step %d: new is %t, want %t", i, news, tc.news)
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

// Whatever the API server answers, people are told what to do.
func TestWriteTrouble(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	denied := func(code int32, reason metav1.StatusReason, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason, Message: message}}
	}
	for name, tc := range map[string]struct {
		err  error
		want string // part of what is told; empty: it is no trouble
	}{
		"a webhook fails":                  {apierrors.NewInternalError(errors.New(`failed calling webhook "w.example.com"`)), "admission webhook or policy"},
		"a webhook denies":                 {denied(403, metav1.StatusReasonForbidden, `admission webhook "w.example.com" denied the request`), "admission webhook or policy"},
		"a webhook denies with 422":        {denied(422, metav1.StatusReasonInvalid, `admission webhook "w.example.com" denied the request: no`), "admission webhook or policy"},
		"a policy denies":                  {denied(422, metav1.StatusReasonInvalid, `nodes "n" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request`), "admission webhook or policy"},
		"a quota":                          {apierrors.NewForbidden(nodes, "n", errors.New("exceeded quota: q")), "admission webhook or policy"},
		"no permission":                    {apierrors.NewForbidden(nodes, "n", errors.New(`User "u" cannot patch resource "nodes"`)), "apply manifests/rbac"},
		"credentials":                      {apierrors.NewUnauthorized("no"), "credentials"},
		"too many requests":                {apierrors.NewTooManyRequests("busy", 1), "priority and fairness"},
		"another process was faster":       {apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "n", nil), "another process"},
		"it seems to be gone, for a while": {requests.RefusedLater{Err: apierrors.NewNotFound(nodes, "n")}, "as if the object were gone"},
		"a conflict, for a while":          {requests.RefusedLater{Err: apierrors.NewConflict(nodes, "n", nil)}, "as if the object were gone"},
		"503":                              {apierrors.NewServiceUnavailable("no"), "the API server fails"},
		"504":                              {apierrors.NewTimeoutError("slow", 1), "does not answer in time"},
		"no answer":                        {errTimeout, "does not answer in time"},
		"put off":                          {requests.Later(time.Second), ""},
		"the fence is closed":              {fmt.Errorf("%w: why", lease.ErrClosed), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := writeProblem(fmt.Errorf("patch: %w", tc.err))
			if !strings.Contains(got.what, tc.want) || (tc.want == "") != (got.what == "") {
				t.Errorf("got %q, want %q", got.what, tc.want)
			}
		})
	}
}

// What an error says has no bound, and what the health check says has one.
func TestHealthIsShort(t *testing.T) {
	var h health
	h.waitFor(problem{"the API server forbids it", errors.New(strings.Repeat("ü", 100_000))})
	if err := h.Check(nil); len(err.Error()) > 2*text.MaxProblem {
		t.Errorf("the health check says %d bytes", len(err.Error()))
	}
}
