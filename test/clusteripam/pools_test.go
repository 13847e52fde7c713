package clusteripam

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// soon is how long the controller may take. It takes milliseconds; the rest is for machines that compile at the same time.
const soon = 30 * time.Second

// space is a namespace with the objects of one test.
type space struct {
	*cluster
	name string
}

func (c *cluster) in(t *testing.T, ns string) *space {
	t.Helper()
	on := *c
	on.t = t
	config := c.cp.AdminConfig()
	config.QPS = -1 // client-go sends five requests in a second without it
	on.dynamic = dynamic.NewForConfigOrDie(config)
	if _, err := c.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return &space{&on, ns}
}

func (n *space) of(r schema.GroupVersionResource) dynamic.ResourceInterface {
	return n.dynamic.Resource(r).Namespace(n.name)
}

// put applies an object, as YAML.
func (n *space) put(text string) {
	n.t.Helper()
	object := &unstructured.Unstructured{}
	n.do("read "+text, yaml.UnmarshalStrict([]byte(text), &object.Object))
	object.SetNamespace(n.name)
	n.do("apply "+text, n.cp.ApplyObjects(n.t.Context(), object))
}

func (n *space) pool(name, spec string) {
	n.t.Helper()
	n.put(fmt.Sprintf("{apiVersion: ipam.cluster.x-k8s.io/v1alpha2, kind: InClusterIPPool, metadata: {name: %s}, spec: %s}", name, spec))
}

func (n *space) claim(name, pool string, more ...string) {
	n.t.Helper()
	n.put(fmt.Sprintf("{apiVersion: ipam.cluster.x-k8s.io/v1beta2, kind: IPAddressClaim, metadata: {name: %s%s}, "+
		"spec: {poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: %s}}}", name, strings.Join(more, ""), pool))
}

func (n *space) delete(r schema.GroupVersionResource, name string) {
	n.t.Helper()
	n.do("delete "+name, n.of(r).Delete(n.t.Context(), name, metav1.DeleteOptions{}))
}

func (n *space) patch(r schema.GroupVersionResource, name, patch string) {
	n.t.Helper()
	_, err := n.of(r).Patch(n.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	n.do("patch "+name, err)
}

// read reads an object into a struct.
func read[T any](ctx context.Context, n *space, r schema.GroupVersionResource, name string) (o T, err error) {
	u, err := n.of(r).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o)
	}
	return o, err
}

// addresses returns the addresses of the namespace by the name of their IPAddress.
func (n *space) addresses(ctx context.Context) (map[string]string, error) {
	list, err := n.of(addresses).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, u := range list.Items {
		all[u.GetName()], _, _ = unstructured.NestedString(u.Object, "spec", "address")
	}
	return all, nil
}

// wants waits until the IPAddresses are those, as "name=address".
func (n *space) wants(want ...string) {
	n.t.Helper()
	n.eventually(func(ctx context.Context) error {
		all, err := n.addresses(ctx)
		if err != nil {
			return err
		}
		var got []string
		for _, name := range slices.Sorted(maps.Keys(all)) {
			got = append(got, name+"="+all[name])
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("the IPAddresses are %v, want %v", got, want)
		}
		return nil
	})
}

// ready waits until the condition Ready of a claim has this status and reason.
func (n *space) ready(claim string, status metav1.ConditionStatus, reason, message string) {
	n.t.Helper()
	n.eventually(func(ctx context.Context) error {
		o, err := read[v1beta2.IPAddressClaim](ctx, n, requests, claim)
		if err != nil {
			return err
		}
		for _, c := range o.Status.Conditions {
			if c.Type == v1beta2.ConditionReady && c.Status == status && c.Reason == reason && strings.Contains(c.Message, message) {
				return nil
			}
		}
		return fmt.Errorf("the conditions of %s are %+v, want Ready=%s %s %q", claim, o.Status.Conditions, status, reason, message)
	})
}

// usage waits until the status of a pool has these numbers.
func (n *space) usage(pool string, want v1alpha2.PoolUsage) {
	n.t.Helper()
	n.eventually(func(ctx context.Context) error {
		o, err := read[v1alpha2.InClusterIPPool](ctx, n, pools, pool)
		if err == nil && (o.Status.IPAddresses == nil || *o.Status.IPAddresses != want) {
			err = fmt.Errorf("the status of the pool is %+v, want %+v", o.Status.IPAddresses, want)
		}
		return err
	})
}

func (n *space) eventually(condition func(context.Context) error) {
	n.t.Helper()
	if err := controlplane.Eventually(n.t.Context(), soon, condition); err != nil {
		n.t.Fatal(err)
	}
}

// TestPools has the acceptance cases of pools and IPAddressClaims.
func TestPools(t *testing.T) { inBothPrograms(t, testPools) }

func testPools(c *cluster) {
	run := func(ns string, test func(n *space)) {
		c.t.Run(ns, func(t *testing.T) { test(c.in(t, ns)) })
	}

	run("one-after-another", func(n *space) {
		n.pool("p", "{addresses: [192.168.1.0/24], prefix: 24, gateway: 192.168.1.1}")
		n.usage("p", v1alpha2.PoolUsage{Total: 253, Free: 253})
		n.claim("a", "p", ", labels: {cluster.x-k8s.io/cluster-name: x}")
		n.wants("a=192.168.1.2")
		n.claim("b", "p")
		n.wants("a=192.168.1.2", "b=192.168.1.3")
		n.claim("e", "p")
		n.wants("a=192.168.1.2", "b=192.168.1.3", "e=192.168.1.4")
		n.ready("e", metav1.ConditionTrue, "Ready", "192.168.1.4")
		n.usage("p", v1alpha2.PoolUsage{Total: 253, Free: 250, Used: 3})

		claim, err := read[v1beta2.IPAddressClaim](n.t.Context(), n, requests, "a")
		if err != nil {
			n.t.Fatal(err)
		}
		pool, err := read[v1alpha2.InClusterIPPool](n.t.Context(), n, pools, "p")
		if err != nil {
			n.t.Fatal(err)
		}
		address, err := read[v1beta2.IPAddress](n.t.Context(), n, addresses, "a")
		if err != nil {
			n.t.Fatal(err)
		}
		yes, no, prefix := true, false, int32(24)
		owners := []metav1.OwnerReference{
			{APIVersion: "ipam.cluster.x-k8s.io/v1beta2", Kind: "IPAddressClaim", Name: "a", UID: claim.UID, Controller: &yes, BlockOwnerDeletion: &yes},
			{APIVersion: "ipam.cluster.x-k8s.io/v1alpha2", Kind: "InClusterIPPool", Name: "p", UID: pool.UID, Controller: &no, BlockOwnerDeletion: &yes},
		}
		spec := v1beta2.IPAddressSpec{ClaimRef: v1beta2.IPAddressClaimReference{Name: "a"}, PoolRef: claim.Spec.PoolRef, Address: "192.168.1.2", Prefix: &prefix, Gateway: "192.168.1.1"}
		n.same("owners of the IPAddress", address.OwnerReferences, owners)
		n.same("spec of the IPAddress", address.Spec, spec)
		n.same("finalizers of the IPAddress", address.Finalizers, []string{v1beta2.FinalizerProtectAddress})
		n.same("labels of the IPAddress", address.Labels, map[string]string{v1beta2.LabelClusterName: "x"})
		n.same("finalizers of the claim", claim.Finalizers, []string{v1beta2.FinalizerReleaseAddress})
		n.same("address of the claim", claim.Status.AddressRef.Name, "a")
		n.same("finalizers of the pool", pool.Finalizers, []string{v1beta2.FinalizerProtectPool})

		n.delete(requests, "b")
		n.wants("a=192.168.1.2", "e=192.168.1.4")
		n.usage("p", v1alpha2.PoolUsage{Total: 253, Free: 251, Used: 2})
		n.claim("f", "p")
		n.wants("a=192.168.1.2", "e=192.168.1.4", "f=192.168.1.3")

		n.delete(addresses, "a") // it stays until its claim is deleted
		n.claim("g", "p")
		n.wants("a=192.168.1.2", "e=192.168.1.4", "f=192.168.1.3", "g=192.168.1.5")
		n.delete(requests, "a")
		n.wants("e=192.168.1.4", "f=192.168.1.3", "g=192.168.1.5")
	})

	run("full", func(n *space) {
		n.pool("p", "{addresses: [10.0.0.5, 10.0.0.7], prefix: 24, gateway: 10.0.0.1}")
		for i, name := range []string{"a", "b", "c"} {
			if n.claim(name, "p"); i < 2 {
				n.ready(name, metav1.ConditionTrue, "Ready", "10.0.0.")
			}
		}
		n.ready("c", metav1.ConditionFalse, "PoolExhausted", "all 2 addresses are in use")
		n.delete(requests, "a")
		n.wants("b=10.0.0.7", "c=10.0.0.5")
		n.ready("c", metav1.ConditionTrue, "Ready", "10.0.0.5")

		// Shrunk below what is used, and widened again.
		n.pool("p", "{addresses: [10.0.0.7, 10.0.0.8], prefix: 24, gateway: 10.0.0.1}")
		n.usage("p", v1alpha2.PoolUsage{Total: 2, Free: 1, Used: 2, OutOfRange: 1})
		n.claim("d", "p")
		n.claim("e", "p")
		n.wants("b=10.0.0.7", "c=10.0.0.5", "d=10.0.0.8")
		n.usage("p", v1alpha2.PoolUsage{Total: 2, Free: 0, Used: 3, OutOfRange: 1})
		n.pool("p", "{addresses: [10.0.0.7-10.0.0.9], prefix: 24, gateway: 10.0.0.1}")
		n.wants("b=10.0.0.7", "c=10.0.0.5", "d=10.0.0.8", "e=10.0.0.9")
	})

	run("pools-that-cannot", func(n *space) {
		n.claim("early", "later")
		n.ready("early", metav1.ConditionFalse, "PoolNotReady", "does not exist")
		n.pool("later", "{addresses: [10.0.0.5], prefix: 24}")
		n.wants("early=10.0.0.5")
		n.pool("nothing", "{addresses: [10.0.0.4/31], prefix: 31}")
		n.claim("never", "nothing")
		n.ready("never", metav1.ConditionFalse, "PoolNotReady", "no address can be allocated")

		n.delete(pools, "later") // it stays while an IPAddress of it exists
		n.claim("too-late", "later")
		n.ready("too-late", metav1.ConditionFalse, "PoolNotReady", "is being deleted")
		n.delete(requests, "early")
		n.wants()
		n.eventually(func(ctx context.Context) error {
			_, err := read[v1alpha2.InClusterIPPool](ctx, n, pools, "later")
			if err == nil {
				return fmt.Errorf("the pool is still there")
			}
			return nil
		})

		// A claim for another provider is left alone: the one that is created after it is served, and it has no finalizer.
		n.put("{apiVersion: ipam.cluster.x-k8s.io/v1beta2, kind: IPAddressClaim, metadata: {name: other}, " +
			"spec: {poolRef: {apiGroup: ipam.example.com, kind: InClusterIPPool, name: p}}}")
		n.put("{apiVersion: ipam.cluster.x-k8s.io/v1beta2, kind: IPAddressClaim, metadata: {name: other-kind}, " +
			"spec: {poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: OtherPool, name: p}}}")
		n.pool("p", "{addresses: [10.0.0.5], prefix: 24}")
		n.claim("mine", "p")
		n.wants("mine=10.0.0.5")
		for _, name := range []string{"other", "other-kind"} {
			if other, err := read[v1beta2.IPAddressClaim](n.t.Context(), n, requests, name); err != nil || len(other.Finalizers) > 0 || len(other.Status.Conditions) > 0 {
				n.t.Errorf("a claim for another provider: %+v, %v", other, err)
			}
		}
	})

	run("others", func(n *space) {
		n.put("{apiVersion: ipam.cluster.x-k8s.io/v1beta2, kind: IPAddress, metadata: {name: foreign}, spec: {claimRef: {name: foreign}, " +
			"poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: p}, address: 10.0.0.5, prefix: 24}}")
		n.pool("p", "{addresses: [10.0.0.5-10.0.0.9], prefix: 24}")
		n.usage("p", v1alpha2.PoolUsage{Total: 5, Free: 4, Used: 1})
		n.claim("a", "p")
		n.wants("a=10.0.0.6", "foreign=10.0.0.5")
		n.claim("foreign", "p") // the IPAddress of its name is its own
		n.ready("foreign", metav1.ConditionTrue, "Ready", "10.0.0.5")

		n.patch(pools, "p", `{"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}}`)
		n.claim("paused", "p")
		n.patch(pools, "p", `{"metadata": {"annotations": {"cluster.x-k8s.io/paused": null}}}`)
		n.wants("a=10.0.0.6", "foreign=10.0.0.5", "paused=10.0.0.7")

		// Two IPAddresses with one address.
		n.put("{apiVersion: ipam.cluster.x-k8s.io/v1beta2, kind: IPAddress, metadata: {name: thief}, spec: {claimRef: {name: thief}, " +
			"poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: p}, address: 10.0.0.6, prefix: 24}}")
		conflicted := func(status metav1.ConditionStatus) {
			n.t.Helper()
			n.eventually(func(ctx context.Context) error {
				o, err := read[v1alpha2.InClusterIPPool](ctx, n, pools, "p")
				for _, c := range o.Status.Conditions {
					if c.Type == v1alpha2.ConditionConflicted && c.Status == status {
						return nil
					}
				}
				return fmt.Errorf("the conditions are %+v, want Conflicted=%s; error %v", o.Status.Conditions, status, err)
			})
		}
		conflicted(metav1.ConditionTrue)
		n.delete(requests, "a")
		n.claim("b", "p") // not 10.0.0.6, which the other one still has
		n.wants("b=10.0.0.8", "foreign=10.0.0.5", "paused=10.0.0.7", "thief=10.0.0.6")
		conflicted(metav1.ConditionFalse)
	})

	run("grace", func(n *space) {
		n.pool("p", "{addresses: [10.0.0.5], prefix: 24, addressReuseGracePeriodSeconds: 3}")
		n.claim("a", "p")
		n.wants("a=10.0.0.5")
		n.delete(requests, "a")
		deleted := time.Now()
		n.claim("b", "p")
		n.wants("b=10.0.0.5")
		if took := time.Since(deleted); took < 2*time.Second { // timestamps are whole seconds
			n.t.Errorf("the address was allocated again after %v", took)
		}
	})
}

func (n *space) same(what string, got, want any) {
	n.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		n.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestPoolsAfterAKill: 253 claims at once get all addresses of a /24 without the network, the gateway and the broadcast address, each once, although the controller is
// killed halfway. One more claim waits.
func TestPoolsAfterAKill(t *testing.T) { inBothPrograms(t, testPoolsAfterAKill) }

func testPoolsAfterAKill(c *cluster) {
	t, n := c.t, c.in(c.t, "many")
	n.pool("p", "{addresses: [192.168.1.0/24], prefix: 24, gateway: 192.168.1.1}")
	n.usage("p", v1alpha2.PoolUsage{Total: 253, Free: 253})
	var creators sync.WaitGroup
	for i := range 11 {
		creators.Go(func() {
			for j := range 23 {
				claim := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddressClaim",
					"metadata": map[string]any{"name": fmt.Sprintf("c%d", 23*i+j)},
					"spec":     map[string]any{"poolRef": map[string]any{"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"}}}}
				if _, err := n.of(requests).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	n.eventually(func(ctx context.Context) error {
		if all, err := n.addresses(ctx); err != nil || len(all) < 100 {
			return fmt.Errorf("there are %d IPAddresses, error %v", len(all), err)
		}
		return nil
	})
	c.kill()
	creators.Wait()
	c.start(c.args...)
	var all map[string]string
	if err := controlplane.Eventually(t.Context(), 2*time.Minute, func(ctx context.Context) (err error) {
		if all, err = n.addresses(ctx); err != nil || len(all) < 253 {
			return fmt.Errorf("there are %d IPAddresses, error %v", len(all), err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for name, at := range all {
		if a := netip.MustParseAddr(at); seen[at] != "" || at == "192.168.1.0" || at == "192.168.1.1" || at == "192.168.1.255" || !netip.MustParsePrefix("192.168.1.0/24").Contains(a) {
			t.Errorf("%s has the address %s, which belongs to %q, too, or to nobody", name, at, seen[at])
		}
		seen[at] = name
	}
	n.claim("one-more", "p")
	n.ready("one-more", metav1.ConditionFalse, "PoolExhausted", "253")
	n.usage("p", v1alpha2.PoolUsage{Total: 253, Used: 253})
}
