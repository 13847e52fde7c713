package health

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam/api"
	"github.com/multicidr/controller-manager/controllers/text"
	"github.com/multicidr/controller-manager/controllers/writes"
	"github.com/multicidr/controller-manager/test/said"
)

// say is a step of a history, and what is said after it.
type say struct {
	step func(h *Health) (news bool)
	// news is what is logged once.
	news bool
	want string
}

func TestHealth(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n", errors.New("no"))
	terminating := apierrors.NewForbidden(schema.GroupResource{Group: networkingv1.GroupName, Resource: "clustercidrs"}, "a", errors.New("create not allowed while custom resource definition is terminating"))
	notServed := fmt.Errorf("create ClusterCIDR: %w", apierrors.NewGenericServerResponse(http.StatusNotFound, "post", schema.GroupResource{Group: networkingv1.GroupName, Resource: "clustercidrs"}, "", "404 page not found", 0, true))
	const (
		noPermission = `the API server forbids it: run helm upgrade if you use the Helm chart, else apply install-kube-controller-manager.yaml of the release (nodes "n" is forbidden: no)`
		goes         = `the CustomResourceDefinition of ClusterCIDR is being deleted, which goes on until the last ClusterCIDR is gone: then run helm upgrade if you use the Helm chart, else apply install-kube-controller-manager.yaml of the release, and apply the ClusterCIDRs again ` +
			`(clustercidrs.networking.x-k8s.io "a" is forbidden: create not allowed while custom resource definition is terminating)`
		gone = `the CustomResourceDefinition of ClusterCIDR is not installed: run helm upgrade if you use the Helm chart, else apply install-kube-controller-manager.yaml of the release (create ClusterCIDR: the server could not find the requested resource (post clustercidrs.networking.x-k8s.io))`
	)
	const since, later = ", since 2000-01-01T00:00:00Z", ", since 2000-01-01T00:00:02Z"
	waitFor := func(t Problem) func(h *Health) bool { return func(h *Health) bool { return h.WaitFor(t) } }
	wrote := func(kind Kind, name string, err error) func(h *Health) bool {
		return func(h *Health) bool { news, _ := h.Wrote(kind, name, err); return news }
	}
	pass := func(d time.Duration) func(h *Health) bool {
		return func(*Health) bool { time.Sleep(d); return false }
	}
	failed := func(kind Kind, name string, err error) func(h *Health) bool { // for long enough
		return func(h *Health) bool {
			h.Wrote(kind, name, err)
			time.Sleep(failsFor)
			news, _ := h.Wrote(kind, name, err)
			return news
		}
	}
	const fails = "the API server fails: look at its log, at etcd and at admission webhooks (oops)"
	oops := func() error {
		err := apierrors.NewInternalError(errors.New("oops"))
		err.ErrStatus.Message = "oops"
		return err
	}()
	for name, history := range map[string][]say{
		"it fails until it serves": {
			{waitFor(Problem{What: "the start"}), true, "not serving Nodes yet; waiting for the start"},
			{waitFor(Problem{What: "the start"}), false, "not serving Nodes yet; waiting for the start"},
			{waitFor(Problem{"the start", errors.New("port 1")}), false, "not serving Nodes yet; waiting for the start (port 1)"},
			{waitFor(Problem{}), true, ""},
		},
		"of many forbidden writes the first and the end of the last are new": {
			{failed(WritesNode, "b", refused), true, "Node b cannot be written: " + noPermission + since},
			{failed(WritesNode, "a", refused), false, "Node a and 1 more cannot be written: " + noPermission + since},
			{wrote(WritesNode, "b", lease.ErrClosed), false, "Node a and 1 more cannot be written: " + noPermission + since},
			{wrote(WritesNode, "a", writes.Later(time.Second)), false, "Node a and 1 more cannot be written: " + noPermission + since},
			{wrote(WritesNode, "a", nil), false, "Node b cannot be written: " + noPermission + since},
			{wrote(WritesNode, "b", nil), true, ""},
			{wrote(WritesNode, "b", nil), false, ""},
		},
		"what may pass by itself is a problem when it has not": {
			{wrote(WritesNode, "a", oops), false, ""},
			{pass(failsFor - 1), false, ""},
			{wrote(WritesNode, "a", oops), false, ""},
			{pass(1), false, "Node a cannot be written: " + fails + since},
			{wrote(WritesNode, "a", oops), true, "Node a cannot be written: " + fails + since},
			{wrote(WritesNode, "a", oops), false, "Node a cannot be written: " + fails + since},
			{wrote(WritesNode, "a", nil), true, ""},
			{wrote(WritesNode, "a", oops), false, ""}, // from the beginning
		},
		"what passes by itself is never told": {
			{wrote(WritesNode, "a", oops), false, ""},
			{wrote(WritesNode, "a", nil), false, ""},
			{pass(time.Hour), false, ""},
			{wrote(WritesNode, "a", oops), false, ""},
		},
		"a Node that is pending is no failing write": {
			{failed(WritesNode, "a", refused), true, "Node a cannot be written: " + noPermission + since},
			{wrote(WritesNode, "a", writes.Pending{}), false, ""},
			{wrote(WritesNode, "a", refused), false, ""},
		},
		"what is confirmed and not kept": {
			{wrote(WritesNode, "a", api.ErrNotKept), true, "Node a cannot be written: the API server stores what is written, and it is not there: look for a mutating webhook or policy, " +
				"or another process with other flags, that takes it away; or the watch is late (the API server has stored it, and it does not show), since 1999-12-31T23:59:58Z"},
		},
		"several causes": {
			{failed(WritesNode, "b", refused), true, "Node b cannot be written: " + noPermission + since},
			{failed(WritesNode, "a", oops), true, "Node a cannot be written: " + fails + later + "; Node b cannot be written: " + noPermission + since},
			{wrote(WritesNode, "a", nil), false, "Node b cannot be written: " + noPermission + since},
		},
		"an object that is not there is no CRD that is not there": {
			{wrote(WritesNode, "a", apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "default")), false, ""},
		},
		"the CRD is deleted, goes, and is there again": {
			{failed(WritesClusterCIDR, "a", terminating), true, "ClusterCIDR a cannot be written: " + goes + since},
			{failed(WritesClusterCIDR, "b", terminating), false, "ClusterCIDR a and 1 more cannot be written: " + goes + since},
			{wrote(WritesClusterCIDR, "a", notServed), true, "ClusterCIDR a cannot be written: " + gone + since + "; ClusterCIDR b cannot be written: " + goes + later},
			{wrote(WritesClusterCIDR, "b", notServed), false, "ClusterCIDR a and 1 more cannot be written: " + gone + since},
			{wrote(WritesClusterCIDR, "a", nil), false, "ClusterCIDR b cannot be written: " + gone + later},
			{wrote(WritesClusterCIDR, "b", nil), true, ""},
		},
		"kinds of writes are told apart": {
			{failed(WritesNode, "a", refused), true, "Node a cannot be written: " + noPermission + since},
			{wrote(WritesClusterCIDR, "a", nil), false, "Node a cannot be written: " + noPermission + since},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { follow(t, history) })
		})
	}
}

// follow makes the steps of a history.
func follow(t *testing.T, history []say) {
	h := New(&Watches{})
	for i, tc := range history {
		if news := tc.step(h); news != tc.news {
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
}

// Whatever the API server answers, people are told what to do.
func TestWriteProblem(t *testing.T) {
	nodes, clusterCIDRs := schema.GroupResource{Resource: "nodes"}, schema.GroupResource{Group: networkingv1.GroupName, Resource: "clustercidrs"}
	denied := func(code int32, reason metav1.StatusReason, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason, Message: message}}
	}
	for name, tc := range map[string]struct {
		err error
	}{
		"a webhook fails":                         {apierrors.NewInternalError(errors.New(`failed calling webhook "w.example.com"`))},
		"a webhook denies":                        {denied(403, metav1.StatusReasonForbidden, `admission webhook "w.example.com" denied the request`)},
		"a webhook denies with 422":               {denied(422, metav1.StatusReasonInvalid, `admission webhook "w.example.com" denied the request: no`)},
		"a policy denies":                         {denied(422, metav1.StatusReasonInvalid, `nodes "n" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request`)},
		"a quota":                                 {apierrors.NewForbidden(nodes, "n", errors.New("exceeded quota: q"))},
		"no permission":                           {apierrors.NewForbidden(nodes, "n", errors.New(`User "u" cannot patch resource "nodes"`))},
		"the CRD is being deleted":                {apierrors.NewForbidden(clusterCIDRs, "a", errors.New("create not allowed while custom resource definition is terminating"))},
		"credentials":                             {apierrors.NewUnauthorized("no")},
		"too many requests":                       {apierrors.NewTooManyRequests("busy", 1)},
		"the fencing policy":                      {denied(403, metav1.StatusReasonForbidden, "ValidatingAdmissionPolicy '"+api.FencingPolicy+"' with binding 'b' denied request")},
		"no room for annotations":                 {apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "n", field.ErrorList{field.TooLong(field.NewPath("metadata", "annotations"), "", 256<<10)})},
		"another process was faster":              {apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "n", nil)},
		"it seems to be gone, for a while":        {writes.RefusedLater{Err: apierrors.NewNotFound(nodes, "n")}},
		"a ClusterCIDR without a status":          {writes.RefusedLater{Err: fmt.Errorf("%w: %w", api.ErrNoStatus, apierrors.NewNotFound(clusterCIDRs, "a"))}},
		"a webhook that says the same":            {fmt.Errorf("%w: %w", api.ErrNoStatus, denied(404, metav1.StatusReasonNotFound, `admission webhook "w.example.com" denied the request`))},
		"a status with fields of another version": {apierrors.NewInternalError(errors.New(".status.ipv4.cursor: field not declared in schema"))},
		"a conflict, for a while":                 {writes.RefusedLater{Err: apierrors.NewConflict(nodes, "n", nil)}},
		"503":                                     {apierrors.NewServiceUnavailable("no")},
		"504":                                     {apierrors.NewTimeoutError("slow", 1)},
		"no answer":                               {context.DeadlineExceeded},
		"put off":                                 {writes.Later(time.Second)},
		"the fence is closed":                     {fmt.Errorf("%w: why", lease.ErrClosed)},
	} {
		t.Run(name, func(t *testing.T) {
			said.Check(t, WriteProblem(fmt.Errorf("patch: %w", tc.err)).What)
		})
	}
}

// What an error says has no bound, and what the health check says has one.
func TestHealthIsShort(t *testing.T) {
	h := New(&Watches{})
	h.WaitFor(Problem{"the API server forbids it", errors.New(strings.Repeat("ü", 100_000))})
	if err := h.Check(nil); len(err.Error()) > 2*text.MaxProblem {
		t.Errorf("the health check says %d bytes", len(err.Error()))
	}
}
