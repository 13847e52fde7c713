package parity

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // leader_election_master_status
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/multicidr/controller-manager/controllers/manager"
)

// runAsManager in the environment makes the test binary a kube-controller-manager with controllers that behave badly. The real one
// has none.
const runAsManager = "TEST_PARITY_RUN_AS_MANAGER"

func TestMain(m *testing.M) {
	if os.Getenv(runAsManager) == "" {
		os.Exit(m.Run())
	}
	os.Exit(cli.Run(manager.NewCommand(
		manager.Descriptor{Name: "failing", New: func(context.Context, manager.Context) (app.Controller, error) {
			return nil, errors.New("no permission")
		}},
		manager.Descriptor{Name: "blocking", New: func(ctx context.Context, _ manager.Context) (app.Controller, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}},
		manager.Descriptor{Name: "lingering", New: newLingering},
	)))
}

// lingering is a controller that takes its time to end: until it has seen what becomes of the lease meanwhile.
type lingering struct{ client kubernetes.Interface }

func newLingering(_ context.Context, c manager.Context) (app.Controller, error) {
	client, err := c.ClientBuilder.Client("lingering")
	return &lingering{client}, err
}

func (*lingering) Name() string { return "lingering" }

func (l *lingering) Run(ctx context.Context) {
	<-ctx.Done()
	stopped := time.Now()
	outcome := "neither renewed nor released"
	ctx = context.WithoutCancel(ctx)
	_ = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 8*time.Second, true, func(ctx context.Context) (bool, error) {
		lease, err := l.client.CoordinationV1().Leases("kube-system").Get(ctx, "kube-controller-manager", metav1.GetOptions{})
		switch {
		case err != nil:
			outcome = err.Error()
			return false, nil
		case lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "":
			outcome = "released"
			return true, nil
		case lease.Spec.RenewTime.After(stopped):
			outcome = "renewed"
			return true, nil
		}
		return false, nil
	})
	_, _ = l.client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "lingering"}, Data: map[string]string{"lease": outcome},
	}, metav1.CreateOptions{}) // The test misses it if that fails.
}
