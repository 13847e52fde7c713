package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/cluster"
	"github.com/multicidr/controller-manager/controllers/nodeipam/inspect"
	"github.com/multicidr/controller-manager/test/controlplane"
	"github.com/multicidr/controller-manager/test/seeds"
)

// What explain and plan predict is what the real controller does on a real API server, block by block. In each random cluster explain tells
// what every Node without podCIDRs gets; then the controller runs. Then plan tells what a random change of ClusterCIDRs, with new Nodes, does;
// the change is made, and the controller runs again. The controller does not run while the objects are made, since it would otherwise decide
// before it has seen them all.
func TestPredictions(t *testing.T) {
	p := newPredictions(t)
	blocks, pending := 0, 0
	clusters := seeds.Each(t, 10, func(t *testing.T, seed uint64) {
		r := round{predictions: p, t: t, seed: seed, d: rand.New(rand.NewPCG(seed, 21))}
		r.play()
		blocks, pending = blocks+r.blocks, pending+r.pending
	})
	t.Logf("%d clusters: %d Nodes got the podCIDRs that were predicted, and %d were pending as predicted", clusters, blocks, pending)
	if clusters >= 10 && !t.Failed() && (blocks == 0 || pending == 0) {
		t.Error("the clusters are too simple: no Node got podCIDRs, or none was pending")
	}
}

type predictions struct {
	cp           *controlplane.ControlPlane
	kube         kubernetes.Interface
	clusterCIDRs versioned.Interface
	dir          string
}

func newPredictions(t *testing.T) *predictions {
	p := &predictions{cp: controlplane.StartForTest(t, controlplane.Options{ServiceRange: "198.51.100.0/24"}), dir: t.TempDir()}
	root, err := controlplane.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cp.Apply(t.Context(), filepath.Join(root, "manifests/crds"), filepath.Join(root, "manifests/rbac"), filepath.Join(root, "test/integration/standalone-rbac.yaml")); err != nil {
		t.Fatal(err)
	}
	config := p.cp.AdminConfig()
	if p.kube, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if p.clusterCIDRs, err = versioned.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return p
}

// round is one random cluster.
type round struct {
	*predictions
	t       *testing.T
	seed    uint64
	d       *rand.Rand
	names   int // of ClusterCIDRs so far
	blocks  int // Nodes that got what was predicted
	pending int
}

func (r *round) play() {
	defer r.reset()
	for range 1 + r.d.IntN(5) {
		r.create(r.draw())
	}
	for i := range r.d.IntN(2) {
		r.must(r.kube.NetworkingV1().ServiceCIDRs().Create(r.ctx(), &networkingapiv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("drawn-", i)}, Spec: networkingapiv1.ServiceCIDRSpec{CIDRs: []string{r.prefix(25 + r.d.IntN(3)).String()}},
		}, metav1.CreateOptions{}))
	}
	for i := range r.d.IntN(4) {
		r.createNode(fmt.Sprint("has-", i), r.prefix(25+r.d.IntN(4)).String())
	}
	for i := range 4 + r.d.IntN(12) {
		r.createNode(fmt.Sprintf("node-%02d", r.d.IntN(100)*100+i))
	}

	predicted := map[string]inspect.PlannedNode{}
	for _, node := range r.nodes() {
		var e inspect.Explanation
		r.ask(&e, "explain", node.Name)
		if e.State != inspect.Allocated {
			predicted[node.Name] = inspect.PlannedNode{PodCIDRs: e.PodCIDRs, ClusterCIDR: strings.Join(e.ClusterCIDRs, " ")}
		}
	}
	r.compare("explain", predicted)

	var plan inspect.Plan
	changes, args := r.change()
	for _, node := range r.nodes() { // Nodes that are not in the plan get what they get today.
		if len(node.Spec.PodCIDRs) == 0 {
			var e inspect.Explanation
			r.ask(&e, "explain", node.Name)
			predicted[node.Name] = inspect.PlannedNode{PodCIDRs: e.PodCIDRs}
		} else {
			delete(predicted, node.Name)
		}
	}
	labels := r.labels()
	fresh := 1 + r.d.IntN(12)
	var set []string
	for key, value := range labels {
		set = append(set, key+"="+value)
	}
	r.ask(&plan, append(args, fmt.Sprint("--nodes=", fresh), "--labels="+strings.Join(set, ","))...)
	for _, n := range plan.Nodes {
		predicted[n.Node] = n
	}
	for _, change := range changes {
		change()
	}
	for i, n := range plan.NewNodes {
		name := fmt.Sprintf("znew-%03d", i) // after all others, also in the same second
		r.must(r.kube.CoreV1().Nodes().Create(r.ctx(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{}))
		predicted[name] = n
	}
	if len(plan.NewNodes) != fresh {
		r.t.Fatalf("plan tells of %d new Nodes, not of %d", len(plan.NewNodes), fresh)
	}
	r.compare("plan "+strings.Join(args, " "), predicted)
}

// compare lets the controller act, and compares what Nodes have then with what was predicted.
func (r *round) compare(by string, predicted map[string]inspect.PlannedNode) {
	r.t.Helper()
	r.control()
	for _, node := range r.nodes() {
		want, ok := predicted[node.Name]
		if !ok {
			continue
		}
		cidrs := make([]string, len(want.PodCIDRs))
		for i, block := range want.PodCIDRs {
			cidrs[i] = block.String()
		}
		if !slices.Equal(node.Spec.PodCIDRs, cidrs) {
			r.t.Errorf("%s predicted %v from %q for Node %s, and the controller allocated %v from %q; labels %v",
				by, cidrs, want.ClusterCIDR, node.Name, node.Spec.PodCIDRs, node.Annotations[networkingv1.AnnotationClusterCIDR], node.Labels)
			continue
		}
		if len(cidrs) == 0 {
			r.pending++
			continue
		}
		r.blocks++
		var o inspect.Owners
		if r.ask(&o, "who", want.PodCIDRs[0].Addr().Next().String()); o.Node != node.Name {
			r.t.Errorf("who says of %v of Node %s: %s", want.PodCIDRs[0], node.Name, o.Answer)
		}
	}
	if r.t.Failed() {
		objects, _ := r.reader().Objects(r.ctx())
		text, _ := yaml.Marshal(objects.ClusterCIDRs)
		lines := []string{"ClusterCIDRs:", string(text)}
		for _, node := range objects.Nodes {
			lines = append(lines, fmt.Sprintf("Node %s %v %v", node.Name, node.Labels, node.Spec.PodCIDRs))
		}
		seeds.Report(r.t, r.seed, lines)
	}
}

// control runs the controller until it has decided about every Node.
func (r *round) control() {
	r.t.Helper()
	m, err := r.cp.StartManager(r.ctx(), controlplane.ManagerOptions{Alone: true, Args: []string{"--node-ipam-takeover-delay=0s"}})
	if err != nil {
		r.t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(r.ctx(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		status, body, err := m.Get(ctx, "/debug/controllers/multi-cidr-node-ipam-controller?format=json")
		var page struct {
			Nodes []inspect.NodeStatus
		}
		if err != nil || status != 200 || json.Unmarshal(body, &page) != nil {
			return false, nil
		}
		decided := map[string]bool{}
		for _, n := range page.Nodes {
			decided[n.Node] = n.State == inspect.Allocated || n.State == inspect.Pending && n.Reason != "NotSeen"
		}
		for _, node := range r.nodes() {
			if !decided[node.Name] {
				return false, nil
			}
		}
		return true, nil
	})
	if err := errors.Join(err, m.Stop()); err != nil {
		r.t.Fatal(err)
	}
}

// ask runs a command with -o json. Every exit code is all right here but those of errors.
func (r *round) ask(answer any, args ...string) {
	r.t.Helper()
	var out, errOut bytes.Buffer
	p := &program{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}, now: time.Now}
	p.connect = func() (*cluster.Reader, error) { return r.reader(), nil }
	if code := p.run(r.ctx(), append(args, "-o", "json")); code > exitAct {
		r.t.Fatalf("%v: exit code %d: %s%s", args, code, out.String(), errOut.String())
	}
	if err := json.Unmarshal(out.Bytes(), answer); err != nil {
		r.t.Fatal(err)
	}
}

func (r *round) reader() *cluster.Reader {
	reader, err := cluster.NewReader(r.cp.AdminConfig())
	if err != nil {
		r.t.Fatal(err)
	}
	return reader
}

func (r *round) ctx() context.Context { return r.t.Context() }

func (r *round) must(_ any, err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *round) nodes() []corev1.Node {
	r.t.Helper()
	list, err := r.kube.CoreV1().Nodes().List(r.ctx(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return list.Items
}

// prefix draws one in a small part of the address space, so that many overlap.
func (r *round) prefix(bits int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(r.d.IntN(2)), byte(r.d.IntN(256))}), bits).Masked()
}

func (r *round) labels() map[string]string {
	all := map[string]string{}
	for _, key := range []string{"pool", "zone"} {
		if r.d.IntN(3) > 0 {
			all[key] = []string{"a", "b"}[r.d.IntN(2)]
		}
	}
	return all
}

func (r *round) createNode(name string, podCIDRs ...string) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: r.labels()}}
	if len(podCIDRs) > 0 {
		node.Spec.PodCIDR, node.Spec.PodCIDRs = podCIDRs[0], podCIDRs
	}
	r.must(r.kube.CoreV1().Nodes().Create(r.ctx(), node, metav1.CreateOptions{}))
}

// draw draws a ClusterCIDR. It has its finalizer: without it, the controller would add those of several one after the other, and allocate in
// between from those that have it.
func (r *round) draw() *networkingv1.ClusterCIDR {
	r.names++
	bits := 24 + r.d.IntN(4)
	base := r.prefix(bits)
	cc := &networkingv1.ClusterCIDR{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "ClusterCIDR"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("cc-%d", r.names), Finalizers: []string{networkingv1.Finalizer}},
		Spec:       networkingv1.ClusterCIDRSpec{IPv4: base.String(), PerNodeHostBits: int32(4 + r.d.IntN(2)), Priority: int32(r.d.IntN(3) / 2)},
	}
	switch r.d.IntN(6) {
	case 0:
		cc.Spec.IPv4, cc.Spec.IPv6 = "", fmt.Sprintf("fd00::/%d", 120+r.d.IntN(3))
	case 1:
		cc.Spec.IPv6, cc.Spec.IPv6PerNodeHostBits = fmt.Sprintf("fd00::/%d", 118+r.d.IntN(5)), new(int32(4+r.d.IntN(3)))
	}
	if cc.Spec.IPv4 != "" && r.d.IntN(3) == 0 {
		cc.Spec.ExcludedCIDRs = r.exclusion(base)
	}
	if r.d.IntN(10) == 0 {
		cc.Spec.Allocation = networkingv1.AllocationDisabled
	}
	var requirements []corev1.NodeSelectorRequirement
	for _, key := range []string{"pool", "zone"} {
		switch r.d.IntN(7) {
		case 0:
			requirements = append(requirements, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{[]string{"a", "b"}[r.d.IntN(2)]}})
		case 1:
			requirements = append(requirements, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpExists})
		}
	}
	if len(requirements) > 0 {
		cc.Spec.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: requirements}}}
	}
	return cc
}

func (r *round) exclusion(base netip.Prefix) []string {
	return []string{netip.PrefixFrom(base.Addr(), base.Bits()+1+r.d.IntN(3)).String()}
}

func (r *round) create(cc *networkingv1.ClusterCIDR) {
	r.must(r.clusterCIDRs.NetworkingV1().ClusterCIDRs().Create(r.ctx(), cc, metav1.CreateOptions{}))
}

// change draws a new ClusterCIDR, and that others are changed, deleted and disabled, each perhaps. It returns what makes them, and the arguments of plan.
func (r *round) change() (changes []func(), args []string) {
	args = []string{"plan"}
	clusterCIDRs := r.clusterCIDRs.NetworkingV1().ClusterCIDRs()
	list, err := clusterCIDRs.List(r.ctx(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	var files []any
	if r.d.IntN(4) > 0 {
		cc := r.draw()
		files = append(files, cc)
		changes = append(changes, func() { r.create(cc) })
	}
	r.d.Shuffle(len(list.Items), func(i, j int) { list.Items[i], list.Items[j] = list.Items[j], list.Items[i] })
	if r.d.IntN(2) == 0 {
		cc := list.Items[0].DeepCopy()
		cc.Spec.Priority = int32(r.d.IntN(3))
		if cc.Spec.ExcludedCIDRs = nil; cc.Spec.IPv4 != "" && r.d.IntN(2) == 0 {
			cc.Spec.ExcludedCIDRs = r.exclusion(netip.MustParsePrefix(cc.Spec.IPv4))
		}
		cc.Spec.Allocation = networkingv1.AllocationEnabled
		spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&cc.Spec)
		r.must(nil, err)
		spec["priority"], spec["excludedCIDRs"] = cc.Spec.Priority, append([]string{}, cc.Spec.ExcludedCIDRs...) // What a file leaves out stays.
		files = append(files, map[string]any{"apiVersion": networkingv1.SchemeGroupVersion.String(), "kind": "ClusterCIDR", "metadata": map[string]any{"name": cc.Name}, "spec": spec})
		changes = append(changes, func() { r.must(clusterCIDRs.Update(r.ctx(), cc, metav1.UpdateOptions{})) })
	}
	if len(list.Items) > 1 && r.d.IntN(3) == 0 {
		name := list.Items[1].Name
		args = append(args, "--delete="+name)
		changes = append(changes, func() { r.must(nil, clusterCIDRs.Delete(r.ctx(), name, metav1.DeleteOptions{})) })
	}
	if len(list.Items) > 2 && r.d.IntN(2) == 0 {
		name := list.Items[2].Name
		args = append(args, "--disable="+name)
		disable := []byte(`{"spec":{"allocation":"Disabled"}}`)
		changes = append(changes, func() {
			r.must(clusterCIDRs.Patch(r.ctx(), name, types.MergePatchType, disable, metav1.PatchOptions{}))
		})
	}
	var text []string
	for _, object := range files {
		document, err := yaml.Marshal(object)
		r.must(nil, err)
		text = append(text, string(document))
	}
	if len(text) > 0 {
		path := filepath.Join(r.dir, "plan.yaml")
		r.must(nil, os.WriteFile(path, []byte(strings.Join(text, "---\n")), 0o600))
		args = append(args, "-f", path)
	}
	return changes, args
}

// reset removes all that a round has made.
func (r *round) reset() {
	ctx := context.Background()
	release := []byte(`{"metadata":{"finalizers":null}}`)
	all := metav1.ListOptions{}
	errs := []error{r.kube.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, all), r.clusterCIDRs.NetworkingV1().ClusterCIDRs().DeleteCollection(ctx, metav1.DeleteOptions{}, all)}
	clusterCIDRs, err := r.clusterCIDRs.NetworkingV1().ClusterCIDRs().List(ctx, all)
	if errs = append(errs, err); err == nil {
		for _, cc := range clusterCIDRs.Items {
			_, err := r.clusterCIDRs.NetworkingV1().ClusterCIDRs().Patch(ctx, cc.Name, types.MergePatchType, release, metav1.PatchOptions{})
			errs = append(errs, err)
		}
	}
	services, err := r.kube.NetworkingV1().ServiceCIDRs().List(ctx, all)
	if errs = append(errs, err); err == nil {
		for _, s := range services.Items {
			if strings.HasPrefix(s.Name, "drawn-") {
				errs = append(errs, r.kube.NetworkingV1().ServiceCIDRs().Delete(ctx, s.Name, metav1.DeleteOptions{}))
			}
		}
	}
	if err := errors.Join(slices.DeleteFunc(errs, apierrors.IsNotFound)...); err != nil {
		r.t.Fatal(err)
	}
}
