package addresses

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/multicidr/controller-manager/controllers/ipam"
)

// Spec is a pool as a user describes it.
type Spec struct {
	// Addresses and Excluded are lists of addresses, ranges "first-last" and CIDRs.
	Addresses, Excluded []string
	// Gateway is an address, or empty. It is never allocated, and need not be one of Addresses.
	Gateway string
	// Prefix is the prefix length of the subnet in which all addresses lie.
	Prefix int
	// AllocateReserved allocates the reserved addresses of that subnet, too: its first one and, in IPv4, its last one.
	AllocateReserved bool
}

// Pool is the addresses that can be allocated from a Spec. It does not change. Its zero value has no addresses.
type Pool struct {
	spans  []span // merged
	subnet netip.Prefix
	total  int
}

// Compile returns the pool that spec describes. An error says what is wrong with it and what to do.
func Compile(spec Spec) (*Pool, error) {
	all, err := spansOf("addresses", spec.Addresses)
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return nil, errors.New("spec.addresses is empty. Add an address, a range such as 10.0.0.10-10.0.0.20, or a CIDR")
	case all[0].first.BitLen() != all[len(all)-1].first.BitLen():
		return nil, errors.New("spec.addresses has both IPv4 and IPv6 addresses. Make one pool for each family")
	}
	subnet, err := subnetOf(all, spec.Prefix)
	if err != nil {
		return nil, err
	}
	never, err := spec.never(subnet)
	if err != nil {
		return nil, err
	}
	p := &Pool{spans: without(all, merged(never)), subnet: subnet}
	for _, s := range p.spans {
		p.total = plus(p.total, s.size())
	}
	return p, nil
}

// subnetOf returns the subnet of the lowest address. All others have to lie in it. all is merged and not empty.
func subnetOf(all []span, length int) (netip.Prefix, error) {
	lowest, highest := all[0].first, all[len(all)-1].last
	subnet, err := lowest.Prefix(length)
	switch {
	case err != nil:
		return netip.Prefix{}, fmt.Errorf("spec.prefix is %d. Write the prefix length of the subnet, from 0 to %d", length, lowest.BitLen())
	case !subnet.Contains(highest):
		return netip.Prefix{}, fmt.Errorf("%v is not in %v, the subnet of the lowest address with spec.prefix %d. Make one pool for each subnet, or write a shorter prefix",
			highest, subnet, length)
	}
	return subnet, nil
}

// never returns the addresses that are never allocated, in the pool or not: those that are excluded, the gateway, and the reserved ones of subnet.
func (spec Spec) never(subnet netip.Prefix) ([]span, error) {
	bits := subnet.Addr().BitLen()
	never, err := spansOf("excludedAddresses", spec.Excluded)
	if err != nil {
		return nil, err
	}
	for _, s := range never {
		if s.first.BitLen() != bits {
			return nil, fmt.Errorf("spec.excludedAddresses has %v, which is of another family than spec.addresses. Remove it", s.first)
		}
	}
	if spec.Gateway != "" {
		gateway := addr(spec.Gateway)
		if !gateway.IsValid() || gateway.BitLen() != bits {
			return nil, fmt.Errorf("spec.gateway %q is not an %v address. Write an address of the same family as spec.addresses, or leave it empty",
				spec.Gateway, ipam.FamilyOf(subnet))
		}
		never = append(never, span{gateway, gateway})
	}
	if !spec.AllocateReserved {
		never = append(never, reserved(subnet)...)
	}
	return never, nil
}

// reserved returns the first address of subnet, which stands for the subnet or its routers, and in IPv4 the last one, which is for broadcasts.
func reserved(subnet netip.Prefix) []span {
	s := spanOf(subnet)
	ends := []span{{s.first, s.first}}
	if s.first.Is4() {
		ends = append(ends, span{s.last, s.last})
	}
	return ends
}

// spansOf parses a list. field is its name in the spec.
func spansOf(field string, entries []string) ([]span, error) {
	spans := make([]span, 0, len(entries))
	for _, e := range entries {
		s, err := parse(e)
		if err != nil {
			return nil, fmt.Errorf("spec.%s: %w", field, err)
		}
		spans = append(spans, s)
	}
	return merged(spans), nil
}

// Total is the number of addresses that can be allocated; math.MaxInt means that number or more.
func (p *Pool) Total() int { return p.total }

// Contains reports whether a can be allocated.
func (p *Pool) Contains(a netip.Addr) bool {
	_, ok := p.index(a)
	return ok
}

// index returns the index of the span that contains a.
func (p *Pool) index(a netip.Addr) (int, bool) {
	i, _ := slices.BinarySearchFunc(p.spans, a, func(s span, a netip.Addr) int { return s.last.Compare(a) })
	return i, i < len(p.spans) && !a.Less(p.spans[i].first)
}

// Shared returns the lowest address that both pools can allocate. ok is false if there is none.
func (p *Pool) Shared(o *Pool) (_ netip.Addr, ok bool) {
	for i, j := 0, 0; i < len(p.spans) && j < len(o.spans); {
		a, b := p.spans[i], o.spans[j]
		switch {
		case a.last.Less(b.first):
			i++
		case b.last.Less(a.first):
			j++
		case a.first.Less(b.first):
			return b.first, true
		default:
			return a.first, true
		}
	}
	return netip.Addr{}, false
}

// WithoutAddresses explains why no address of p can be allocated even if none is in use. It is empty if there is one.
func (p *Pool) WithoutAddresses() string {
	if p.total > 0 {
		return ""
	}
	return fmt.Sprintf("no address can be allocated: every address of spec.addresses is the gateway, is excluded, or is reserved in the subnet %v. "+
		"Add addresses, or set spec.allocateReservedIPAddresses", p.subnet)
}

// size returns the number of addresses of s; math.MaxInt means that number or more.
func (s span) size() int {
	a, b := s.first.As16(), s.last.As16()
	var borrow uint64
	low, borrow := bits.Sub64(be(b[8:]), be(a[8:]), 0)
	high, _ := bits.Sub64(be(b[:8]), be(a[:8]), borrow)
	if high > 0 || low >= math.MaxInt {
		return math.MaxInt
	}
	return int(low) + 1
}

func be(b []byte) (n uint64) {
	for _, x := range b[:8] {
		n = n<<8 | uint64(x)
	}
	return n
}

// plus adds numbers of addresses.
func plus(a, b int) int {
	if a > math.MaxInt-b {
		return math.MaxInt
	}
	return a + b
}
