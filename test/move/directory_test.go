package move

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client"
)

// TestOlderState saves a cluster with --to-directory. The cluster goes on, is lost, and comes back elsewhere as it was saved.
func TestOlderState(t *testing.T) {
	w := newWorld(t)
	p, i := allPools[0], allPools[2]
	p.create(w.source)
	i.create(w.source)
	stay, _ := w.settled(w.claim(w.source, p, "cluster", ""), w.claim(w.source, p, "free", ""), w.claim(w.source, i, "cluster", ""), w.claim(w.source, i, "free", ""))
	gone, _ := w.settled(w.claim(w.source, i, "gone", ""))
	dir := t.TempDir()
	w.source.do("clusterctl move --to-directory", w.ctl.Move(t.Context(), client.MoveOptions{
		FromKubeconfig: w.ctl.kubeconfigs[w.source], ToDirectory: dir, Namespace: namespace,
	}))

	// After that a machine goes, and another one gets its address.
	w.source.delete(claims, "i-gone")
	w.source.untilGone(func(o *unstructured.Unstructured) bool { return o.GetName() != "i-gone" }, claims, addresses)
	later, records := w.settled(w.claim(w.source, i, "later", ""))
	if later["i-later"] != gone["i-gone"] {
		t.Fatalf("i-later has %s, want %s, which i-gone had", later["i-later"], gone["i-gone"])
	}
	w.source.do("stop the controllers", w.source.manager.Stop())

	// Some IPAddresses come back after their claims.
	missing := t.TempDir()
	hide := func(from, to string) {
		for _, name := range []string{"p-free", "i-cluster"} {
			file := "IPAddress_" + namespace + "_" + name + ".yaml"
			if err := os.Rename(filepath.Join(from, file), filepath.Join(to, file)); err != nil {
				t.Errorf("the directory should have the IPAddress: %v", err)
			}
		}
	}
	restore := func() {
		t.Helper()
		w.target.do("clusterctl move --from-directory", w.ctl.Move(t.Context(), client.MoveOptions{ToKubeconfig: w.ctl.kubeconfigs[w.target], FromDirectory: dir}))
		w.target.untilTold(stay)
		// Its address is somebody else's by now.
		w.target.untilCondition(claims, "i-gone", "Ready", "False", "")
		w.grid.untouched(records)
	}
	hide(dir, missing)
	restore()
	hide(missing, dir)
	restore()

	p.free += 2 // than if there were four claims
	i.free += 1 // There are three, and nobody has the address of the fourth any more.
	w.fill(p)
	w.fill(i)

	// What is released in the target is the target's.
	before := w.grid.held()[later["i-later"]]
	all, err := w.target.list(t.Context(), claims)
	w.target.do("list claims", err)
	for name := range all {
		w.target.delete(claims, name)
	}
	w.target.untilGone(none, claims, addresses)
	if left := w.grid.held(); len(left) != 1 || left[later["i-later"]] != before {
		t.Errorf("Infoblox has %v, want only the record of i-later, %s %s", left, before, later["i-later"])
	}
}
