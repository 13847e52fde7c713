package move

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"
)

// window is the time between the DELETE of an object and the removal of its finalizers: clusterctl does both at once, and a busy API server
// gives our controllers more time in between.
const window = 300 * time.Millisecond

// clusterctl is the command on an administrator's machine.
type clusterctl struct {
	client.Client
	configuration config.Client
	kubeconfigs   map[*management]client.Kubeconfig
	// beforeDeletes is called when everything was copied, and before the first object is deleted.
	beforeDeletes func()
}

// newClusterctl returns the command for some clusters. addProviders may be nil.
func newClusterctl(t *testing.T, addProviders func(*config.MemoryReader) error, clusters ...*management) *clusterctl {
	t.Helper()
	crlog.SetLogger(logr.Discard()) // It complains at length of having none.
	reader := config.NewMemoryReader()
	if addProviders != nil {
		if err := addProviders(reader); err != nil {
			t.Fatal(err)
		}
	}
	if err := reader.Init(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	configuration, err := config.New(t.Context(), "", config.InjectReader(reader))
	if err != nil {
		t.Fatal(err)
	}
	c := &clusterctl{configuration: configuration, kubeconfigs: map[*management]client.Kubeconfig{}}
	for _, m := range clusters {
		path, err := m.cp.Kubeconfig("administrator", "system:masters")
		m.do("write a kubeconfig", err)
		c.kubeconfigs[m] = client.Kubeconfig{Path: path}
	}
	once := sync.OnceFunc(func() {
		if c.beforeDeletes != nil {
			c.beforeDeletes()
		}
	})
	c.Client, err = client.New(t.Context(), "", client.InjectConfig(configuration), client.InjectClusterClientFactory(
		func(input client.ClusterClientFactoryInput) (cluster.Client, error) {
			kubeconfig := cluster.Kubeconfig(input.Kubeconfig)
			return cluster.New(kubeconfig, configuration, cluster.InjectProxy(slow{cluster.NewProxy(kubeconfig), once})), nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// move is `clusterctl move`.
func (c *clusterctl) move(ctx context.Context, from, to *management) error {
	return c.Move(ctx, client.MoveOptions{FromKubeconfig: c.kubeconfigs[from], ToKubeconfig: c.kubeconfigs[to], Namespace: namespace})
}

// slow makes clusters with clients that wait between a DELETE and what follows.
type slow struct {
	cluster.Proxy
	beforeDeletes func()
}

func (s slow) NewClient(ctx context.Context) (crclient.Client, error) {
	c, err := s.Proxy.NewClient(ctx)
	return slowClient{c, s.beforeDeletes}, err
}

type slowClient struct {
	crclient.Client
	beforeDeletes func()
}

// Patch is what clusterctl begins a deletion with: it writes the annotation delete-for-move.
func (c slowClient) Patch(ctx context.Context, object crclient.Object, patch crclient.Patch, options ...crclient.PatchOption) error {
	if data, err := patch.Data(object); err == nil && strings.Contains(string(data), v1alpha3.DeleteForMoveAnnotation) {
		c.beforeDeletes()
	}
	return c.Client.Patch(ctx, object, patch, options...)
}

func (c slowClient) Delete(ctx context.Context, object crclient.Object, options ...crclient.DeleteOption) error {
	defer time.Sleep(window)
	return c.Client.Delete(ctx, object, options...)
}
