package clusteripam

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestRestoredAddresses runs the commands of docs/cluster-ipam/restore-etcd.md: addresses that were allocated after the backup are not
// allocated a second time. TestRestoredHistories has all that can happen to claims; this has what takes an API server and the controller.
func TestRestoredAddresses(t *testing.T) {
	c := newCluster(t, alone)
	c.apply(crds)
	c.start()
	const fromGlobal = `{spec: {poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: GlobalInClusterIPPool, name: g}}}`
	from := func(pool string) string {
		return `{spec: {poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: ` + pool + `}}}`
	}
	const network = `{spec: {addresses: [10.0.0.10-10.0.0.29], prefix: 24, gateway: 10.0.0.1}}`
	for _, pool := range []string{"p", "later"} {
		c.create(pools, pool, network)
	}
	c.create(globalPools, "g", `{spec: {addresses: ["fd00::10-fd00::19"], prefix: 64}}`)
	address := func(claim, want string) {
		t.Helper()
		c.until(addresses, claim, map[string]string{"spec.address": `"` + want + `"`})
		c.until(requests, claim, ready("True", "Ready"))
	}
	for _, claim := range []struct{ name, of, address string }{
		{"old", from("p"), "10.0.0.10"},
		{"lost", from("p"), "10.0.0.11"},
		{"pending", from("p"), "10.0.0.12"},
		{"leaves", strings.Replace(from("p"), "{", "{metadata: {finalizers: [example.com/machine]}, ", 1), "10.0.0.13"},
		{"after", from("p"), "10.0.0.14"},
		{"inlater", from("later"), "10.0.0.10"},
		{"global.example.com", fromGlobal, "fd00::10"},
	} {
		c.create(requests, claim.name, claim.of)
		address(claim.name, claim.address)
	}
	c.kill()

	// The restore. Some claims are gone with their IPAddresses, and a pool with them.
	forget := func(r schema.GroupVersionResource, name string) {
		t.Helper()
		c.patch(r, name, `{metadata: {finalizers: null}}`)
		c.delete(r, name)
	}
	for _, name := range []string{"lost", "after", "inlater", "global.example.com"} {
		forget(addresses, name)
		forget(requests, name)
	}
	forget(pools, "later")
	// One was pending. The one that had the name of leaves was being deleted, and had the same address. What after has, before had.
	forget(addresses, "pending")
	c.patch(requests, "pending", `{status: null}`, "status")
	c.delete(requests, "leaves")
	c.create(requests, "before", strings.Replace(from("p"), "{", "{metadata: {finalizers: [ipam.cluster.x-k8s.io/ReleaseAddress]}, ", 1))
	c.create(addresses, "before", `{metadata: {finalizers: [ipam.cluster.x-k8s.io/ProtectAddress]}, spec: {address: 10.0.0.14, prefix: 24, gateway: 10.0.0.1,
		claimRef: {name: before}, poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: p}}}`)

	// What cannot be right stops the commands, before they have written anything.
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "log")
		c.do("write a log", os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	written, err := os.ReadFile(c.manager.LogPath())
	c.do("read the log", err)
	logs := file(string(written) + strings.Repeat("\x00", 512)) // as after a crash of the machine
	c.do("compress the log", exec.CommandContext(t.Context(), "gzip", logs).Run())
	logs += ".gz"
	const header = `I1123 16:00:00.000000 1 controller.go:309] `
	const said = header + `"Allocating an address" claim="new/x" address=`
	const inP = ` kind="InClusterIPPool" pool="p"` + "\n"
	docker := file(`{"log":"` + strings.ReplaceAll(said+`"fd00::11" kind="GlobalInClusterIPPool" pool="g"`, `"`, `\"`) + `\n","stream":"stderr"}` + "\n")
	stops := func(logs, says string) {
		t.Helper()
		if output, ok := c.restore(logs); ok || !strings.Contains(output, says) {
			t.Errorf("the commands end well: %t; want the message %q:\n%s", ok, says, output)
		}
	}
	const unreadable = "These lines are of another format or an earlier version, or they are torn."
	stops(logs, "The InClusterIPPool later of t/inlater is missing.")
	c.create(pools, "later", network)
	stops(file(header+`"Started"`), "LOGS has no allocation")
	stops(logs+" "+file("\xfd7zXZ\x00"), "do not look like logs")
	stops(logs+" "+filepath.Join(t.TempDir(), "missing"), "cannot be read")
	stops(logs+" "+file(said+`"10.0.0.17"`), unreadable)
	stops(logs+" "+file(said+`"10.0.0.1`+"\x00\x00"+said+`"10.0.0.17"`+inP), unreadable)
	stops(logs+" "+file(`{"msg":"Allocating an address","claim":{"name":"x","namespace":"t"}}`), unreadable)
	stops(logs+" "+docker, "The namespace new is missing.")
	if c.get(addresses, "lost") != nil {
		t.Error("the commands have stopped, and created an IPAddress")
	}

	c.do("create a namespace", c.cp.ApplyObjects(t.Context(), &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "new"}}}))
	logs += " " + docker
	const deleteIt = "The IPAddressClaim t/before has 10.0.0.14, and t/after had it, too. Delete t/before before step 5 if its machine is gone."
	switch output, ok := c.restore(logs); {
	case !ok:
		t.Fatalf("the commands fail:\n%s", output)
	case strings.Count(output, "Delete ") != 1 || !strings.Contains(output, deleteIt):
		t.Errorf("the commands do not say %q, or more than that:\n%s", deleteIt, output)
	}
	c.delete(requests, "before")
	c.create(addresses, "infoblox", `{metadata: {annotations: {networking.x-k8s.io/infoblox-owner: t/infoblox/its-uid}},
		spec: {address: 10.9.0.5, prefix: 24, claimRef: {name: infoblox}, poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InfobloxIPPool, name: ib}}}`)
	if output, ok := c.restore(logs); !ok || output != "t/infoblox 10.9.0.5 t/infoblox/its-uid\n" {
		t.Fatalf("run again, the commands end well: %t; only Infoblox's IPAddresses are to be listed:\n%s", ok, output)
	}

	c.start()
	c.patch(requests, "leaves", `{metadata: {finalizers: [ipam.cluster.x-k8s.io/ReleaseAddress]}}`)
	for _, gone := range []string{"leaves", "before"} {
		c.untilGone(requests, gone)
		c.untilGone(addresses, gone)
	}
	address("pending", "10.0.0.12")
	c.until(addresses, "pending", map[string]string{"spec.gateway": `"10.0.0.1"`, "spec.prefix": "24"})
	c.create(requests, "new", from("p"))
	address("new", "10.0.0.15")
	for _, of := range []struct{ claim, of, address string }{{"lost", from("p"), "10.0.0.11"}, {"inlater", from("later"), "10.0.0.10"}, {"global.example.com", fromGlobal, "fd00::10"}} {
		c.create(requests, of.claim, of.of)
		address(of.claim, of.address)
	}
	c.until(addresses, "inlater", map[string]string{"spec.gateway": `"10.0.0.1"`, "spec.prefix": "24"})
	for name, has := range map[string]string{
		"leaves-restored-1": "10.0.0.13", "after-restored-1": "10.0.0.14",
	} {
		c.until(addresses, name, map[string]string{"spec.address": `"` + has + `"`})
	}

	// An IPAddress whose machine is gone can be deleted.
	c.delete(addresses, "after-restored-1")
	c.untilGone(addresses, "after-restored-1")
}

// restore runs the commands of the page. It returns what they say, and whether they end well.
func (c *cluster) restore(logs string) (output string, ok bool) {
	c.t.Helper()
	return runRestore(c.t, "", append(c.commandLine(), "LOGS="+logs)...)
}

// runRestore runs the commands of the page in a directory. It returns what they say, and whether they end well.
func runRestore(t *testing.T, dir string, env ...string) (output string, ok bool) {
	t.Helper()
	page, err := os.ReadFile("../../docs/cluster-ipam/restore-etcd.md")
	if err != nil {
		t.Fatal(err)
	}
	root, err := controlplane.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	script := "set -e\n"
	for _, name := range []string{"cluster-ipam-find.sh", "cluster-ipam-put-back.sh"} {
		script += filepath.Join(root, "hack", "restore-etcd", name) + "\n"
		if !strings.Contains(string(page), name) {
			t.Fatalf("the page does not name %s", name)
		}
	}
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		script += block[1]
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir, cmd.Env = dir, append(append(os.Environ(), "WORK="+t.TempDir()), env...)
	text, err := cmd.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatalf("run the commands: %v", err)
	}
	return string(text), err == nil
}
