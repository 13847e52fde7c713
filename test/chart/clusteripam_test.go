package chart

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/multicidr/controller-manager/test/controlplane"
)

const (
	clusterIPAMChart    = manifests + "/charts/cluster-ipam-controller"
	clusterIPAMTestdata = "testdata/cluster-ipam"
)

func TestClusterIPAMLint(t *testing.T) { lint(t, clusterIPAMChart, clusterIPAMTestdata) }

func TestClusterIPAMGolden(t *testing.T) { golden(t, clusterIPAMChart, clusterIPAMTestdata) }

func TestClusterIPAMMonitoring(t *testing.T) {
	files, err := renderIn(t, clusterIPAMChart, valueSetsIn(t, clusterIPAMTestdata)["everything-on"])
	if err != nil {
		t.Fatal(err)
	}
	monitors(t, files, "cluster-ipam-prometheusrule.yaml", "PrometheusRule ranges-cluster-ipam-controller")
}

func TestClusterIPAMValuesAreDocumented(t *testing.T) { documented(t, clusterIPAMChart) }

func TestClusterIPAMRefusedValues(t *testing.T) {
	tests := map[string]struct{ values, want string }{
		"no image":                      {`{image: {repository: ""}}`, "image.repository is empty: make the image"},
		"two replicas without election": {`{leaderElection: {enabled: false}}`, "Set leaderElection.enabled=true or replicaCount=1"},
		"one port for both":             {`{service: {port: 8443, securePort: 8443}}`, "service.port and service.securePort are equal"},
		"no controller":                 {`{controllers: []}`, "at '/controllers': minItems"},
		"a controller of the other one": {`{controllers: [multi-cidr-node-ipam-controller]}`, "at '/controllers/0': value must be one of"},
		"a flag that has a value":       {`{extraArgs: [--controllers=in-cluster-ip-pool-controller]}`, "Use controllers, leaderElection"},
		"the same, with underscores":    {`{extraArgs: [--cluster_ipam_force_allocation]}`, "Use controllers, leaderElection"},
		"election of null":              {`{leaderElection: {enabled: null}}`, "Set leaderElection.enabled=true or replicaCount=1"},
		"no name of the Lease":          {`{leaderElection: {resourceName: null}}`, "at '/leaderElection': missing property 'resourceName'"},
		"no infoblox at all":            {`{infoblox: null}`, "at '': missing property 'infoblox'"},
		"a value that does not exist":   {`{installCRD: false}`, "additional properties 'installCRD' not allowed"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := renderIn(t, clusterIPAMChart, loader.MergeMaps(valueSetsIn(t, clusterIPAMTestdata)["defaults"], object(t, tc.values)))
			if err == nil {
				t.Fatal("the values were taken")
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the message is %q, want %q in it", err, tc.want)
			}
		})
	}
}

// The CRDs are the generated ones, and uninstalling the release does not take them and all their objects away.
func TestClusterIPAMCRDs(t *testing.T) {
	files, err := filepath.Glob(manifests + "/clusteripam/crds/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs: %v", err)
	}
	want := map[string]map[string]any{}
	for _, file := range files {
		crd := onlyObject(t, file)
		metadata := crd["metadata"].(map[string]any)
		metadata["annotations"].(map[string]any)["helm.sh/resource-policy"] = "keep"
		want["CustomResourceDefinition "+metadata["name"].(string)] = crd
	}
	rendered, err := renderIn(t, clusterIPAMChart, valueSetsIn(t, clusterIPAMTestdata)["defaults"])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, objects(t, rendered[crdTemplate])); diff != "" {
		t.Errorf("run `make generate` if a CRD has changed (-generated +rendered):\n%s", diff)
	}
}

// Each controller that runs has the permissions of manifests/clusteripam/rbac, and no other controller's.
func TestClusterIPAMPermissions(t *testing.T) {
	for name, values := range valueSetsIn(t, clusterIPAMTestdata) {
		t.Run(name, func(t *testing.T) {
			rendered, err := renderIn(t, clusterIPAMChart, values)
			if err != nil {
				t.Fatal(err)
			}
			controllers, ok := values["controllers"].([]any)
			if !ok {
				controllers = loadChartIn(t, clusterIPAMChart).Values["controllers"].([]any)
			}
			want, got := map[string]any{}, map[string]any{}
			for _, controller := range controllers {
				want[controller.(string)] = onlyObject(t, filepath.Join(manifests, "clusteripam", "rbac", controller.(string)+".yaml"))["rules"]
			}
			if slices.Contains(controllers, any("infoblox-ip-pool-controller")) {
				content, err := os.ReadFile(manifests + "/clusteripam/rbac/infoblox-secrets.yaml")
				if err != nil {
					t.Fatal(err)
				}
				want["secrets"] = objects(t, string(content))["Role system:controller:infoblox-ip-pool-controller"]["rules"]
			}
			for _, o := range objects(t, rendered["templates/rbac.yaml"]) {
				name := o["metadata"].(map[string]any)["name"].(string)
				switch {
				case o["kind"] == "ClusterRole":
					_, controller, _ := strings.Cut(name, ":")
					got[controller] = o["rules"]
				case o["kind"] == "Role" && !strings.HasSuffix(name, "-lease"):
					got[name[strings.LastIndex(name, "-")+1:]] = o["rules"]
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("run `make generate` if a role has changed (-manifests +rendered):\n%s", diff)
			}
		})
	}
}

// The life of a release. CRDs that another program has installed stay as they are, and what was created lives longer than the release.
func TestClusterIPAMRelease(t *testing.T) {
	const release, fullname = "addresses", "addresses-cluster-ipam-controller"
	c, ctx := startCluster(t, controlplane.Options{}), t.Context()
	chart := loadChartIn(t, clusterIPAMChart)
	crds := dynamic.NewForConfigOrDie(c.AdminConfig()).Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	pools := dynamic.NewForConfigOrDie(c.AdminConfig()).Resource(schema.GroupVersionResource{Group: "ipam.cluster.x-k8s.io", Version: "v1alpha2", Resource: "globalinclusterippools"})
	theirs := onlyObject(t, manifests+"/clusteripam/crds/ipam.cluster.x-k8s.io_ipaddressclaims.yaml")
	theirs["metadata"].(map[string]any)["labels"] = map[string]any{"cluster.x-k8s.io/provider": "cluster-api"}
	if err := c.ApplyObjects(ctx, &unstructured.Unstructured{Object: theirs}); err != nil {
		t.Fatal(err)
	}
	values := func(set, more string) map[string]any {
		return loader.MergeMaps(valueSetsIn(t, clusterIPAMTestdata)[set], object(t, more))
	}
	upgrade := func(v map[string]any) { c.upgrade(t, chart, release, v) }
	rollback := func() { c.rollback(t, release) }
	install := func() { c.install(t, chart, release, values("defaults", `{}`)) }
	// expect compares the objects of the release, by "Kind name", and sees that what must outlive it is there.
	expect := func(step string, replicas int32, want ...string) {
		t.Helper()
		found := map[string]bool{}
		deployments, err := c.kube.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
		for _, o := range deployments.Items {
			found["Deployment "+o.Name] = true
			if *o.Spec.Replicas != replicas {
				t.Errorf("%s: %d replicas, want %d", step, *o.Spec.Replicas, replicas)
			}
		}
		mine := metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=" + release}
		roles, err2 := c.kube.RbacV1().Roles("").List(ctx, mine)
		for _, o := range roles.Items {
			found["Role "+o.Namespace+"/"+o.Name] = true
		}
		clusterRoles, err3 := c.kube.RbacV1().ClusterRoles().List(ctx, mine)
		for _, o := range clusterRoles.Items {
			found["ClusterRole "+o.Name] = true
		}
		if err := errors.Join(err, err2, err3); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(found)), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("after the %s (-want +installed):\n%s", step, diff)
		}
		all, err := crds.List(ctx, metav1.ListOptions{})
		if err != nil || len(all.Items) != 11 {
			t.Errorf("after the %s: %d CRDs, want 11: %v", step, len(all.Items), err)
		}
		if o, err := crds.Get(ctx, "ipaddressclaims.ipam.cluster.x-k8s.io", metav1.GetOptions{}); err != nil || o.GetLabels()["cluster.x-k8s.io/provider"] != "cluster-api" || o.GetLabels()["app.kubernetes.io/managed-by"] == "Helm" {
			t.Errorf("after the %s: the CRD of Cluster API has the labels %v: %v", step, o.GetLabels(), err)
		}
		if _, err := pools.Get(ctx, "kept", metav1.GetOptions{}); err != nil && step != "installation" {
			t.Errorf("after the %s: %v", step, err)
		}
	}
	usual := []string{"ClusterRole " + fullname + ":cluster-deployment-ipam-controller", "ClusterRole " + fullname + ":cluster-ipam-controller",
		"ClusterRole " + fullname + ":in-cluster-ip-pool-controller", "ClusterRole " + fullname + ":infoblox-ip-pool-controller",
		"Deployment " + fullname, "Role " + namespace + "/" + fullname + "-lease", "Role " + namespace + "/" + fullname + "-secrets"}

	install()
	expect("installation", 2, usual...)
	eventually(t, func(ctx context.Context) error {
		_, err := pools.Create(ctx, &unstructured.Unstructured{Object: object(t, `{apiVersion: ipam.cluster.x-k8s.io/v1alpha2, kind: GlobalInClusterIPPool, metadata: {name: kept}, spec: {addresses: [10.0.0.1], prefix: 24}}`)}, metav1.CreateOptions{})
		return err
	})
	c.enforceRestricted(t)
	if err := c.dryRunPod(t, fullname); err != nil {
		t.Errorf("a Pod in a namespace that enforces Pod Security restricted: %v", err)
	}
	upgrade(values("everything-on", `{serviceMonitor: {enabled: false}, prometheusRule: {enabled: false}, infoblox: {secretNamespace: kube-system}}`))
	expect("upgrade", 3,
		append(append([]string{}, usual[:5]...), "Role kube-system/"+fullname+"-secrets", usual[5])...)
	strategy := func(step string, want appsv1.DeploymentStrategyType) {
		t.Helper()
		if d, err := c.kube.AppsV1().Deployments(namespace).Get(ctx, fullname, metav1.GetOptions{}); err != nil || d.Spec.Strategy.Type != want {
			t.Errorf("after the %s: %v, %v, want %s: Pods with different Leases, or without one, would allocate at once", step, d.Spec.Strategy, err, want)
		}
	}
	strategy("upgrade to another Lease", appsv1.RecreateDeploymentStrategyType)
	rollback()
	expect("rollback", 2, usual...)
	upgrade(values("defaults", `{}`))
	expect("upgrade with the same Lease", 2, usual...)
	strategy("upgrade with the same Lease", appsv1.RollingUpdateDeploymentStrategyType)
	upgrade(values("defaults", `{replicaCount: 1, leaderElection: {enabled: false}}`))
	expect("upgrade without election", 1, slices.Concat(usual[:5], usual[6:])...)
	strategy("upgrade without election", appsv1.RecreateDeploymentStrategyType)
	upgrade(values("defaults", `{}`))
	expect("upgrade to election", 2, usual...)
	strategy("upgrade to election", appsv1.RecreateDeploymentStrategyType)
	upgrade(values("defaults", `{}`))
	expect("same upgrade again", 2, usual...)
	strategy("same upgrade again, while the old Pods may still run", appsv1.RecreateDeploymentStrategyType)
	c.rollOut(t, fullname)
	upgrade(values("defaults", `{}`))
	expect("same upgrade once more", 2, usual...)
	strategy("same upgrade once more, without old Pods", appsv1.RollingUpdateDeploymentStrategyType)
	upgrade(values("pools-only", `{serviceAccount: {create: true}}`))
	expect("upgrade to pools only", 1, usual[2], "Deployment "+fullname)
	rollback()
	expect("rollback from pools only", 2, usual...)
	c.uninstall(t, release)
	expect("uninstallation", 0)
	install()
	expect("second installation", 2, usual...)
}
