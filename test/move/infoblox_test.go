package move

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/multicidr/controller-manager/test/wapitest"
)

// grid is the Infoblox that both clusters use.
type grid struct {
	*testing.T
	*wapitest.Server
}

// record is a host record.
type record = wapitest.Host

func newGrid(t *testing.T) *grid {
	t.Helper()
	networks := wapitest.NewGrid("10.3.0.0/29", "10.5.0.0/29")
	networks.Reserved[netip.MustParseAddr("10.3.0.1")] = true
	networks.Reserved[netip.MustParseAddr("10.5.0.1")] = true
	return &grid{t, wapitest.New(t, networks)}
}

// records returns all host records.
func (g *grid) records() (all []record) {
	g.Grid(func(g *wapitest.Grid) { all = g.Hosts() })
	return all
}

// hang carries the next POST out and answers when the fault ends.
func (g *grid) hang() (end func()) { return g.Fail("POST", "", wapitest.Hangs, 1) }

// away answers nothing until the fault ends.
func (g *grid) away() (end func()) { return g.Fail("", "", wapitest.Unavailable, -1) }

// forget drops what has been asked so far.
func (g *grid) forget() { g.Requests() }

// unasked reports what should not have been asked.
func (g *grid) unasked(methods ...string) {
	g.Helper()
	for _, r := range g.Requests() {
		for _, method := range methods {
			if r.Method == method {
				g.Errorf("Infoblox was asked for %s %s %s", r.Method, r.Path, r.Body)
			}
		}
	}
}

// untouched reports a request that would have changed a host record, and a record that has changed.
func (g *grid) untouched(want []record) {
	g.Helper()
	g.unasked("POST", "PUT", "DELETE")
	same := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	if diff := cmp.Diff(want, g.records(), same); diff != "" {
		g.Errorf("the host records have changed (-before +after):\n%s", diff)
	}
}

// held returns the names of the host records by address, and reports an address that two records have.
func (g *grid) held() map[string]string {
	g.Helper()
	held := map[string]string{}
	for _, r := range g.records() {
		for _, address := range r.Addresses {
			if other := held[address.String()]; other != "" {
				g.Errorf("the host records %s and %s both have %s", other, r.Name, address)
			}
			held[address.String()] = r.Name
		}
	}
	return held
}
