package allocator

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// RecheckStatus notes that the status of this pool is to be looked at.
func (b *State) RecheckStatus(name string) { b.touched.add(name) }

// PutOff notes that a ClusterCIDR is to be looked at again once no pool awaits its finalizer.
func (b *State) PutOff(name string) { b.putOff.add(name) }

// Changes is whom changes of the state may concern.
type Changes struct {
	Nodes        []string // recheck, and those that wait, oldest first
	Terminating  []string // ClusterCIDRs that may be able to go, or were put off
	ClusterCIDRs []string // whose status may be another
}

// Changes returns whom the changes since the last call may concern. It is good until the state changes.
func (b *State) Changes() Changes {
	e := Changes{ClusterCIDRs: b.touched.take(), Nodes: b.recheck.take()}
	if len(b.awaitingFinalizer) == 0 {
		e.Terminating = b.putOff.take()
	}
	if !b.changed {
		return e
	}
	b.changed = false
	if b.poolsChanged { // Else what was refused would be sent again whenever a block becomes free.
		b.poolsChanged = false
		e.Nodes = append(e.Nodes, slices.Sorted(maps.Keys(b.revocable))...)
	}
	e.Nodes = append(e.Nodes, slices.SortedFunc(maps.Keys(b.pending), func(x, y string) int {
		return byAge(b.place(x), x, b.place(y), y)
	})...)
	e.Terminating = append(e.Terminating, slices.Sorted(maps.Keys(b.terminating))...)
	return e
}

// place returns since when the pending Node of this name counts as waiting: its creation, or when it gave way to those that were pending then.
func (b *State) place(name string) time.Time {
	if e, ok := b.nodes[name]; ok && !e.gaveWay.IsZero() {
		return e.gaveWay
	}
	return b.pending[name].since
}

// byAge compares two Nodes by their creation: the older one is served first.
func byAge(created time.Time, name string, otherCreated time.Time, otherName string) int {
	return cmp.Or(created.Compare(otherCreated), strings.Compare(name, otherName))
}

// nameSet is a set of names. Nearly every event puts one or two into such a set and takes them out again, so few do without a map.
type nameSet struct {
	few  []string // in order
	many map[string]bool
}

// maxFew is how many names are few.
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

// take returns all names, in order, and empties the set. What it returns is good until a name is added.
func (s *nameSet) take() []string {
	names := s.few
	if s.few = s.few[:0]; s.many != nil {
		names = slices.Sorted(maps.Keys(s.many))
		s.many = nil
	}
	return names
}
