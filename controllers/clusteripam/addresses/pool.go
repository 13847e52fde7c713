package addresses

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
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

// PrefixSpec is a pool of prefixes as a user describes it.
type PrefixSpec struct {
	// Prefixes are IPv6 CIDRs without host bits. They are cut into blocks of Length bits, 64 if it is zero, and a claim gets one of them.
	Prefixes []string
	Length   int
	// Excluded is a list of addresses, ranges "first-last" and CIDRs. A block that has one of these addresses is not allocated.
	Excluded []string
	// Gateway is an address, or empty. It may be inside of a block.
	Gateway string
}

// Pool is the blocks that can be allocated from a Spec or a PrefixSpec: single addresses, or prefixes of one length. It does not change. Its zero
// value has none.
type Pool struct {
	spans  []span       // merged; each is cut into whole blocks
	bits   int          // length of a block
	subnet netip.Prefix // of addresses
	total  *big.Int     // how many blocks; nil of the zero value
}

// newPool returns the pool with these blocks, which are whole ones.
func newPool(spans []span, bits int, subnet netip.Prefix) *Pool {
	p := &Pool{spans: spans, bits: bits, subnet: subnet, total: new(big.Int)}
	for _, s := range spans {
		p.total.Add(p.total, s.blocks(bits))
	}
	return p
}

// Total returns the number of blocks; math.MaxInt means that number or more.
func (p *Pool) Total() int { return number(p.total) }

// Compile returns the pool that spec describes. An error says what is wrong with it and what to do.
func Compile(spec Spec) (*Pool, error) {
	all, err := spansOf("addresses", spec.Addresses, 0)
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
	return newPool(without(all, merged(never)), subnet.Addr().BitLen(), subnet), nil
}

// CompilePrefixes returns the pool that spec describes. An error says what is wrong with it and what to do.
func CompilePrefixes(spec PrefixSpec) (*Pool, error) {
	length := cmp.Or(spec.Length, 64)
	switch _, err := gatewayOf(spec.Gateway, 128); {
	case err != nil:
		return nil, err
	case length < 1 || length > 128:
		return nil, fmt.Errorf("spec.allocationPrefixLength is %d. Write the length of the prefix of a claim, from 1 to 128", length)
	case len(spec.Prefixes) == 0:
		return nil, errors.New("spec.prefixes is empty. Add an IPv6 CIDR, such as fd00::/48")
	}
	all := make([]span, 0, len(spec.Prefixes))
	for _, entry := range spec.Prefixes {
		p, _ := netip.ParsePrefix(entry)
		if !has(p, length) {
			return nil, fmt.Errorf("spec.prefixes: %q is not an IPv6 CIDR without host bits, such as fd00::/48, that is as large as the prefix of a claim, which has the length %d",
				entry, length)
		}
		all = append(all, spanOf(p))
	}
	never, err := spansOf("excludedPrefixes", spec.Excluded, 128)
	if err != nil {
		return nil, err
	}
	for i, s := range never {
		never[i] = span{block(s.first, length).Addr(), spanOf(block(s.last, length)).last}
	}
	return newPool(without(merged(all), merged(never)), length, netip.Prefix{}), nil
}

// has reports whether p is an IPv6 prefix without host bits that has prefixes of this length.
func has(p netip.Prefix, length int) bool {
	return p.Addr().Is6() && !p.Addr().Is4In6() && p == p.Masked() && p.Bits() <= length
}

// block returns the block of this length that contains a.
func block(a netip.Addr, bits int) netip.Prefix { return netip.PrefixFrom(a, bits).Masked() }

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
	never, err := spansOf("excludedAddresses", spec.Excluded, bits)
	if err != nil {
		return nil, err
	}
	gateway, err := gatewayOf(spec.Gateway, bits)
	if err != nil {
		return nil, err
	}
	if gateway.IsValid() {
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

// gatewayOf parses a gateway, whose address has so many bits; not valid if text is empty.
func gatewayOf(text string, bits int) (netip.Addr, error) {
	a := addr(text)
	if text != "" && a.BitLen() != bits {
		return a, fmt.Errorf("spec.gateway %q is not an address of the family of the pool. Write one, or leave it empty", text)
	}
	return a, nil
}

// spansOf parses a list. field is its name in the spec, and bits the length that its addresses must have; 0: any.
func spansOf(field string, entries []string, bits int) ([]span, error) {
	spans := make([]span, 0, len(entries))
	for _, e := range entries {
		s, err := parse(e)
		switch {
		case err != nil:
			return nil, fmt.Errorf("spec.%s: %w", field, err)
		case bits > 0 && s.first.BitLen() != bits:
			return nil, fmt.Errorf("spec.%s has %v, which is not of the family of the pool. Remove it", field, s.first)
		}
		spans = append(spans, s)
	}
	return merged(spans), nil
}

// Contains reports whether exactly this block can be allocated.
func (p *Pool) Contains(b netip.Prefix) bool {
	i := p.index(b.Addr())
	return b.Bits() == p.bits && i < len(p.spans) && !b.Addr().Less(p.spans[i].first)
}

// index returns the index of the first span that does not end before a. It may begin behind a.
func (p *Pool) index(a netip.Addr) int {
	i, _ := slices.BinarySearchFunc(p.spans, a, func(s span, a netip.Addr) int { return s.last.Compare(a) })
	return i
}

// Shared returns the lowest address that both pools can allocate, alone or in a prefix. ok is false if there is none.
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

// around returns b, or the block of the pool's length in which it is.
func (p *Pool) around(b netip.Prefix) netip.Prefix {
	if b.Bits() < p.bits || b.Addr().BitLen() < p.bits {
		return b
	}
	return block(b.Addr(), p.bits)
}

// within returns how many blocks of the pool are in r, which consists of whole ones.
func (p *Pool) within(r span) *big.Int {
	n := new(big.Int)
	for i := p.index(r.first); i < len(p.spans) && !r.last.Less(p.spans[i].first); i++ {
		s := p.spans[i]
		if s.first.Less(r.first) {
			s.first = r.first
		}
		if r.last.Less(s.last) {
			s.last = r.last
		}
		n.Add(n, s.blocks(p.bits))
	}
	return n
}

// blocks returns the number of blocks of a length in s, which consists of whole ones.
func (s span) blocks(length int) *big.Int {
	n := new(big.Int).Sub(new(big.Int).SetBytes(s.last.AsSlice()), new(big.Int).SetBytes(s.first.AsSlice()))
	return n.Add(n.Rsh(n, uint(s.first.BitLen()-length)), big.NewInt(1)) //nolint:gosec // A block is not longer than an address.
}
