package requests

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	applyv1 "github.com/multicidr/controller-manager/apis/generated/applyconfiguration/networking/v1"
	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// The simulation begins behind the interface api, so what is in front of it is looked at here: the simulated
// server takes the kind of patch for granted.
func TestRequests(t *testing.T) {
	type request struct {
		Method, Path, Manager, ContentType string
		Brief                              bool // only metadata are asked for in return
		Preconditions                      string
	}
	var got request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = request{r.Method, r.URL.Path, r.URL.Query().Get("fieldManager"), r.Header.Get("Content-Type"), strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata"), ""}
		if r.Method == http.MethodDelete {
			body, _ := io.ReadAll(r.Body)
			_, got.Preconditions, _ = strings.Cut(string(body), `"preconditions":`)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("{}"))
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	api := Clients{Kube: kubernetes.NewForConfigOrDie(config), ClusterCIDRs: versioned.NewForConfigOrDie(config)}

	const clusterCIDRs = "/apis/networking.x-k8s.io/v1/clustercidrs"
	for name, tc := range map[string]struct {
		call func() error
		want request
	}{
		"podCIDRs": {func() error { return api.PatchNode(t.Context(), "n", []byte("{}")) },
			request{"PATCH", "/api/v1/nodes/n", Manager, "application/strategic-merge-patch+json", true, ""}},
		"a finalizer": {func() error { return api.PatchClusterCIDR(t.Context(), "a", []byte("{}")) },
			request{"PATCH", clusterCIDRs + "/a", Manager, "application/merge-patch+json", false, ""}},
		"a status": {func() error { _, err := api.ApplyStatus(t.Context(), applyv1.ClusterCIDR("a")); return err },
			request{"PATCH", clusterCIDRs + "/a/status", Manager, "application/apply-patch+yaml", false, ""}},
		"what is foreign in a status": {func() error { return api.PatchStatus(t.Context(), "a", []byte("{}")) },
			request{"PATCH", clusterCIDRs + "/a/status", Manager, "application/merge-patch+json", false, ""}},
		"a ClusterCIDR of the flags": {func() error {
			_, err := api.CreateClusterCIDR(t.Context(), &networkingv1.ClusterCIDR{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
			return err
		}, request{"POST", clusterCIDRs, Manager, "application/json", false, ""}},
		"the end of a ClusterCIDR of other flags": {func() error { return api.DeleteClusterCIDR(t.Context(), "a", "uid", "1") },
			request{"DELETE", clusterCIDRs + "/a", "", "application/json", false, `{"uid":"uid","resourceVersion":"1"}}` + "\n"}},
		"an event": {func() error {
			return api.CreateEvent(t.Context(), &v1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "default"}})
		}, request{"POST", "/api/v1/namespaces/default/events", Manager, "application/json", false, ""}},
		"the same event again": {func() error { _, err := api.PatchEvent(t.Context(), "default", "e", []byte("{}")); return err },
			request{"PATCH", "/api/v1/namespaces/default/events/e", Manager, "application/merge-patch+json", false, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tc.call(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// What the API server says of a status that it refuses is needed to tell people what to do.
func TestRefusedStatus(t *testing.T) {
	refusal := apierrors.NewInvalid(networkingv1.SchemeGroupVersion.WithKind("ClusterCIDR").GroupKind(), "not today", nil).Status()
	refusal.APIVersion, refusal.Kind = "v1", "Status"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = json.NewEncoder(w).Encode(refusal)
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	_, err := Clients{ClusterCIDRs: versioned.NewForConfigOrDie(config)}.ApplyStatus(t.Context(), applyv1.ClusterCIDR("a"))
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "not today") {
		t.Errorf("it is %v", err)
	}
}

// Only an object that does not exist needs no further try.
func TestNotThere(t *testing.T) {
	resource := networkingv1.SchemeGroupVersion.WithResource("clustercidrs").GroupResource()
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"the object":   {apierrors.NewNotFound(resource, "a"), true},
		"the resource": {apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", resource, "a", "404 page not found", 0, true), false},
		"no answer":    {context.DeadlineExceeded, false},
	} {
		if got := writes.NotThere(tc.err); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// After a 5xx with Retry-After client-go sends a request again by itself. The API server may be at work on the first one still, so a refusal
// of the second would say nothing about it.
func TestPatchNodeIsSentOnce(t *testing.T) {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests++; requests > 1 {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	api := Clients{Kube: kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL})}
	if err := api.PatchNode(t.Context(), "n", []byte("{}")); err == nil || writes.Answered(err) || requests != 1 {
		t.Errorf("%d requests, and in the end %v, want one and its answer", requests, err)
	}
}
