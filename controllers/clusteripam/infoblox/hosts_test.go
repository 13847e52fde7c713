package infoblox

import (
	stdcmp "cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
)

const (
	uidA = types.UID("aaaaaaaa-0000-0000-0000-000000000000")
	uidB = types.UID("bbbbbbbb-0000-0000-0000-000000000000")
	uidC = types.UID("cccccccc-0000-0000-0000-000000000000")
)

// neighbour is another claim: its namespace and address.
type neighbour struct{ namespace, has string }

// neighbours are the other claims that a cluster knows, and addresses that others hold.
type neighbours struct {
	known map[types.UID]neighbour
	taken string
}

func (n neighbours) claim(token types.UID) (namespace string, has netip.Addr, known bool) {
	of, known := n.known[token]
	return of.namespace, addr(of.has), known
}

func (n neighbours) held(a netip.Addr) bool {
	return slices.Contains(strings.Fields(n.taken), a.String())
}

func b(namespace, has string) neighbours {
	return neighbours{known: map[types.UID]neighbour{uidB: {namespace, has}}, taken: has}
}

func addr(s string) netip.Addr {
	a, _ := netip.ParseAddr(s)
	return a
}

// hostRecord is a host record with these addresses and tokens.
func hostRecord(addresses string, tokens ...types.UID) wapi.Record {
	r := wapi.Record{Ref: "r", Name: "n"}
	if len(tokens) > 0 {
		r.Comment = comment(tokens, "")
	}
	for a := range strings.FieldsSeq(addresses) {
		if addr(a).Is4() {
			r.IPv4 = append(r.IPv4, wapi.Addr4{Address: a})
		} else {
			r.IPv6 = append(r.IPv6, wapi.Addr6{Address: a})
		}
	}
	return r
}

// says returns the addresses of a record, and the first letters of its tokens.
func says(r wapi.Record) string {
	var all []string
	for _, a := range r.Addresses() {
		all = append(all, a.String())
	}
	for _, t := range tokensOf(r) {
		all = append(all, string(t[:1]))
	}
	return strings.Join(all, " ")
}

// TestNext is about claim a in namespace x, which wants an address of 10.0.0.0/24 with the gateway 10.0.0.1.
func TestNext(t *testing.T) {
	type records = []wapi.Record
	for name, tc := range map[string]struct {
		found  records
		others neighbours
		says   string // what the claim says
		alone  bool   // it shares no record
		fresh  bool   // this process has written what is found
		want   verb
		record string // to write, or in the way
		use    string
	}{
		"nothing there":                         {want: create, record: "a"},
		"its own":                               {found: records{hostRecord("10.0.0.5", uidA)}, want: use, use: "10.0.0.5", record: "10.0.0.5 a"},
		"somebody's":                            {found: records{hostRecord("10.0.0.5")}, want: taken, record: "10.0.0.5"},
		"of a claim that nobody knows":          {found: records{hostRecord("10.0.0.5", uidB)}, want: taken, record: "10.0.0.5 b"},
		"of a claim in another namespace":       {found: records{hostRecord("10.0.0.5", uidB)}, others: b("y", "10.0.0.5"), want: taken, record: "10.0.0.5 b"},
		"of another claim of the machine":       {found: records{hostRecord("fd00::1", uidB)}, others: b("x", "fd00::1"), want: update, record: "fd00::1 b a"},
		"of another claim, and it is alone":     {found: records{hostRecord("fd00::1", uidB)}, others: b("x", "fd00::1"), alone: true, want: taken, record: "fd00::1 b"},
		"of a claim that has no address yet":    {found: records{hostRecord("fd00::1", uidB)}, others: b("x", ""), want: wait, record: "fd00::1 b"},
		"of six claims":                         {found: records{hostRecord("fd00::1", uidB, uidB, uidB, uidB, uidB, uidB)}, others: b("x", "fd00::1"), want: taken, record: "fd00::1 b b b b b b"},
		"one of two is the other's":             {found: records{hostRecord("10.0.0.5 10.0.0.6", uidB, uidA)}, others: b("x", "10.0.0.5"), want: use, use: "10.0.0.6", record: "10.0.0.5 10.0.0.6 b a"},
		"the other one has no address yet":      {found: records{hostRecord("10.0.0.5 10.0.0.6", uidB, uidA)}, others: b("x", ""), want: wait, record: "10.0.0.5 10.0.0.6 b a"},
		"the other one is not here":             {found: records{hostRecord("10.0.0.5", uidB, uidA)}, want: wait, record: "10.0.0.5 b a"},
		"one of two is nobody's":                {found: records{hostRecord("10.0.0.5 10.0.0.6", uidA)}, want: unclear, record: "10.0.0.5 10.0.0.6 a"},
		"the gateway":                           {found: records{hostRecord("10.0.0.1", uidA)}, want: update, record: "a"},
		"the gateway, and another one":          {found: records{hostRecord("10.0.0.1 10.0.0.2", uidA)}, want: update, use: "10.0.0.2", record: "10.0.0.2 a"},
		"what another IPAddress has":            {found: records{hostRecord("10.0.0.5", uidA)}, others: neighbours{taken: "10.0.0.5"}, want: unclear, record: "10.0.0.5 a"},
		"what another one has, and one free":    {found: records{hostRecord("10.0.0.5 10.0.0.6", uidA)}, others: neighbours{taken: "10.0.0.5"}, want: unclear, record: "10.0.0.5 10.0.0.6 a"},
		"given what another IPAddress has":      {fresh: true, found: records{hostRecord("10.0.0.5", uidA)}, others: neighbours{taken: "10.0.0.5"}, want: update, record: "a"},
		"what a claim without a token has here": {found: records{hostRecord("fd00::1 10.0.0.5", uidA)}, others: neighbours{taken: "fd00::1"}, want: unclear, record: "10.0.0.5 fd00::1 a"},
		"of a subnet that the pool had":         {found: records{hostRecord("10.9.0.5", uidA)}, want: unclear, record: "10.9.0.5 a"},
		"of the subnet before, and another":     {found: records{hostRecord("10.9.0.5 10.0.0.5", uidA)}, want: unclear, record: "10.0.0.5 10.9.0.5 a"},
		"its address was removed by hand":       {found: records{hostRecord("fd00::1", uidB, uidA)}, others: b("x", "fd00::1"), want: update, record: "fd00::1 b a"},
		"several of the name, one of them ours": {found: records{hostRecord("10.0.0.4"), hostRecord("10.0.0.5", uidA)}, want: use, use: "10.0.0.5", record: "10.0.0.5 a"},
		"several of the name, none ours":        {found: records{hostRecord("fd00::1", uidB), hostRecord("fd00::2", uidC)}, others: b("x", "fd00::1"), want: taken, record: "fd00::1 b"},
		"it says so":                            {says: "10.0.0.5", found: records{hostRecord("10.0.0.5 10.0.0.6", uidA)}, want: use, use: "10.0.0.5", record: ""},
		"it says so, the other one is not here": {says: "10.0.0.5", found: records{hostRecord("10.0.0.5 fd00::1", uidB, uidA)}, want: use, use: "10.0.0.5", record: ""},
		"it says so, and there is no record":    {says: "10.0.0.5", want: lost, record: ""},
		"it says so, and it is somebody's":      {says: "10.0.0.5", found: records{hostRecord("10.0.0.5", uidB)}, want: lost, record: ""},
		"it says another one":                   {says: "10.0.0.6", found: records{hostRecord("10.0.0.5", uidA)}, want: lost, record: ""},
		"it says one of a subnet that is gone":  {says: "10.9.0.5", found: records{hostRecord("10.9.0.5", uidA)}, want: lost, record: ""},
		"it says what another claim holds":      {says: "10.0.0.5", found: records{hostRecord("10.0.0.5", uidA)}, others: neighbours{taken: "10.0.0.5"}, want: lost, record: ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := owner{token: uidA, namespace: "x", name: "a", shares: !tc.alone, says: addr(tc.says), fresh: tc.fresh}
			step := o.next(wapi.Record{Name: "n"}, []subnet{{netip.MustParsePrefix("10.0.0.0/24"), addr("10.0.0.1")}}, tc.found, tc.others)
			used := ""
			if step.address.IsValid() {
				used = step.address.String()
			}
			if diff := cmp.Diff([]string{string(tc.want), tc.use, tc.record}, []string{string(step.verb), used, sorted(step.record)}); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// sorted is says with the addresses in order.
func sorted(r wapi.Record) string {
	slices.SortFunc(r.IPv4, func(a, b wapi.Addr4) int { return strings.Compare(a.Address.(string), b.Address.(string)) })
	return says(r)
}

// TestReserved is about the IPAddress 10.0.0.5 of claim a in namespace x.
func TestReserved(t *testing.T) {
	for name, tc := range map[string]struct {
		found    wapi.Record
		others   neighbours
		unmarked bool
		ok       bool
		adopt    string
	}{
		"its record":                          {found: hostRecord("10.0.0.5", uidA), ok: true},
		"one that it shares":                  {found: hostRecord("10.0.0.5 10.0.0.6", uidB, uidA), ok: true},
		"another address":                     {found: hostRecord("10.0.0.6", uidA)},
		"another IPAddress has the address":   {found: hostRecord("10.0.0.5", uidA), others: neighbours{taken: "10.0.0.5"}},
		"somebody else's":                     {found: hostRecord("10.0.0.5", uidB)},
		"somebody's":                          {found: hostRecord("10.0.0.5")},
		"of another program":                  {found: hostRecord("10.0.0.5"), unmarked: true, adopt: "10.0.0.5 a"},
		"of another program, another address": {found: hostRecord("10.0.0.6"), unmarked: true},
		"of another program, adopted for another claim of the machine": {found: hostRecord("10.0.0.5 fd00::1", uidB), others: b("x", "fd00::1"), unmarked: true, adopt: "10.0.0.5 fd00::1 b a"},
		"of another program, adopted in another namespace":             {found: hostRecord("10.0.0.5 fd00::1", uidB), others: b("y", "fd00::1"), unmarked: true},
		"of another program, adopted by another cluster":               {found: hostRecord("10.0.0.5", uidB), unmarked: true},
	} {
		o := owner{token: uidA, namespace: "x", name: "a", says: addr("10.0.0.5"), unmarked: tc.unmarked}
		ok, adopt := o.reserved([]wapi.Record{tc.found}, tc.others)
		got := ""
		if adopt != nil {
			got = says(*adopt)
		}
		if ok != tc.ok || got != tc.adopt {
			t.Errorf("%s: reserved %t, adopt %q", name, ok, got)
		}
	}
}

// TestRelease is about claim a, which says 10.0.0.5 unless the case has "says nothing".
func TestRelease(t *testing.T) {
	const address = "10.0.0.5"
	for name, tc := range map[string]struct {
		nothing bool // the claim says no address
		found   []wapi.Record
		others  neighbours
		want    []string // what stays of each record; "" for a record that is deleted
		left    string
		unknown bool
	}{
		"its record":                              {found: []wapi.Record{hostRecord(address, uidA)}, want: []string{""}},
		"it says nothing":                         {nothing: true, found: []wapi.Record{hostRecord("10.0.0.7", uidA)}, want: []string{""}},
		"there is none":                           {},
		"a record of somebody":                    {found: []wapi.Record{hostRecord(address)}},
		"a record of another claim":               {found: []wapi.Record{hostRecord(address, uidC)}},
		"a shared record":                         {found: []wapi.Record{hostRecord(address+" fd00::1", uidA, uidB)}, others: b("x", "fd00::1"), want: []string{"fd00::1 b"}},
		"a shared record, it says nothing":        {nothing: true, found: []wapi.Record{hostRecord(address+" fd00::1", uidA, uidB)}, others: b("x", "fd00::1"), want: []string{"fd00::1 b"}},
		"says nothing, nor does the other":        {nothing: true, found: []wapi.Record{hostRecord(address+" fd00::1", uidA, uidB)}, others: b("x", ""), unknown: true},
		"says nothing, the other is not here":     {nothing: true, found: []wapi.Record{hostRecord(address+" fd00::1", uidA, uidB)}, unknown: true},
		"a shared record, the other is not here":  {found: []wapi.Record{hostRecord(address+" fd00::1", uidA, uidB)}, want: []string{"fd00::1 b"}},
		"says nothing, two addresses":             {nothing: true, found: []wapi.Record{hostRecord(address+" 10.0.0.6", uidA)}, unknown: true},
		"says nothing, one of two is held":        {nothing: true, found: []wapi.Record{hostRecord(address+" 10.0.0.6", uidA)}, others: neighbours{taken: "10.0.0.6"}, unknown: true},
		"says nothing, another one holds its one": {nothing: true, found: []wapi.Record{hostRecord(address, uidA)}, others: neighbours{taken: address}, want: []string{""}},
		"another claim says its address":          {found: []wapi.Record{hostRecord(address, uidA)}, others: neighbours{taken: address}, want: []string{""}},
		"somebody has added an address":           {found: []wapi.Record{hostRecord(address+" 10.0.0.9", uidA)}, want: []string{"10.0.0.9"}, left: "10.0.0.9"},
		"the address was replaced":                {found: []wapi.Record{hostRecord("10.0.0.6", uidA)}, want: []string{"10.0.0.6"}, left: "10.0.0.6"},
		"two records":                             {found: []wapi.Record{hostRecord(address, uidA), hostRecord("fd00::1 "+address, uidA, uidB)}, others: b("x", "fd00::1"), want: []string{"", "fd00::1 b"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := owner{token: uidA, namespace: "x", name: "a"}
			if !tc.nothing {
				o.says = addr(address)
			}
			stays, left, known := o.release(tc.found, tc.others)
			var got []string
			for _, r := range stays {
				rest := says(r)
				if len(r.Addresses()) == 0 {
					rest = ""
				}
				got = append(got, rest)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || known == tc.unknown || strings.Trim(fmt.Sprint(left), "[]") != tc.left {
				t.Errorf("known %t, left %v, -want +got:\n%s", known, left, diff)
			}
		})
	}
}

func TestNames(t *testing.T) {
	for name, tc := range map[string]struct {
		zone, wish, otherwise string
		want                  string // empty: not in the zone
		shares                bool
	}{
		"the claim's":              {"", "", "c", "c", false},
		"it was chosen before":     {"", "c", "c", "c", false},
		"the user's":               {"", "web", "c", "web", true},
		"in a zone":                {"example.com", "", "c", "c.example.com", true},
		"of a machine with a dot":  {"example.com", "", "m.1", "m.1.example.com", true},
		"a short name in a zone":   {"example.com", "Node1", "c", "node1.example.com", true},
		"a full name in a zone":    {"example.com", "node1.Example.com.", "c", "node1.example.com", true},
		"a name in another zone":   {"example.com", "node1.example.org", "c", "", true},
		"a name that ends like it": {"example.com", "node1.badexample.com", "c", "", true},
		"the zone itself":          {"example.com", "example.com", "c", "", true},
		"capitals, and a last dot": {"", "Web.Example.com.", "c", "web.example.com", true},
		"a zone in capitals":       {"Example.com.", "", "M", "m.example.com", true},
	} {
		got, ok := nameIn(tc.zone, tc.wish, tc.otherwise)
		if !ok {
			got = ""
		}
		if shared := shares(stdcmp.Or(got, "x"), "c", uidA, tc.zone); got != tc.want || shared != tc.shares {
			t.Errorf("%s: %q, shares %t", name, got, shared)
		}
	}
	if shares(ownName("c", uidA), "c", uidA, "") {
		t.Error("the own name is shared")
	}
}

// A comment fits in Infoblox, and says the same when it is read again.
func TestComment(t *testing.T) {
	tokens := []types.UID{uidA, uidB, uidC, uidA, uidB, uidC}[:maxClaims]
	for n := 1; n <= maxClaims; n++ {
		text := comment(tokens[:n], strings.Repeat("x", 300))
		if len(text) > maxComment {
			t.Errorf("%d claims: %d characters", n, len(text))
		}
		if diff := cmp.Diff(tokens[:n], tokensOf(wapi.Record{Content: wapi.Content{Comment: text}})); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	for _, text := range []string{"", "web server", "Kubernetes IPAddressClaim a", string(uidA)} {
		if tokens := tokensOf(wapi.Record{Content: wapi.Content{Comment: text}}); tokens != nil {
			t.Errorf("%q is of %v", text, tokens)
		}
	}
	const today = "Kubernetes IPAddressClaim aaaaaaaa-0000-0000-0000-000000000000 (x/a)"
	if got := comment([]types.UID{uidA}, "x/a"); got != today {
		t.Errorf("%q, want what former versions wrote: %q", got, today)
	}
}
