package ipam

import (
	"net/netip"
	"slices"
)

// A Node usually holds one or two prefixes, and a linear search in such a list is fastest. But an API object has room for tens of thousands
// of prefixes, and comparing all pairs would take minutes. The functions in this file avoid that.

// short is the longest list that is searched linearly.
const short = 8

// Without returns the prefixes of a that are not in b, in the order of a. a must have no duplicates. The caller must not modify the result.
func Without(a, b []netip.Prefix) []netip.Prefix {
	// Two long lists usually differ only by a small change.
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	if len(a) == 0 || len(b) == 0 {
		return a
	}
	in := lookupOf(b)
	var rest []netip.Prefix
	for _, p := range a {
		if !in.has(p) {
			rest = append(rest, p)
		}
	}
	return rest
}

// masked returns the valid prefixes in masked form, without duplicates, in the order of their first occurrence.
func masked(prefixes []netip.Prefix) []netip.Prefix {
	if len(prefixes) == 0 {
		return nil
	}
	all := make([]netip.Prefix, 0, len(prefixes))
	few := len(prefixes) <= short
	var seen map[netip.Prefix]bool
	if !few && !ascending(prefixes) {
		seen = make(map[netip.Prefix]bool, len(prefixes))
	}
	for _, p := range prefixes {
		p = p.Masked()
		if !p.IsValid() || few && slices.Contains(all, p) || seen[p] {
			continue
		}
		if all = append(all, p); seen != nil {
			seen[p] = true
		}
	}
	return all
}

// ascending reports whether all prefixes are masked and in strictly ascending order, so that there are no duplicates.
func ascending(prefixes []netip.Prefix) bool {
	for i, p := range prefixes {
		if p != p.Masked() || i > 0 && prefixes[i-1].Compare(p) >= 0 {
			return false
		}
	}
	return true
}

// lookup reports which prefixes are in a list.
type lookup struct {
	few  []netip.Prefix
	many map[netip.Prefix]bool
}

func lookupOf(prefixes []netip.Prefix) lookup {
	if len(prefixes) <= short {
		return lookup{few: prefixes}
	}
	l := lookup{many: make(map[netip.Prefix]bool, len(prefixes))}
	for _, p := range prefixes {
		l.many[p] = true
	}
	return l
}

func (l lookup) has(p netip.Prefix) bool {
	if l.many != nil {
		return l.many[p]
	}
	return slices.Contains(l.few, p)
}
