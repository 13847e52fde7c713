package wapi

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Record is a host record.
type Record struct {
	Ref         string `json:"_ref,omitempty"`
	Name        string `json:"name,omitempty"`
	NetworkView string `json:"network_view,omitempty"`
	// View is the DNS view of a record that is ConfiguredForDNS.
	View             string `json:"view,omitempty"`
	ConfiguredForDNS bool   `json:"configure_for_dns"`
	Content
}

// Content is what an update replaces in a host record. All else stays as it is.
type Content struct {
	// Comment is for people. WAPI limits it to 256 characters.
	Comment string  `json:"comment"`
	IPv4    []Addr4 `json:"ipv4addrs"`
	IPv6    []Addr6 `json:"ipv6addrs"`
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
func parse(address any) netip.Addr {
	text, _ := address.(string)
	a, _ := netip.ParseAddr(text)
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

// with returns a content with more addresses. Its lists are there even if they are empty.
func (c Content) with(next []Next) Content {
	c.IPv4, c.IPv6 = append([]Addr4{}, c.IPv4...), append([]Addr6{}, c.IPv6...)
	for _, n := range next {
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
			c.IPv4 = append(c.IPv4, Addr4{Address: address})
		} else {
			c.IPv6 = append(c.IPv6, Addr6{Address: address})
		}
	}
	return c
}

// kindOf returns the kind of object that a network is.
func kindOf(network netip.Prefix) string {
	if network.Addr().Is4() {
		return "network"
	}
	return "ipv6network"
}

// NetworkView reports whether a network view exists.
func (c *Client) NetworkView(ctx context.Context, name string) (bool, error) {
	return c.exists(ctx, "networkview", url.Values{"name": {name}})
}

// DNSView reports whether a DNS view exists.
func (c *Client) DNSView(ctx context.Context, name string) (bool, error) {
	return c.exists(ctx, "view", url.Values{"name": {name}})
}

// Network reports whether exactly this network exists in a network view.
func (c *Client) Network(ctx context.Context, network netip.Prefix, view string) (bool, error) {
	return c.exists(ctx, kindOf(network), url.Values{"network": {network.String()}, "network_view": {view}})
}

func (c *Client) exists(ctx context.Context, kind string, query url.Values) (bool, error) {
	var found []any
	err := c.do(ctx, http.MethodGet, kind, query, nil, &found)
	return len(found) > 0, err
}

// Hosts returns the host records of a name in a network view.
func (c *Client) Hosts(ctx context.Context, name, networkView string) (found []Record, err error) {
	const fields = "ipv4addrs,ipv6addrs,name,view,network_view,configure_for_dns,comment"
	err = c.do(ctx, http.MethodGet, "record:host", url.Values{"name": {name}, "network_view": {networkView}, "_return_fields": {fields}}, nil, &found)
	return found, err
}

// CreateHost creates a host record with its addresses and the next ones.
func (c *Client) CreateHost(ctx context.Context, r Record, next ...Next) error {
	r.Content = r.with(next)
	return c.do(ctx, http.MethodPost, "record:host", nil, struct {
		Record
		Aliases    []string `json:"aliases"`
		Attributes struct{} `json:"extattrs"`
	}{Record: r, Aliases: []string{}}, new(string))
}

// UpdateHost replaces the comment of a host record, and its addresses by those of r and the next ones.
func (c *Client) UpdateHost(ctx context.Context, r Record, next ...Next) error {
	return c.do(ctx, http.MethodPut, path(r.Ref), nil, r.with(next), new(string))
}

// DeleteHost deletes a host record.
func (c *Client) DeleteHost(ctx context.Context, ref string) error {
	return c.do(ctx, http.MethodDelete, path(ref), nil, nil, new(string))
}

// path is a reference as part of a URL. References contain names, which users choose.
func path(ref string) string {
	parts := strings.Split(ref, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.Join(parts, "/")
}
