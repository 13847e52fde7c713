package lease

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestTransport uses client-go as controllers do: errors.Is must find ErrClosed in the error of a typed client.
func TestTransport(t *testing.T) {
	for name, tc := range map[string]struct {
		enter bool          // the fence first
		then  time.Duration // pass before the request is sent
		want  url.Values    // what arrives at the server; nil: nothing
	}{
		"other requests pass unchanged":        {want: url.Values{"fieldManager": {"us"}}},
		"a write tells how long it may take":   {enter: true, want: url.Values{"fieldManager": {"us"}, "timeout": {"5s"}}},
		"less time is left if it was delayed":  {enter: true, then: 3 * time.Second, want: url.Values{"fieldManager": {"us"}, "timeout": {"2s"}}},
		"a write that is too late is not sent": {enter: true, then: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var got url.Values
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = r.URL.Query()
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Node"}`))
			}))
			defer server.Close()
			config := &rest.Config{Host: server.URL}
			config.Wrap(Transport)

			w, ctx := newWorld(), t.Context()
			w.renew()
			if tc.enter {
				entered, leave, err := w.fence.Enter(ctx, 5*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				defer leave()
				ctx = entered
			}
			// The machine was suspended: the deadline of the context has not moved.
			w.suspend(tc.then)
			_, err := kubernetes.NewForConfigOrDie(config).CoreV1().Nodes().
				Patch(ctx, "n", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{FieldManager: "us"})
			if tc.want == nil != errors.Is(err, ErrClosed) || tc.want != nil && err != nil {
				t.Errorf("got error %v", err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("query of the request (-want +got):\n%s", diff)
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// If net/http could repeat a request by itself, the repetition would have the old timeout.
func TestTransportAllowsNoRepetition(t *testing.T) {
	w := newWorld()
	w.renew()
	ctx, leave, err := w.fence.Enter(t.Context(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodPatch, "http://server.invalid/", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if req.GetBody == nil {
		t.Fatal("this request cannot be repeated anyway")
	}
	sent := false
	_, _ = Transport(roundTripper(func(r *http.Request) (*http.Response, error) {
		if sent = true; r.GetBody != nil {
			t.Error("net/http can repeat it")
		}
		return nil, http.ErrHandlerTimeout
	})).RoundTrip(req)
	if !sent {
		t.Error("it was not sent")
	}
}

// Getting a connection takes time, in which the process may be stopped. What is too late then is not carried out: its body does not arrive.
func TestTransportLooksBehindTheConnection(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		for takes, want := range map[time.Duration]bool{2 * time.Second: true, 3 * time.Second: false} {
			t.Run(fmt.Sprintf("%s after %v", name, takes), func(t *testing.T) {
				bodies := make(chan string, 1)
				server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					if body, err := io.ReadAll(r.Body); err == nil {
						bodies <- string(body)
					}
				}))
				server.EnableHTTP2 = http2
				server.StartTLS()
				defer server.Close()
				w := newWorld()
				w.renew()
				ctx, leave, err := w.fence.Enter(t.Context(), 5*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				defer leave()
				connects := server.Client().Transport.(*http.Transport)
				connects.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
					w.suspend(takes)
					return new(net.Dialer).DialContext(ctx, network, addr)
				}
				req, err := http.NewRequestWithContext(ctx, http.MethodPatch, server.URL, strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				answer, err := Transport(connects).RoundTrip(req)
				if err == nil {
					answer.Body.Close()
				}
				if sent := !errors.Is(err, ErrClosed); sent != want || (len(bodies) > 0) != want {
					t.Errorf("got %v and %d bodies, want it sent: %t", err, len(bodies), want)
				}
			})
		}
	}
}
