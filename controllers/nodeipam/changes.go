package nodeipam

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// touch notes that the status of the pools around these prefixes may be another.
func (b *book) touch(prefixes ...netip.Prefix) {
	for _, prefix := range prefixes {
		for r := range b.ranges.Overlapping(prefix) {
			for _, name := range b.of[r] {
				b.touchName(name)
			}
		}
	}
}

func (b *book) touchName(name string) {
	b.touched.add(name)
	delete(b.blocking, name)
}

func (b *book) touchPool(p *pool) {
	b.touchName(p.Name)
	b.touch(p.extent()...)
}

// recheckStatus notes that the status of this pool is to be looked at.
func (b *book) recheckStatus(name string) { b.touched.add(name) }

// putOffClusterCIDR notes that a ClusterCIDR is to be looked at again once no pool awaits its finalizer.
func (b *book) putOffClusterCIDR(name string) { b.putOff.add(name) }

// effects is whom changes of the book may concern.
type effects struct {
	nodes        []string // suspects, and those that wait, oldest first
	terminating  []string // ClusterCIDRs that may be able to go, or were put off
	clusterCIDRs []string // whose status may be another
}

// effects returns whom the changes since the last call may concern. It is good until the book changes.
func (b *book) effects() effects {
	e := effects{clusterCIDRs: b.touched.take(), nodes: b.suspects.take()}
	if len(b.soon) == 0 {
		e.terminating = b.putOff.take()
	}
	if !b.changed {
		return e
	}
	b.changed = false
	if b.poolsChanged { // Else what was refused would be sent again whenever a block becomes free.
		b.poolsChanged = false
		e.nodes = append(e.nodes, slices.Sorted(maps.Keys(b.revocable))...)
	}
	e.nodes = append(e.nodes, slices.SortedFunc(maps.Keys(b.waiting), func(x, y string) int {
		return byAge(b.waiting[x].since, x, b.waiting[y].since, y)
	})...)
	e.terminating = append(e.terminating, slices.Sorted(maps.Keys(b.terminating))...)
	return e
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
