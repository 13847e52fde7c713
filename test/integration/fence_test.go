package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/api"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// The manifests, as docs/operate/policies.md says to apply them.
const (
	policy       = "../../manifests/fencing/policy.yaml"
	insideKCM    = "../../manifests/fencing/kube-controller-manager.yaml"
	standalone   = "../../manifests/fencing/node-ipam-controller.yaml"
	createdNodes = "../../manifests/fencing/created-nodes.yaml"
	keepLeases   = "../../manifests/fencing/keep-leases.yaml"

	kcmLease        = "kube-controller-manager"
	standaloneLease = "node-ipam-controller"
)

// TestFencingPolicy asks the API server for all kinds of writes while the Lease is somebody's, nobody's or not there. No manager of ours
// has to do with it: the Lease is that of the standalone binary.
func TestFencingPolicy(t *testing.T) {
	ctx := t.Context()
	c := freshCluster(t, controlplane.Options{})
	must(t, c.setLease(ctx, standaloneLease, "us"), c.cp.Apply(ctx, policy, standalone))
	if _, err := c.waitPolicy(ctx, standaloneLease); err != nil {
		t.Fatal(err)
	}
	const (
		none     = `{"spec":{"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24"]}}`
		single   = `{"spec":{"podCIDR":"10.0.0.0/24"}}`
		of       = `{"metadata":{"annotations":{"networking.x-k8s.io/lease-holder":"%s"}},"spec":{"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24"]}}`
		label    = `{"metadata":{"labels":{"a":"b"}}}`
		released = ""
	)
	for name, tc := range map[string]struct {
		holder string
		served bool // the Node has podCIDRs already, from an earlier leader
		patch  string
		want   []string // parts of the refusal; none: admitted
		// byServer: not by the policy
		byServer bool
	}{
		"the holder":                        {holder: "us", patch: fmt.Sprintf(of, "us")},
		"another writer":                    {holder: "us", patch: none, want: []string{"kube-system/node-ipam-controller", `now "us"`, "another allocator", "delete this policy"}},
		"one that was deposed":              {holder: "us", patch: fmt.Sprintf(of, "them"), want: []string{`now "us"`, `comes from "them"`}},
		"podCIDR alone":                     {holder: "us", patch: single, want: []string{`now "us"`}},
		"nobody leads":                      {holder: released, patch: fmt.Sprintf(of, "us"), want: []string{"Nobody holds this Lease now"}},
		"nobody leads, and an empty name":   {holder: released, patch: fmt.Sprintf(of, ""), want: []string{"Nobody holds this Lease now"}},
		"anything else about a Node":        {holder: "us", patch: label},
		"a label of a Node that was served": {holder: "us", served: true, patch: label},
		"what a Node has, written late by one that was deposed": {
			holder: "us", served: true, patch: fmt.Sprintf(of, "others"), want: []string{`now "us"`, `comes from "others"`},
		},
		"what a Node has, by the holder": {holder: "us", served: true, patch: fmt.Sprintf(of, "us")},
		"a change of what a Node has is left to the API server": {
			holder: "us", served: true, patch: strings.ReplaceAll(none, "10.0.0.0", "10.9.0.0"),
			want: []string{"may not change podCIDR except from"}, byServer: true,
		},
		"without a Lease everybody may write":  {holder: noLease, patch: none},
		"without a Lease Nodes can be changed": {holder: noLease, patch: label},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, c.setLease(ctx, standaloneLease, tc.holder))
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "n-"}}
			if tc.served {
				node.Annotations = map[string]string{networkingv1.AnnotationLeaseHolder: "them"}
				node.Spec.PodCIDR = "10.0.0.0/24"
			}
			node, err := c.kube.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			// The API server learns of the Lease by watching, so it may need a moment; a dry run leaves the Node as it is until then.
			wrong := eventually(patience, func(ctx context.Context) error {
				err = c.patchNode(ctx, node.Name, tc.patch, metav1.DryRunAll)
				if (err != nil) != (len(tc.want) > 0) {
					return fmt.Errorf("got %v", err)
				}
				for _, part := range tc.want {
					if !strings.Contains(err.Error(), part) {
						return fmt.Errorf("got %q, want %q in it", err, part)
					}
				}
				return nil
			})
			if wrong != nil {
				t.Fatal(wrong)
			}
			if tc.want != nil && !tc.byServer && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), api.FencingPolicy)) {
				t.Errorf("the controller would not know this refusal: %v", err)
			}
		})
	}
}

// TestPolicyAgain deletes the policy or its binding, applies it again, and in between the Lease gets another holder. keep-leases.yaml is why
// that works. Without it the API server believes in the holder of then until it restarts, and health says so. If that part fails with a newer
// kube-apiserver, keep-leases.yaml may not be needed any more.
func TestPolicyAgain(t *testing.T) {
	ctx := t.Context()
	c := freshCluster(t, controlplane.Options{})
	const of = `{"metadata":{"annotations":{"networking.x-k8s.io/lease-holder":"%s"}},"spec":{"podCIDR":"10.9.0.0/24","podCIDRs":["10.9.0.0/24"]}}`
	again := func(t *testing.T, manifests []string, remove func(context.Context) error) (former string) {
		t.Helper()
		must(t, c.cp.Apply(ctx, manifests...))
		former, err := c.waitPolicy(ctx, kcmLease)
		if err != nil {
			t.Fatal(err)
		}
		must(t, remove(ctx))
		must(t, c.waitOpen(ctx))
		must(t, c.stopManager((*controlplane.Process).Stop))
		must(t, c.startManager(ours...), c.cp.Apply(ctx, manifests...))
		return former
	}

	former := again(t, []string{policy, insideKCM}, c.removePolicy)
	must(t, createClusterCIDR(c, []string{"a", "sel(p=x)", "10.0.0.0/16", "hb8"}), c.createNodes(ctx, nil, "n"))
	// In force again, and it names the former holder.
	must(t, eventually(patience, func(ctx context.Context) error {
		if err := c.patchNode(ctx, "n", `{"spec":{"podCIDR":"10.9.0.0/24"}}`, metav1.DryRunAll); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), former) {
			return fmt.Errorf("got %v, want a refusal that names %q", err, former)
		}
		return nil
	}))
	if err := c.patchNode(ctx, "n", fmt.Sprintf(of, former), metav1.DryRunAll); err != nil {
		t.Errorf("without keep-leases.yaml, a write of the former holder: %v", err)
	}
	must(t, c.patchNode(ctx, "n", `{"metadata":{"labels":{"p":"x"}}}`))
	health := "/healthz/" + nodeipam.Name
	expect(t, eventually(patience, func(ctx context.Context) error {
		_, body, err := c.manager.Get(ctx, health)
		if err == nil && !strings.Contains(string(body), "restart each kube-apiserver") {
			err = fmt.Errorf("GET %s: %s, want what to do", health, body)
		}
		return err
	}))
	// The manager would lose its Lease if the API server took long.
	must(t, c.stopManager((*controlplane.Process).Stop))
	must(t, c.cp.Apply(ctx, keepLeases), c.cp.RestartAPIServer(ctx), c.startManager(ours...))
	must(t, c.isServed("n"))

	for i, remove := range []func(context.Context) error{c.removePolicy, c.removeBinding} {
		former := again(t, []string{keepLeases, policy, insideKCM}, remove)
		holder, err := c.waitPolicy(ctx, kcmLease)
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("again-%d", i)
		must(t, c.createNodes(ctx, nil, name))
		if err := c.patchNode(ctx, name, fmt.Sprintf(of, former)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), holder) {
			t.Errorf("a write of the former holder: got %v, want a refusal that names %q", err, holder)
		}
		must(t, c.patchNode(ctx, name, `{"metadata":{"labels":{"p":"x"}}}`))
		expect(t, c.isServed(name))
	}
}

// TestRefusalIsADoubt binds the policy to a Lease that somebody else holds, so that the API server refuses the leader's writes.
// Nothing is wrong with the Node, and the leader goes on by itself when the API server looks at the right Lease.
func TestRefusalIsADoubt(t *testing.T) {
	ctx := t.Context()
	c := freshCluster(t, controlplane.Options{})
	must(t, c.setLease(ctx, standaloneLease, "somebody"), c.cp.Apply(ctx, policy, standalone))
	if _, err := c.waitPolicy(ctx, standaloneLease); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range 10 {
		names = append(names, fmt.Sprintf("n%d", i))
	}
	// A finalizer is not fenced by the policy, only by the leader itself.
	must(t, createClusterCIDR(c, []string{"a", "10.0.0.0/16", "hb8"}), c.createNodes(ctx, nil, names...))
	health := "/healthz/" + nodeipam.Name
	expect(t, eventually(patience, func(ctx context.Context) error {
		_, body, err := c.manager.Get(ctx, health)
		if err == nil && (!strings.Contains(string(body), "9 more") || !strings.Contains(string(body), sentence(t, "health TestWriteProblem/the_fencing_policy"))) {
			err = fmt.Errorf("GET %s: %s, want what is wrong", health, body)
		}
		return err
	}))

	const refuses = "another process for the leader"
	c.saidOnce(t, refuses) // with the next try, which may come a while after the health check says it
	must(t, c.cp.Apply(ctx, insideKCM))
	for _, name := range names {
		node, err := c.waitServed(name, patience)
		if err != nil {
			t.Fatal(err)
		}
		events, err := c.kube.CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: fields.Set{"involvedObject.uid": string(node.UID)}.String()})
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range events.Items {
			if event.Reason != nodeipam.ReasonWriteFailed {
				t.Errorf("event on Node %s: %s %s", name, event.Reason, event.Message)
			}
		}
	}
	if got := timesLogged(t, c.manager, refuses); got != 1 {
		t.Errorf("the log says %d times that the API server refuses, want once for all Nodes", got)
	}
	if timesLogged(t, c.manager, "Will try again") > 0 {
		t.Error("the log has a line for a Node that was refused")
	}
}

// waitPolicy waits until the policy looks at a Lease, and returns the holder that its refusal names. No ClusterCIDR may be there yet.
func (c *cluster) waitPolicy(ctx context.Context, lease string) (holder string, err error) {
	const probe = "policy-probe"
	if err := c.createNodes(ctx, nil, probe); err != nil {
		return "", err
	}
	err = eventually(patience, func(ctx context.Context) error {
		found, err := c.kube.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, lease, metav1.GetOptions{})
		if err != nil {
			return err
		}
		holder = *found.Spec.HolderIdentity
		err = c.patchNode(ctx, probe, `{"spec":{"podCIDR":"10.0.0.0/24"}}`, metav1.DryRunAll)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), fmt.Sprintf("now %q", holder)) {
			return fmt.Errorf("a write without the policy's annotation: got %v, want a refusal that names %q", err, holder)
		}
		return nil
	})
	return holder, errors.Join(err, c.kube.CoreV1().Nodes().Delete(ctx, probe, metav1.DeleteOptions{}))
}

// createNodes creates Nodes that differ in their names only.
func (c *cluster) createNodes(ctx context.Context, labels map[string]string, names ...string) error {
	for _, name := range names {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if _, err := c.kube.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// waitOpen waits until the API server lets everybody write podCIDRs.
func (c *cluster) waitOpen(ctx context.Context) error {
	const probe = "open-probe"
	if err := c.createNodes(ctx, nil, probe); err != nil {
		return err
	}
	return errors.Join(
		eventually(patience, func(ctx context.Context) error {
			return c.patchNode(ctx, probe, `{"spec":{"podCIDR":"10.0.0.0/24"}}`, metav1.DryRunAll)
		}),
		c.kube.CoreV1().Nodes().Delete(ctx, probe, metav1.DeleteOptions{}),
	)
}

// removePolicy deletes the policy that refuses podCIDRs, and its binding.
func (c *cluster) removePolicy(ctx context.Context) error {
	return errors.Join(c.removeBinding(ctx),
		c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(ctx, api.FencingPolicy, metav1.DeleteOptions{}))
}

func (c *cluster) removeBinding(ctx context.Context) error {
	return c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx, api.FencingPolicy, metav1.DeleteOptions{})
}

// noLease as a holder: the Lease does not exist.
const noLease = "-"

// setLease makes a Lease be held by somebody, or by nobody if the holder is empty.
func (c *cluster) setLease(ctx context.Context, name, holder string) error {
	leases := c.kube.CoordinationV1().Leases(metav1.NamespaceSystem)
	if err := leases.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if holder == noLease {
		return nil
	}
	_, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}, metav1.CreateOptions{})
	return err
}

func (c *cluster) patchNode(ctx context.Context, name, patch string, dryRun ...string) error {
	_, err := c.kube.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: dryRun})
	return err
}
