package chart

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

const (
	clusterIPAMChart    = manifests + "/charts/cluster-ipam-controller"
	clusterIPAMTestdata = "testdata/cluster-ipam"
)

func TestClusterIPAMLint(t *testing.T) { lint(t, clusterIPAMChart, clusterIPAMTestdata) }

func TestClusterIPAMGolden(t *testing.T) { golden(t, clusterIPAMChart, clusterIPAMTestdata) }

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
