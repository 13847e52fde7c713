package pool

import (
	"iter"
	"net/netip"

	"github.com/multicidr/controller-manager/controllers/ipam"
)

// special are addresses that a host does not route as unicast: loopback, link-local and multicast.
var special = []struct {
	prefix netip.Prefix
	use    string
}{
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
}

// Special yields the special addresses that p can allocate from a range, each as the prefix that has to be excluded, and what they are for.
func (p *Pool) Special(r ipam.Range) iter.Seq2[netip.Prefix, string] {
	return func(yield func(netip.Prefix, string) bool) {
		for _, s := range special {
			if !r.Prefix.Overlaps(s.prefix) || !p.Gives(s.prefix) {
				continue
			}
			excludable := s.prefix
			if r.Prefix.Bits() > s.prefix.Bits() {
				excludable = r.Prefix
			}
			if !yield(excludable, s.use) {
				return
			}
		}
	}
}
