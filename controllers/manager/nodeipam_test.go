package manager

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"
	clientbuilder "k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

// ready is the value of the metric; -1 if there is none.
func ready(t *testing.T) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "node_ipam_controller_ready" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}

// A leader whose controller cannot be built says so in its metrics, so that an alert can tell it from a process without the controller.
func TestUnbuiltControllerIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var c app.ControllerContext
		c.ClientBuilder = clientbuilder.SimpleControllerClientBuilder{ClientConfig: &rest.Config{}}
		c.InformerFactory = informers.NewSharedInformerFactory(nil, 0)
		c.ComponentConfig.KubeCloudShared.AllocateNodeCIDRs = true
		c.ComponentConfig.KubeCloudShared.ClusterCIDR = "rubbish"
		d := NodeIPAM()
		if got := ready(t); got != -1 {
			t.Errorf("a standby shows %v", got)
		}
		for range 2 {
			if _, err := d.New(ctx, Context{ControllerContext: c}); err == nil || !strings.Contains(err.Error(), "rubbish") {
				t.Fatalf("got error %v, want one about the flag", err)
			}
			if got := ready(t); got != 0 {
				t.Errorf("got %v while the controller cannot be built, want 0", got)
			}
		}
		cancel()
		synctest.Wait()
		if got := ready(t); got != -1 {
			t.Errorf("got %v after the end, want none", got)
		}
	})
}
