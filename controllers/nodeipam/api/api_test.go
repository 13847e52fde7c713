package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/lease"
)

// apiServer answers every request with answer, and returns an API that talks to it.
func apiServer(t *testing.T, answer http.HandlerFunc) (API, kubernetes.Interface) {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	return API{ClusterCIDRs: versioned.NewForConfigOrDie(config), Fence: &lease.Fence{}}, kubernetes.NewForConfigOrDie(config)
}

func TestRequests(t *testing.T) {
	type request struct {
		Method, Path, Manager, ContentType string
		Brief                              bool // only metadata are asked for in return
	}
	var got []request
	api, client := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, request{r.Method, r.URL.Path, r.URL.Query().Get("fieldManager"), r.Header.Get("Content-Type"), strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata")})
		w.Header().Set("Retry-After", "0") // which client-go follows unless it is told not to
		w.WriteHeader(http.StatusTooManyRequests)
	})
	const clusterCIDRs = "/apis/networking.x-k8s.io/v1/clustercidrs"
	for name, tc := range map[string]struct {
		call func() error
		want request
	}{
		"podCIDRs": {func() error { _, err := PatchNode(t.Context(), client, "n", []byte("{}")); return err },
			request{"PATCH", "/api/v1/nodes/n", Manager, "application/strategic-merge-patch+json", true}},
		"a finalizer": {func() error { return api.PatchClusterCIDR(t.Context(), "a", []byte("{}")) },
			request{"PATCH", clusterCIDRs + "/a", Manager, "application/merge-patch+json", false}},
		"a status": {func() error { return api.ApplyStatus(t.Context(), "a", []byte("{}")) },
			request{"PATCH", clusterCIDRs + "/a/status", Manager, "application/apply-patch+yaml", false}},
		"a ClusterCIDR of the flags": {func() error {
			return api.CreateClusterCIDR(t.Context(), &networkingv1.ClusterCIDR{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
		}, request{"POST", clusterCIDRs, Manager, "application/json", false}},
	} {
		t.Run(name, func(t *testing.T) {
			got = nil
			if err := tc.call(); !NotSent(err) {
				t.Errorf("error %v, want 429", err)
			}
			if diff := cmp.Diff([]request{tc.want}, got); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever is around the resource version, it is found; and a write is carried out although its answer does not tell.
func TestResourceVersionOfAnAnswer(t *testing.T) {
	meta := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "4711", Generation: 3,
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: &metav1.FieldsV1{}}}}}
	raw, err := meta.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	envelope, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, Raw: raw}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(meta)
	if err != nil {
		t.Fatal(err)
	}
	protobuf := "k8s\x00" + string(envelope)
	for name, tc := range map[string]struct{ contentType, body, want string }{
		"protobuf":     {"application/vnd.kubernetes.protobuf", protobuf, "4711"},
		"JSON":         {"application/json", string(text), "4711"},
		"cut protobuf": {"application/vnd.kubernetes.protobuf", protobuf[:len(protobuf)/2], ""},
		"no metadata":  {"application/json", "{}", ""},
		"a proxy":      {"text/html", "<html>", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, client := apiServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.contentType)
				_, _ = w.Write([]byte(tc.body))
			})
			if got, err := PatchNode(t.Context(), client, "n", []byte("{}")); got != tc.want || err != nil {
				t.Errorf("got %q and error %v, want %q", got, err, tc.want)
			}
		})
	}
}

func TestNoStatus(t *testing.T) {
	api, _ := apiServer(t, http.NotFound)
	if err := api.ApplyStatus(t.Context(), "a", []byte("{}")); !errors.Is(err, ErrNoStatus) {
		t.Errorf("got error %v", err)
	}
}
