package wapitest_test

import (
	"encoding/json"
	"io"
	"log"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	ibclient "github.com/infobloxopen/infoblox-go-client/v2"

	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/test/wapitest"
)

// operator is what both clients can do.
type operator interface {
	views() (network, dns bool)
	network(cidr string) bool
	create(name, cidr4, cidr6 string) (addresses string)
	find(name string) (addresses string)
	change(name string, keep, with string) (addresses string)
	remove(name string) bool
	refused(name, cidr string) (text string)
}

// TestVendorsClient does everything with the vendor's client, and then with ours: the answers are the same, and so are the requests as far as
// they decide what is carried out. So this server speaks WAPI, and our client does, too.
func TestVendorsClient(t *testing.T) {
	log.SetOutput(io.Discard) // The vendor's client logs what it could not get.
	type step struct {
		What   string
		Answer any
	}
	story := func(make func(*wapitest.Server) operator) (steps []step, requests []wapitest.Request, hosts []wapitest.Host) {
		grid := wapitest.NewGrid("10.0.0.0/30", "10.0.1.0/24", "fd00::/120")
		grid.Zones["default"] = []string{"example.com"}
		server := wapitest.New(t, grid)
		c := make(server)
		say := func(what string, answer any) { steps = append(steps, step{what, answer}) }
		network, dns := c.views()
		say("network view, DNS view", []bool{network, dns})
		say("a network", c.network("10.0.1.0/24"))
		say("an IPv6 network", c.network("fd00::/120"))
		say("no network", c.network("10.9.0.0/24"))
		say("nobody", c.find("a"))
		say("the next address", c.create("a", "10.0.0.0/30", ""))
		say("it is found", c.find("a"))
		say("the last address", c.create("b", "10.0.0.0/30", ""))
		say("no address", c.refused("c", "10.0.0.0/30"))
		say("that name again", c.refused("a", "10.0.1.0/24"))
		say("two addresses", c.create("d", "10.0.1.0/24", "fd00::/120"))
		say("another one", c.change("a", "10.0.0.1", "fd00::/120"))
		say("one less", c.change("a", "10.0.0.1", ""))
		say("gone", c.remove("b"))
		say("it is not found", c.find("b"))
		say("its address again", c.create("e", "10.0.0.0/30", ""))
		requests = server.Requests()
		server.Grid(func(g *wapitest.Grid) { hosts = g.Hosts() })
		return steps, requests, hosts
	}
	vendorSteps, vendorRequests, vendorHosts := story(func(s *wapitest.Server) operator { return vendors(t, s) })
	ourSteps, ourRequests, ourHosts := story(func(s *wapitest.Server) operator { return ours{t, s} })
	if diff := cmp.Diff(vendorSteps, ourSteps); diff != "" {
		t.Errorf("answers: -vendor +ours:\n%s", diff)
	}
	if diff := cmp.Diff(vendorHosts, ourHosts, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("records: -vendor +ours:\n%s", diff)
	}
	if diff := cmp.Diff(deciding(t, vendorRequests), deciding(t, ourRequests)); diff != "" {
		t.Errorf("requests: -vendor +ours:\n%s", diff)
	}
	for _, s := range ourSteps {
		t.Logf("%s: %v", s.What, s.Answer)
	}
}

// deciding returns the writes with what decides in them. The vendor's client sends a request that failed twice, and asks twice for what is not there.
func deciding(t *testing.T, requests []wapitest.Request) (all []string) {
	for _, r := range requests {
		if r.Method == "GET" {
			continue
		}
		var body map[string]any
		if r.Body != "" {
			if err := json.Unmarshal([]byte(r.Body), &body); err != nil {
				t.Fatal(err)
			}
		}
		kept := map[string]any{}
		for _, field := range []string{"ipv4addrs", "ipv6addrs"} {
			kept[field] = body[field]
		}
		if r.Method == "POST" {
			for _, field := range []string{"name", "network_view", "configure_for_dns", "aliases", "extattrs"} {
				kept[field] = body[field]
			}
		}
		text, err := json.Marshal(kept)
		if err != nil {
			t.Fatal(err)
		}
		line := strings.Join([]string{r.Method, r.Path, r.User, string(text)}, " ")
		if len(all) == 0 || all[len(all)-1] != line {
			all = append(all, line)
		}
	}
	return all
}

func text(addresses []netip.Addr) string {
	var all []string
	for _, a := range addresses {
		all = append(all, a.String())
	}
	return strings.Join(all, " ")
}

// said is what WAPI says, without what the clients add.
func said(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		t.Fatal("it was not refused")
	}
	for _, s := range []string{"already exists", "Cannot find 1 available IP address(es)"} {
		if strings.Contains(err.Error(), s) {
			return s
		}
	}
	return err.Error()
}

type ours struct {
	t *testing.T
	s *wapitest.Server
}

func (o ours) client() *wapi.Client {
	name, port := o.s.Address()
	c, err := wapi.New(wapi.Config{Host: name, Port: port, Version: "2.12", Username: o.s.Username, Password: o.s.Password, CAFile: o.s.CAFile})
	o.must(err)
	return c
}

func (o ours) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

func (o ours) views() (network, dns bool) {
	network, err := o.client().NetworkView(o.t.Context(), "default")
	o.must(err)
	dns, err = o.client().DNSView(o.t.Context(), "default")
	o.must(err)
	return network, dns
}

func (o ours) network(cidr string) bool {
	ok, err := o.client().Network(o.t.Context(), netip.MustParsePrefix(cidr), "default")
	o.must(err)
	return ok
}

func next(cidrs ...string) (all []wapi.Next) {
	for _, cidr := range cidrs {
		if cidr != "" {
			all = append(all, wapi.Next{Network: netip.MustParsePrefix(cidr), View: "default"})
		}
	}
	return all
}

func (o ours) create(name, cidr4, cidr6 string) string {
	o.must(o.client().CreateHost(o.t.Context(), wapi.Record{Name: name, NetworkView: "default"}, next(cidr4, cidr6)...))
	return o.find(name)
}

func (o ours) found(name string) (h wapi.Record) {
	all, err := o.client().Hosts(o.t.Context(), name, "default")
	o.must(err)
	if len(all) > 0 {
		h = all[0]
	}
	return h
}

func (o ours) find(name string) string { return text(o.found(name).Addresses()) }

func (o ours) change(name, keep, with string) string {
	h := o.found(name)
	for _, a := range h.Addresses() {
		if a.String() != keep {
			h = h.Without(a)
		}
	}
	o.must(o.client().UpdateHost(o.t.Context(), h, next(with)...))
	return o.find(name)
}

func (o ours) remove(name string) bool {
	return o.client().DeleteHost(o.t.Context(), o.found(name).Ref) == nil
}

func (o ours) refused(name, cidr string) string {
	return said(o.t, o.client().CreateHost(o.t.Context(), wapi.Record{Name: name, NetworkView: "default"}, next(cidr)...))
}

type theirs struct {
	t *testing.T
	ibclient.IBObjectManager
}

func vendors(t *testing.T, s *wapitest.Server) operator {
	name, port := s.Address()
	connector, err := ibclient.NewConnector(ibclient.HostConfig{Host: name, Port: port, Version: "2.12"},
		ibclient.AuthConfig{Username: s.Username, Password: s.Password},
		ibclient.NewTransportConfig(s.CAFile, 5, 1), &ibclient.WapiRequestBuilder{}, &ibclient.WapiHttpRequestor{})
	if err != nil {
		t.Fatal(err)
	}
	return theirs{t, ibclient.NewObjectManager(connector, "test", "")}
}

func (v theirs) views() (network, dns bool) {
	n, err := v.GetNetworkView("default")
	if err != nil {
		v.t.Fatal(err)
	}
	d, err := v.GetDNSView("default")
	if err != nil {
		v.t.Fatal(err)
	}
	return *n.Name == "default", *d.Name == "default"
}

func (v theirs) network(cidr string) bool {
	n, err := v.GetNetwork("default", cidr, strings.Contains(cidr, ":"), nil)
	return err == nil && n != nil && n.Cidr == cidr
}

func (v theirs) create(name, cidr4, cidr6 string) string {
	h, err := v.CreateHostRecord(false, false, name, "default", "", cidr4, cidr6, "", "", "", "", false, 0, "", nil, nil, false)
	if err != nil {
		v.t.Fatal(err)
	}
	return textOf(h)
}

func textOf(h *ibclient.HostRecord) string {
	var all []string
	for _, a := range h.Ipv4Addrs {
		all = append(all, *a.Ipv4Addr)
	}
	for _, a := range h.Ipv6Addrs {
		all = append(all, *a.Ipv6Addr)
	}
	return strings.Join(all, " ")
}

func (v theirs) find(name string) string {
	h, err := v.GetHostRecord("default", "", name, "", "")
	if err != nil || h == nil {
		return ""
	}
	return textOf(h)
}

func (v theirs) change(name, keep, with string) string {
	h, err := v.GetHostRecord("default", "", name, "", "")
	if err != nil {
		v.t.Fatal(err)
	}
	changed, err := v.UpdateHostRecord(h.Ref, false, false, name, "default", "", "", with, keep, "", "", "", false, 0, "", nil, nil, false)
	if err != nil {
		v.t.Fatal(err)
	}
	return textOf(changed)
}

func (v theirs) remove(name string) bool {
	h, err := v.GetHostRecord("default", "", name, "", "")
	if err != nil {
		v.t.Fatal(err)
	}
	_, err = v.DeleteHostRecord(h.Ref)
	return err == nil
}

func (v theirs) refused(name, cidr string) string {
	_, err := v.CreateHostRecord(false, false, name, "default", "", cidr, "", "", "", "", "", false, 0, "", nil, nil, false)
	return said(v.t, err)
}
