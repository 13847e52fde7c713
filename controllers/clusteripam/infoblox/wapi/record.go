package wapi

import (
	"net/netip"
	"slices"
)

// Record is a host record. Fields that are not here stay as they are when a record is updated.
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

// Addr4 is an IPv4 address of a host record.
type Addr4 struct {
	Address any    `json:"ipv4addr"` // a string, in a write also a function
	DHCP    bool   `json:"configure_for_dhcp"`
	MAC     string `json:"mac"`
}

// Addr6 is an IPv6 address of a host record.
type Addr6 struct {
	Address any    `json:"ipv6addr"` // a string, in a write also a function
	DHCP    bool   `json:"configure_for_dhcp"`
	DUID    string `json:"duid"`
}

// parse returns the address that Infoblox has written; not valid if it is none.
func parse(address any) (a netip.Addr) {
	text, _ := address.(string)
	a, _ = netip.ParseAddr(text)
	return a
}

// Addresses returns the addresses of a host record, IPv4 first.
func (r Record) Addresses() (all []netip.Addr) {
	for _, a := range r.IPv4 {
		all = append(all, parse(a.Address))
	}
	for _, a := range r.IPv6 {
		all = append(all, parse(a.Address))
	}
	return slices.DeleteFunc(all, func(a netip.Addr) bool { return !a.IsValid() })
}

// Without returns the record without some addresses.
func (r Record) Without(gone ...netip.Addr) Record {
	r.IPv4 = slices.DeleteFunc(slices.Clone(r.IPv4), func(a Addr4) bool { return slices.Contains(gone, parse(a.Address)) })
	r.IPv6 = slices.DeleteFunc(slices.Clone(r.IPv6), func(a Addr6) bool { return slices.Contains(gone, parse(a.Address)) })
	return r
}

// Next asks in a write for one more address: the next free one of a network, which Infoblox chooses while it carries out the write.
type Next struct {
	Network netip.Prefix
	View    string
	// Exclude are addresses that Infoblox must not choose. Not every version can exclude, so it is asked for only where that matters.
	Exclude []netip.Addr
}

// with returns the record with one more address.
func (r Record) with(n Next) Record {
	var address any = "func:nextavailableip:" + n.Network.String() + "," + n.View
	if len(n.Exclude) > 0 {
		address = map[string]any{
			"_object_function":   "next_available_ip",
			"_object":            kindOf(n.Network),
			"_object_parameters": map[string]string{"network": n.Network.String(), "network_view": n.View},
			"_parameters":        map[string]any{"num": 1, "exclude": n.Exclude},
			"_result_field":      "ips",
		}
	}
	if n.Network.Addr().Is4() {
		r.IPv4 = append(slices.Clip(r.IPv4), Addr4{Address: address})
	} else {
		r.IPv6 = append(slices.Clip(r.IPv6), Addr6{Address: address})
	}
	return r
}

// kindOf returns the kind of object that a network is.
func kindOf(network netip.Prefix) string {
	if network.Addr().Is4() {
		return "network"
	}
	return "ipv6network"
}
