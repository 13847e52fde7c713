package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/test/chaos/checker"
)

const (
	labelGroup = "chaos.example.com/group"
	labelZone  = "chaos.example.com/zone"
	// labelFill selects one ClusterCIDR by name, for the test at the end.
	labelFill = "chaos.example.com/fill"
	// hold is a finalizer that keeps a deleted Node for a while.
	hold = "chaos.example.com/hold"
	// unheld is the patch that takes it away.
	unheld = `{"metadata":{"finalizers":null}}`

	groups = 8
	// requestTimeout is for churn's own requests, which go straight to the API server.
	requestTimeout = 10 * time.Second
	// rate is how many operations begin in a second.
	rate = 30
	// foreign is the share of Nodes that are created with podCIDRs, one half inside and one half outside of all ranges.
	foreign = 0.06
	// inFlight is how many of them there are at most.
	inFlight = 16
)

// ClusterCIDRs have their ranges in here, small ones that overlap each other, and Services some of it too.
var (
	space4        = netip.MustParsePrefix("10.128.0.0/15")
	space6        = netip.MustParsePrefix("fd00:128::/50")
	serviceRanges = "10.128.5.0/24,fd00:128:0:0:5::/112"
)

// churn creates, changes and deletes Nodes and ClusterCIDRs. It takes its own word for what exists: after an error it does
// not know, and the next operation on that name finds out.
type churn struct {
	s            settings
	kube         kubernetes.Interface
	clusterCIDRs versioned.Interface
	checker      *checker.Checker
	rng          *rand.Rand
	slots        chan struct{} // of operations in flight
	going        sync.WaitGroup

	mu    sync.Mutex
	nodes []slot
	pools []slot
	done  int // operations
}

// slot is one name.
type slot struct {
	busy, exists, deleting bool
}

func newChurn(s settings, kube kubernetes.Interface, clusterCIDRs versioned.Interface, c *checker.Checker) *churn {
	return &churn{
		s: s, kube: kube, clusterCIDRs: clusterCIDRs, checker: c,
		rng:   rand.New(rand.NewPCG(s.Seed, 2)),
		slots: make(chan struct{}, inFlight),
		nodes: make([]slot, s.Nodes), pools: make([]slot, s.ClusterCIDRs),
	}
}

// run works until ctx is done, and returns when all its requests have ended.
func (w *churn) run(ctx context.Context) {
	defer w.going.Wait()
	// Half of everything at once, so that the first leader has something to do.
	for i := range w.pools {
		w.begin(w.pools, i, func(ctx context.Context, s *slot) { w.createPool(ctx, i, s) })
	}
	for i := range len(w.nodes) / 2 {
		w.begin(w.nodes, i, func(ctx context.Context, s *slot) { w.createNode(ctx, i, s) })
	}
	for sleep(ctx, time.Second/rate) {
		if len(w.pools) > 0 && w.rng.Float64() < 0.05 {
			w.changePool(w.rng.IntN(len(w.pools)))
		} else {
			w.changeNode(w.rng.IntN(len(w.nodes)))
		}
	}
}

// letGo ends every deletion that a finalizer still holds up. Such a Node may be served by a write that is not known to have
// failed, so the allocator keeps its blocks until it is gone, rightly; and etcd does not tell that from a leak.
func (w *churn) letGo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, restPatience)
	defer cancel()
	for {
		left, err := w.releaseAll(ctx)
		if left == 0 && err == nil {
			return nil
		}
		if !sleep(ctx, restInterval) {
			return fmt.Errorf("%d Nodes are still being deleted after %s; the last error was: %v", left, restPatience, err) //nolint:errorlint // err may be nil
		}
	}
}

// releaseAll returns how many Nodes it has found that were being deleted.
func (w *churn) releaseAll(ctx context.Context) (found int, err error) {
	nodes, err := w.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	for _, node := range nodes.Items {
		if node.DeletionTimestamp == nil {
			continue
		}
		found++
		if _, failed := w.kube.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, []byte(unheld), metav1.PatchOptions{}); failed != nil {
			err = failed
		}
	}
	return found, err
}

// begin starts an operation on one name, unless there is one going on.
func (w *churn) begin(slots []slot, i int, operation func(context.Context, *slot)) {
	w.mu.Lock()
	s := slots[i]
	slots[i].busy = true
	w.mu.Unlock()
	if s.busy {
		return
	}
	w.slots <- struct{}{}
	w.going.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		defer cancel()
		operation(ctx, &s)
		s.busy = false
		w.mu.Lock()
		defer w.mu.Unlock()
		slots[i] = s
		w.done++
		<-w.slots
	})
}

func (w *churn) state(slots []slot, i int) slot {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slots[i]
}

func (w *churn) operations() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done
}

func nodeNameOf(i int) string { return fmt.Sprintf("node-%04d", i) }
func poolNameOf(i int) string { return fmt.Sprintf("cc-%02d", i) }

// dice returns a generator for one operation, so that what it draws does not depend on which others are going on.
func (w *churn) dice() *rand.Rand { return rand.New(rand.NewPCG(w.rng.Uint64(), w.rng.Uint64())) }

func (w *churn) changeNode(i int) {
	state, rng := w.state(w.nodes, i), w.dice()
	switch x := rng.Float64(); {
	case !state.exists:
		w.begin(w.nodes, i, func(ctx context.Context, s *slot) { w.createNode(ctx, i, s) })
	case state.deleting:
		w.begin(w.nodes, i, func(ctx context.Context, s *slot) { w.releaseNode(ctx, i, s) })
	case x < 0.45:
		w.begin(w.nodes, i, func(ctx context.Context, s *slot) { w.deleteNode(ctx, i, s) })
	case x < 0.60: // the same name comes again at once
		w.begin(w.nodes, i, func(ctx context.Context, s *slot) {
			if w.deleteNode(ctx, i, s); !s.exists {
				w.createNode(ctx, i, s)
			}
		})
	default:
		w.begin(w.nodes, i, func(ctx context.Context, s *slot) { w.patchNode(ctx, i, s, labelsPatch(rng)) })
	}
}

func labelsPatch(rng *rand.Rand) string {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": randomLabels(rng)}})
	if err != nil {
		panic(err) // strings only
	}
	return string(patch)
}

func randomLabels(rng *rand.Rand) map[string]string {
	labels := map[string]string{labelZone: string("ab"[rng.IntN(2)]), labelGroup: fmt.Sprint(rng.IntN(groups))}
	if rng.Float64() < 0.05 {
		labels[labelGroup] = "nobody's"
	}
	return labels
}

func (w *churn) createNode(ctx context.Context, i int, s *slot) {
	rng := rand.New(rand.NewPCG(w.s.Seed+uint64(i), uint64(w.operations())))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeNameOf(i), Labels: randomLabels(rng)}}
	if rng.Float64() < 0.15 {
		node.Finalizers = []string{hold}
	}
	switch x := rng.Float64(); {
	case x < foreign/2: // a Node from elsewhere, outside of all ranges
		node.Spec.PodCIDRs = []string{fmt.Sprintf("172.%d.%d.0/24", 16+i/256, i%256)}
	case x < foreign: // and one inside
		node.Spec.PodCIDRs = []string{randomPrefix(rng, space4, space4.Bits()+7+rng.IntN(6)).String()}
	}
	if len(node.Spec.PodCIDRs) > 0 {
		node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	}
	_, err := w.kube.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	switch {
	case err == nil:
		*s = slot{exists: true}
	case apierrors.IsAlreadyExists(err):
		s.exists = true // from a create that we took for a failure
	}
}

// randomPrefix returns a prefix of the length inside of space.
func randomPrefix(rng *rand.Rand, space netip.Prefix, bits int) netip.Prefix {
	address := space.Addr().AsSlice()
	for bit := space.Bits(); bit < bits; bit++ {
		address[bit/8] |= byte(rng.IntN(2)) << (7 - bit%8)
	}
	addr, _ := netip.AddrFromSlice(address)
	return netip.PrefixFrom(addr, bits)
}

// deleteNode leaves the slot as the Node is: gone, or held by its finalizer.
func (w *churn) deleteNode(ctx context.Context, i int, s *slot) {
	err := w.kube.CoreV1().Nodes().Delete(ctx, nodeNameOf(i), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return
	}
	node, err := w.kube.CoreV1().Nodes().Get(ctx, nodeNameOf(i), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		*s = slot{}
	case err == nil:
		s.deleting = node.DeletionTimestamp != nil
	}
}

// releaseNode ends the deletion of a Node.
func (w *churn) releaseNode(ctx context.Context, i int, s *slot) {
	w.patchNode(ctx, i, s, unheld)
	if _, err := w.kube.CoreV1().Nodes().Get(ctx, nodeNameOf(i), metav1.GetOptions{}); apierrors.IsNotFound(err) {
		*s = slot{}
	}
}

func (w *churn) patchNode(ctx context.Context, i int, s *slot, patch string) {
	_, err := w.kube.CoreV1().Nodes().Patch(ctx, nodeNameOf(i), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		*s = slot{}
	}
}

func (w *churn) changePool(i int) {
	state, rng := w.state(w.pools, i), w.dice()
	if !state.exists {
		w.begin(w.pools, i, func(ctx context.Context, s *slot) { w.createPool(ctx, i, s) })
		return
	}
	switch x := rng.Float64(); {
	case state.deleting:
		w.drainPool(i)
		w.begin(w.pools, i, func(ctx context.Context, s *slot) { w.lookForPool(ctx, i, s) })
	case x < 0.25:
		w.begin(w.pools, i, func(ctx context.Context, s *slot) { w.deletePool(ctx, i, s) })
	case x < 0.45:
		w.begin(w.pools, i, func(ctx context.Context, s *slot) { w.patchPool(ctx, i, s, `{"spec":{"allocation":"Disabled"}}`) })
	case x < 0.65:
		w.begin(w.pools, i, func(ctx context.Context, s *slot) { w.patchPool(ctx, i, s, `{"spec":{"allocation":"Enabled"}}`) })
	case x < 0.80:
		priority := rng.IntN(3)
		w.begin(w.pools, i, func(ctx context.Context, s *slot) {
			w.patchPool(ctx, i, s, fmt.Sprintf(`{"spec":{"priority":%d}}`, priority))
		})
	default:
		w.begin(w.pools, i, func(ctx context.Context, s *slot) { w.excludeFromPool(ctx, i, s, rng) })
	}
}

func (w *churn) createPool(ctx context.Context, i int, s *slot) {
	rng := rand.New(rand.NewPCG(w.s.Seed+uint64(i), 1<<32+uint64(w.operations())))
	_, err := w.clusterCIDRs.NetworkingV1().ClusterCIDRs().Create(ctx, randomPool(rng, poolNameOf(i)), metav1.CreateOptions{})
	switch {
	case err == nil:
		*s = slot{exists: true}
	case apierrors.IsAlreadyExists(err):
		s.exists = true
	}
}

// randomPool returns a ClusterCIDR of one or both families for some of the groups, or for all Nodes.
func randomPool(rng *rand.Rand, name string) *networkingv1.ClusterCIDR {
	cc := &networkingv1.ClusterCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}}
	cc.Spec.PerNodeHostBits = int32(4 + rng.IntN(4))
	cc.Spec.Priority = int32(rng.IntN(3))
	family := rng.Float64()
	if family < 0.9 {
		cc.Spec.IPv4 = randomPrefix(rng, space4, 20+rng.IntN(3)).String()
	}
	if family > 0.6 {
		cc.Spec.IPv6 = randomPrefix(rng, space6, 56+rng.IntN(3)).String()
		bits := int32(64 - rng.IntN(3))
		cc.Spec.IPv6PerNodeHostBits = &bits
	}
	if rng.Float64() < 0.1 {
		return cc // a fall-back
	}
	in := func(key string, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
	}
	requirements := []corev1.NodeSelectorRequirement{in(labelGroup, fmt.Sprint(rng.IntN(groups)), fmt.Sprint(rng.IntN(groups)))}
	if rng.Float64() < 0.3 {
		requirements = append(requirements, in(labelZone, string("ab"[rng.IntN(2)])))
	}
	cc.Spec.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
		{MatchExpressions: requirements},
		{MatchExpressions: []corev1.NodeSelectorRequirement{in(labelFill, name)}},
	}}
	return cc
}

func (w *churn) deletePool(ctx context.Context, i int, s *slot) {
	err := w.clusterCIDRs.NetworkingV1().ClusterCIDRs().Delete(ctx, poolNameOf(i), metav1.DeleteOptions{})
	if err == nil || apierrors.IsNotFound(err) {
		s.deleting = true
	}
}

// lookForPool finds out whether a deleted ClusterCIDR is gone.
func (w *churn) lookForPool(ctx context.Context, i int, s *slot) {
	if _, err := w.clusterCIDRs.NetworkingV1().ClusterCIDRs().Get(ctx, poolNameOf(i), metav1.GetOptions{}); apierrors.IsNotFound(err) {
		*s = slot{}
	}
}

// drainPool deletes some of the Nodes that keep a deleted ClusterCIDR.
func (w *churn) drainPool(i int) {
	left := 10
	for name := range w.checker.ServedFrom(poolNameOf(i)) {
		var node int
		if _, err := fmt.Sscanf(name, "node-%d", &node); err != nil || left == 0 {
			continue
		}
		left--
		w.begin(w.nodes, node, func(ctx context.Context, s *slot) { w.deleteNode(ctx, node, s) })
	}
}

func (w *churn) patchPool(ctx context.Context, i int, s *slot, patch string) {
	_, err := w.clusterCIDRs.NetworkingV1().ClusterCIDRs().Patch(ctx, poolNameOf(i), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		*s = slot{}
	}
}

// excludeFromPool excludes a part of each range, or nothing any more.
func (w *churn) excludeFromPool(ctx context.Context, i int, s *slot, rng *rand.Rand) {
	cc, err := w.clusterCIDRs.NetworkingV1().ClusterCIDRs().Get(ctx, poolNameOf(i), metav1.GetOptions{})
	if err != nil {
		return
	}
	excluded := []string{}
	for _, cidr := range []string{cc.Spec.IPv4, cc.Spec.IPv6} {
		if prefix, err := netip.ParsePrefix(cidr); err == nil && rng.Float64() < 0.7 {
			excluded = append(excluded, `"`+randomPrefix(rng, prefix, prefix.Bits()+2+rng.IntN(5)).String()+`"`)
		}
	}
	w.patchPool(ctx, i, s, fmt.Sprintf(`{"spec":{"excludedCIDRs":[%s]}}`, strings.Join(excluded, ",")))
}
