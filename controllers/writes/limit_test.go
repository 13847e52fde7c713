package writes

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// A request for which the limit has no room in time is not sent, and is no failure of the API server. One that waits gets half of its time at least.
func TestLimiter(t *testing.T) {
	arrived := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived++
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Node","apiVersion":"v1"}`))
	}))
	defer server.Close()
	client := kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL, RateLimiter: Limiter{RateLimiter: flowcontrol.NewTokenBucketRateLimiter(0.001, 1), Flag: "qps"}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range 2 {
		_, err := client.CoreV1().Nodes().Patch(ctx, "n", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
		if throttled := errors.Is(err, ErrThrottled); throttled != (i == 1) || throttled && (!NotSent(err) || !NotItsTurn(err)) {
			t.Errorf("request %d: %v", i, err)
		}
	}
	if arrived != 1 {
		t.Errorf("%d requests have arrived, want 1", arrived)
	}

	waits := Limiter{RateLimiter: flowcontrol.NewTokenBucketRateLimiter(1, 1)} // one second until the second one
	for timeout, throttled := range map[time.Duration]bool{1500 * time.Millisecond: true, time.Minute: false} {
		waits.Accept()
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		if err := waits.Wait(ctx); errors.Is(err, ErrThrottled) != throttled {
			t.Errorf("with a timeout of %v: %v", timeout, err)
		}
		cancel()
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := waits.Wait(stopped); !errors.Is(err, context.Canceled) {
		t.Errorf("at the end of the process: %v", err)
	}
}
