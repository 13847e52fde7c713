package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestWritesThatFail makes the API server refuse writes for reasons of all sorts. Within seconds the health check, the metrics, the log and an event
// on each object say so, and that goes away by itself. Whatever fails, no probe makes anybody restart the process.
func TestWritesThatFail(t *testing.T) {
	for name, p := range map[string]program{"kube-controller-manager": insideManager, "node-ipam-controller": alone} {
		t.Run(name, func(t *testing.T) { writesFail(t, p) })
	}
}

func writesFail(t *testing.T, p program) {
	ctx := t.Context()
	c := freshCluster(t, controlplane.Options{}, ours...)
	c.runs(t, p)
	must(t, createClusterCIDR(c, []string{"a", "10.0.0.0/16", "hb8"}), c.createNodes(ctx, nil, "probe", "denied-probe"),
		served(c, []string{"probe", "10.0.0.0/24"}), served(c, []string{"denied-probe", "10.0.1.0/24"}))
	webhooks, policies := c.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations(), c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	bindings := c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	refuse := func(t *testing.T, group, resource, condition string) (allow func() error) {
		t.Helper()
		const name = "refusal.example.com"
		_, err := policies.Create(ctx, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: updatesOf(group, resource)}}},
			Validations:      []admissionv1.Validation{{Expression: condition, Message: "not today"}},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = bindings.Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return func() error {
			return errors.Join(bindings.Delete(ctx, name, metav1.DeleteOptions{}), policies.Delete(ctx, name, metav1.DeleteOptions{}))
		}
	}
	// inForce waits until a harmless write is refused: the API server learns of rules by watching.
	inForce := func(t *testing.T, kind, name, patch string, subresource ...string) {
		t.Helper()
		o, err := c.object(kind, name)
		if err != nil {
			t.Fatal(err)
		}
		must(t, eventually(patience, func(ctx context.Context) error {
			if _, err := o.client.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, subresource...); err == nil {
				return errors.New("the rule is not in force")
			}
			return nil
		}))
	}
	create := func(t *testing.T, names ...string) (uids []types.UID) {
		t.Helper()
		must(t, c.createNodes(ctx, nil, names...))
		for _, name := range names {
			node, err := c.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			uids = append(uids, node.UID)
		}
		return uids
	}
	// told wants the same to be told everywhere.
	told := func(t *testing.T, kind string, n int, reason string, about []types.UID, says ...string) {
		t.Helper()
		for _, text := range says {
			expect(t, c.healthSays(text))
		}
		expect(t, c.probes(p, false))
		expect(t, eventually(patience, func(ctx context.Context) error {
			families, err := scrape(ctx, c.manager)
			if err != nil {
				return err
			}
			samples := samplesOf(families)
			if got := samples[fmt.Sprintf("failing_writes{kind=%q}", kind)]; got != float64(n) || samples["ready{}"] != 0 {
				return fmt.Errorf("the metrics say that %v writes fail and ready is %v, want %d and 0", got, samples["ready{}"], n)
			}
			for _, uid := range about {
				events, err := c.warnings(ctx, uid, reason)
				if err != nil {
					return err
				}
				if len(events) != 1 || !strings.Contains(events[0].Message, "admission webhook or policy") {
					return fmt.Errorf("the events %s are %v, want one", reason, events)
				}
			}
			return nil
		}))
	}
	over := func(t *testing.T, nodes ...string) {
		t.Helper()
		for _, node := range nodes {
			expect(t, c.isServed(node))
		}
		expect(t, c.healthy(), c.probes(p, true))
	}
	const label = `{"metadata":{"labels":{"a":"b"}}}`
	admission := sentence(t, "health TestWriteProblem/a_webhook_denies")

	t.Run("a webhook is broken", func(t *testing.T) {
		none, nowhere, fail := admissionv1.SideEffectClassNone, "https://127.0.0.1:1/", admissionv1.Fail
		_, err := webhooks.Create(ctx, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "broken"}, Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "broken.example.com", ClientConfig: admissionv1.WebhookClientConfig{URL: &nowhere}, Rules: []admissionv1.RuleWithOperations{updatesOf("", "nodes")},
			FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		inForce(t, "node", "probe", label)
		told(t, "Node", 3, nodeipam.ReasonWriteFailed, create(t, "b1", "b2", "b3"), "Node b1 and 2 more cannot be written: "+admission, `failed calling webhook "broken.example.com"`)
		c.saidOnce(t, "Cannot write: "+admission)
		must(t, webhooks.Delete(ctx, "broken", metav1.DeleteOptions{}))
		over(t, "b1", "b2", "b3")
		c.saidOnce(t, `"Can write again"`)
	})

	t.Run("a policy refuses one Node", func(t *testing.T) {
		allow := refuse(t, "", "nodes", "!object.metadata.name.startsWith('denied')")
		inForce(t, "node", "denied-probe", label)
		denied := create(t, "denied")
		create(t, "d1", "d2")
		for _, node := range []string{"d1", "d2"} {
			expect(t, c.isServed(node))
		}
		told(t, "Node", 1, nodeipam.ReasonWriteFailed, denied, "Node denied cannot be written: "+admission, "not today")
		must(t, allow())
		over(t, "denied")
	})

	t.Run("a policy refuses statuses", func(t *testing.T) {
		allow := refuse(t, networkingv1.GroupName, "clustercidrs/status", "false")
		cc, err := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Get(ctx, "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		inForce(t, "cc", "a", `{"status":{"ipv4":{"free":1}}}`, "status")
		create(t, "s")
		told(t, "status of ClusterCIDR", 1, nodeipam.ReasonStatusWriteFailed, []types.UID{cc.UID}, "status of ClusterCIDR a cannot be written: "+admission, "not today")
		must(t, allow())
		over(t)
	})
}

func updatesOf(group, resource string) admissionv1.RuleWithOperations {
	return admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Update},
		Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}},
	}
}

// probes wants liveness to pass, and readiness, where there is one, to say whether all is well.
func (c *cluster) probes(p program, ready bool) error {
	return eventually(patience, func(ctx context.Context) error {
		status, _, err := c.manager.Get(ctx, "/healthz")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("/healthz answers %d, and the kubelet restarts the process", status)
		}
		if err != nil || !p.alone {
			return err
		}
		for _, path := range []string{"/healthz", "/readyz"} {
			status, body, err := c.manager.Probe(ctx, path)
			if err != nil {
				return err
			}
			if pass := ready || path == "/healthz"; pass != (status == http.StatusOK) {
				return fmt.Errorf("%s answers %d %s, want it to pass: %t", path, status, body, pass)
			}
		}
		return nil
	})
}
