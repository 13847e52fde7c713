package shell

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// request is what arrives at the API server.
type request struct{ Method, Path, ContentType, Body string }

// apiServer answers every request with the same code and body, and keeps the requests.
type apiServer struct {
	mu      sync.Mutex
	code    int // 0: the connection breaks
	body    string
	arrived []request
}

// answers sets what the server answers from now on, and forgets the requests.
func (s *apiServer) answers(code int, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.code, s.body, s.arrived = code, body, nil
}

func (s *apiServer) requests() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.arrived
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	sent, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrived = append(s.arrived, request{r.Method, r.URL.Path, r.Header.Get("Content-Type"), string(sent)})
	if s.code == 0 {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", "0")
	w.WriteHeader(s.code)
	_, _ = io.WriteString(w, s.body)
}

func serveAPI(t *testing.T) (*apiServer, *clients) {
	s := &apiServer{}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	served := map[*Kind]string{IPAddresses: GroupIPAM + "/v1beta1", InClusterIPPools: GroupIPAM + "/v1alpha2"}
	config := &rest.Config{Host: server.URL}
	config.Wrap(lease.Transport)
	c, err := newClients(config, "me", func(kind *Kind) (string, bool) { v, ok := served[kind]; return v, ok })
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// TestWritesAreSentOnce: client-go repeats some requests by itself. Then the last answer says nothing about the earlier attempts.
func TestWritesAreSentOnce(t *testing.T) {
	server, c := serveAPI(t)
	api := &fenced{API: c, note: func(*Kind, string, error) {}}
	of := types.NamespacedName{Namespace: "n", Name: "a"}
	for _, answer := range []int{0, 503, 429} {
		for name, write := range map[string]func() error{
			"create": func() error {
				return api.Create(t.Context(), IPAddresses, &v1beta2.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a"}}, nil)
			},
			"patch":  func() error { return api.Patch(t.Context(), IPAddresses, of, Patch{Body: []byte("{}")}, nil) },
			"delete": func() error { return api.Delete(t.Context(), IPAddresses, of, "u", "") },
		} {
			server.answers(answer, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"full","code":%d}`, answer))
			fence := &lease.Fence{}
			api.fence = fence
			err := write()
			if arrived := server.requests(); err == nil || len(arrived) != 1 {
				t.Errorf("%s, answer %d: %d requests have arrived, error %v", name, answer, len(arrived), err)
			}
			if known := answer == 429; writes.Answered(err) != known || (fence.Unanswered() == 0) != known {
				t.Errorf("%s, answer %d: answered %v, unanswered %v", name, answer, writes.Answered(err), fence.Unanswered())
			}
		}
	}
}

// TestRequests: what a write looks like, and that the Store shows its answer.
func TestRequests(t *testing.T) {
	const body = `{"metadata":{"namespace":"n","name":"a","uid":"u","resourceVersion":"7","managedFields":[{}]},"spec":{"address":"10.0.0.5"}}`
	server, c := serveAPI(t)
	store := NewStore[v1beta2.IPAddress](Reads{Kind: IPAddresses})
	api := &fenced{API: c, fence: &lease.Fence{}, sources: map[*Kind]Source{IPAddresses: store}, note: func(*Kind, string, error) {}}
	of := types.NamespacedName{Namespace: "n", Name: "a"}
	address := &v1beta2.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a", UID: "u", ResourceVersion: "6"}}
	const base, merge = "/apis/" + GroupIPAM, "application/merge-patch+json"
	for _, tc := range []struct {
		do   func() error
		want request // the body only in parts, as JSON
	}{
		{func() error { return api.Create(t.Context(), IPAddresses, address, nil) },
			request{"POST", base + "/v1beta1/namespaces/n/ipaddresses", "application/json", `{"apiVersion":"` + GroupIPAM + `/v1beta1","kind":"IPAddress"}`}},
		{func() error {
			return api.Patch(t.Context(), IPAddresses, of, MergePatchOfVersion(address, map[string]any{"metadata": map[string]any{"finalizers": nil}}), nil)
		}, request{"PATCH", base + "/v1beta1/namespaces/n/ipaddresses/a", merge, `{"metadata":{"finalizers":null,"resourceVersion":"6","uid":"u"}}`}},
		{func() error {
			return api.Patch(t.Context(), InClusterIPPools, of, StatusPatch(&v1alpha2.InClusterIPPool{ObjectMeta: metav1.ObjectMeta{UID: "p"}}, map[string]any{"a": 1}), nil)
		}, request{"PATCH", base + "/v1alpha2/namespaces/n/inclusterippools/a/status", merge, `{"metadata":{"uid":"p"},"status":{"a":1}}`}},
		{func() error { return api.Delete(t.Context(), IPAddresses, of, "u", "7") },
			request{"DELETE", base + "/v1beta1/namespaces/n/ipaddresses/a", "application/json", `{"preconditions":{"resourceVersion":"7","uid":"u"}}`}},
	} {
		server.answers(200, body)
		err := tc.do()
		arrived := server.requests()
		if err != nil || len(arrived) != 1 {
			t.Fatalf("%+v: error %v, arrived %v", tc.want, err, arrived)
		}
		got := arrived[0]
		var sent, want map[string]any
		if err := json.Unmarshal([]byte(got.Body), &sent); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(tc.want.Body), &want); err != nil {
			t.Fatal(err)
		}
		for field, value := range want {
			if diff := cmp.Diff(value, sent[field]); diff != "" {
				t.Errorf("%s %s: %s (-want +got):\n%s", got.Method, got.Path, field, diff)
			}
		}
		if got.Body = tc.want.Body; got != tc.want {
			t.Errorf("request %+v, want %+v", got, tc.want)
		}
	}
	if shown, ok := store.Get("n", "a"); !ok || shown.ResourceVersion != "7" || shown.Spec.Address != "10.0.0.5" || shown.ManagedFields != nil {
		t.Errorf("the Store shows %+v", shown)
	}
	if err := api.Create(t.Context(), Clusters, address, nil); !writes.NotThere(err) || !writes.Answered(err) {
		t.Errorf("a kind that is not served: %v", err)
	}
	fence := &lease.Fence{}
	fence.Close()
	server.answers(200, body)
	api.fence = fence
	if err := api.Delete(t.Context(), IPAddresses, of, "u", ""); !writes.NotItsTurn(err) || len(server.requests()) != 0 {
		t.Errorf("with a closed fence: %v, arrived %v", err, server.requests())
	}
}
