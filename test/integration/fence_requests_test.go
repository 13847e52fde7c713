package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/api"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// Whose requests these are. A user's groups follow from the name.
const (
	anAdmin        = "admin"
	itsKubelet     = "system:node:"
	autoscaler     = "system:serviceaccount:kube-system:cluster-autoscaler"
	cloudManager   = "system:serviceaccount:kube-system:cloud-controller-manager"
	nodeLifecycle  = "system:serviceaccount:kube-system:node-controller"
	ourAccount     = controlplane.AloneUser
	managersUser   = "system:kube-controller-manager"
	currentHolder  = "us"
	earlierHolder  = "them"
	otherPodCIDR   = `"spec":{"podCIDR":"10.9.0.0/24","podCIDRs":["10.9.0.0/24"]}`
	statusReport   = `{"metadata":{"annotations":{"volumes.kubernetes.io/controller-managed-attach-detach":"true"}},"status":{"conditions":[{"type":"Ready","status":"True"}],"addresses":[{"type":"InternalIP","address":"192.0.2.1"}]}}`
	otherRange     = `{"metadata":{"annotations":{"networking.x-k8s.io/cluster-cidr":"b"}}}`
	rangeWiped     = `{"metadata":{"annotations":{"networking.x-k8s.io/cluster-cidr":null}}}`
	writerWiped    = `{"metadata":{"annotations":{"networking.x-k8s.io/lease-holder":null}}}`
	signedByHolder = `{"metadata":{"annotations":{"networking.x-k8s.io/lease-holder":"us","networking.x-k8s.io/cluster-cidr":"b"}}}`
)

// request is what somebody asks for about a Node.
type request func(ctx context.Context, client kubernetes.Interface, node string) error

// patches is a PATCH of a Node, or of a subresource of it.
func patches(kind types.PatchType, patch string, subresource ...string) request {
	return func(ctx context.Context, client kubernetes.Interface, node string) error {
		opts := metav1.PatchOptions{}
		if kind == types.ApplyPatchType {
			force := true
			opts.FieldManager, opts.Force = "somebody", &force
		}
		_, err := client.CoreV1().Nodes().Patch(ctx, node, kind, []byte(strings.ReplaceAll(patch, "NODE", node)), opts, subresource...)
		return err
	}
}

// updates is a PUT of a Node that was read before.
func updates(change func(*corev1.Node)) request {
	return func(ctx context.Context, client kubernetes.Interface, node string) error {
		read, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(read)
		_, err = client.CoreV1().Nodes().Update(ctx, read, metav1.UpdateOptions{})
		return err
	}
}

func updatesStatus(change func(*corev1.Node)) request {
	return func(ctx context.Context, client kubernetes.Interface, node string) error {
		read, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(read)
		_, err = client.CoreV1().Nodes().UpdateStatus(ctx, read, metav1.UpdateOptions{})
		return err
	}
}

// creates is a POST of the Node, which was deleted before.
func creates(change func(*corev1.Node)) request {
	return func(ctx context.Context, client kubernetes.Interface, name string) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		change(node)
		_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		return err
	}
}

// kubectl runs the real one, as an administrator.
func (c *cluster) kubectl(args ...string) request {
	return func(ctx context.Context, _ kubernetes.Interface, node string) error {
		_, err := kubectl(ctx, c.cp, "", strings.Split(strings.ReplaceAll(strings.Join(args, "\n"), "NODE", node), "\n")...)
		return err
	}
}

// TestFencedRequests asks as everybody who writes Nodes in a cluster, with the permissions that they have there, for what they usually
// write, and for what the policies of manifests/fencing are there to refuse.
func TestFencedRequests(t *testing.T) {
	ctx := t.Context()
	withPodCIDRs := func(node *corev1.Node) {
		node.Spec.PodCIDR, node.Spec.PodCIDRs = "10.9.0.0/24", []string{"10.9.0.0/24"}
	}
	c := freshCluster(t, controlplane.Options{APIServerArgs: []string{"--enable-admission-plugins=NodeRestriction"}})
	err := errors.Join(c.setLease(ctx, standaloneLease, currentHolder), c.cp.Apply(ctx, policy, standalone, "fencing-users.yaml", "../../manifests/rbac-user"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.waitPolicy(ctx, standaloneLease); err != nil {
		t.Fatal(err)
	}
	// Whether Nodes may be created with podCIDRs is a choice of its own.
	if err := creates(withPodCIDRs)(ctx, c.kube, "with-podcidrs"); err != nil {
		t.Errorf("without that choice: %v", err)
	}
	must(t, c.cp.Apply(ctx, createdNodes))
	must(t, eventually(patience, func(ctx context.Context) error {
		_, err := c.kube.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: corev1.NodeSpec{PodCIDR: "10.8.0.0/24"}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "must be created without podCIDRs") {
			return fmt.Errorf("a Node with podCIDRs: got %v, want a refusal", err)
		}
		return nil
	}))
	client := func(t *testing.T, user, node string) kubernetes.Interface {
		t.Helper()
		var groups []string
		switch user {
		case anAdmin:
			groups = []string{"system:masters"}
		case itsKubelet:
			user, groups = user+node, []string{"system:nodes"}
		}
		config, err := c.cp.Config(user, groups...)
		if err != nil {
			t.Fatal(err)
		}
		return kubernetes.NewForConfigOrDie(config)
	}
	const (
		onUpdates = api.FencingPolicy
		onStatus  = "node-status.networking.x-k8s.io"
		onCreate  = "created-nodes.networking.x-k8s.io"
	)
	// What a Node is before the request.
	const (
		served  = iota // by the holder of the Lease
		before         // by an earlier leader
		pending        // without podCIDRs
		gone
	)
	taint := corev1.Taint{Key: "ToBeDeletedByClusterAutoscaler", Effect: corev1.TaintEffectNoSchedule}
	heartbeat := func(node *corev1.Node) {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	}
	steal := func(node *corev1.Node) { node.Annotations[networkingv1.AnnotationClusterCIDR] = "b" }
	forget := func(node *corev1.Node) { node.Annotations = nil }
	withAnnotations := func(node *corev1.Node) {
		node.Annotations = map[string]string{networkingv1.AnnotationClusterCIDR: "a", networkingv1.AnnotationLeaseHolder: earlierHolder}
	}
	withHoldersName := func(node *corev1.Node) {
		node.Annotations = map[string]string{networkingv1.AnnotationLeaseHolder: currentHolder}
	}
	strategic, merge, jsonPatch, apply := types.StrategicMergePatchType, types.MergePatchType, types.JSONPatchType, types.ApplyPatchType

	cases := []struct {
		name    string
		user    string
		node    int
		request request
		refused string // by which policy; empty: admitted
	}{
		// What must pass.
		{"a kubelet registers", itsKubelet, gone, creates(func(*corev1.Node) {}), ""},
		{"a kubelet reports", itsKubelet, served, patches(strategic, statusReport, "status"), ""},
		{"a kubelet reports on a pending Node", itsKubelet, pending, patches(strategic, statusReport, "status"), ""},
		{"a kubelet replaces the status", itsKubelet, before, updatesStatus(heartbeat), ""},
		{"a kubelet names its CSI drivers", itsKubelet, served, patches(strategic, `{"metadata":{"annotations":{"csi.volume.kubernetes.io/nodeid":"{}"}}}`, "status"), ""},
		{"a kubelet labels its Node", itsKubelet, served, patches(strategic, `{"metadata":{"labels":{"node.kubernetes.io/instance-type":"x"}}}`), ""},
		{"cluster-autoscaler taints", autoscaler, before, updates(func(node *corev1.Node) { node.Spec.Taints = []corev1.Taint{taint} }), ""},
		{"kubeadm writes its annotation, labels and taints", anAdmin, served, patches(strategic,
			`{"metadata":{"annotations":{"kubeadm.alpha.kubernetes.io/cri-socket":"unix:///run/x"},"labels":{"node-role.kubernetes.io/control-plane":""}},"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}`), ""},
		{"a cloud controller manager sets the provider", cloudManager, pending, patches(strategic, `{"spec":{"providerID":"x://1","taints":null}}`), ""},
		{"a cloud controller manager reports addresses", cloudManager, served, patches(strategic, `{"status":{"addresses":[{"type":"ExternalIP","address":"192.0.2.9"}]}}`, "status"), ""},
		{"the node lifecycle controller taints", nodeLifecycle, before, patches(strategic, `{"spec":{"taints":[{"key":"node.kubernetes.io/unreachable","effect":"NoExecute"}]}}`), ""},
		{"the node lifecycle controller marks it unreachable", nodeLifecycle, served, patches(strategic, `{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`, "status"), ""},
		{"kubectl label", anAdmin, served, c.kubectl("label", "node", "NODE", "a=b"), ""},
		{"kubectl annotate", anAdmin, served, c.kubectl("annotate", "node", "NODE", "a=b"), ""},
		{"kubectl cordon", anAdmin, before, c.kubectl("cordon", "NODE"), ""},
		{"kubectl taint", anAdmin, pending, c.kubectl("taint", "node", "NODE", "a=b:NoSchedule"), ""},
		{"somebody applies a label", anAdmin, served, patches(apply, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"NODE","labels":{"a":"b"}}}`), ""},
		{"somebody applies a condition", anAdmin, served, patches(apply, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"NODE"},"status":{"conditions":[{"type":"KernelDeadlock","status":"False"}]}}`, "status"), ""},
		{"a restore without podCIDRs", anAdmin, gone, creates(withAnnotations), ""},
		{"kubectl delete", anAdmin, served, c.kubectl("delete", "node", "NODE"), ""},
		{"the controller alone serves a Node", ourAccount, pending, patches(strategic, signedByHolder[:len(signedByHolder)-1]+","+otherPodCIDR+"}"), ""},
		{"kube-controller-manager's user serves a Node", managersUser, pending, patches(strategic, signedByHolder[:len(signedByHolder)-1]+","+otherPodCIDR+"}"), ""},
		{"the controller serves a Node that an earlier leader has served alike", ourAccount, before, patches(strategic, signedByHolder), ""},

		// What must not.
		{"a kubelet moves its Node to another range by its status", itsKubelet, served, patches(strategic, otherRange, "status"), onStatus},
		{"a kubelet replaces its status, and the range with it", itsKubelet, served, updatesStatus(steal), onStatus},
		{"a kubelet signs its status with the holder's name", itsKubelet, before, patches(merge, signedByHolder, "status"), onStatus},
		{"a kubelet takes the name of the range away by its status", itsKubelet, served, patches(merge, rangeWiped, "status"), onStatus},
		{"a kubelet takes the writer's name away by its status", itsKubelet, served, patches(merge, writerWiped, "status"), onStatus},
		{"a kubelet claims a range for its pending Node by its status", itsKubelet, pending, patches(merge, otherRange, "status"), onStatus},
		{"a kubelet replaces its status without any annotation", itsKubelet, served, updatesStatus(forget), onStatus},
		{"a condition that somebody applies brings a range along", anAdmin, served, patches(apply, `{"apiVersion":"v1","kind":"Node",`+otherRange[1:len(otherRange)-2]+`,"name":"NODE"}}`, "status"), onStatus},
		{"a kubelet takes podCIDRs", itsKubelet, pending, patches(strategic, `{`+otherPodCIDR+`}`), onUpdates},
		{"a kubelet moves its Node to another range", itsKubelet, served, patches(strategic, otherRange), onUpdates},
		{"a cloud controller manager allocates", cloudManager, pending, patches(strategic, `{`+otherPodCIDR+`}`), onUpdates},
		{"kubectl annotate moves a Node to another range", anAdmin, served, c.kubectl("annotate", "--overwrite", "node", "NODE", "networking.x-k8s.io/cluster-cidr=b"), onUpdates},
		{"the same, of an earlier leader's Node", anAdmin, before, c.kubectl("annotate", "--overwrite", "node", "NODE", "networking.x-k8s.io/cluster-cidr=b"), onUpdates},
		{"kubectl annotate claims a range for a pending Node", anAdmin, pending, c.kubectl("annotate", "node", "NODE", "networking.x-k8s.io/cluster-cidr=b"), onUpdates},
		{"kubectl annotate takes the name of the range away", anAdmin, served, c.kubectl("annotate", "node", "NODE", "networking.x-k8s.io/cluster-cidr-"), onUpdates},
		{"the writer's name is taken away", anAdmin, before, patches(merge, writerWiped), onUpdates},
		{"all annotations are taken away", anAdmin, served, patches(jsonPatch, `[{"op":"remove","path":"/metadata/annotations"}]`), onUpdates},
		{"a Node is replaced by one without annotations", autoscaler, served, updates(forget), onUpdates},
		{"somebody applies a range", anAdmin, served, patches(apply, `{"apiVersion":"v1","kind":"Node",`+otherRange[1:len(otherRange)-2]+`,"name":"NODE"}}`), onUpdates},
		{"a restore without podCIDRs in the holder's name", anAdmin, gone, creates(withHoldersName), onUpdates},
		{"a kubelet registers in the holder's name", itsKubelet, gone, creates(withHoldersName), onUpdates},
		{"a kubelet registers with podCIDRs", itsKubelet, gone, creates(withPodCIDRs), onCreate},
		{"a restore with podCIDRs", anAdmin, gone, creates(func(node *corev1.Node) { withPodCIDRs(node); withAnnotations(node) }), onCreate},
		{"somebody applies a new Node with podCIDRs", anAdmin, gone, patches(apply, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"NODE"},`+otherPodCIDR+`}`), onCreate},
	}

	// The Nodes, as the two leaders have left them.
	name := func(i int) string { return fmt.Sprintf("n%d", i) }
	for _, leader := range []struct {
		holder string
		left   []int
	}{{earlierHolder, []int{before}}, {currentHolder, []int{served, pending}}} {
		must(t, c.setLease(ctx, standaloneLease, leader.holder))
		if _, err := c.waitPolicy(ctx, standaloneLease); err != nil {
			t.Fatal(err)
		}
		for i, tc := range cases {
			if !slices.Contains(leader.left, tc.node) {
				continue
			}
			must(t, c.createNodes(ctx, nil, name(i)))
			if tc.node == pending {
				continue
			}
			patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q,%q:"a"}},%s}`, networkingv1.AnnotationLeaseHolder, leader.holder, networkingv1.AnnotationClusterCIDR, otherPodCIDR)
			must(t, c.patchNode(ctx, name(i), patch))
		}
	}
	for i, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			client := client(t, tc.user, name(i))
			err := tc.request(ctx, client, name(i))
			switch {
			case tc.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.refused != "" && (err == nil || !strings.Contains(err.Error(), "'"+tc.refused+"'")):
				t.Errorf("got %v, want a refusal by %s", err, tc.refused)
			}
		})
	}
}
