package allocator

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// RecheckStatus notes that the status of this pool needs a recheck.
func (b *State) RecheckStatus(name string) { b.touched.add(name) }

// PutOff notes that a ClusterCIDR needs a recheck once no pool awaits its finalizer.
func (b *State) PutOff(name string) { b.putOff.add(name) }

// Changes are the objects that changes of the state may affect.
type Changes struct {
	Nodes        []string // Nodes to recheck, and pending ones, oldest first
	Terminating  []string // ClusterCIDRs that may no longer be in use, or that were put off
	ClusterCIDRs []string // ClusterCIDRs whose status may have changed
}

// Changes returns what the changes since the last call may affect. The result is valid until the state changes.
func (b *State) Changes() Changes {
	e := Changes{ClusterCIDRs: b.touched.take(), Nodes: b.recheck.take()}
	if len(b.awaitingFinalizer) == 0 {
		e.Terminating = b.putOff.take()
	}
	if !b.changed {
		return e
	}
	b.changed = false
	if b.poolsChanged { // Otherwise every freed block would cause the refused writes to be sent again.
		b.poolsChanged = false
		e.Nodes = append(e.Nodes, slices.Sorted(maps.Keys(b.revocable))...)
	}
	e.Nodes = append(e.Nodes, slices.SortedFunc(maps.Keys(b.pending), func(x, y string) int {
		return byAge(b.place(x), x, b.place(y), y)
	})...)
	e.Terminating = append(e.Terminating, slices.Sorted(maps.Keys(b.terminating))...)
	return e
}

// place returns the time by which a pending Node is ordered: its creation, or, if it gave way, a time after all Nodes that were pending
// then.
func (b *State) place(name string) time.Time {
	if e, ok := b.nodes[name]; ok && e.writes != nil && !e.gaveWay.IsZero() {
		return e.gaveWay
	}
	return b.pending[name].since
}

// byAge orders two Nodes by creation time, then by name: the older one comes first.
func byAge(created time.Time, name string, otherCreated time.Time, otherName string) int {
	return cmp.Or(created.Compare(otherCreated), strings.Compare(name, otherName))
}

// nameSet is a set of names. Nearly every event adds one or two names and takes them out again, so a small set needs no map.
type nameSet struct {
	few  []string // sorted
	many map[string]bool
}

// maxFew is the size up to which a set uses the slice.
const maxFew = 8

func (s *nameSet) add(name string) {
	if s.many != nil {
		s.many[name] = true
		return
	}
	i, ok := slices.BinarySearch(s.few, name)
	if ok {
		return
	}
	if s.few = slices.Insert(s.few, i, name); len(s.few) > maxFew {
		s.many = map[string]bool{}
		for _, name := range s.few {
			s.many[name] = true
		}
		s.few = nil
	}
}

// take returns all names, sorted, and empties the set. The result is valid until a name is added.
func (s *nameSet) take() []string {
	names := s.few
	if s.few = s.few[:0]; s.many != nil {
		names = slices.Sorted(maps.Keys(s.many))
		s.many = nil
	}
	return names
}
