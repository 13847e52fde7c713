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
	dir := t.TempDir()
	file, written := filepath.Join(dir, "file.yaml"), filepath.Join(dir, "written.yaml")
	const content = "enableLeaderElection: false\nleaderElectNamespace: other\nleaderElectResourceName: other\nsecurePort: 8443\nwebserverBindAddress: 192.0.2.1:80\n" +
		"clusterCIDR: 10.200.0.0/24\nconcurrentNodeCIDRSyncs: 7\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	values := loader.MergeMaps(valueSets(t)["defaults"], map[string]any{"replicaCount": 2, "extraArgs": []any{"--config=" + file, "--write-config-to=" + written}})
	files := mustRender(t, values)
	deployment := object(t, files["templates/deployment.yaml"])
	containers := deployment["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)
	var args []string
	for _, arg := range containers[0].(map[string]any)["args"].([]any) {
		args = append(args, strings.ReplaceAll(arg.(string), "$(POD_NAMESPACE)", "network"))
	}
	cmd := exec.CommandContext(t.Context(), program(t), args...)
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
	want := map[string]any{
		"enableLeaderElection": true, "leaderElectNamespace": "network", "leaderElectResourceName": "node-ipam-controller",
		"securePort": 0.0, "webserverBindAddress": "127.0.0.1:8081",
		"clusterCIDR": "10.200.0.0/24", "concurrentNodeCIDRSyncs": 7.0, // what the chart has no value for
	}
	maps.DeleteFunc(got, func(key string, _ any) bool { _, ok := want[key]; return !ok })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("in force (-want +got):\n%s", diff)
	}
	// The file has clusterCIDR, and the chart cannot know.
	if rbac := files["templates/rbac.yaml"]; !strings.Contains(rbac, "- create\n  - delete\n") {
		t.Errorf("the controller may not create ClusterCIDRs:\n%s", rbac)
	}
}
