package wapi

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

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
	return c.exists(ctx, kindOf(network), url.Values{"network": {network.String()}, "network_view": {view}, "_return_fields": {"network,network_view"}})
}

func (c *Client) exists(ctx context.Context, kind string, query url.Values) (bool, error) {
	var found []struct {
		Ref string `json:"_ref"`
	}
	err := c.do(ctx, http.MethodGet, kind, query, nil, &found)
	return len(found) > 0, err
}

// Hosts returns the host records of a name in a network view.
func (c *Client) Hosts(ctx context.Context, name, networkView string) ([]Record, error) {
	return c.hosts(ctx, url.Values{"name": {name}, "network_view": {networkView}})
}

// HostsWith returns the host records, of any name and in any network view, whose comment contains a text without special characters.
func (c *Client) HostsWith(ctx context.Context, comment string) ([]Record, error) {
	return c.hosts(ctx, url.Values{"comment~": {comment}})
}

func (c *Client) hosts(ctx context.Context, query url.Values) (found []Record, err error) {
	query.Set("_return_fields", "ipv4addrs,ipv6addrs,name,view,network_view,configure_for_dns,comment")
	err = c.do(ctx, http.MethodGet, "record:host", query, nil, &found)
	return found, err
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

func write(r Record, next []Next) written {
	for _, n := range next {
		r = r.with(n)
	}
	return written{Comment: r.Comment, IPv4: append([]Addr4{}, r.IPv4...), IPv6: append([]Addr6{}, r.IPv6...)}
}

// CreateHost creates a host record with its addresses and the next ones.
func (c *Client) CreateHost(ctx context.Context, r Record, next ...Next) error {
	body := write(r, next)
	body.Name, body.NetworkView, body.View, body.ConfiguredForDNS = r.Name, r.NetworkView, r.View, &r.ConfiguredForDNS
	body.Aliases, body.Attributes = &[]string{}, &struct{}{}
	var ref string
	return c.do(ctx, http.MethodPost, "record:host", nil, body, &ref)
}

// UpdateHost replaces the comment of a host record, and its addresses by those of r and the next ones.
func (c *Client) UpdateHost(ctx context.Context, r Record, next ...Next) error {
	var ref string
	return c.do(ctx, http.MethodPut, path(r.Ref), nil, write(r, next), &ref)
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
