package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/incluster"
	"github.com/multicidr/controller-manager/test/controlplane"
	"github.com/multicidr/controller-manager/test/results"
)

const (
	original         = "original"
	allocatorLoop    = "bare-allocator"
	allocatorWorkers = 10 // as many as ours has by default
	// firstAddress is the one before the first of a pool of a million.
	firstAddress = "10.128.0.0"
)

var (
	ipPools    = v1alpha2.GroupVersion.WithResource("inclusterippools")
	ipClaims   = v1beta2.GroupVersion.WithResource("ipaddressclaims")
	ipAddress  = v1beta2.GroupVersion.WithResource("ipaddresses")
	poolOfAll  = map[string]any{"apiGroup": v1alpha2.GroupName, "kind": v1alpha2.KindInClusterIPPool, "name": rangeName}
	allocators = []contestant{
		{name: bare},
		{name: ours, binary: "cluster-ipam-controller", args: []string{"--controllers=in-cluster-ip-pool-controller"}},
		{name: original, binary: "original/cluster-api-ipam-provider-in-cluster", args: []string{"--webhook-port=0", "--health-probe-bind-address=0", "--insecure-diagnostics", "--diagnostics-address=0"}},
	}
)

// addresses creates IPAddressClaims as fast as the API server takes them, while a contestant serves them. Then it counts what the contestant
// asks in a minute without any change.
func (s *scale) addresses(ctx context.Context, who contestant, claims int) (sample, error) {
	got := sample{values: map[string]float64{}}
	err := withCluster(ctx, false, func(c *cluster) error {
		root, err := controlplane.ModuleRoot()
		if err != nil {
			return err
		}
		crds := "manifests/clusteripam/crds"
		if who.name == original { // which needs more kinds
			crds = "bin/original/crds"
		}
		if err := c.Apply(ctx, filepath.Join(root, crds)); err != nil {
			return err
		}
		client, err := dynamic.NewForConfig(c.AdminConfig())
		if err != nil {
			return err
		}
		pool := object(ipPools, v1alpha2.KindInClusterIPPool, rangeName, map[string]any{"addresses": []any{firstAddress + "/12"}, "prefix": int64(12)})
		if err := c.ApplyObjects(ctx, pool); err != nil {
			return err
		}
		runner, err := c.startAllocator(ctx, who)
		if err != nil {
			return err
		}
		if _, err := claimAll(ctx, client, runner, "warm", warmUp); err != nil {
			return err
		}
		m, err := c.measure(ctx, runner)
		if err != nil {
			return err
		}
		f, err := claimAll(ctx, client, runner, "claim", claims)
		if err != nil {
			return err
		}
		if got.values, err = m.values(ctx, requests{"POST ipaddressclaims": claims}); err != nil {
			return err
		}
		got.latencies = f.latencies()
		got.values["total-s"] = f.last.Sub(f.first).Seconds()
		got.values["claims-per-s"] = round(float64(claims) / got.values["total-s"])
		got.values["latency-p50-ms"] = milliseconds(quantile(got.latencies, .5))
		got.values["latency-p99-ms"] = milliseconds(quantile(got.latencies, .99))
		got.values["requests-per-claim"] = round(sumOf(got.values, requestPrefix) / float64(claims))
		if who.name != bare { // which does nothing by itself
			if err := c.idleRequests(ctx, got.values); err != nil {
				return err
			}
		}
		return distinct(ctx, client, warmUp+claims)
	})
	return got, err
}

// idleRequests counts the requests in idleTime, and names those that there are. Those about leases do not count, and not the one that the API server
// sends itself: every three minutes it lists the Services, to repair what it knows of their ports. The time begins when the last events are there,
// and the last status of each pool, which ours writes at most once a second.
func (c *cluster) idleRequests(ctx context.Context, values map[string]float64) error {
	err := c.settle(ctx)
	if err == nil {
		err = pause(ctx, 2*time.Second)
	}
	if err != nil {
		return err
	}
	before, err := c.requestsSoFar(ctx)
	if err != nil {
		return err
	}
	if err := pause(ctx, idleTime); err != nil {
		return err
	}
	after, err := c.requestsSoFar(ctx)
	values["idle-requests"] = 0
	for what, n := range after.since(before, nil) {
		if what != "LIST services" {
			values["idle-requests"] += float64(n)
			values["idle-requests "+what] = float64(n)
		}
	}
	return err
}

// startAllocator starts a contestant, all with the same permissions.
func (c *cluster) startAllocator(ctx context.Context, who contestant) (*runner, error) {
	kubeconfig, err := c.Kubeconfig("allocator", "system:masters")
	if err != nil {
		return nil, err
	}
	if who.name == ours {
		return c.startAlone(ctx, who, kubeconfig)
	}
	binary, args := "", []string{allocatorLoop, kubeconfig}
	if who.binary == "" {
		binary, err = os.Executable()
	} else {
		binary, err = controlplane.ModuleRoot()
		binary, args = filepath.Join(binary, "bin", who.binary), append([]string{"--kubeconfig=" + kubeconfig}, who.args...)
	}
	if err != nil {
		return nil, err
	}
	c.loop, err = controlplane.StartProcess(who.name, filepath.Join(c.LogDir(), who.name+".log"), binary, args...)
	return &runner{Process: c.loop}, err
}

// startAlone starts cluster-ipam-controller.
func (c *cluster) startAlone(ctx context.Context, who contestant, kubeconfig string) (*runner, error) {
	manager, err := c.StartManager(ctx, controlplane.ManagerOptions{Alone: true, Name: who.name, Binary: who.binary, Kubeconfig: kubeconfig, Args: who.args})
	if err != nil {
		return nil, err
	}
	return &runner{manager.Process, manager}, manager.WaitLeading(ctx)
}

// claims are IPAddressClaims of one measurement.
type claims struct {
	mu              sync.Mutex
	created, served map[string]time.Time
	first, last     time.Time
}

// claimAll creates claims and returns when all have their addresses.
func claimAll(ctx context.Context, client dynamic.Interface, r *runner, prefix string, count int) (*claims, error) {
	f := &claims{created: map[string]time.Time{}, served: map[string]time.Time{}}
	resource := client.Resource(ipClaims).Namespace(metav1.NamespaceDefault)
	list, err := resource.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it took more than %s", patience))
	defer cancel()
	done := make(chan error, 2)
	go func() {
		done <- followObjects(ctx, resource, list.GetResourceVersion(), func(o *unstructured.Unstructured) bool {
			return strings.HasPrefix(o.GetName(), prefix+"-") && has(o, "status", "addressRef", "name") && f.see(o.GetName()) == count
		})
	}()
	f.first = time.Now()
	errs := make([]error, count)
	workqueue.ParallelizeUntil(ctx, creators, count, func(i int) {
		claim := object(ipClaims, v1beta2.KindIPAddressClaim, fmt.Sprintf("%s-%06d", prefix, i), map[string]any{"poolRef": poolOfAll})
		_, errs[i] = resource.Create(ctx, claim, metav1.CreateOptions{})
		now := time.Now()
		f.mu.Lock()
		f.created[claim.GetName()] = now
		f.mu.Unlock()
	})
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	select {
	case err = <-done:
	case <-r.Done():
		err = errors.New("it has ended")
	}
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		return nil, fmt.Errorf("%d of %d claims have no address: %w; the end of the log:\n%s", count-len(f.served), count, err, tail(r.LogPath()))
	}
	return f, nil
}

// see notes that a claim has its address, and returns how many have.
func (f *claims) see(name string) int {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.served[name]; !known {
		f.served[name], f.last = now, now
	}
	return len(f.served)
}

// latencies are the times from the answer to the creation until the watch showed an address.
func (f *claims) latencies() (all []time.Duration) {
	for name, served := range f.served {
		all = append(all, max(0, served.Sub(f.created[name])))
	}
	return all
}

// followObjects calls see for every object that is added or modified after a resource version, until see says that this was the last. A watch
// that the API server ends goes on where it was.
func followObjects(ctx context.Context, resource dynamic.ResourceInterface, version string, see func(*unstructured.Unstructured) (last bool)) error {
	for {
		w, err := resource.Watch(ctx, metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			return fmt.Errorf("watch: %w", cmpCause(ctx, err))
		}
		for event := range w.ResultChan() {
			o, ok := event.Object.(*unstructured.Unstructured)
			if !ok || event.Type == watch.Error {
				w.Stop()
				return fmt.Errorf("watch: %w", apierrors.FromObject(event.Object))
			}
			version = o.GetResourceVersion()
			if event.Type != watch.Deleted && see(o) {
				w.Stop()
				return nil
			}
		}
	}
}

// cmpCause is why a context is done, if it is, and otherwise the error.
func cmpCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func has(o *unstructured.Unstructured, path ...string) bool {
	value, ok, err := unstructured.NestedFieldNoCopy(o.Object, path...)
	return ok && err == nil && value != "" && value != false
}

func object(r schema.GroupVersionResource, kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": r.GroupVersion().String(), "kind": kind,
		"metadata": map[string]any{"name": name, "namespace": metav1.NamespaceDefault},
		"spec":     spec,
	}}
}

// distinct returns an error if there are not so many IPAddresses, or two of them have one address.
func distinct(ctx context.Context, client dynamic.Interface, want int) error {
	list, err := client.Resource(ipAddress).Namespace(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	holder := map[string]string{}
	for i := range list.Items {
		o := &list.Items[i]
		address, _, _ := unstructured.NestedString(o.Object, "spec", "address")
		if other, taken := holder[address]; taken {
			return fmt.Errorf("%s and %s both have the address %s", other, o.GetName(), address)
		}
		holder[address] = o.GetName()
	}
	if len(holder) != want {
		return fmt.Errorf("there are %d IPAddresses, want %d", len(holder), want)
	}
	return nil
}

// runAllocatorLoop is the least that can serve claims: it watches them, and sends for each the three requests that ours sends, with the same content
// but for the next address. It remembers nothing, checks nothing, and ends at the first error. What it takes is what the API server takes.
func runAllocatorLoop(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	pool, err := client.Resource(ipPools).Namespace(metav1.NamespaceDefault).Get(ctx, rangeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	resource := client.Resource(ipClaims).Namespace(metav1.NamespaceDefault)
	list, err := resource.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	failed, found := make(chan error), make(chan *unstructured.Unstructured, 1<<17)
	go func() {
		for i := range list.Items {
			found <- &list.Items[i]
		}
		failed <- followObjects(ctx, resource, list.GetResourceVersion(), func(o *unstructured.Unstructured) bool {
			if len(o.GetFinalizers()) == 0 {
				found <- o
			}
			return false
		})
	}()
	var next atomic.Uint32
	for range allocatorWorkers {
		go func() {
			for claim := range found {
				if err := allocateNext(ctx, client, claim, pool.GetUID(), next.Add(1)); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

func allocateNext(ctx context.Context, client dynamic.Interface, claim *unstructured.Unstructured, pool types.UID, number uint32) error {
	claimsOf, name := client.Resource(ipClaims).Namespace(claim.GetNamespace()), claim.GetName()
	patch := func(change map[string]any, subresources ...string) error {
		body, err := json.Marshal(change)
		if err == nil {
			_, err = claimsOf.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{}, subresources...)
		}
		return err
	}
	first := netip.MustParseAddr(firstAddress).As4()
	address := netip.AddrFrom4([4]byte{first[0], first[1] + byte(number>>16), byte(number >> 8), byte(number)})
	moves := map[string]string{
		contract.AnnotationOwner: fmt.Sprintf("%s/%s/%s", claim.GetNamespace(), name, claim.GetUID()), incluster.AnnotationAddress: address.String(),
	}
	if err := patch(map[string]any{"metadata": map[string]any{
		"uid": claim.GetUID(), "finalizers": []string{v1beta2.FinalizerReleaseAddress}, "annotations": moves, "labels": map[string]string{contract.LabelMove: ""},
	}}); err != nil {
		return err
	}
	o := object(ipAddress, v1beta2.KindIPAddress, name, map[string]any{
		"claimRef": map[string]any{"name": name}, "poolRef": poolOfAll, "address": address.String(), "prefix": int64(12),
	})
	yes, no := true, false
	o.SetFinalizers([]string{v1beta2.FinalizerProtectAddress})
	o.SetAnnotations(moves)
	o.SetOwnerReferences([]metav1.OwnerReference{
		{APIVersion: claim.GetAPIVersion(), Kind: claim.GetKind(), Name: name, UID: claim.GetUID(), Controller: &yes, BlockOwnerDeletion: &yes},
		{APIVersion: ipPools.GroupVersion().String(), Kind: v1alpha2.KindInClusterIPPool, Name: rangeName, UID: pool, Controller: &no, BlockOwnerDeletion: &yes},
	})
	if _, err := client.Resource(ipAddress).Namespace(claim.GetNamespace()).Create(ctx, o, metav1.CreateOptions{}); err != nil {
		return err
	}
	ready := metav1.Condition{
		Type: v1beta2.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: claim.GetGeneration(), LastTransitionTime: metav1.Now(),
		Reason: "Ready", Message: fmt.Sprintf("The address is %v.", address),
	}
	status := map[string]any{"addressRef": map[string]any{"name": name}, "conditions": []metav1.Condition{ready}}
	return patch(map[string]any{"metadata": map[string]any{"uid": claim.GetUID()}, "status": status}, "status")
}

var addressesColumns = []column{
	{"claims/s", "claims-per-s"}, {"p50 ms", "latency-p50-ms"}, {"p99 ms", "latency-p99-ms"}, {"requests per claim", "requests-per-claim"},
	{"controller CPU s", "manager-cpu-s"}, {"peak MiB", "manager-peak-MiB"}, {"API server CPU s", "apiserver-cpu-s"}, {"requests in an idle minute", "idle-requests"},
}

// addressesMarks holds ours against the bare loop and the original of the same round.
func addressesMarks(claims int, round map[string]sample) []results.Mark {
	we := round[ours].values
	if we == nil {
		return nil
	}
	name := func(text string) string { return fmt.Sprintf("%d IPAddressClaims: %s", claims, text) }
	marks := []results.Mark{
		results.AtMost(name(fmt.Sprintf("ours, requests in %s without a change", idleTime)), "requests", 0, we["idle-requests"]),
		results.AtMost(name("ours, requests per claim"), "requests", 3.1, we["requests-per-claim"]), // three, and a few for the status of the pool
	}
	if best := round[bare].values; best != nil {
		marks = append(marks, results.AtLeast(name("ours, claims per second"), "of the bare loop's", .9, round3(best["total-s"]/we["total-s"])))
	}
	if theirs := round[original].values; theirs != nil {
		marks = append(marks, results.AtLeast(name("ours, claims per second"), "of the original's", 1, round3(theirs["total-s"]/we["total-s"])))
	}
	return marks
}
