package wapi

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Host is a host record. What the client does not know of a record stays as it is when the record is updated.
type Host struct {
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
func (h Host) Addresses() (all []netip.Addr) {
	for _, a := range h.IPv4 {
		if address, err := netip.ParseAddr(a.Address); err == nil {
			all = append(all, address)
		}
	}
	for _, a := range h.IPv6 {
		if address, err := netip.ParseAddr(a.Address); err == nil {
			all = append(all, address)
		}
	}
	return all
}

// WithNext returns the record with one more address: the next free one of a network, which Infoblox chooses while it carries out the write.
func (h Host) WithNext(network netip.Prefix, view string) Host {
	next := fmt.Sprintf("func:nextavailableip:%s,%s", network, view)
	if network.Addr().Is4() {
		h.IPv4 = append(h.IPv4[:len(h.IPv4):len(h.IPv4)], Addr4{Address: next})
	} else {
		h.IPv6 = append(h.IPv6[:len(h.IPv6):len(h.IPv6)], Addr6{Address: next})
	}
	return h
}

// Without returns the record without an address.
func (h Host) Without(gone netip.Addr) Host {
	v4, v6 := h.IPv4, h.IPv6
	h.IPv4, h.IPv6 = nil, nil
	for _, a := range v4 {
		if address, err := netip.ParseAddr(a.Address); err != nil || address != gone {
			h.IPv4 = append(h.IPv4, a)
		}
	}
	for _, a := range v6 {
		if address, err := netip.ParseAddr(a.Address); err != nil || address != gone {
			h.IPv6 = append(h.IPv6, a)
		}
	}
	return h
}

// NetworkView reports whether a network view exists.
func (c *Client) NetworkView(ctx context.Context, name string) (bool, error) {
	return c.exists(ctx, "networkview", url.Values{"name": {name}, "_return_fields": {"name"}})
}

// DNSView reports whether a DNS view exists.
func (c *Client) DNSView(ctx context.Context, name string) (bool, error) {
	return c.exists(ctx, "view", url.Values{"name": {name}, "_return_fields": {"name"}})
}

// Network reports whether exactly this network exists in a network view.
func (c *Client) Network(ctx context.Context, network netip.Prefix, view string) (bool, error) {
	kind := "network"
	if !network.Addr().Is4() {
		kind = "ipv6network"
	}
	return c.exists(ctx, kind, url.Values{"network": {network.String()}, "network_view": {view}, "_return_fields": {"network,network_view"}})
}

func (c *Client) exists(ctx context.Context, kind string, query url.Values) (bool, error) {
	var found []struct {
		Ref string `json:"_ref"`
	}
	err := c.do(ctx, http.MethodGet, kind, query, nil, &found)
	return len(found) > 0, err
}

const hostFields = "ipv4addrs,ipv6addrs,name,view,network_view,configure_for_dns,comment"

// Hosts returns the host records of a name in a network view.
func (c *Client) Hosts(ctx context.Context, name, networkView string) ([]Host, error) {
	var found []Host
	err := c.do(ctx, http.MethodGet, "record:host", url.Values{"name": {name}, "network_view": {networkView}, "_return_fields": {hostFields}}, nil, &found)
	return found, err
}

// Host reads a host record.
func (c *Client) Host(ctx context.Context, ref string) (h Host, err error) {
	err = c.do(ctx, http.MethodGet, path(ref), url.Values{"_return_fields": {hostFields}}, nil, &h)
	return h, err
}

// written is a host record as WAPI takes it. Lists must be there, even if they are empty.
type written struct {
	Name             string    `json:"name,omitempty"`
	NetworkView      string    `json:"network_view,omitempty"`
	View             string    `json:"view,omitempty"`
	ConfiguredForDNS *bool     `json:"configure_for_dns,omitempty"`
	Comment          string    `json:"comment"`
	IPv4             []Addr4   `json:"ipv4addrs"`
	IPv6             []Addr6   `json:"ipv6addrs"`
	Aliases          *[]string `json:"aliases,omitempty"`
	Attributes       *struct{} `json:"extattrs,omitempty"`
}

// CreateHost creates a host record and returns its reference.
func (c *Client) CreateHost(ctx context.Context, h Host) (ref string, err error) {
	body := written{
		Name: h.Name, NetworkView: h.NetworkView, View: h.View, ConfiguredForDNS: &h.ConfiguredForDNS, Comment: h.Comment,
		IPv4: append([]Addr4{}, h.IPv4...), IPv6: append([]Addr6{}, h.IPv6...), Aliases: &[]string{}, Attributes: &struct{}{},
	}
	err = c.do(ctx, http.MethodPost, "record:host", nil, body, &ref)
	return ref, err
}

// UpdateHost replaces the addresses and the comment of a host record.
func (c *Client) UpdateHost(ctx context.Context, h Host) error {
	body := written{Comment: h.Comment, IPv4: append([]Addr4{}, h.IPv4...), IPv6: append([]Addr6{}, h.IPv6...)}
	var ref string
	return c.do(ctx, http.MethodPut, path(h.Ref), nil, body, &ref)
}

// DeleteHost deletes a host record.
func (c *Client) DeleteHost(ctx context.Context, ref string) error {
	var deleted string
	return c.do(ctx, http.MethodDelete, path(ref), nil, nil, &deleted)
}

// path is a reference as part of a URL. References contain names, which users choose.
func path(ref string) string {
	parts := strings.Split(ref, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.Join(parts, "/")
}
