package claims

import (
	"fmt"
	"net/netip"

	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/text"
)

// network is the nodeNetwork of a claim, as a pool gets it.
type network struct {
	addresses []string // the ipAddresses of the claim, or its cidr
	prefix    int
	gateway   string
	cidr      netip.Prefix // without host bits; invalid if the claim has none
	first     netip.Addr   // of addresses
}

// readNetwork reads the networks of a claim. The API server accepts any text in them. An error says what is wrong, and then what to do.
func readNetwork(spec *v1beta1.ClusterIPAMClaimSpec) (n network, _ error) {
	space, infoblox := &spec.NodeNetwork, spec.Provider == v1beta1.ProviderInfoblox
	// The other two networks are not used, but k0rdent refuses claims in which they cannot be parsed.
	_, _, err := parse("clusterNetwork", &spec.ClusterNetwork)
	if err == nil {
		_, _, err = parse("externalNetwork", &spec.ExternalNetwork)
	}
	if err != nil {
		return n, err
	}
	cidr, addresses, err := parse("nodeNetwork", space)
	if err == nil {
		err = mapped(space)
	}
	if err != nil {
		return n, err
	}
	n = network{addresses: space.IPAddresses, prefix: space.Prefix, gateway: space.Gateway}
	if cidr.IsValid() {
		n.cidr = cidr.Masked()
	}
	choices := " or ipAddresses"
	if infoblox { // which chooses from the whole network
		addresses, n.prefix, choices = nil, 0, ""
		if n.gateway == "" {
			return n, fmt.Errorf("spec.nodeNetwork.gateway is empty, and the provider %s needs one. Set it", spec.Provider)
		}
	}
	if len(addresses) == 0 {
		if !cidr.IsValid() {
			return n, fmt.Errorf("spec.nodeNetwork names no addresses, so there is nothing to allocate. Set its cidr%s", choices)
		}
		n.addresses, addresses = []string{space.CIDR}, []netip.Addr{n.cidr.Addr()}
		if n.prefix == 0 {
			n.prefix = cidr.Bits() // A machine with a /0 would take all other machines for its neighbours.
		}
	}
	n.first = addresses[0]
	return n, n.check(addresses, infoblox || len(space.IPAddresses) == 0)
}

// parse reads the text of one network. cidr is invalid if there is none.
func parse(field string, space *v1beta1.AddressSpace) (cidr netip.Prefix, addresses []netip.Addr, err error) {
	if space.CIDR != "" {
		if cidr, err = netip.ParsePrefix(space.CIDR); err != nil {
			return cidr, nil, fmt.Errorf("spec.%s.cidr %q is not a CIDR. Write an address and a prefix length, such as 10.0.0.0/24", field, text.Cut(space.CIDR, text.MaxValue))
		}
	}
	for _, entry := range space.IPAddresses {
		a, ok := address(entry)
		if !ok {
			return cidr, nil, fmt.Errorf("spec.%s.ipAddresses has %q, which is not a single address. Write every address of its own, or use cidr", field, text.Cut(entry, text.MaxValue))
		}
		addresses = append(addresses, a)
	}
	return cidr, addresses, nil
}

func address(s string) (a netip.Addr, ok bool) {
	a, err := netip.ParseAddr(s)
	return a, err == nil && a.Zone() == ""
}

// mapped refuses IPv4-mapped IPv6 addresses: no pool can have them, so the API server would refuse the pool of the claim for ever.
func mapped(space *v1beta1.AddressSpace) error {
	if cidr, err := netip.ParsePrefix(space.CIDR); err == nil && cidr.Addr().Is4In6() {
		return fmt.Errorf("spec.nodeNetwork.cidr %q has IPv4-mapped IPv6 addresses. Write the IPv4 network, such as 10.0.0.0/24", space.CIDR)
	}
	for _, entry := range append([]string{space.Gateway}, space.IPAddresses...) {
		if a, _ := address(entry); a.Is4In6() {
			return fmt.Errorf("spec.nodeNetwork has %q, an IPv4-mapped IPv6 address. Write the IPv4 address %v", entry, a.Unmap())
		}
	}
	return nil
}

// check refuses what no pool could allocate from. addresses are those of the network, or the first one of its cidr, from which all is allocated if whole.
func (n *network) check(addresses []netip.Addr, whole bool) error {
	if n.prefix < 0 || n.prefix > n.first.BitLen() {
		return fmt.Errorf("spec.nodeNetwork.prefix is %d. Set a prefix length from 1 to %d, or leave it out and set cidr", n.prefix, n.first.BitLen())
	}
	subnet := netip.PrefixFrom(n.first, n.prefix).Masked()
	for _, a := range addresses {
		switch {
		case a.BitLen() != n.first.BitLen():
			return fmt.Errorf("spec.nodeNetwork.ipAddresses has both IPv4 and IPv6. Write a claim for each family")
		case n.prefix > 0 && !subnet.Contains(a):
			return fmt.Errorf("spec.nodeNetwork.ipAddresses has %v, which is not in %v, the subnet of the first address. Correct prefix, or write a claim for each subnet", a, subnet)
		}
	}
	if whole && n.prefix > n.cidr.Bits() {
		return fmt.Errorf("spec.nodeNetwork.cidr %v is larger than one subnet with the prefix length %d. Correct prefix, or leave it out", n.cidr, n.prefix)
	}
	switch gateway, ok := address(n.gateway); {
	case n.gateway == "":
	case !ok:
		return fmt.Errorf("spec.nodeNetwork.gateway %q is not an address. Correct it, or leave it out", text.Cut(n.gateway, text.MaxValue))
	case gateway.BitLen() != n.first.BitLen():
		return fmt.Errorf("spec.nodeNetwork.gateway %v is of another family than the addresses. Correct it, or leave it out", gateway)
	}
	return nil
}

// strayGateway returns the subnet that machines configure if the gateway of a valid network is not in it. An IPv6 gateway can be a link-local
// address, and a machine whose subnet is its own address alone needs a route to any gateway.
func (n *network) strayGateway() (subnet netip.Prefix, stray bool) {
	subnet = netip.PrefixFrom(n.first, n.prefix).Masked()
	gateway, ok := address(n.gateway)
	return subnet, ok && !gateway.IsLinkLocalUnicast() && !subnet.IsSingleIP() && !subnet.Contains(gateway)
}
