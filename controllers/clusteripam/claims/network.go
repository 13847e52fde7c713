package claims

import (
	"errors"
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
}

// readClaim returns the network of a claim. The API server accepts any text in it. An error says what is wrong, and then what to do. Without a provider
// nobody can say what a network needs, so that is read first.
func readClaim(claim *v1beta1.ClusterIPAMClaim) (n network, err error) {
	spec := &claim.Spec
	switch {
	case spec.Provider == "":
		return n, fmt.Errorf("spec.provider is empty. Set it to %s or %s", v1beta1.ProviderInCluster, v1beta1.ProviderInfoblox)
	case spec.ClusterIPAMRef != "" && spec.ClusterIPAMRef != claim.Name:
		return n, fmt.Errorf("spec.clusterIPAMRef is %q, but the ClusterIPAM of a claim has the name of the claim. Remove the field", text.Cut(spec.ClusterIPAMRef, text.MaxValue))
	}
	// The other two networks are not used, but k0rdent refuses claims in which they cannot be parsed.
	if _, err = parse("clusterNetwork", &spec.ClusterNetwork); err != nil {
		return n, err
	}
	if _, err = parse("externalNetwork", &spec.ExternalNetwork); err != nil {
		return n, err
	}
	if n, err = readNetwork(spec.NodeNetwork, spec.Provider == v1beta1.ProviderInfoblox); err != nil {
		return n, err
	}
	if _, err := addresses.Compile(addresses.Spec{Addresses: n.addresses, Prefix: n.prefix, Gateway: n.gateway}); err != nil {
		return n, fmt.Errorf("no pool can have spec.nodeNetwork: %w", err)
	}
	return n, nil
}

// readNetwork reads what a pool gets. Infoblox chooses from the whole network.
func readNetwork(space v1beta1.AddressSpace, infoblox bool) (n network, err error) {
	cidr, err := parse("nodeNetwork", &space)
	if err != nil {
		return n, err
	}
	choices := " or ipAddresses"
	if infoblox {
		space.IPAddresses, space.Prefix, choices = nil, 0, ""
		if space.Gateway == "" {
			return n, errors.New("spec.nodeNetwork.gateway is empty, and an Infoblox needs one. Set it")
		}
	}
	n = network{addresses: space.IPAddresses, prefix: space.Prefix, gateway: space.Gateway, cidr: cidr.Masked()}
	switch {
	case len(n.addresses) > 0:
		return n, nil
	case !cidr.IsValid():
		return n, fmt.Errorf("spec.nodeNetwork names no addresses, so there is nothing to allocate. Set its cidr%s", choices)
	}
	n.addresses = []string{space.CIDR}
	if n.prefix == 0 {
		n.prefix = cidr.Bits() // A machine with a /0 would take all other machines for its neighbours.
	}
	return n, nil
}

// parse reads the text of one network. The CIDR is invalid if there is none.
func parse(field string, space *v1beta1.AddressSpace) (cidr netip.Prefix, err error) {
	if space.CIDR != "" {
		if cidr, err = netip.ParsePrefix(space.CIDR); err != nil {
			return cidr, fmt.Errorf("spec.%s.cidr %q is not a CIDR. Write an address and a prefix length, such as 10.0.0.0/24", field, text.Cut(space.CIDR, text.MaxValue))
		}
	}
	for _, entry := range space.IPAddresses {
		if a, err := netip.ParseAddr(entry); err != nil || a.Zone() != "" {
			return cidr, fmt.Errorf("spec.%s.ipAddresses has %q, which is not a single address. Write every address of its own, or use cidr", field, text.Cut(entry, text.MaxValue))
		}
	}
	return cidr, nil
}
