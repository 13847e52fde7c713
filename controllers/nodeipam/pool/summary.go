package pool

import (
	"cmp"
	"net/netip"
	"slices"
)

// Summary returns the fewest prefixes that contain the same addresses as all. If there would be more than most, it joins neighbors into the
// smallest prefix that contains both until there are not. Then the summary contains more addresses than all, never fewer.
func Summary(all []netip.Prefix, most int) []netip.Prefix {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var summary []netip.Prefix
	for _, p := range sorted {
		summary = add(summary, p)
	}
	for len(summary) > most {
		best, joined := -1, netip.Prefix{}
		for i := range len(summary) - 1 {
			if j, ok := join(summary[i], summary[i+1]); ok && (best < 0 || j.Addr().BitLen()-j.Bits() < joined.Addr().BitLen()-joined.Bits()) {
				best, joined = i, j
			}
		}
		if best < 0 {
			break // one per family
		}
		rest := summary[best+2:]
		summary = add(summary[:best:best], joined)
		for _, p := range rest {
			summary = add(summary, p)
		}
	}
	return summary
}

// add appends p, which begins at or after the last prefix of summary. It joins the two if that adds no address.
func add(summary []netip.Prefix, p netip.Prefix) []netip.Prefix {
	for n := len(summary); n > 0; n = len(summary) {
		last := summary[n-1]
		if last.Overlaps(p) {
			if last.Bits() <= p.Bits() {
				return summary
			}
			summary = summary[:n-1] // p contains it
			continue
		}
		j, ok := join(last, p)
		if !ok || last.Bits() != p.Bits() || j.Bits() != p.Bits()-1 {
			break
		}
		summary, p = summary[:n-1], j
	}
	return append(summary, p)
}

// join returns the smallest prefix that contains both; ok is false if their families differ.
func join(a, b netip.Prefix) (netip.Prefix, bool) {
	if a.Addr().BitLen() != b.Addr().BitLen() {
		return netip.Prefix{}, false
	}
	bits := min(a.Bits(), b.Bits())
	for !netip.PrefixFrom(a.Addr(), bits).Contains(b.Addr()) {
		bits--
	}
	return netip.PrefixFrom(a.Addr(), bits).Masked(), true
}
