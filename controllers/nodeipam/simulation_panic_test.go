package nodeipam

import (
	"math/rand/v2"
	"slices"
)

// A panic in a simulated process: its controller decides nothing more, what it has sent is on its way, and when its workers have come to
// their end the same process, with the same lease, builds another one.

func init() {
	hasToHappen = append(hasToHappen,
		"fresh caches that cannot tell",
		"a write that fails is told",
		"another allocator is reported",
		"a start after a panic waits for writes without an answer",
		"a worker goes on after a panic",
		"the controller serves again after a panic")
}

var panicMoves = map[string]moveKind{
	// The arguments say whether the panic left the state half changed: then workers cannot finish what they have begun.
	"panic": {6, func(w *world, d *rand.Rand) []string {
		name := processes(func(p *process) bool { return p.serving && !p.stopping })(w, d)
		if name == nil {
			return nil
		}
		return append(name, oneOf(d, []string{"torn", "whole"}))
	}, onProcess(func(p *process, a []string) bool {
		if !p.serving || p.broken {
			return false
		}
		p.panics(a[0] == "torn")
		return true
	})},
	"rebuild": {300, processes(func(p *process) bool { return p.broken && p.workersEnded() }), onProcess(func(p *process, _ []string) bool { return p.rebuild() })},
}

func (p *process) panics(torn bool) {
	p.broken, p.serving = true, false
	p.controller.breaking.Do(func() { close(p.controller.broken) })
	p.controller.torn = torn
}

// workersEnded: Controller.Run returns then.
func (p *process) workersEnded() bool {
	return !slices.ContainsFunc(p.tasks, func(t *task) bool { return t.line != "lease" })
}

// rebuild builds another controller. The caches of Nodes and ServiceCIDRs are those of informers that the process shares, and go on.
func (p *process) rebuild() bool {
	if !p.broken || !p.workersEnded() {
		return false
	}
	before := p.caches
	p.broken, p.asOf = false, ""
	p.lead()
	for _, k := range []kind{kindNode, kindServiceCIDR} {
		*p.caches[k] = *before[k]
	}
	p.rebuilt = true
	return true
}

// writesAreOver is what the start waits for first.
func (p *process) writesAreOver() bool {
	over := p.controller.waitWrites(noTime)
	if !over {
		p.w.cover("a start after a panic waits for writes without an answer")
	}
	return over
}
