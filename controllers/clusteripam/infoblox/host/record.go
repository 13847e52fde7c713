package host

import (
	"fmt"
	"net/netip"
	"slices"
)

// Record is a host record, as WAPI writes it. Fields that are not here stay as they are when a record is updated.
type Record struct {
	Ref         string `json:"_ref,omitempty"`
	Name        string `json:"name,omitempty"`
	NetworkView string `json:"network_view,omitempty"`
	// View is the DNS view of a record that is ConfiguredForDNS.
	View             string `json:"view,omitempty"`
	ConfiguredForDNS bool   `json:"configure_for_dns"`
	// Comment is for people. WAPI limits it to 256 characters.
	Comment string  `json:"comment,omitempty"`
	IPv4    []Addr4 `json:"ipv4addrs,omitempty"`
	IPv6    []Addr6 `json:"ipv6addrs,omitempty"`
}

// Addr4 is an IPv4 address of a host record, or, in a write, Next.
type Addr4 struct {
	Address string `json:"ipv4addr"`
	DHCP    bool   `json:"configure_for_dhcp"`
	MAC     string `json:"mac"`
}

// Addr6 is an IPv6 address of a host record, or, in a write, Next.
type Addr6 struct {
	Address string `json:"ipv6addr"`
	DHCP    bool   `json:"configure_for_dhcp"`
	DUID    string `json:"duid"`
}

// Addresses returns the addresses of a host record, IPv4 first.
func (r Record) Addresses() (all []netip.Addr) {
	for _, a := range r.IPv4 {
		if address, err := netip.ParseAddr(a.Address); err == nil {
			all = append(all, address)
		}
	}
	for _, a := range r.IPv6 {
		if address, err := netip.ParseAddr(a.Address); err == nil {
			all = append(all, address)
		}
	}
	return all
}

// WithNext returns the record with one more address: the next free one of a network, which Infoblox chooses while it carries out the write.
func (r Record) WithNext(network netip.Prefix, view string) Record {
	next := fmt.Sprintf("func:nextavailableip:%s,%s", network, view)
	if network.Addr().Is4() {
		r.IPv4 = append(slices.Clip(r.IPv4), Addr4{Address: next})
	} else {
		r.IPv6 = append(slices.Clip(r.IPv6), Addr6{Address: next})
	}
	return r
}

// Without returns the record without an address.
func (r Record) Without(gone netip.Addr) Record {
	v4, v6 := r.IPv4, r.IPv6
	r.IPv4, r.IPv6 = nil, nil
	for _, a := range v4 {
		if address, err := netip.ParseAddr(a.Address); err != nil || address != gone {
			r.IPv4 = append(r.IPv4, a)
		}
	}
	for _, a := range v6 {
		if address, err := netip.ParseAddr(a.Address); err != nil || address != gone {
			r.IPv6 = append(r.IPv6, a)
		}
	}
	return r
}
