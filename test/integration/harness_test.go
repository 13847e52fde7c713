package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/test/chaos/checker"
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
	dynamic      dynamic.Interface

	dir      string // all that belongs to the control plane
	auditLog string
	// counted is from where the scripts count writes.
	counted controlplane.AuditMark

	program     program
	manager     *controlplane.Manager // nil while none runs
	managerArgs []string              // what it was started with
	paused      bool                  // the manager
}

// defaultServiceCIDR is the one that the API server makes from its --service-cluster-ip-range.
const defaultServiceCIDR = "kubernetes"

// ours runs nothing but our controller: it starts at once, and nobody else changes the Nodes. startManager deletes the Lease, and with it
// who led before, so each start would be a takeover; but whoever was before has ended, and its requests with it.
var ours = []string{"--controllers=multi-cidr-node-ipam-controller", noTakeoverDelay}

// noTakeoverDelay: TestTakeoverFromStock is about that delay, and TestStandaloneReplicas shows that it does not come between our own.
const noTakeoverDelay = "--node-ipam-takeover-delay=0s"

// program is one that our controller runs in.
type program struct {
	alone bool
	cloud bool
	lease string   // in kube-system; our controller's
	outer string   // that of the program around it, if that is another one
	usual []string // flags of a manager that the tests share
}

var (
	insideManager = program{lease: "kube-controller-manager", usual: ours}
	alone         = program{lease: "node-ipam-controller", alone: true, usual: []string{noTakeoverDelay}}
	inCloud       = program{lease: "node-ipam-controller", outer: "cloud-controller-manager", cloud: true, usual: ours}
)

// flags are those that scripts give to a manager, as this program has them.
func (p program) flags(flags []string) []string {
	if p.alone {
		// Here naming --cluster-cidr is enough.
		return slices.DeleteFunc(slices.Concat(p.usual, flags), func(f string) bool { return f == "--allocate-node-cidrs" })
	}
	// --controllers adds up when it is given twice.
	if slices.ContainsFunc(flags, func(f string) bool { return strings.HasPrefix(f, "--controllers=") }) {
		return flags
	}
	return slices.Concat(p.usual, flags)
}

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
		expect(t, shared.reset())
	})
	return shared.cluster
}

// stopShared ends the shared cluster, if there is one.
func stopShared(keepLogs bool) error {
	if shared.cluster == nil {
		return nil
	}
	return shared.stop(keepLogs)
}

// stop ends all processes. Logs that are kept stay where it says.
func (c *cluster) stop(keepLogs bool) error {
	if keepLogs {
		fmt.Fprintf(os.Stderr, "logs of the control plane are kept in %s\n", c.cp.LogDir())
		return c.cp.StopKeepingLogs()
	}
	return errors.Join(c.cp.Stop(), os.RemoveAll(c.dir))
}

// freshCluster starts a cluster that the test has for itself.
func freshCluster(t testing.TB, opts controlplane.Options, managerArgs ...string) *cluster {
	t.Helper()
	c, err := newCluster(opts, managerArgs...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		expect(t, c.stop(t.Failed()))
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
	if opts.Dir, err = os.MkdirTemp("", "integration-"); err != nil {
		return nil, err
	}
	audit, auditLog, err := controlplane.Audit(opts.Dir, audited)
	if err != nil {
		return nil, err
	}
	opts.APIServerArgs = append(slices.Clone(opts.APIServerArgs), audit...)
	cp, err := controlplane.Start(ctx, opts)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, cp.StopKeepingLogs())
		}
	}()
	c := clusterOf(cp, insideManager)
	c.dir, c.auditLog = opts.Dir, auditLog
	if err := cp.Apply(ctx, "../../manifests/crds", "../../manifests/rbac", "standalone-rbac.yaml", "../../examples/cloud-controller-manager/rbac.yaml"); err != nil {
		return nil, err
	}
	if len(managerArgs) == 0 {
		managerArgs = ours
	}
	return c, c.startManager(managerArgs...)
}

// clusterOf is a cluster in which nothing is installed and nothing runs.
func clusterOf(cp *controlplane.ControlPlane, p program) *cluster {
	return &cluster{
		program:      p,
		cp:           cp,
		kube:         kubernetes.NewForConfigOrDie(cp.AdminConfig()),
		clusterCIDRs: versioned.NewForConfigOrDie(cp.AdminConfig()),
		dynamic:      dynamic.NewForConfigOrDie(cp.AdminConfig()),
	}
}

// runs makes the cluster's manager that program until the test ends.
func (c *cluster) runs(t *testing.T, p program) {
	t.Helper()
	swap := func(to program) error {
		if c.manager != nil { // the test may have killed it
			if err := c.stopManager((*controlplane.Process).Stop); err != nil {
				return err
			}
		}
		c.program = to
		return c.startManager(to.usual...)
	}
	before := c.program
	must(t, swap(p))
	t.Cleanup(func() {
		expect(t, swap(before))
	})
}

// startManager starts the manager and returns when it leads.
func (c *cluster) startManager(args ...string) error {
	ctx := context.Background()
	// Whoever held the lease is gone for sure, so nobody has to wait until it has run out.
	for _, lease := range []string{c.program.lease, c.program.outer} {
		if lease == "" {
			continue
		}
		err := c.kube.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, lease, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	manager, err := c.cp.StartManager(ctx, controlplane.ManagerOptions{Alone: c.program.alone, Cloud: c.program.cloud, Args: args})
	if err != nil {
		return err
	}
	c.manager, c.managerArgs, c.paused = manager, args, false
	return manager.WaitLeading(ctx)
}

// start starts a manager beside that of the cluster, or in its place. It ends with the test, if not before.
func (c *cluster) start(t *testing.T, opts controlplane.ManagerOptions) *controlplane.Manager {
	t.Helper()
	m := c.cp.StartManagerForTest(t, opts)
	t.Cleanup(func() {
		expect(t, m.Stop())
	})
	return m
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

// reset deletes all Nodes, ClusterCIDRs and ServiceCIDRs and sees to it that everything runs, the manager with the usual flags. A
// ClusterCIDR that stays behind is an error: its finalizer has to go with the last Node.
func (c *cluster) reset() error {
	ctx := context.Background()
	if err := c.revive(ctx); err != nil {
		return err
	}
	nodes, err := c.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, node := range nodes.Items {
		if len(node.Finalizers) > 0 {
			if err := c.release(ctx, "node", node.Name); err != nil {
				return err
			}
		}
	}
	serviceCIDRs, err := c.kube.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, serviceCIDR := range serviceCIDRs.Items {
		if serviceCIDR.Name == defaultServiceCIDR {
			continue
		}
		if err := c.release(ctx, "servicecidr", serviceCIDR.Name); err != nil {
			return err
		}
		if err := c.kube.NetworkingV1().ServiceCIDRs().Delete(ctx, serviceCIDR.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
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
	err = c.waitClusterCIDRs(patience)
	if err == nil {
		return nil
	}
	// The next test starts clean all the same.
	left, listErr := clusterCIDRs.List(ctx, metav1.ListOptions{})
	if listErr != nil {
		return errors.Join(err, listErr)
	}
	for _, cc := range left.Items {
		err = errors.Join(err, c.release(ctx, "cc", cc.Name))
	}
	return fmt.Errorf("although no Node is left: %w", err)
}

// revive sees to it that etcd, the API server and a manager with the usual flags run.
func (c *cluster) revive(ctx context.Context) error {
	if err := c.cp.Etcd().Continue(); err != nil {
		return err
	}
	select {
	case <-c.cp.APIServer().Done():
		if err := c.cp.StartAPIServer(ctx); err != nil {
			return err
		}
	default:
	}
	if c.manager != nil && !slices.Equal(c.managerArgs, c.program.usual) {
		if err := c.stopManager((*controlplane.Process).Stop); err != nil {
			return err
		}
	}
	if c.manager == nil {
		return c.startManager(c.program.usual...)
	}
	c.paused = false
	return c.manager.Continue()
}

// waitClusterCIDRs waits until the ClusterCIDRs are exactly these.
func (c *cluster) waitClusterCIDRs(within time.Duration, want ...string) error {
	return eventually(within, func(ctx context.Context) error {
		list, err := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var got []string
		for _, cc := range list.Items {
			got = append(got, cc.Name)
		}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			return fmt.Errorf("the ClusterCIDRs are %q, want %q", got, want)
		}
		return nil
	})
}

// kinds are the objects that the tests deal with, by the words that the scripts have for them.
var kinds = map[string]schema.GroupVersionResource{
	"node":        corev1.SchemeGroupVersion.WithResource("nodes"),
	"cc":          networkingv1.SchemeGroupVersion.WithResource("clustercidrs"),
	"servicecidr": networkingapiv1.SchemeGroupVersion.WithResource("servicecidrs"),
}

// object is one object of the cluster, whether it exists or not.
type object struct {
	client dynamic.ResourceInterface
	name   string
}

func (c *cluster) object(kind, name string) (object, error) {
	resource, ok := kinds[kind]
	if !ok {
		return object{}, fmt.Errorf("want one of %q, not %q", slices.Sorted(maps.Keys(kinds)), kind)
	}
	return object{client: c.dynamic.Resource(resource), name: name}, nil
}

func (o object) get(ctx context.Context) (*unstructured.Unstructured, error) {
	return o.client.Get(ctx, o.name, metav1.GetOptions{})
}

func (o object) delete(ctx context.Context) error {
	return o.client.Delete(ctx, o.name, metav1.DeleteOptions{})
}

// merge merges fields, given as JSON, into the object.
func (o object) merge(ctx context.Context, patch string) error {
	_, err := o.client.Patch(ctx, o.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// release takes all finalizers from an object, so that a deletion of it ends.
func (c *cluster) release(ctx context.Context, kind, name string) error {
	o, err := c.object(kind, name)
	if err != nil {
		return err
	}
	return o.merge(ctx, `{"metadata":{"finalizers":null}}`)
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

func (c *cluster) isServed(name string) error {
	_, err := c.waitServed(name, patience)
	return err
}

// warnings returns the warnings about this very object, not about an earlier one of its name.
func (c *cluster) warnings(ctx context.Context, uid types.UID, reason string) ([]corev1.Event, error) {
	selector := fields.Set{"involvedObject.uid": string(uid), "reason": reason, "type": corev1.EventTypeWarning}.String()
	events, err := c.kube.CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		return nil, err
	}
	return events.Items, nil
}

// overlaps returns an error if Nodes that were served have common addresses. Nodes that were created with podCIDRs do not count; nobody can
// help what they have.
func (c *cluster) overlaps(ctx context.Context) error {
	nodes, err := c.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return checker.Overlaps(slices.DeleteFunc(nodes.Items, func(node corev1.Node) bool { return node.Annotations[networkingv1.AnnotationClusterCIDR] == "" }))
}

// must ends the test if one of these steps has failed.
func must(t testing.TB, steps ...error) {
	t.Helper()
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}
}

// expect is must for a test that goes on.
func expect(t testing.TB, steps ...error) {
	t.Helper()
	if err := errors.Join(steps...); err != nil {
		t.Error(err)
	}
}

// kubectl runs kubectl as an administrator would and returns what it prints.
func kubectl(ctx context.Context, cp *controlplane.ControlPlane, stdin string, args ...string) (string, error) {
	kubeconfig, err := cp.Kubeconfig("admin", "system:masters")
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, controlplane.Program("kubectl"), append([]string{"--kubeconfig=" + kubeconfig}, args...)...)
	command.Stdin = strings.NewReader(stdin)
	var stdout, stderr strings.Builder
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, &stderr)
	}
	return stdout.String(), nil
}

// eventually is controlplane.Eventually; it goes on when a test has ended, whose clean-up waits too.
func eventually(within time.Duration, condition func(context.Context) error) error {
	return controlplane.Eventually(context.Background(), within, condition)
}
