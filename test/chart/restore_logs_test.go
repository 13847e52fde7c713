package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestRestoreReadsLogsOfAnyRelease: docs/operators/restore-etcd.md names the logs of node-ipam-controller by a pattern, and passes over that it matches nothing.
// It has to match what the kubelet calls the logs of this chart's Pods (NAMESPACE_POD_UID/CONTAINER/N.log), whatever the release is called.
func TestRestoreReadsLogsOfAnyRelease(t *testing.T) {
	page, err := os.ReadFile("../../docs/operators/restore-etcd.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`node-ipam-controller: /var/log/pods/(\S+)`).FindSubmatch(page)
	if m == nil {
		t.Fatal("the page does not name the logs of node-ipam-controller")
	}
	for _, values := range []map[string]any{
		{"image": map[string]any{"repository": "r"}},
		{"image": map[string]any{"repository": "r"}, "fullnameOverride": "ipam"},
	} {
		deployment := object(t, mustRender(t, values)["templates/deployment.yaml"])
		name := deployment["metadata"].(map[string]any)["name"].(string)
		pod := deployment["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
		container := pod["containers"].([]any)[0].(map[string]any)["name"].(string)
		log := "network_" + name + "-6c9f8d7b5-x2x4z_00000000-0000-0000-0000-000000000000/" + container + "/0.log"
		if ok, err := filepath.Match(string(m[1]), log); err != nil || !ok {
			t.Errorf("%s does not match %s: %v", m[1], log, err)
		}
	}
}
