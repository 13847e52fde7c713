package chart

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"sigs.k8s.io/yaml"
)

// A file that extraArgs name with --config cannot take away what permissions, probes and the fencing policy depend on: two replicas without
// election would allocate everything twice.
func TestFileDoesNotWin(t *testing.T) {
	const election = "enableLeaderElection: false\nleaderElectNamespace: other\nleaderElectResourceName: other\nsecurePort: 8443\nwebserverBindAddress: 192.0.2.1:80\n"
	for name, tc := range map[string]struct {
		chart, testdata, program, file string
		values                         string
		want                           map[string]any
	}{
		"node-ipam-controller": {
			chart: chartDir, testdata: "testdata", program: program(t),
			file:   election + "healthProbeAddress: 192.0.2.1:80\nclusterCIDR: 10.200.0.0/24\nconcurrentNodeCIDRSyncs: 7\n",
			values: `{replicaCount: 2, service: {securePort: null}}`,
			want: map[string]any{
				"enableLeaderElection": true, "leaderElectNamespace": "network", "leaderElectResourceName": "node-ipam-controller",
				"securePort": 0.0, "webserverBindAddress": "127.0.0.1:8081",
				"clusterCIDR": "10.200.0.0/24", "concurrentNodeCIDRSyncs": 7.0, // what the chart has no value for
			},
		},
		"cluster-ipam-controller": {
			chart: clusterIPAMChart, testdata: clusterIPAMTestdata, program: filepath.Join(filepath.Dir(program(t)), "cluster-ipam-controller"),
			file:   election + "controllers: [in-cluster-ip-pool-controller]\nclusterIPAMInfobloxNamespace: other\nclusterIPAMK0rdentNamespace: other\nclusterIPAMForceAllocation: true\nv: 1\n",
			values: `{service: {securePort: null}, forceAllocation: null}`,
			want: map[string]any{
				"enableLeaderElection": true, "leaderElectNamespace": "network", "leaderElectResourceName": "cluster-ipam-controller",
				"securePort": 0.0, "webserverBindAddress": ":8081",
				"controllers":                  []any{"cluster-ipam-controller", "cluster-deployment-ipam-controller", "in-cluster-ip-pool-controller", "infoblox-ip-pool-controller"},
				"clusterIPAMInfobloxNamespace": "network", "clusterIPAMK0rdentNamespace": "kcm-system", "clusterIPAMForceAllocation": false,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file, written := filepath.Join(dir, "file.yaml"), filepath.Join(dir, "written.yaml")
			if err := os.WriteFile(file, []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
			values := loader.MergeMaps(valueSetsIn(t, tc.testdata)["defaults"], map[string]any{"extraArgs": []any{"--config=" + file, "--write-config-to=" + written}})
			files, err := renderIn(t, tc.chart, loader.MergeMaps(values, object(t, tc.values)))
			if err != nil {
				t.Fatal(err)
			}
			deployment := object(t, files["templates/deployment.yaml"])
			containers := deployment["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)
			var args []string
			for _, arg := range containers[0].(map[string]any)["args"].([]any) {
				args = append(args, strings.ReplaceAll(arg.(string), "$(POD_NAMESPACE)", "network"))
			}
			cmd := exec.CommandContext(t.Context(), tc.program, args...)
			cmd.Env = []string{"POD_NAMESPACE=network"}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			data, err := os.ReadFile(written)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]any{}
			if err := yaml.Unmarshal(data, &got); err != nil {
				t.Fatal(err)
			}
			maps.DeleteFunc(got, func(key string, _ any) bool { _, ok := tc.want[key]; return !ok })
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("in force (-want +got):\n%s", diff)
			}
			// The file has clusterCIDR, and the chart cannot know.
			if rbac := files["templates/rbac.yaml"]; name == "node-ipam-controller" && !strings.Contains(rbac, "- create\n  - delete\n") {
				t.Errorf("the controller may not create ClusterCIDRs:\n%s", rbac)
			}
		})
	}
}
