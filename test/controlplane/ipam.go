package controlplane

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// BindClusterIPAM gives a user what the chart of cluster-ipam-controller gives its service account: the roles of controllers, which must exist, its Lease, the
// Secrets of InfobloxInstances, and what a server needs that asks the API server who its clients are.
func (cp *ControlPlane) BindClusterIPAM(ctx context.Context, user string, controllers ...string) error {
	const program, rbac = "cluster-ipam-controller", "rbac.authorization.k8s.io"
	texts := []string{`{kind: Role, metadata: {namespace: kube-system, name: ` + program + `}, rules: [
		{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create, get, update]},
		{apiGroups: [""], resources: [secrets], verbs: [get, list, watch]}]}`}
	bind := func(kind, role, namespace string) {
		texts = append(texts, fmt.Sprintf(`{kind: %sBinding, metadata: {%s name: "%s:%s"}, roleRef: {apiGroup: %s, kind: %s, name: "%s"}, subjects: [{kind: User, apiGroup: %s, name: "%s"}]}`,
			kind, namespace, program, role, rbac, kind, role, rbac, user))
	}
	bind("ClusterRole", "system:auth-delegator", "")
	for _, name := range controllers {
		bind("ClusterRole", "system:controller:"+name, "")
	}
	for _, role := range []string{program, "extension-apiserver-authentication-reader"} {
		bind("Role", role, "namespace: kube-system,")
	}
	var objects []*unstructured.Unstructured
	for _, text := range texts {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			return fmt.Errorf("read %s: %w", text, err)
		}
		o.SetAPIVersion(rbac + "/v1")
		objects = append(objects, o)
	}
	return cp.ApplyObjects(ctx, objects...)
}

// JudgeIPAddresses watches that no two IPAddresses have one address, until stop is called, which tells how many there were.
func JudgeIPAddresses(t testing.TB, addresses dynamic.ResourceInterface) (stop func() (seen int)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	watcher, err := addresses.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan int, 1)
	go func() {
		defer watcher.Stop()
		seen <- judge(ctx, t, watcher)
	}()
	return func() int {
		cancel()
		return <-seen
	}
}

func judge(ctx context.Context, t testing.TB, watcher watch.Interface) (seen int) {
	holders := map[string]string{}
	for e := range watcher.ResultChan() {
		o, ok := e.Object.(*unstructured.Unstructured)
		if !ok {
			if ctx.Err() == nil { // One that is ended from here may say that it could not be read.
				t.Errorf("the watch has ended: %v", e.Object)
			}
			return seen
		}
		at, _, _ := unstructured.NestedString(o.Object, "spec", "address")
		switch holder := holders[at]; {
		case e.Type == watch.Deleted:
			delete(holders, at)
		case holder == "":
			holders[at] = o.GetName()
			seen++
		case holder != o.GetName():
			t.Errorf("%s is allocated to %s while %s has it", at, o.GetName(), holder)
		}
	}
	if ctx.Err() == nil {
		t.Error("the watch has ended before the test")
	}
	return seen
}
