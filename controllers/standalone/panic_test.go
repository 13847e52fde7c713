package standalone

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
)

// TestControlGoesOnAfterAPanic: the process goes on and keeps its Lease. A new controller replaces the one that has panicked, and readiness says
// what has happened.
func TestControlGoesOnAfterAPanic(t *testing.T) {
	var requests atomic.Int32
	config := &rest.Config{Host: "http://127.0.0.1:1"}
	config.Wrap(func(http.RoundTripper) http.RoundTripper {
		return roundTripper(func(*http.Request) (*http.Response, error) {
			if requests.Add(1) == 1 {
				panic("the first request")
			}
			return nil, errors.New("there is no API server")
		})
	})
	p := &process{opts: newOptions(newNodeIPAM()), config: config, client: fake.NewClientset(), health: newHealth(false, "not serving Nodes yet", nodeipam.Name), server: &servers{}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.control(ctx, &lease.Fence{}) }()

	for _, want := range []string{
		"no Node gets podCIDRs: the controller has panicked, and has not started again yet; the controller has ended by itself once in this process",
		"ClusterCIDRs cannot be read", // the next one
	} {
		err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			err := p.health.controllers[0].check(nil)
			return err != nil && strings.Contains(err.Error(), want), nil
		})
		if err != nil {
			t.Fatalf("readiness says %v, want %q in it", p.health.controllers[0].check(nil), want)
		}
	}
	if says := p.health.controllers[0].check(nil).Error(); !strings.Contains(says, "panic: the first request. This is a defect: report it") {
		t.Errorf("readiness of the next one says %q, which does not tell of the panic", says)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// An informer may sleep for a minute after the API server has refused its list. A leader that ends does not wait for that while it holds the Lease.
func TestControlEndsBeforeItsInformers(t *testing.T) {
	asleep := make(chan struct{})
	t.Cleanup(func() { close(asleep) })
	watching := make(chan struct{}, 100)
	client := fake.NewClientset()
	client.PrependWatchReactor("nodes", func(clienttesting.Action) (bool, watch.Interface, error) {
		watching <- struct{}{}
		<-asleep
		return true, nil, errors.New("awake")
	})
	p := &process{opts: newOptions(newNodeIPAM()), config: &rest.Config{Host: "http://127.0.0.1:1"}, client: client, health: newHealth(false, "not serving Nodes yet", nodeipam.Name), server: &servers{}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.control(ctx, &lease.Fence{}) }()
	<-watching
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it waits for informers that are asleep")
	}
}
