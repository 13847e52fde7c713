// Package names has sets of names.
package names

import (
	"maps"
	"slices"
)

// Set is a set of names; the zero value is empty. Nearly every event adds one or two names and takes them out again, so a small set needs no map.
type Set struct {
	few  []string // sorted
	many map[string]bool
}

// maxFew is the size up to which a set uses the slice.
const maxFew = 8

func (s *Set) Add(name string) {
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

func (s *Set) Remove(name string) {
	delete(s.many, name)
	if i, ok := slices.BinarySearch(s.few, name); ok {
		s.few = slices.Delete(s.few, i, i+1)
	}
}

// Take returns all names, sorted, and empties the set. The result is valid until a name is added.
func (s *Set) Take() []string {
	names := s.few
	if s.few = s.few[:0]; s.many != nil {
		names = slices.Sorted(maps.Keys(s.many))
		s.many = nil
	}
	return names
}

// Mark adds a key to a set that is a map, or removes it. A key that is not there takes no memory.
func Mark[K comparable](set map[K]bool, key K, is bool) {
	if is {
		set[key] = true
	} else {
		delete(set, key)
	}
}
