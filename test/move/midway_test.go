package move

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestMoveMidWay moves claims that wait for an address, or are being deleted, while the Infoblox is away and a pool is full.
func TestMoveMidWay(t *testing.T) {
	w := newWorld(t)
	full, inInfoblox := allPools[0], allPools[2]
	full.content = strings.Replace(full.content, "10.1.0.15", "10.1.0.12", 1)
	full.create(w.source)
	inInfoblox.create(w.source)
	const held = `finalizers: [` + others + `]`
	told, records := w.settled(
		w.claim(w.source, full, "cluster", ""), w.claim(w.source, full, "held", held), w.claim(w.source, full, "free", ""),
		w.claim(w.source, inInfoblox, "cluster", ""), w.claim(w.source, inInfoblox, "held", held), w.claim(w.source, inInfoblox, "named", ""),
	)

	// The pool is full: two more wait.
	for _, what := range []string{"machine", "waits"} {
		w.source.untilCondition(claims, w.claim(w.source, full, what, ""), "Ready", "False", "PoolExhausted")
	}
	// Infoblox makes a record, and does not answer any more. A claim that comes later has none.
	defer w.grid.hang()()
	waiting := []string{w.claim(w.source, inInfoblox, "machine", "")}
	eventually(t, "Infoblox makes a record", func(context.Context) error {
		if n := len(w.grid.records()); n != len(records)+1 {
			return fmt.Errorf("there are %d, want %d", n, len(records)+1)
		}
		return nil
	})
	returns := w.grid.away()
	w.claim(w.source, inInfoblox, "free", "")
	for _, r := range w.grid.records() {
		if address := r.Addresses[0].String(); !slices.Contains(values(told), address) {
			told["i-machine"] = address
		}
	}
	// A claim in deletion whose record cannot be deleted now, and claims that others hold.
	for _, name := range []string{"i-named", "i-held", "p-held"} {
		w.source.delete(claims, name)
	}
	w.target.do("clusterctl move", w.ctl.move(t.Context(), w.source, w.target))

	// clusterctl brings claims in deletion back to life. Each has what it had. What nobody had answered and nobody owns may have been left behind.
	if slices.Contains(w.inOne("p-waits", "i-free"), "i-free") {
		waiting = append(waiting, "i-free")
		told["i-free"] = ""
	}
	w.target.untilCondition(claims, "p-machine", "Ready", "False", "PoolExhausted")
	w.grid.forget()
	returns()
	w.target.untilTold(told)
	w.grid.unasked("PUT", "DELETE")
	if n := len(w.grid.records()); n != len(records)+len(waiting) {
		t.Errorf("there are %d host records, want one for each claim of the target: %+v", n, w.grid.records())
	}
	w.unique(w.target)

	// What waits in the target gets what is released there. What waits in the source has lost its pool.
	w.target.patch(claims, "p-held", `{metadata: {finalizers: [ipam.cluster.x-k8s.io/ReleaseAddress]}}`)
	w.target.patch(claims, "i-held", `{metadata: {finalizers: [ipam.cluster.x-k8s.io/ReleaseAddress]}}`)
	w.target.delete(claims, "p-held")
	w.target.untilTold(map[string]string{"p-machine": told["p-held"]})
	if left, err := w.source.told(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("source: these have been told addresses: %v %v", left, err)
	}
	left, err := w.source.list(t.Context(), claims)
	w.source.do("list claims", err)
	for name := range left {
		w.source.delete(claims, name)
	}
	w.source.untilGone(none, moving...)
	w.emptied()
}

// others is the finalizer of another program.
const others = "example.com/machine"

func values(m map[string]string) (all []string) {
	for _, v := range m {
		all = append(all, v)
	}
	return all
}
