package integration

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestLeaderMigration moves the allocation from a kube-controller-manager to a cloud-controller-manager and back, by the leader migration of
// Kubernetes and as docs/operators/cloud-controller-manager.md says, while Nodes join. Nobody has to stop anything first: the Lease of the
// migration says who allocates. At no time do two Nodes share addresses, and all are served in the end, by each of them.
func TestLeaderMigration(t *testing.T) {
	// The stock manager v1.37.1 ends as soon as it holds both leases (staging-patches/0002), ours does not, with the in-tree allocator in it.
	for name, controllers := range map[string]string{"from the in-tree allocator": "node-ipam-controller", "from ours": "multi-cidr-node-ipam-controller"} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			c, start := migrating(t)
			kcm := func(name string) *controlplane.Manager {
				return start(controlplane.ManagerOptions{Name: name}, "--controllers="+controllers)
			}
			ccm := func() *controlplane.Manager {
				return start(controlplane.ManagerOptions{Name: "cloud", Cloud: true}, allocates)
			}
			joining := c.join(t)

			before := kcm("before")
			joining.untilServed(10)
			cloud := ccm()
			joining.untilServed(10) // while both run
			if text, err := cloud.Log(); err != nil || strings.Contains(text, `"Starting controller" controller="multi-cidr-node-ipam-controller"`) {
				t.Errorf("two allocate (%v):\n%s", err, text)
			}
			if err := before.Kill(); err != nil { // The writes of a manager that is stopped might all have arrived.
				t.Fatal(err)
			}
			joining.untilServed(10)
			after := kcm("after")
			joining.untilServed(10)
			if err := cloud.Kill(); err != nil {
				t.Fatal(err)
			}
			joining.untilServed(10)
			joining.end()
			if err := c.overlapsOfAll(ctx); err != nil {
				t.Error(err)
			}
			if err := after.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// allocates enables the controller, with the delay after a takeover.
const allocates = "--controllers=multi-cidr-node-ipam-controller"

// migrating starts a control plane for a leader migration. The function that it returns starts a manager that takes part.
func migrating(t *testing.T, apiServerArgs ...string) (*cluster, func(controlplane.ManagerOptions, ...string) *controlplane.Manager) {
	t.Helper()
	c := freshCluster(t, controlplane.Options{APIServerArgs: append([]string{"--request-timeout=5s"}, apiServerArgs...)}, ours...)
	if err := errors.Join(c.stopManager((*controlplane.Process).Stop), c.setLease(t.Context(), kcmLease, noLease), c.cp.Apply(t.Context(), "../../examples/cloud-controller-manager/leader-migration-rbac.yaml")); err != nil {
		t.Fatal(err)
	}
	config, err := filepath.Abs("../../examples/cloud-controller-manager/leader-migration.yaml")
	if err != nil {
		t.Fatal(err)
	}
	common := slices.Concat([]string{
		"--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/12", "--node-cidr-mask-size=24", "--enable-leader-migration", "--leader-migration-config=" + config,
		"--node-ipam-takeover-delay=5s", // at least the API server's --request-timeout
	}, shortLease)
	return c, func(opts controlplane.ManagerOptions, args ...string) *controlplane.Manager {
		t.Helper()
		opts.Args = slices.Concat(common, args)
		m, err := c.cp.StartManager(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
}

// servedBy creates a Node, waits for its podCIDRs, and returns which process gave them.
func (c *cluster) servedBy(t *testing.T, name string) string {
	t.Helper()
	if err := createNode(c, []string{name}); err != nil {
		t.Fatal(err)
	}
	node, err := c.waitServed(name, 2*patience)
	if err != nil {
		t.Fatal(err)
	}
	return node.Annotations[networkingv1.AnnotationLeaseHolder]
}

// servedByAnother creates Nodes until another process than before gives them podCIDRs. It may take a moment until a process that is paused stands still.
func (c *cluster) servedByAnother(t *testing.T, before string) {
	t.Helper()
	for i := 0; c.servedBy(t, fmt.Sprintf("meanwhile-%d", i)) == before; i++ {
	}
}

// TestPausedLeaderMigration pauses a cloud-controller-manager until a kube-controller-manager has taken the Lease of the migration. Nobody has
// taken the Lease of the controller itself, and the program's elector goes on for some time before it gives up: until then the controller must
// not allocate.
func TestPausedLeaderMigration(t *testing.T) {
	c, start := migrating(t)
	cloud := start(controlplane.ManagerOptions{Name: "cloud", Cloud: true}, allocates)
	before := c.servedBy(t, "before")
	start(controlplane.ManagerOptions{Name: "kcm"}, allocates)
	if err := cloud.Pause(); err != nil {
		t.Fatal(err)
	}
	c.servedByAnother(t, before)
	if err := cloud.Continue(); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		if err := createNodes(c, []string{"48", fmt.Sprintf("after-%d-", i)}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-cloud.Done():
		default:
			continue
		}
		break
	}
	c.servedBy(t, "last")
	nodes, err := c.kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes.Items {
		if node.Name != "before" && !strings.HasPrefix(node.Name, "meanwhile") && node.Annotations[networkingv1.AnnotationLeaseHolder] == before {
			t.Errorf("%s has %v from the former leader", node.Name, node.Spec.PodCIDRs)
		}
	}
	if err := c.overlapsOfAll(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestMigrationAfterAShortTermOfTheInTreeAllocator: the in-tree allocator has the Lease of the migration between two cloud-controller-managers.
func TestMigrationAfterAShortTermOfTheInTreeAllocator(t *testing.T) { afterAShortTerm(t) }

// TestCloudManagerAfterAShortTermOfAnOlderVersion: there is no migration. An older version of the cloud-controller-manager, which has the in-tree allocator, leads
// between two new ones.
func TestCloudManagerAfterAShortTermOfAnOlderVersion(t *testing.T) {
	afterAShortTerm(t, "--enable-leader-migration=false", "--leader-elect-resource-name=cloud-controller-manager")
}

// afterAShortTerm: a cloud-controller-manager dies, the in-tree allocator leads for a moment and dies, too, with a PATCH on its way, and another
// cloud-controller-manager leads. Nobody else has held the Lease of the controller, and it was free for less time than a person needs to change managers. All the
// same the controller has to wait for that PATCH. All managers get args.
func afterAShortTerm(t *testing.T, args ...string) {
	c, start := migrating(t, "--request-timeout=15s")
	ccm := func(name string) *controlplane.Manager {
		return start(controlplane.ManagerOptions{Name: name, Cloud: true}, append(args, allocates, "--node-ipam-takeover-delay=15s", "--allocate-node-cidrs=false")...)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(createClusterCIDR(c, []string{"a", "sel(p=x)", "10.0.0.0/16", "hb8", "-nowait"}))
	first := ccm("first")
	must(errors.Join(createNode(c, []string{"one", "p=x"}), served(c, []string{"one", "10.0.0.0/24"}), c.waitMarked(inCloud.lease)))
	proxy, kubeconfig := c.behindProxy(t)
	must(c.mayWriteAnyLease(t.Context(), managersUser))
	inTree := start(controlplane.ManagerOptions{Name: "in-tree", Kubeconfig: kubeconfig}, append(args, "--controllers=node-ipam-controller")...)
	must(first.Kill())
	must(errors.Join(createNode(c, []string{"two"}), served(c, []string{"two", "10.0.1.0/24"})))
	second := ccm("second")
	held := c.diesWithPatchHeld(t, inTree, proxy, "last") // with 10.0.2.0/24
	must(createNode(c, []string{"next", "p=x"}))
	const why = "another allocator may have led before" // and not that nobody has held the Lease for long
	must(eventually(2*patience, func(ctx context.Context) error {
		node, err := c.kube.CoreV1().Nodes().Get(ctx, "next", metav1.GetOptions{})
		if err != nil || len(node.Spec.PodCIDRs) > 0 {
			return err
		}
		if log, err := second.Log(); err != nil || !strings.Contains(log, why) {
			return fmt.Errorf("Node next is pending, and the log does not say %q (%v)", why, err)
		}
		return nil
	}))
	held.Release()
	must(errors.Join(served(c, []string{"last", "10.0.2.0/24"}), served(c, []string{"next", "10.0.3.0/24"}), c.overlapsOfAll(t.Context())))
}

// mayWriteAnyLease lets a user lead by any Lease.
func (c *cluster) mayWriteAnyLease(ctx context.Context, user string) error {
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "any-lease"}
	_, err := c.kube.RbacV1().Roles(meta.Namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = c.kube.RbacV1().RoleBindings(meta.Namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}, metav1.CreateOptions{})
	return err
}

// TestMigrationGoesOnAfterARelease pauses a cloud-controller-manager until a kube-controller-manager has taken the Lease of the migration, allocated, and
// released the Lease. The program's elector takes the Lease again and goes on, and knows nothing of what was allocated. So the controller has to start anew,
// and to wait: to it, the other process was any allocator.
func TestMigrationGoesOnAfterARelease(t *testing.T) {
	c, start := migrating(t)
	cloud := start(controlplane.ManagerOptions{Name: "cloud", Cloud: true}, allocates)
	before := c.servedBy(t, "before")
	kcm := start(controlplane.ManagerOptions{Name: "kcm"}, allocates, "--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit=true")
	if err := cloud.Pause(); err != nil {
		t.Fatal(err)
	}
	c.servedByAnother(t, before)
	if err := errors.Join(kcm.Stop(), cloud.Continue()); err != nil {
		t.Fatal(err)
	}
	if after := c.servedBy(t, "after"); after == before {
		t.Errorf("%s leads again, and does not know what was allocated in between", before)
	}
	select {
	case <-cloud.Done():
		t.Error("the program ended: its elector took the Lease again, so nothing was tried here")
	default:
	}
	log, err := cloud.Log()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log, "Waiting before the first allocation") {
		t.Errorf("it did not wait for what the other process has sent:\n%s", log)
	}
	if err := c.overlapsOfAll(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestMigrationAfterTheMainLease: after a migration an allocator may run under the main Lease of kube-controller-manager, as before it. When another migration begins,
// the shared Lease has the mark of the last one, and says nothing about that time.
func TestMigrationAfterTheMainLease(t *testing.T) {
	ctx := t.Context()
	c, start := migrating(t)
	const shared = "node-ipam-migration"
	before := start(controlplane.ManagerOptions{Name: "before"}, allocates)
	if err := errors.Join(createNode(c, []string{"one"}), served(c, []string{"one", "10.0.0.0/24"}), c.waitMarked(shared), before.Kill()); err != nil {
		t.Fatal(err)
	}
	// As if it had ended an hour ago.
	leases := c.kube.CoordinationV1().Leases(metav1.NamespaceSystem)
	lease, err := leases.Get(ctx, shared, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lease.Spec.RenewTime = &metav1.MicroTime{Time: lease.Spec.RenewTime.Add(-time.Hour)}
	if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	again := start(controlplane.ManagerOptions{Name: "again"}, allocates)
	if err := errors.Join(createNode(c, []string{"two"}), served(c, []string{"two", "10.0.1.0/24"})); err != nil {
		t.Fatal(err)
	}
	if log, err := again.Log(); err != nil || !strings.Contains(log, "Waiting before the first allocation") {
		t.Errorf("it did not wait for what an allocator under the main Lease may have sent (%v):\n%s", err, log)
	}
}

// stream creates Nodes all the time, and looks all the time that none share addresses.
type stream struct {
	t    *testing.T
	c    *cluster
	stop context.CancelFunc
	wg   sync.WaitGroup
	mu   sync.Mutex
	n    int
	errs []error
}

func (c *cluster) join(t *testing.T) *stream {
	ctx, stop := context.WithCancel(t.Context())
	j := &stream{t: t, c: c, stop: stop}
	note := func(err error) {
		if err != nil && ctx.Err() == nil {
			j.mu.Lock()
			j.errs = append(j.errs, err)
			j.mu.Unlock()
		}
	}
	j.wg.Go(func() {
		for ctx.Err() == nil {
			if err := createNode(c, []string{fmt.Sprintf("joins-%d", j.n)}); err != nil && !apierrors.IsAlreadyExists(err) {
				note(err)
			}
			j.mu.Lock()
			j.n++
			j.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond): // the pace
			}
		}
	})
	j.wg.Go(func() {
		for ctx.Err() == nil {
			note(c.overlapsOfAll(ctx))
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	t.Cleanup(func() { stop(); j.wg.Wait() })
	return j
}

// untilServed waits until some more Nodes have been created after this call, and all so far are served.
func (j *stream) untilServed(more int) {
	j.t.Helper()
	j.mu.Lock()
	want := j.n + more
	j.mu.Unlock()
	for i := range want {
		if _, err := j.c.waitServed(fmt.Sprintf("joins-%d", i), 2*patience); err != nil {
			j.t.Fatal(err)
		}
	}
}

// end ends it, and says what went wrong.
func (j *stream) end() {
	j.stop()
	j.wg.Wait()
	if err := errors.Join(j.errs...); err != nil {
		j.t.Error(err)
	}
}
