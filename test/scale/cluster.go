package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// The addresses of every scenario: 131,072 blocks, and no service range among them.
const (
	rangeName  = "range"
	rangeCIDR  = "10.128.0.0/9"
	hostBits   = 6
	maskLength = 32 - hostBits
)

// cluster is a fresh control plane with the manifests of our controllers, and the clients with which this program acts for users and kubelets.
type cluster struct {
	*controlplane.ControlPlane
	root         string
	kube         kubernetes.Interface
	dynamic      dynamic.Interface
	clusterCIDRs versioned.Interface
	auditLog     string
	others       []*controlplane.Process // The control plane knows and stops its managers, but not these.
}

// withCluster calls f with a cluster of its own and stops it afterwards. Logs of one that failed stay.
func withCluster(ctx context.Context, f func(*cluster) (metrics, error)) (got metrics, err error) {
	dir, err := os.MkdirTemp("", "scale-")
	if err != nil {
		return nil, err
	}
	c := &cluster{}
	opts := controlplane.Options{
		Dir: dir,
		// 100,000 Nodes with their history are more than the 2 GiB that etcd takes by default.
		EtcdArgs: []string{"--quota-backend-bytes=8589934592"},
	}
	if opts.APIServerArgs, c.auditLog, err = controlplane.Audit(dir, audited); err != nil {
		return nil, err
	}
	if c.ControlPlane, err = controlplane.Start(ctx, opts); err != nil {
		return nil, err
	}
	if err = c.prepare(ctx); err == nil {
		got, err = f(c)
	}
	for _, other := range c.others { // before the API server, which waits for who still watches
		err = errors.Join(err, other.Stop())
	}
	if err != nil {
		return nil, fmt.Errorf("%w (logs are kept in %s)", errors.Join(err, c.StopKeepingLogs()), c.LogDir())
	}
	return got, errors.Join(c.Stop(), os.RemoveAll(dir))
}

func (c *cluster) prepare(ctx context.Context) (err error) {
	if c.root, err = controlplane.ModuleRoot(); err != nil {
		return err
	}
	if err = c.Apply(ctx, filepath.Join(c.root, "manifests/crds"), filepath.Join(c.root, "manifests/rbac")); err != nil {
		return err
	}
	if c.clusterCIDRs, err = versioned.NewForConfig(c.AdminConfig()); err != nil {
		return err
	}
	if c.dynamic, err = dynamic.NewForConfig(c.AdminConfig()); err != nil {
		return err
	}
	c.kube, err = kubernetes.NewForConfig(protobuf(c.AdminConfig()))
	return err
}

// protobuf is what kubelets and managers speak to the API server.
func protobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	return config
}

func (c *cluster) createClusterCIDR(ctx context.Context, name string, spec networkingv1.ClusterCIDRSpec) error {
	cc := &networkingv1.ClusterCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	// The API server has just learnt the kind, and may not serve it yet.
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, last = c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Create(ctx, cc, metav1.CreateOptions{})
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("create ClusterCIDR %s: %w", name, errors.Join(err, last))
	}
	return nil
}

// createWholeRange creates a ClusterCIDR with all addresses, for all Nodes.
func (c *cluster) createWholeRange(ctx context.Context) error {
	return c.createClusterCIDR(ctx, rangeName, networkingv1.ClusterCIDRSpec{IPv4: rangeCIDR, PerNodeHostBits: hostBits})
}

// settle returns when the control plane has nothing left to do from what was before, so that the next measurement begins with a quiet one.
func (c *cluster) settle(ctx context.Context) error {
	const (
		window = time.Second / 2
		quiet  = window / 10
	)
	var before time.Duration
	err := wait.PollUntilContextTimeout(ctx, window, 2*time.Minute, true, func(context.Context) (bool, error) {
		now, err := cpuTime(c.Etcd(), c.APIServer())
		done := before > 0 && now-before < quiet
		before = now
		return done, err
	})
	if err != nil {
		return fmt.Errorf("wait for a quiet control plane: %w", err)
	}
	return nil
}

// pause lets time go by. Here it is time that is measured: how much happens in it.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
