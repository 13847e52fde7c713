package addresses

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// span is the addresses from first to last, both included. Both have the same family, and first <= last.
type span struct{ first, last netip.Addr }

// parse reads one entry of a list: an address, a range "first-last", or a CIDR, whose host bits are ignored. IPv6 zones are ignored, too. An
// IPv4 address that is written as IPv6 is refused: it would be another one than the same address written as IPv4.
func parse(entry string) (s span, err error) {
	from, to, isRange := strings.Cut(entry, "-")
	switch p, err := netip.ParsePrefix(entry); {
	case err == nil:
		s = spanOf(p)
	case isRange:
		s = span{addr(from), addr(to)}
	default:
		s = span{addr(entry), addr(entry)}
	}
	switch {
	case !s.first.IsValid() || !s.last.IsValid() || s.first.BitLen() != s.last.BitLen():
		return s, fmt.Errorf("%q is not an address, a range such as 10.0.0.10-10.0.0.20, or a CIDR. Write one of these, without blanks", entry)
	case s.first.Is4In6() || s.last.Is4In6():
		return s, fmt.Errorf("%q is an IPv4 address written as IPv6. Write it as IPv4, such as %v", entry, s.first.Unmap())
	case s.last.Less(s.first):
		return s, fmt.Errorf("the range %q ends before it starts. Write the lower address first", entry)
	}
	return s, nil
}

// addr parses an address and drops its zone. It returns the invalid address if s is not an address.
func addr(s string) netip.Addr {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}
	}
	return a.WithZone("")
}

// spanOf returns the addresses of p.
func spanOf(p netip.Prefix) span {
	p = p.Masked()
	b := p.Addr().AsSlice()
	for i := range b {
		if host := 8*(i+1) - p.Bits(); host >= 8 {
			b[i] = 0xff
		} else if host > 0 {
			b[i] |= 1<<host - 1
		}
	}
	last, _ := netip.AddrFromSlice(b)
	return span{p.Addr(), last}
}

// merged returns the same addresses as spans in ascending order that neither overlap nor touch. It reorders its argument.
func merged(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(a.first.Compare(b.first), a.last.Compare(b.last)) })
	var all []span
	for _, s := range spans {
		if n := len(all); n > 0 && touch(all[n-1], s) {
			if all[n-1].last.Less(s.last) {
				all[n-1].last = s.last
			}
			continue
		}
		all = append(all, s)
	}
	return all
}

// touch reports whether b, which does not start before a, overlaps a or begins right after it.
func touch(a, b span) bool {
	after := a.last.Next() // invalid at the end of the address space, and an invalid address comes before all others
	return !a.last.Less(b.first) || after == b.first
}

// without returns the addresses of a that are not in b. Both must be merged.
func without(a, b []span) []span {
	var rest []span
	for _, s := range a {
		i, _ := slices.BinarySearchFunc(b, s.first, func(x span, at netip.Addr) int { return x.last.Compare(at) })
		open := true // s.first is not decided yet
		for ; i < len(b) && !s.last.Less(b[i].first); i++ {
			if s.first.Less(b[i].first) {
				rest = append(rest, span{s.first, b[i].first.Prev()})
			}
			if open = b[i].last.Less(s.last); !open {
				break
			}
			s.first = b[i].last.Next()
		}
		if open {
			rest = append(rest, s)
		}
	}
	return rest
}
