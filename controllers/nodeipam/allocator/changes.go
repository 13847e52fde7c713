package allocator

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// RecheckStatus notes that the status of this pool needs a recheck.
func (b *State) RecheckStatus(name string) { b.touched.Add(name) }

// PutOff notes that a ClusterCIDR needs a recheck once no pool awaits its finalizer.
func (b *State) PutOff(name string) { b.putOff.Add(name) }

// Changes are the objects that changes of the state may affect.
type Changes struct {
	Nodes        []string // Nodes to which blocks were allocated, in that order, and Nodes to recheck
	Terminating  []string // ClusterCIDRs that may no longer be in use, or that were put off
	ClusterCIDRs []string // ClusterCIDRs whose status may have changed
}

// Changes returns what the changes since the last call may affect. The result is valid until the state changes.
func (b *State) Changes() Changes {
	e := Changes{ClusterCIDRs: b.touched.Take(), Nodes: append(b.allocatedTo, b.recheck.Take()...), Terminating: b.vacated.Take()}
	if len(b.allocatedTo) > 0 { // Otherwise its memory is for the next Node, which is nearly always alone.
		b.allocatedTo = nil
	}
	if len(b.awaitingFinalizer) == 0 {
		e.Terminating = append(e.Terminating, b.putOff.Take()...)
	}
	if b.poolsChanged { // Otherwise every freed block would cause the refused writes to be sent again.
		b.poolsChanged = false
		for _, name := range slices.Sorted(maps.Keys(b.revocable)) {
			if b.nodes[name].state == refused { // The others are about to be written, and checked before that.
				e.Nodes = append(e.Nodes, name)
			}
		}
	}
	return e
}

// place returns the time by which a pending Node is ordered: its creation, or, if it gave way, a time after all Nodes that were pending
// then.
func (b *State) place(node *v1.Node) time.Time {
	if e, ok := b.known(node); ok && e.writes != nil && !e.gaveWay.IsZero() {
		return e.gaveWay
	}
	return node.CreationTimestamp.Time
}
