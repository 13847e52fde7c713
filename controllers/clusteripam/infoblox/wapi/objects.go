package wapi

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/host"
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

// Hosts returns the host records of a name in a network view, or in all of them if networkView is empty.
func (c *Client) Hosts(ctx context.Context, name, networkView string) ([]host.Record, error) {
	query := url.Values{"name": {name}, "_return_fields": {hostFields}}
	if networkView != "" {
		query.Set("network_view", networkView)
	}
	var found []host.Record
	err := c.do(ctx, http.MethodGet, "record:host", query, nil, &found)
	return found, err
}

// Host reads a host record.
func (c *Client) Host(ctx context.Context, ref string) (h host.Record, err error) {
	err = c.do(ctx, http.MethodGet, path(ref), url.Values{"_return_fields": {hostFields}}, nil, &h)
	return h, err
}

// written is a host record as WAPI takes it. Lists must be there, even if they are empty.
type written struct {
	Name             string       `json:"name,omitempty"`
	NetworkView      string       `json:"network_view,omitempty"`
	View             string       `json:"view,omitempty"`
	ConfiguredForDNS *bool        `json:"configure_for_dns,omitempty"`
	Comment          string       `json:"comment"`
	IPv4             []host.Addr4 `json:"ipv4addrs"`
	IPv6             []host.Addr6 `json:"ipv6addrs"`
	Aliases          *[]string    `json:"aliases,omitempty"`
	Attributes       *struct{}    `json:"extattrs,omitempty"`
}

// CreateHost creates a host record and returns its reference.
func (c *Client) CreateHost(ctx context.Context, h host.Record) (ref string, err error) {
	body := written{
		Name: h.Name, NetworkView: h.NetworkView, View: h.View, ConfiguredForDNS: &h.ConfiguredForDNS, Comment: h.Comment,
		IPv4: append([]host.Addr4{}, h.IPv4...), IPv6: append([]host.Addr6{}, h.IPv6...), Aliases: &[]string{}, Attributes: &struct{}{},
	}
	err = c.do(ctx, http.MethodPost, "record:host", nil, body, &ref)
	return ref, err
}

// UpdateHost replaces the addresses and the comment of a host record.
func (c *Client) UpdateHost(ctx context.Context, h host.Record) error {
	body := written{Comment: h.Comment, IPv4: append([]host.Addr4{}, h.IPv4...), IPv6: append([]host.Addr6{}, h.IPv6...)}
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
