package integration

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/test/controlplane"
)

const (
	// patience is how long a condition may take to come true. It only shows on a failure; a case that
	// promises a time asks for it.
	patience = 30 * time.Second
	poll     = 20 * time.Millisecond
)

// cluster is a control plane with our manager on it.
type cluster struct {
	cp           *controlplane.ControlPlane
	kube         kubernetes.Interface
	clusterCIDRs versioned.Interface

	manager     *controlplane.Manager // nil while none runs
	managerArgs []string              // what it was started with
}

// ours runs nothing but our controller: it starts at once, and nobody else changes the Nodes.
var ours = []string{"--controllers=multi-cidr-node-ipam-controller"}

// shared is the cluster of all tests that clean up behind themselves.
var shared struct {
	once sync.Once
	*cluster
	err error
}

// sharedCluster starts the shared cluster for the first test that wants it, and gives every test an empty one.
func sharedCluster(t testing.TB) *cluster {
	t.Helper()
	shared.once.Do(func() { shared.cluster, shared.err = newCluster(controlplane.Options{}) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	// Also after a failure: else the next test would fail for this one's Nodes.
	t.Cleanup(func() {
		if err := shared.reset(); err != nil {
			t.Error(err)
		}
	})
	return shared.cluster
}

// stopShared ends the shared cluster, if there is one.
func stopShared(keepLogs bool) error {
	if shared.cluster == nil {
		return nil
	}
	if keepLogs {
		fmt.Fprintf(os.Stderr, "logs of the control plane are kept in %s\n", shared.cp.LogDir())
		return shared.cp.StopKeepingLogs()
	}
	return shared.cp.Stop()
}

// freshCluster starts a cluster that the test has for itself.
func freshCluster(t testing.TB, opts controlplane.Options, managerArgs ...string) *cluster {
	t.Helper()
	c, err := newCluster(opts, managerArgs...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop := c.cp.Stop
		if t.Failed() {
			t.Logf("logs of the control plane are kept in %s", c.cp.LogDir())
			stop = c.cp.StopKeepingLogs
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// newCluster starts a control plane with CRD, RBAC and our manager. Without managerArgs only our controller runs.
func newCluster(opts controlplane.Options, managerArgs ...string) (_ *cluster, err error) {
	if opts.ServiceRange == "" {
		// Documentation ranges: no case has them in a ClusterCIDR.
		opts.ServiceRange = "198.51.100.0/24,2001:db8::/112"
	}
	ctx := context.Background()
	cp, err := controlplane.Start(ctx, opts)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, cp.StopKeepingLogs())
		}
	}()
	c := &cluster{
		cp:           cp,
		kube:         kubernetes.NewForConfigOrDie(cp.AdminConfig()),
		clusterCIDRs: versioned.NewForConfigOrDie(cp.AdminConfig()),
	}
	if err := cp.Apply(ctx, "../../manifests/crds", "../../manifests/rbac"); err != nil {
		return nil, err
	}
	if len(managerArgs) == 0 {
		managerArgs = ours
	}
	return c, c.startManager(managerArgs...)
}

// startManager starts the manager and returns when it leads.
func (c *cluster) startManager(args ...string) error {
	ctx := context.Background()
	// Whoever held the lease is gone for sure, so nobody has to wait until it has run out.
	err := c.kube.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, "kube-controller-manager", metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	manager, err := c.cp.StartManager(ctx, controlplane.ManagerOptions{Args: args})
	if err != nil {
		return err
	}
	c.manager, c.managerArgs = manager, args
	return manager.WaitLeading(ctx)
}

// stopManager ends the manager in the given way: (*controlplane.Process).Stop or Kill.
func (c *cluster) stopManager(how func(*controlplane.Process) error) error {
	if c.manager == nil {
		return errors.New("no manager runs")
	}
	err := how(c.manager.Process)
	c.manager = nil
	return err
}

// reset deletes all Nodes and ClusterCIDRs and sees to it that a manager with the usual flags runs. A ClusterCIDR that
// stays behind is an error: its finalizer has to go with the last Node.
func (c *cluster) reset() error {
	ctx := context.Background()
	if c.manager != nil && !slices.Equal(c.managerArgs, ours) {
		if err := c.stopManager((*controlplane.Process).Stop); err != nil {
			return err
		}
	}
	if c.manager == nil {
		if err := c.startManager(ours...); err != nil {
			return err
		}
	}
	if err := c.manager.Continue(); err != nil { // if a test paused it
		return err
	}
	nodes, err := c.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, node := range nodes.Items {
		if len(node.Finalizers) == 0 {
			continue
		}
		if err := c.clearFinalizers(ctx, node.Name); err != nil {
			return err
		}
	}
	if err := c.kube.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return err
	}
	clusterCIDRs := c.clusterCIDRs.NetworkingV1().ClusterCIDRs()
	if err := clusterCIDRs.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return err
	}
	var left []string
	err = eventually(patience, func(ctx context.Context) error {
		list, err := clusterCIDRs.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		left = nil
		for _, cc := range list.Items {
			left = append(left, cc.Name)
		}
		if len(left) > 0 {
			return fmt.Errorf("ClusterCIDRs %q are still there although no Node is", left)
		}
		return nil
	})
	for _, name := range left { // The next test starts clean all the same.
		_, patchErr := clusterCIDRs.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		err = errors.Join(err, patchErr)
	}
	return err
}

// clearFinalizers takes all finalizers from a Node, so that a deletion of it ends.
func (c *cluster) clearFinalizers(ctx context.Context, node string) error {
	_, err := c.kube.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	return err
}

// waitServed waits until the Node has podCIDRs. They never change again, so the caller may compare at once.
func (c *cluster) waitServed(name string, within time.Duration) (*corev1.Node, error) {
	var node *corev1.Node
	err := eventually(within, func(ctx context.Context) (err error) {
		if node, err = c.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if len(node.Spec.PodCIDRs) == 0 {
			return fmt.Errorf("Node %s has no podCIDRs", name)
		}
		return nil
	})
	return node, err
}

// waitEvent waits for a warning about this very Node, not about an earlier one of its name.
func (c *cluster) waitEvent(node *corev1.Node, reason string, within time.Duration) (corev1.Event, error) {
	var found corev1.Event
	selector := fields.Set{"involvedObject.uid": string(node.UID), "reason": reason, "type": corev1.EventTypeWarning}.String()
	err := eventually(within, func(ctx context.Context) error {
		events, err := c.kube.CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: selector})
		if err != nil {
			return err
		}
		if len(events.Items) == 0 {
			return fmt.Errorf("Node %s has no event %s", node.Name, reason)
		}
		newer := func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) }
		found = slices.MaxFunc(events.Items, newer)
		return nil
	})
	return found, err
}

// overlaps returns an error for every two Nodes that were served blocks with a common address. Nodes that were created
// with podCIDRs do not count; nobody can help what they have.
func (c *cluster) overlaps(ctx context.Context) error {
	nodes, err := c.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	type block struct {
		netip.Prefix
		node string
	}
	var blocks []block
	for _, node := range nodes.Items {
		if node.Annotations[networkingv1.AnnotationClusterCIDR] == "" {
			continue
		}
		for _, podCIDR := range node.Spec.PodCIDRs {
			prefix, err := netip.ParsePrefix(podCIDR)
			if err != nil {
				return fmt.Errorf("Node %s: %w", node.Name, err)
			}
			blocks = append(blocks, block{prefix, node.Name})
		}
	}
	// In this order a block stands before all that lie in it, so an overlap shows between neighbours first.
	slices.SortFunc(blocks, func(a, b block) int {
		if byAddress := a.Addr().Compare(b.Addr()); byAddress != 0 {
			return byAddress
		}
		return a.Bits() - b.Bits()
	})
	var errs []error
	for i := 1; i < len(blocks); i++ {
		if a, b := blocks[i-1], blocks[i]; a.Overlaps(b.Prefix) {
			errs = append(errs, fmt.Errorf("Nodes %s and %s overlap: %s, %s", a.node, b.node, a.Prefix, b.Prefix))
		}
	}
	return errors.Join(errs...)
}

// eventually calls condition until it returns nil; after the time its last error is returned.
func eventually(within time.Duration, condition func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(context.Background(), poll, within, true, func(ctx context.Context) (bool, error) {
		if err := condition(ctx); err == nil || ctx.Err() == nil {
			last = err
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("after %s: %w", within, last)
	}
	return nil
}
