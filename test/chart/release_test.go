package chart

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/cli"
	"helm.sh/helm/v4/pkg/kube"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/test/controlplane"
)

const (
	releaseName = "ranges"
	namespace   = "network"
	// fullname is what the chart makes of the release's name.
	fullname = "ranges-node-ipam-controller"
	crdName  = "clustercidrs.networking.x-k8s.io"
	// keepLeases is the release's policy that stays, and its binding.
	keepLeases = "ranges.network.keep-leases.networking.x-k8s.io"
)

// cluster is a control plane that Helm installs into.
type cluster struct {
	*controlplane.ControlPlane
	kube         kubernetes.Interface
	clusterCIDRs versioned.Interface
	helm         *action.Configuration
}

// startCluster starts one that ends with the test. Nothing runs on it but the API server: Deployments are stored, not carried out.
func startCluster(t *testing.T, opts controlplane.Options) *cluster {
	t.Helper()
	var err error
	if opts.BinDir, err = filepath.Abs("../../bin"); err != nil {
		t.Fatal(err)
	}
	cp := controlplane.StartForTest(t, opts)
	kubeconfig, err := cp.Kubeconfig("admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	settings := cli.New()
	settings.KubeConfig = kubeconfig
	settings.SetNamespace(namespace)
	c := &cluster{
		ControlPlane: cp,
		kube:         kubernetes.NewForConfigOrDie(cp.AdminConfig()),
		clusterCIDRs: versioned.NewForConfigOrDie(cp.AdminConfig()),
		helm:         action.NewConfiguration(),
	}
	if err := c.helm.Init(settings.RESTClientGetter(), namespace, "secret"); err != nil {
		t.Fatal(err)
	}
	return c
}

// What Helm does waits for nothing: no Deployment is carried out.

func (c *cluster) install(t *testing.T, chart *helmchart.Chart, release string, values map[string]any) {
	t.Helper()
	install := action.NewInstall(c.helm)
	install.ReleaseName, install.Namespace, install.CreateNamespace, install.WaitStrategy = release, namespace, true, kube.HookOnlyStrategy
	if _, err := install.Run(chart, values); err != nil {
		t.Fatalf("install: %v", err)
	}
}

func (c *cluster) upgrade(t *testing.T, chart *helmchart.Chart, release string, values map[string]any) {
	t.Helper()
	upgrade := action.NewUpgrade(c.helm)
	upgrade.Namespace, upgrade.ServerSideApply, upgrade.WaitStrategy = namespace, "auto", kube.HookOnlyStrategy
	if _, err := upgrade.Run(release, chart, values); err != nil {
		t.Fatalf("upgrade: %v", err)
	}
}

func (c *cluster) rollback(t *testing.T, release string) {
	t.Helper()
	rollback := action.NewRollback(c.helm)
	rollback.WaitStrategy = kube.HookOnlyStrategy
	if err := rollback.Run(release); err != nil {
		t.Fatalf("rollback: %v", err)
	}
}

func (c *cluster) uninstall(t *testing.T, release string) {
	t.Helper()
	uninstall := action.NewUninstall(c.helm)
	uninstall.WaitStrategy = kube.HookOnlyStrategy
	if _, err := uninstall.Run(release); err != nil {
		t.Fatalf("uninstall: %v", err)
	}
}

// rollOut says of a Deployment what its controller says when no Pods of the old template are left.
func (c *cluster) rollOut(t *testing.T, name string) {
	t.Helper()
	deployments := c.kube.AppsV1().Deployments(namespace)
	d, err := deployments.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: *d.Spec.Replicas, UpdatedReplicas: *d.Spec.Replicas}
	if _, err := deployments.UpdateStatus(t.Context(), d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// installed are the objects of the release that are in the API server, by "Kind name"; the values tell what is compared of them.
func (c *cluster) installed(t *testing.T) map[string]string {
	t.Helper()
	ctx, found := t.Context(), map[string]string{}
	// note: an object that is not there is no error.
	note := func(kind, name string, err error, what ...any) {
		t.Helper()
		if apierrors.IsNotFound(err) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		found[kind+" "+name] = fmt.Sprint(what...)
	}
	deployment, err := c.kube.AppsV1().Deployments(namespace).Get(ctx, fullname, metav1.GetOptions{})
	note("Deployment", fullname, err, *orZero(deployment.Spec.Replicas), " replicas, ", deployment.Spec.Strategy.Type)
	_, err = c.kube.CoreV1().ServiceAccounts(namespace).Get(ctx, fullname, metav1.GetOptions{})
	note("ServiceAccount", fullname, err)
	_, err = c.kube.CoreV1().Services(namespace).Get(ctx, fullname, metav1.GetOptions{})
	note("Service", fullname, err)
	_, err = c.kube.PolicyV1().PodDisruptionBudgets(namespace).Get(ctx, fullname, metav1.GetOptions{})
	note("PodDisruptionBudget", fullname, err)
	_, err = c.kube.RbacV1().ClusterRoles().Get(ctx, fullname, metav1.GetOptions{})
	note("ClusterRole", fullname, err)
	role, err := c.kube.RbacV1().Roles(namespace).Get(ctx, fullname+"-lease", metav1.GetOptions{})
	var leases []string
	for _, rule := range role.Rules {
		leases = append(leases, rule.ResourceNames...)
	}
	note("Role", fullname+"-lease", err, strings.Join(leases, ","))
	events, err := c.kube.RbacV1().Roles(metav1.NamespaceDefault).Get(ctx, fullname+"-events", metav1.GetOptions{})
	note("Role", fullname+"-events", err, events.Namespace)
	const fence = "lease-holder.networking.x-k8s.io"
	binding, err := c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(ctx, fence, metav1.GetOptions{})
	if ref := binding.Spec.ParamRef; ref != nil {
		note("ValidatingAdmissionPolicyBinding", fence, err, ref.Namespace, "/", ref.Name)
	} else {
		note("ValidatingAdmissionPolicyBinding", fence, err)
	}
	kept, err := c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(ctx, keepLeases, metav1.GetOptions{})
	note("ValidatingAdmissionPolicyBinding", keepLeases, err, kept.Spec.PolicyName)
	_, err = c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, keepLeases, metav1.GetOptions{})
	note("ValidatingAdmissionPolicy", keepLeases, err)
	return found
}

func orZero[T any](p *T) *T {
	if p == nil {
		return new(T)
	}
	return p
}

// The life of a release. ClusterCIDRs live longer.
func TestRelease(t *testing.T) {
	c := startCluster(t, controlplane.Options{})
	ctx := t.Context()
	values := func(set string, more string) map[string]any {
		return loader.MergeMaps(valueSets(t)[set], object(t, more))
	}
	usual := map[string]string{
		"Deployment " + fullname:          "1 replicas, Recreate",
		"ServiceAccount " + fullname:      "",
		"PodDisruptionBudget " + fullname: "",
		"ClusterRole " + fullname:         "",
		"Role " + fullname + "-events":    "default",
		"Role " + fullname + "-lease":     "node-ipam-controller",
	}
	expect := func(step string, want map[string]string) {
		t.Helper()
		if diff := cmp.Diff(want, c.installed(t)); diff != "" {
			t.Errorf("after the %s (-want +installed):\n%s", step, diff)
		}
		// The CRD is served, and what was created stays.
		if _, err := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Get(ctx, "kept", metav1.GetOptions{}); err != nil {
			t.Errorf("after the %s: %v", step, err)
		}
	}

	c.install(t, loadChart(t), releaseName, values("defaults", `{}`))
	c.create(t, &networkingv1.ClusterCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kept"},
		Spec:       networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/16", PerNodeHostBits: 8},
	})
	expect("installation", usual)

	everything := map[string]string{
		"Deployment " + fullname:                                            "2 replicas, Recreate",
		"ServiceAccount " + fullname:                                        "",
		"Service " + fullname:                                               "",
		"PodDisruptionBudget " + fullname:                                   "",
		"ClusterRole " + fullname:                                           "",
		"Role " + fullname + "-events":                                      "default",
		"Role " + fullname + "-lease":                                       "123",
		"ValidatingAdmissionPolicyBinding lease-holder.networking.x-k8s.io": namespace + "/123",
	}
	// Once the fence was on, this stays, so that the fence works when it is on again: manifests/fencing/keep-leases.yaml says why.
	stays := map[string]string{"ValidatingAdmissionPolicy " + keepLeases: "", "ValidatingAdmissionPolicyBinding " + keepLeases: keepLeases}
	maps.Copy(everything, stays)
	c.upgrade(t, loadChart(t), releaseName, values("everything-on", `{serviceMonitor: {enabled: false}, prometheusRule: {enabled: false}}`))
	expect("upgrade to another Lease", everything)
	// The old Pods may still run.
	c.upgrade(t, loadChart(t), releaseName, values("everything-on", `{serviceMonitor: {enabled: false}, prometheusRule: {enabled: false}}`))
	expect("same upgrade again, before the old Pods are gone", everything)
	c.rollOut(t, fullname)
	everything["Deployment "+fullname] = "2 replicas, RollingUpdate"
	c.upgrade(t, loadChart(t), releaseName, values("everything-on", `{serviceMonitor: {enabled: false}, prometheusRule: {enabled: false}}`))
	expect("upgrade with the same Lease", everything)

	maps.Copy(usual, stays)
	c.upgrade(t, loadChart(t), releaseName, values("defaults", `{}`))
	expect("upgrade to the defaults", usual)

	// Another strategy of the Deployment: the API server refuses it for as long as anything of the old one is left.
	withoutElection := maps.Clone(usual)
	delete(withoutElection, "Role "+fullname+"-lease")
	c.upgrade(t, loadChart(t), releaseName, values("defaults", `{leaderElection: {enabled: false}}`))
	expect("upgrade without election", withoutElection)
	c.upgrade(t, loadChart(t), releaseName, values("defaults", `{replicaCount: 2}`))
	elected := maps.Clone(usual)
	elected["Deployment "+fullname] = "2 replicas, Recreate"
	expect("upgrade to election", elected)
	c.rollback(t, releaseName)
	expect("rollback to no election", withoutElection)
	c.upgrade(t, loadChart(t), releaseName, values("defaults", `{}`))
	expect("upgrade to one replica", usual)

	// What a release no longer renders Helm deletes; the policy of the CRD keeps it here too.
	c.upgrade(t, loadChart(t), releaseName, values("defaults", `{installCRDs: false}`))
	expect("upgrade without CRD", usual)
	c.rollback(t, releaseName)
	expect("rollback to the CRD", usual)

	// What a namespace that enforces Pod Security "restricted" says to the Pods.
	c.enforceRestricted(t)
	const refused = `violates PodSecurity "restricted:latest": `
	if err := c.dryRunPod(t, fullname); err == nil || !strings.Contains(err.Error(), refused+"host namespaces (hostNetwork=true), hostPort") {
		t.Errorf("a Pod with the host's network: %v", err)
	} else if why := strings.TrimSpace(strings.SplitN(err.Error(), refused, 2)[1]); strings.Contains(why, "container \"node-ipam-controller\" must set") || strings.Contains(why, "unrestricted") {
		t.Errorf("it lacks more than its network asks for: %s", why)
	}
	c.upgrade(t, loadChart(t), releaseName, values("defaults", `{hostNetwork: false}`))
	if err := c.dryRunPod(t, fullname); err != nil {
		t.Errorf("a Pod with hostNetwork=false: %v", err)
	}
	c.rollback(t, releaseName)

	c.uninstall(t, releaseName)
	expect("uninstallation", stays)
	c.install(t, loadChart(t), releaseName, values("everything-on", `{serviceMonitor: {enabled: false}, prometheusRule: {enabled: false}}`))
	expect("second installation", everything)
}

func (c *cluster) enforceRestricted(t *testing.T) {
	t.Helper()
	patch := []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)
	if _, err := c.kube.CoreV1().Namespaces().Patch(t.Context(), namespace, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// dryRunPod asks the API server for a Pod of a Deployment, as the ReplicaSet controller would.
func (c *cluster) dryRunPod(t *testing.T, name string) error {
	t.Helper()
	deployment, err := c.kube.AppsV1().Deployments(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	template := deployment.Spec.Template
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: podName, Labels: template.Labels}, Spec: template.Spec}
	_, err = c.kube.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	t.Logf("a Pod in a restricted namespace: %v", err)
	return err
}

// create makes a ClusterCIDR as soon as the API server serves the CRD that was installed a moment ago.
func (c *cluster) create(t *testing.T, clusterCIDR *networkingv1.ClusterCIDR) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		_, err := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Create(ctx, clusterCIDR, metav1.CreateOptions{})
		return err
	})
}

// A release of kubernetes-sigs/node-ipam-controller becomes one of ours: Helm and the API server take the upgrade of the objects that
// it leaves, of which the Deployment's selector can never change.
func TestUpgradeFromPeer(t *testing.T) {
	c := startCluster(t, controlplane.Options{})
	objects, err := os.ReadFile("testdata/peer.yaml")
	if err != nil {
		t.Fatal(err)
	}
	peer := &helmchart.Chart{
		Metadata:  &helmchart.Metadata{APIVersion: helmchart.APIVersionV2, Name: "node-ipam-controller", Version: "0.0.1"},
		Templates: []*common.File{{Name: "templates/peer.yaml", Data: objects}},
	}
	tests := map[string]string{
		"with election":               `{}`,
		"with another strategy":       `{leaderElection: {enabled: false}}`,
		"with a CRD of somebody else": `{installCRDs: false}`,
	}
	for name, more := range tests {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			install := action.NewInstall(c.helm)
			install.ReleaseName, install.Namespace, install.CreateNamespace = releaseName, namespace, true
			install.WaitStrategy = kube.HookOnlyStrategy
			install.ServerSideApply = false // as Helm 3, which was there when the peer was installed
			if _, err := install.Run(peer, map[string]any{}); err != nil {
				t.Fatal(err)
			}
			before, err := c.kube.AppsV1().Deployments(namespace).Get(ctx, fullname, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			kept := &networkingv1.ClusterCIDR{
				ObjectMeta: metav1.ObjectMeta{Name: "kept"},
				Spec:       networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/16", PerNodeHostBits: 8},
			}
			c.create(t, kept)

			c.upgrade(t, loadChart(t), releaseName, loader.MergeMaps(valueSets(t)["defaults"], object(t, more)))
			after, err := c.kube.AppsV1().Deployments(namespace).Get(ctx, fullname, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if before.UID != after.UID {
				t.Error("the Deployment was made again")
			}
			if image := after.Spec.Template.Spec.Containers[0].Image; !strings.HasPrefix(image, "registry.example.com/") {
				t.Errorf("the image is still %s", image)
			}
			if _, err := c.kube.RbacV1().ClusterRoles().Get(ctx, fullname+"-manager-role", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("the peer's ClusterRole: %v, want it gone", err)
			}
			if _, err := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Get(ctx, kept.Name, metav1.GetOptions{}); err != nil {
				t.Error(err)
			}
			c.uninstall(t, releaseName)
			if err := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Delete(ctx, kept.Name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}
