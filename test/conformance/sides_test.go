package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// What make builds of the original: the program, and the CRDs of its module and of the Cluster API that it was built with.
const (
	originalProgram = "../../bin/original/cluster-api-ipam-provider-in-cluster"
	originalCRDs    = "../../bin/original/crds"
)

var (
	pools       = v1alpha2.GroupVersion.WithResource("inclusterippools")
	globalPools = v1alpha2.GroupVersion.WithResource("globalinclusterippools")
	addresses   = v1beta2.GroupVersion.WithResource("ipaddresses")
	requests    = v1beta2.GroupVersion.WithResource("ipaddressclaims")
	clusters    = schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "clusters"}
)

// side is one of the programs on a control plane of its own.
type side struct {
	name   string
	cp     *controlplane.ControlPlane
	client dynamic.Interface
}

// startSides starts the original and ours.
func startSides(t *testing.T) [2]*side {
	sides := [2]*side{{name: "the original"}, {name: "ours"}}
	for _, s := range sides {
		s.cp = controlplane.StartForTest(t, controlplane.Options{})
		s.client = dynamic.NewForConfigOrDie(s.cp.AdminConfig())
		if err := s.cp.Apply(t.Context(), originalCRDs); err != nil {
			t.Fatal(err)
		}
	}
	original, ours := sides[0].cp, sides[1].cp
	// Neither side is to be hindered by permissions, which other tests see to.
	kubeconfig := func(cp *controlplane.ControlPlane) string {
		path, err := cp.Kubeconfig("provider", "system:masters")
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	process, err := controlplane.StartProcess("the original", filepath.Join(original.LogDir(), "original.log"), originalProgram,
		"--kubeconfig="+kubeconfig(original), "--webhook-port=0", "--health-probe-bind-address=0", "--insecure-diagnostics", "--diagnostics-address=0")
	if err != nil {
		t.Fatalf("%v. Run make conformance", err)
	}
	t.Cleanup(func() {
		if err := process.Stop(); err != nil {
			t.Error(err)
		}
	})
	ours.StartManagerForTest(t, controlplane.ManagerOptions{
		Alone: true, Binary: "cluster-ipam-controller", Kubeconfig: kubeconfig(ours), Args: []string{"--controllers=in-cluster-ip-pool-controller"},
	})
	return sides
}

// second is the second namespace of a case whose first one ends in -1.
func second(namespace string) string { return strings.TrimSuffix(namespace, "-1") + "-2" }

// A name is in the namespace of the case, or with "2/" before it in a second one.
func (s *side) of(r schema.GroupVersionResource, namespace, name string) (dynamic.ResourceInterface, string) {
	if r == globalPools {
		return s.client.Resource(r), name
	}
	if rest, ok := strings.CutPrefix(name, "2/"); ok {
		return s.client.Resource(r).Namespace(second(namespace)), rest
	}
	return s.client.Resource(r).Namespace(namespace), name
}

// action is something that a user does in the namespace of a case.
type action func(ctx context.Context, s *side, namespace string) error

// apply applies an object whose content is YAML. NAMESPACE in it is the namespace of the case.
func apply(r schema.GroupVersionResource, kind, name, content string) action {
	return func(ctx context.Context, s *side, namespace string) error {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll(content, "NAMESPACE", namespace)), &object.Object); err != nil {
			return fmt.Errorf("read %s: %w", content, err)
		}
		object.SetAPIVersion(r.GroupVersion().String())
		object.SetKind(kind)
		in, name := s.of(r, namespace, strings.ReplaceAll(name, "NAMESPACE", namespace))
		object.SetName(name)
		_, err := in.Apply(ctx, name, object, metav1.ApplyOptions{FieldManager: "user", Force: true})
		return err
	}
}

func pool(spec string) action {
	return apply(pools, v1alpha2.KindInClusterIPPool, "p", "{spec: {"+spec+"}}")
}

func globalPool(spec string) action {
	return apply(globalPools, v1alpha2.KindGlobalInClusterIPPool, "NAMESPACE", "{spec: {"+spec+"}}")
}

// claim is an IPAddressClaim of the pool.
func claim(name string) action { return claimWith(name, "metadata: {}") }

// claimWith is one with more in it.
func claimWith(name, more string) action {
	return claimOf(name, "{apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: p}", more)
}

func claimOfGlobal(name string) action {
	return claimOf(name, "{apiGroup: ipam.cluster.x-k8s.io, kind: GlobalInClusterIPPool, name: NAMESPACE}", "metadata: {}")
}

func claimOf(name, pool, more string) action {
	return apply(requests, v1beta2.KindIPAddressClaim, name, "{spec: {poolRef: "+pool+"}, "+more+"}")
}

func remove(r schema.GroupVersionResource, name string) action {
	return func(ctx context.Context, s *side, namespace string) error {
		in, name := s.of(r, namespace, strings.ReplaceAll(name, "NAMESPACE", namespace))
		return in.Delete(ctx, name, metav1.DeleteOptions{})
	}
}

// patch changes an object by a merge patch, as YAML.
func patch(r schema.GroupVersionResource, name, content string) action {
	return func(ctx context.Context, s *side, namespace string) error {
		body, err := yaml.YAMLToJSON([]byte(content))
		if err != nil {
			return err
		}
		in, name := s.of(r, namespace, name)
		_, err = in.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
		return err
	}
}

// state is all objects of a case, each as its values by their paths: "InClusterIPPool p": {"status.ipAddresses.free": "3"}.
type state map[string]map[string]string

// state reads what is stored.
func (s *side) state(ctx context.Context, namespace string) (state, error) {
	all, names := state{}, map[string]string{} // of UIDs
	var objects []unstructured.Unstructured
	for _, r := range []schema.GroupVersionResource{requests, pools, globalPools, addresses} {
		list, err := s.client.Resource(r).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, o := range list.Items {
			if o.GetNamespace() == namespace || o.GetNamespace() == second(namespace) || o.GetNamespace() == "" && o.GetName() == namespace {
				objects = append(objects, o)
				names[string(o.GetUID())] = o.GetKind() + " " + o.GetName()
			}
		}
	}
	for _, o := range objects {
		key := o.GetKind() + " " + o.GetName()
		if o.GetNamespace() == second(namespace) {
			key = o.GetKind() + " 2/" + o.GetName()
		}
		all[key] = values(&o, names)
	}
	return all, nil
}

// values are those of an object that do not depend on when and where it was made.
func values(o *unstructured.Unstructured, names map[string]string) map[string]string {
	meta := o.Object["metadata"].(map[string]any)
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "deletionGracePeriodSeconds", "namespace"} {
		delete(meta, field)
	}
	if meta["deletionTimestamp"] != nil {
		meta["deletionTimestamp"] = "set"
	}
	owners, _ := meta["ownerReferences"].([]any)
	for _, owner := range owners {
		owner := owner.(map[string]any)
		owner["uid"] = cmp.Or(names[fmt.Sprint(owner["uid"])], "of nothing here")
	}
	all := map[string]string{}
	flatten(o.Object, "", all)
	return all
}

// flatten has lists as one value, so that they are compared as a whole.
func flatten(value any, path string, into map[string]string) {
	if object, ok := value.(map[string]any); ok {
		for field, value := range object {
			flatten(value, strings.TrimPrefix(path+"."+field, "."), into)
		}
		return
	}
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // It was read from JSON.
	}
	into[path] = string(text)
}

// allocated are the IPAddresses: "a=10.0.0.5 b=10.0.0.7".
func (s state) allocated() string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if name, ok := strings.CutPrefix(key, v1beta2.KindIPAddress+" "); ok {
			all = append(all, name+"="+strings.Trim(s[key]["spec.address"], `"`))
		}
	}
	return strings.Join(all, " ")
}

// difference is where two states differ: "InClusterIPPool p status.ipAddresses.free: -1, 0". Which IPAddresses there are, and with which
// address, is not part of it.
func difference(original, ours state) (lines []string) {
	for _, key := range sortedKeys(original, ours) {
		a, b := original[key], ours[key]
		isAddress := strings.HasPrefix(key, v1beta2.KindIPAddress+" ")
		if a == nil || b == nil {
			if !isAddress {
				lines = append(lines, fmt.Sprintf("%s: %s, %s", key, exists(a), exists(b)))
			}
			continue
		}
		for _, path := range sortedKeys(a, b) {
			if a[path] != b[path] && (!isAddress || path != "spec.address") && !incomparable(key, path, a) {
				lines = append(lines, fmt.Sprintf("%s %s: %s, %s", key, path, cmp.Or(a[path], "none"), cmp.Or(b[path], "none")))
			}
		}
	}
	return lines
}

// incomparable: ours says in conditions of a claim what it waits for, and in annotations and a label what is to move with it; and whether the
// original still counts the addresses of a pool in deletion is chance.
func incomparable(key, path string, values map[string]string) bool {
	return strings.HasPrefix(key, v1beta2.KindIPAddressClaim+" ") && path == "status.conditions" ||
		strings.HasPrefix(path, "metadata.annotations.networking.x-k8s.io/") || path == "metadata.labels.clusterctl.cluster.x-k8s.io/move" ||
		strings.Contains(key, "IPPool ") && strings.HasPrefix(path, "status.ipAddresses.") && values["metadata.deletionTimestamp"] != ""
}

func exists(values map[string]string) string {
	if values == nil {
		return "gone"
	}
	return "there"
}

func sortedKeys[V any](a, b map[string]V) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
}
