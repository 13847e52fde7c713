package wapi_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/test/wapitest"
)

func configOf(s *wapitest.Server) wapi.Config {
	name, port := s.Address()
	return wapi.Config{Host: name, Port: port, Version: "2.12", Username: s.Username, Password: s.Password, CAFile: s.CAFile}
}

func client(t *testing.T, c wapi.Config) *wapi.Client {
	t.Helper()
	made, err := wapi.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

var subnet = netip.MustParsePrefix("10.0.0.0/29")

// What is known after a request that failed, and how often it was sent.
func TestFailures(t *testing.T) {
	type known struct {
		Answered, Full bool
		Requests       int
		Stored         bool
	}
	record, next := wapi.Record{Name: "a", NetworkView: "default"}, wapi.Next{Network: subnet, View: "default"}
	for name, tc := range map[string]struct {
		fault wapitest.Fault
		grid  func(g *wapitest.Grid)
		call  func(ctx context.Context, c *wapi.Client) error
		want  known
	}{
		"carried out":                  {want: known{Answered: true, Requests: 1, Stored: true}},
		"dropped before":               {fault: wapitest.DropBefore, want: known{Requests: 1}},
		"dropped after":                {fault: wapitest.DropAfter, want: known{Requests: 1, Stored: true}},
		"an answer that does not come": {fault: wapitest.Hangs, want: known{Requests: 1, Stored: true}},
		"an error of WAPI":             {fault: wapitest.Fails, want: known{Requests: 1}},
		"an error of WAPI afterwards":  {fault: wapitest.FailsAfter, want: known{Requests: 1, Stored: true}},
		"an error of a proxy":          {fault: wapitest.Unavailable, want: known{Requests: 1}},
		"wrong credentials":            {fault: wapitest.Unauthorized, want: known{Answered: true, Requests: 1}},
		"no free address": {
			grid: func(g *wapitest.Grid) {
				for a := subnet.Addr(); subnet.Contains(a); a = a.Next() {
					g.Reserved[a] = true
				}
			},
			want: known{Answered: true, Full: true, Requests: 1},
		},
		"no such network": {
			grid: func(g *wapitest.Grid) { g.Networks = nil },
			want: known{Answered: true, Requests: 1},
		},
		"no such record": {
			call: func(ctx context.Context, c *wapi.Client) error { return c.DeleteHost(ctx, "record:host/b:b/default") },
			want: known{Answered: true, Requests: 1},
		},
		"such a record exists": {
			call: func(ctx context.Context, c *wapi.Client) error {
				_ = c.CreateHost(ctx, record, next)
				return c.CreateHost(ctx, record, next)
			},
			want: known{Answered: true, Requests: 2, Stored: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			grid := wapitest.NewGrid(subnet.String())
			if tc.grid != nil {
				tc.grid(grid)
			}
			server := wapitest.New(t, grid)
			config := configOf(server)
			end := server.Fail("", "", tc.fault, 1)
			defer end()
			call := tc.call
			if call == nil {
				call = func(ctx context.Context, c *wapi.Client) error { return c.CreateHost(ctx, record, next) }
			}
			err := call(t.Context(), client(t, config))
			got := known{wapi.Answered(err), wapi.IsFull(err), len(server.Requests()), false}
			server.Grid(func(g *wapitest.Grid) { got.Stored = len(g.Hosts()) > 0 })
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%v, -want +got:\n%s", err, diff)
			}
		})
	}
}

// A request that found nobody was not sent, so its outcome is known.
func TestNobodyThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	c := client(t, wapi.Config{Host: address, Port: port, Version: "2.12", Username: "u"})
	if err := c.CreateHost(t.Context(), wapi.Record{}); err == nil || !wapi.Answered(err) {
		t.Errorf("%v", err)
	}
}

// Nothing but the user's own word turns the verification of the server off.
func TestVerification(t *testing.T) {
	server := wapitest.New(t, wapitest.NewGrid())
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, []byte("nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change    func(c *wapi.Config)
		connects  bool
		configErr string
	}{
		"its CA":              {func(*wapi.Config) {}, true, ""},
		"an unknown CA":       {func(c *wapi.Config) { c.CAFile = "" }, false, ""},
		"told not to verify":  {func(c *wapi.Config) { c.CAFile, c.Insecure = "", true }, true, ""},
		"no CA file":          {func(c *wapi.Config) { c.CAFile = filepath.Join(dir, "none") }, false, "read the CA certificates"},
		"no certificate":      {func(c *wapi.Config) { c.CAFile = empty }, false, "no certificate in PEM"},
		"insecure, no CA":     {func(c *wapi.Config) { c.CAFile, c.Insecure = empty, true }, false, "no certificate in PEM"},
		"a broken client key": {func(c *wapi.Config) { c.ClientCert, c.ClientKey = []byte("x"), []byte("y") }, false, "the client certificate and its key"},
		"no credentials":      {func(c *wapi.Config) { c.Username = "" }, false, "no credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			config := configOf(server)
			tc.change(&config)
			c, err := wapi.New(config)
			if tc.configErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.configErr) {
					t.Fatalf("%v, want %q", err, tc.configErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			ok, err := c.NetworkView(t.Context(), "default")
			if connects := ok && err == nil; connects != tc.connects {
				t.Errorf("connects: %t, %v", connects, err)
			}
		})
	}
}

// An Infoblox can know its users by their certificates.
func TestClientCertificate(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "admin"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	server := wapitest.New(t, wapitest.NewGrid())
	config := configOf(server)
	config.Username, config.Password = "", ""
	config.ClientCert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	config.ClientKey = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	if ok, err := client(t, config).NetworkView(t.Context(), "default"); !ok || err != nil {
		t.Errorf("%t, %v", ok, err)
	}
}

// However it is written where an Infoblox is, it is the same one.
func TestHosts(t *testing.T) {
	for want, all := range map[string][][2]string{
		"infoblox.example:443":  {{"infoblox.example", ""}, {"Infoblox.Example", "443"}, {"infoblox.example:443", ""}, {"infoblox.example:443", "443"}, {"infoblox.example.", ""}},
		"infoblox.example:8443": {{"infoblox.example", "8443"}, {"infoblox.example:8443", ""}},
		"192.0.2.1:443":         {{"192.0.2.1", "443"}},
		"[fd00::1]:8443":        {{"fd00::1", "8443"}, {"[fd00::1]", "8443"}, {"fd00:0::1", "8443"}, {"[fd00::1]:8443", ""}},
		"": {{"a b", ""}, {"infoblox.example:8443", "443"}, {"https://infoblox.example", ""}, {"user@infoblox.example", ""}, {"", ""},
			{"infoblox.example", "https"}, {"infoblox.example", "70000"}},
	} {
		for _, given := range all {
			if got, err := wapi.Address(given[0], given[1]); got != want || (err == nil) != (want != "") {
				t.Errorf("%q: %q, %v, want %q", given, got, err, want)
			}
		}
	}
	if _, err := wapi.New(wapi.Config{Host: "h", Version: "2.12/..", Username: "u"}); err == nil {
		t.Error("a version that leads elsewhere")
	}
}

// The password goes to no other host.
func TestRedirect(t *testing.T) {
	server := wapitest.New(t, wapitest.NewGrid())
	server.Config.Handler = http.RedirectHandler("https://example.com/", http.StatusFound)
	if _, err := client(t, configOf(server)).NetworkView(t.Context(), "default"); err == nil || !strings.Contains(err.Error(), "HTTP 302") {
		t.Error(err)
	}
}

// An address that is of no use is replaced by the next one that is not excluded, in one write.
func TestExclude(t *testing.T) {
	for network, addresses := range map[string][2]string{"10.0.0.0/29": {"10.0.0.1", "10.0.0.3"}, "fd00::/120": {"fd00::1", "fd00::3"}} {
		server := wapitest.New(t, wapitest.NewGrid(network))
		c, next := client(t, configOf(server)), wapi.Next{Network: netip.MustParsePrefix(network), View: "default"}
		if err := c.CreateHost(t.Context(), wapi.Record{Name: "a", NetworkView: "default"}, next); err != nil {
			t.Fatal(err)
		}
		found, err := c.Hosts(t.Context(), "a", "default")
		if err != nil || len(found) != 1 || found[0].Addresses()[0].String() != addresses[0] {
			t.Fatalf("%v, %v", found, err)
		}
		first := found[0].Addresses()[0]
		next.Exclude = []netip.Addr{first, first.Next()}
		if err := c.UpdateHost(t.Context(), found[0].Without(first), next); err != nil {
			t.Fatal(err)
		}
		if found, err = c.Hosts(t.Context(), "a", "default"); err != nil || len(found[0].Addresses()) != 1 || found[0].Addresses()[0].String() != addresses[1] {
			t.Errorf("%v, %v", found, err)
		}
	}
}
