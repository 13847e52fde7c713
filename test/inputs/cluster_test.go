package inputs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/test/chaos/checker"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// cluster is a control plane with the controller on it, in one of its two programs.
type cluster struct {
	cp       *controlplane.ControlPlane
	kube     kubernetes.Interface
	dynamic  dynamic.Interface
	auditLog string
	checker  *checker.Checker
	follower *checker.Follower
	manager  *controlplane.Manager
	alone    bool
	panics   int // lines of logs that tell of one, so far
}

const controllerUser = "system:serviceaccount:kube-system:" + nodeipam.Name

// audited is every request of the controller but watches and lists.
const audited = `users: ["` + controllerUser + `"], verbs: [get, create, update, patch, delete, deletecollection], resources: [{group: "", resources: [nodes, events]}, {group: networking.x-k8s.io}]`

// slack is how long before its commit a decision may have been made.
const slack = 5 * time.Second

func start(t *testing.T, apiServerArgs ...string) *cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "inputs-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			os.RemoveAll(dir)
		}
	})
	args, log, err := controlplane.Audit(dir, audited)
	if err != nil {
		t.Fatal(err)
	}
	cp := controlplane.StartForTest(t, controlplane.Options{Dir: dir, ServiceRange: "198.51.100.0/24,2001:db8::/112", APIServerArgs: append(args, apiServerArgs...)})
	config := cp.AdminConfig()
	config.WarningHandler = rest.NoWarnings{} // of odd CIDRs, of which there are many
	c := &cluster{cp: cp, kube: kubernetes.NewForConfigOrDie(config), dynamic: dynamic.NewForConfigOrDie(config), auditLog: log}
	if err := cp.Apply(t.Context(), "../../manifests/crds", "../../manifests/rbac", "../integration/standalone-rbac.yaml"); err != nil {
		t.Fatal(err)
	}
	c.checker = checker.New(checker.Options{Slack: slack})
	etcd, err := checker.Dial(cp.EtcdEndpoint(), cp.PKIDir())
	if err != nil {
		t.Fatal(err)
	}
	c.follower = checker.NewFollower(etcd, c.checker.Observe)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.follower.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, etcd.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := c.startManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// startManager returns when the manager leads.
func (c *cluster) startManager(ctx context.Context) (err error) {
	args, lease := []string{"--controllers=" + nodeipam.Name}, "kube-controller-manager"
	if c.alone {
		args, lease = nil, "node-ipam-controller"
	}
	// The process that held the Lease has ended.
	err = c.kube.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, lease, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	options := controlplane.ManagerOptions{Alone: c.alone, Args: append(args, "--node-ipam-takeover-delay=0s")}
	if c.manager, err = c.cp.StartManager(ctx, options); err != nil {
		return err
	}
	return c.manager.WaitLeading(ctx)
}

// swap ends the manager and starts the controller in its other program.
func (c *cluster) swap(ctx context.Context) error {
	if err := c.manager.Stop(); err != nil {
		return err
	}
	c.alone = !c.alone
	return c.startManager(ctx)
}

func (c *cluster) create(ctx context.Context, t *thrown) error {
	_, err := c.dynamic.Resource(t.resource).Create(ctx, t.object, metav1.CreateOptions{})
	return err
}

func (c *cluster) do(ctx context.Context, t *thrown, s step) error {
	client := c.dynamic.Resource(t.resource)
	switch s.verb {
	case deleteObject:
		return client.Delete(ctx, t.name(), metav1.DeleteOptions{})
	case patchStatus:
		_, err := client.Patch(ctx, t.name(), types.MergePatchType, []byte(s.patch), metav1.PatchOptions{FieldManager: "inputs"}, "status")
		return err
	default:
		_, err := client.Patch(ctx, t.name(), types.MergePatchType, []byte(s.patch), metav1.PatchOptions{FieldManager: "inputs"})
		return err
	}
}

// clear deletes everything that was thrown, and returns an error when something stays: the finalizers of others are taken away, ours has to go.
func (c *cluster) clear(ctx context.Context, within time.Duration) error {
	for _, k := range kinds {
		list, err := c.dynamic.Resource(k.resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, o := range list.Items {
			if o.GetName() == defaultServiceCIDR {
				continue
			}
			ours := slices.DeleteFunc(o.GetFinalizers(), func(f string) bool { return strings.HasPrefix(f, foreignFinalizer) })
			if len(ours) < len(o.GetFinalizers()) {
				patch := merge(map[string]any{"metadata": map[string]any{"finalizers": ours, "resourceVersion": o.GetResourceVersion()}})
				_, err := c.dynamic.Resource(k.resource).Patch(ctx, o.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
				if apierrors.IsConflict(err) {
					return c.clear(ctx, within) // the controller has just written it
				}
				if err != nil && !apierrors.IsNotFound(err) {
					return err
				}
			}
			if err := c.dynamic.Resource(k.resource).Delete(ctx, o.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	return controlplane.Eventually(ctx, within, func(ctx context.Context) error {
		for _, k := range kinds {
			list, err := c.dynamic.Resource(k.resource).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for _, o := range list.Items {
				if o.GetName() != defaultServiceCIDR {
					return fmt.Errorf("%s %s is still there, with finalizers %q", k.gvk.Kind, o.GetName(), o.GetFinalizers())
				}
			}
		}
		return nil
	})
}

// release takes away all finalizers, so that the next round starts clean although this one has failed.
func (c *cluster) release(ctx context.Context) error {
	for _, k := range kinds {
		list, err := c.dynamic.Resource(k.resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, o := range list.Items {
			_, err := c.dynamic.Resource(k.resource).Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	return nil
}

// defaultServiceCIDR is the one that the API server makes from its --service-cluster-ip-range.
const defaultServiceCIDR = "kubernetes"

func describe(e auditv1.Event) string {
	code, message := int32(0), ""
	if e.ResponseStatus != nil {
		code, message = e.ResponseStatus.Code, e.ResponseStatus.Message
	}
	return fmt.Sprintf("%s %s: %d %s", e.Verb, target(e), code, message)
}

// target is what a request is about.
func target(e auditv1.Event) string {
	return strings.TrimSuffix(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/") + " " + e.ObjectRef.Name
}

// healthy returns an error unless the controller's health check passes.
func (c *cluster) healthy(ctx context.Context) error {
	status, body, err := c.manager.Get(ctx, "/healthz/"+nodeipam.Name)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the health check answers %d %s", status, body)
	}
	return err
}

// metric returns the sum of all series of a metric.
func (c *cluster) metric(ctx context.Context, name string) (sum float64, err error) {
	families, err := c.manager.Metrics(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	family, ok := families[name]
	if !ok {
		return 0, fmt.Errorf("there is no metric %s", name)
	}
	for _, m := range family.Metric {
		sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	return sum, nil
}

// panicked returns an error if the controller has panicked or its process has ended.
func (c *cluster) panicked() error {
	select {
	case <-c.manager.Done():
		return errors.New("the process has ended")
	default:
	}
	log, err := c.manager.Log()
	if err != nil {
		return err
	}
	lines := 0
	first := ""
	for line := range strings.Lines(log) {
		if strings.Contains(line, "] \"Panic") || strings.Contains(line, "Observed a panic") || strings.HasPrefix(line, "panic:") {
			lines++
			first = line
		}
	}
	if lines > c.panics {
		c.panics = lines
		return fmt.Errorf("the log says: %s", first)
	}
	return nil
}

// unexplained are the pending Nodes of which no event says why.
func (c *cluster) unexplained(ctx context.Context) error {
	events, err := c.kube.CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "reason=" + nodeipam.ReasonNotAvailable, ResourceVersion: "0"})
	if err != nil {
		return err
	}
	explained := map[types.UID]bool{}
	for _, e := range events.Items {
		explained[e.InvolvedObject.UID] = true
	}
	for _, name := range c.checker.Pending() {
		n, err := c.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !explained[n.UID] {
			return fmt.Errorf("Node %s is pending, and no event says why", name)
		}
	}
	return nil
}

// served waits until a Node has podCIDRs.
func (c *cluster) served(ctx context.Context, name string, within time.Duration) error {
	return controlplane.Eventually(ctx, within, func(ctx context.Context) error {
		n, err := c.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil && len(n.Spec.PodCIDRs) == 0 {
			err = fmt.Errorf("Node %s has no podCIDRs", name)
		}
		return err
	})
}

func newNode(name string, labels map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}
