package claims

import (
	"fmt"
	"net/netip"

	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/addresses"
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
	cidr, single, err := parse("nodeNetwork", space)
	if err != nil {
		return n, err
	}
	n = network{addresses: space.IPAddresses, prefix: space.Prefix, gateway: space.Gateway}
	if cidr.IsValid() {
		n.cidr = cidr.Masked()
	}
	choices := " or ipAddresses"
	if infoblox { // which chooses from the whole network
		single, n.prefix, choices = nil, 0, ""
		if n.gateway == "" {
			return n, fmt.Errorf("spec.nodeNetwork.gateway is empty, and the provider %s needs one. Set it", spec.Provider)
		}
	}
	switch {
	case len(single) > 0:
		n.first = single[0]
	case !cidr.IsValid():
		return n, fmt.Errorf("spec.nodeNetwork names no addresses, so there is nothing to allocate. Set its cidr%s", choices)
	default:
		n.addresses, n.first = []string{space.CIDR}, n.cidr.Addr()
		if n.prefix == 0 {
			n.prefix = cidr.Bits() // A machine with a /0 would take all other machines for its neighbours.
		}
	}
	return n, n.check()
}

// check refuses what no pool could allocate from, whichever kind the pool has.
func (n *network) check() error {
	if gateway, ok := address(n.gateway); n.gateway != "" && (!ok || gateway.Is4In6()) {
		return fmt.Errorf("spec.nodeNetwork.gateway %q is not an address. Correct it, and write IPv4 as IPv4, or leave it out", text.Cut(n.gateway, text.MaxValue))
	}
	if _, err := addresses.Compile(addresses.Spec{Addresses: n.addresses, Prefix: n.prefix, Gateway: n.gateway}); err != nil {
		return fmt.Errorf("no pool can have spec.nodeNetwork: %w", err)
	}
	return nil
}

// parse reads the text of one network. cidr is invalid if there is none.
func parse(field string, space *v1beta1.AddressSpace) (cidr netip.Prefix, single []netip.Addr, err error) {
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
		single = append(single, a)
	}
	return cidr, single, nil
}

func address(s string) (a netip.Addr, ok bool) {
	a, err := netip.ParseAddr(s)
	return a, err == nil && a.Zone() == ""
}

// strayGateway returns the subnet that machines configure if the gateway of a valid network is not in it. An IPv6 gateway can be a link-local
// address, and a machine whose subnet is its own address alone needs a route to any gateway.
func (n *network) strayGateway() (subnet netip.Prefix, stray bool) {
	subnet = netip.PrefixFrom(n.first, n.prefix).Masked()
	gateway, ok := address(n.gateway)
	return subnet, ok && !gateway.IsLinkLocalUnicast() && !subnet.IsSingleIP() && !subnet.Contains(gateway)
}
