package clusteripam

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/multicidr/controller-manager/controllers/clusteripam"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
	"github.com/multicidr/controller-manager/controllers/lease"
)

// roundTripper is an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestPanic: a controller panics after its first IPAddress was created and before it learns that. Its Run returns, for which its program ends. The
// next one goes on where the first one was. The program has no way to panic, so both controllers run in the process of the test, one after the other.
func TestPanic(t *testing.T) {
	const name = "in-cluster-ip-pool-controller"
	c := newCluster(t, alone)
	c.apply(crds)
	config, err := c.cp.Config(aloneUser)
	c.do("make credentials", err)
	var panicked atomic.Bool
	goOn := make(chan struct{})
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			ofAddresses := strings.HasSuffix(r.URL.Path, "/ipaddresses")
			if ofAddresses && panicked.Load() {
				select {
				case <-goOn: // The next controller, which has to read them, waits until its health and metrics have been looked at.
				case <-r.Context().Done():
					return nil, r.Context().Err()
				}
			}
			answer, err := next.RoundTrip(r)
			if err == nil && r.Method == http.MethodPost && ofAddresses && panicked.CompareAndSwap(false, true) {
				panic("the answer to the first create")
			}
			return answer, err
		})
	})

	total := `cluster_ipam_panics_total{controller="` + name + `"} `
	var before int // in this process, if the test runs more than once
	if _, value, ok := strings.Cut(metricsPage(), "\n"+total); ok {
		_, err := fmt.Sscan(value, &before)
		c.do("read the number of panics", err)
	}
	total += fmt.Sprint(before + 1)

	ctx, cancel := context.WithCancel(t.Context())
	var current atomic.Pointer[shell.Controller]
	ended := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			built, err := clusteripam.NewOptions().Build(name, rest.CopyConfig(config), &lease.Fence{})
			if err != nil {
				ended <- err
				return
			}
			current.Store(built)
			built.Run(ctx)
		}
		ended <- nil
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	n := c.in(t, "panic")
	n.pool("p", "{addresses: [10.0.0.1-10.0.0.3], prefix: 24}")
	for _, claim := range []string{"a", "b", "c"} {
		n.claim(claim, "p")
	}
	n.untilMetrics(total, `cluster_ipam_ready{controller="`+name+`"} 0`)
	close(goOn)
	n.wants("a=10.0.0.1", "b=10.0.0.2", "c=10.0.0.3")
	n.untilMetrics(total, `cluster_ipam_ready{controller="`+name+`"} 1`, `cluster_ipam_bound_objects{controller="`+name+`"} 3`,
		`cluster_ipam_conflicting_addresses{controller="`+name+`"} 0`)
	if err := current.Load().HealthChecker().Check(nil); err != nil {
		t.Errorf("the health check says %v after everything was done", err)
	}
}

// untilMetrics waits until the metrics of this process have these lines.
func (n *space) untilMetrics(lines ...string) {
	n.t.Helper()
	n.eventually(func(context.Context) error {
		page := metricsPage()
		for _, line := range lines {
			if !strings.Contains(page, "\n"+line+"\n") {
				return fmt.Errorf("the metrics have no %s", line)
			}
		}
		return nil
	})
}

func metricsPage() string {
	page := httptest.NewRecorder()
	legacyregistry.Handler().ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return page.Body.String()
}
