package clusteripam

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestRestoredAddresses runs the commands of docs/operators/cluster-ipam.md, section "Restore etcd": addresses that were allocated after the backup
// are not allocated a second time.
func TestRestoredAddresses(t *testing.T) {
	c := newCluster(t, alone)
	c.apply(crds)
	c.start()
	const fromPool = `{spec: {poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: p}}}`
	const fromGlobal = `{spec: {poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: GlobalInClusterIPPool, name: g}}}`
	c.create(pools, "p", `{spec: {addresses: [10.0.0.10-10.0.0.19], prefix: 24, gateway: 10.0.0.1}}`)
	c.create(globalPools, "g", `{spec: {addresses: ["fd00::10-fd00::19"], prefix: 64}}`)
	address := func(claim, want string) {
		t.Helper()
		c.until(addresses, claim, map[string]string{"spec.address": `"` + want + `"`})
		c.until(requests, claim, ready("True", "Ready"))
	}
	for _, claim := range []struct{ name, of, address string }{
		{"old", fromPool, "10.0.0.10"}, {"lost", fromPool, "10.0.0.11"}, {"pending", fromPool, "10.0.0.12"}, {"again", fromPool, "10.0.0.13"}, {"global", fromGlobal, "fd00::10"},
	} {
		c.create(requests, claim.name, claim.of)
		address(claim.name, claim.address)
	}
	c.kill()

	// The restore: two claims are gone with their IPAddresses, one was pending, and one was another one of its name, with another address.
	forget := func(r schema.GroupVersionResource, name string) {
		c.patch(r, name, `{metadata: {finalizers: null}}`)
		c.delete(r, name)
	}
	for _, name := range []string{"lost", "global"} {
		forget(addresses, name)
		forget(requests, name)
	}
	forget(addresses, "pending")
	c.patch(requests, "pending", `{status: null}`, "status")
	c.patch(addresses, "again", `{spec: {address: 10.0.0.19}}`)

	c.restore()
	c.start()
	address("pending", "10.0.0.12")
	c.until(addresses, "pending", map[string]string{"spec.gateway": `"10.0.0.1"`, "spec.prefix": "24"})
	c.until(addresses, "again-restored", map[string]string{"spec.address": `"10.0.0.13"`})
	c.create(requests, "new", fromPool)
	address("new", "10.0.0.14")
	for name, of := range map[string]string{"lost": fromPool, "global": fromGlobal} {
		c.create(requests, name, of)
	}
	address("lost", "10.0.0.11")
	address("global", "fd00::10")

	// An IPAddress whose machine is gone can be deleted.
	c.delete(addresses, "again-restored")
	c.untilGone(addresses, "again-restored")
}

// restore runs the commands of the page.
func (c *cluster) restore() {
	c.t.Helper()
	page, err := os.ReadFile("../../docs/operators/cluster-ipam.md")
	c.do("read the page", err)
	script := regexp.MustCompile("(?s)## Restore etcd\n.*?```sh\n(.*?)```").FindSubmatch(page)
	if script == nil {
		c.t.Fatal("the page has no commands")
	}
	kubeconfig, err := c.cp.Kubeconfig("restores", "system:masters")
	c.do("write a kubeconfig", err)
	bin, err := filepath.Abs("../../bin")
	c.do("find kubectl", err)
	cmd := exec.CommandContext(c.t.Context(), "bash", "-c", string(script[1]))
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+bin+":"+os.Getenv("PATH"), "LOGS="+c.manager.LogPath())
	output, err := cmd.CombinedOutput()
	c.do("run the commands: "+string(output), err)
}
