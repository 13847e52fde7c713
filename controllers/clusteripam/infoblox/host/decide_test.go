package host

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

const (
	uidA = types.UID("aaaaaaaa-0000-0000-0000-000000000000")
	uidB = types.UID("bbbbbbbb-0000-0000-0000-000000000000")
	uidC = types.UID("cccccccc-0000-0000-0000-000000000000")
)

// others are the claims that a cluster knows beside the one that is looked at, and the addresses that have IPAddresses.
type others struct {
	known map[types.UID]*Known
	held  string
	left  map[types.UID]string // of IPAddresses that have lost their claims, or whose claims have other UIDs by now
	in    string               // the namespace of these
}

func (o others) Known(claim types.UID) *Known { return o.known[claim] }

func (o others) HeldByAnother(_ types.UID, address netip.Addr) bool {
	return address.String() == o.held
}

func (o others) HeldFor(claim types.UID, address netip.Addr) (namespaces []string) {
	if o.left[claim] == address.String() {
		namespaces = append(namespaces, o.in)
	}
	return namespaces
}

func (others) Expected(types.UID, netip.Addr) bool { return false }

func addr(s string) netip.Addr {
	if s == "" {
		return netip.Addr{}
	}
	return netip.MustParseAddr(s)
}

// record is a host record with these addresses and claims.
func record(addresses string, claims ...types.UID) Record {
	r := Record{Ref: "r", Name: "n"}
	if len(claims) > 0 {
		r.Comment = Mark(claims, "")
	}
	for a := range strings.FieldsSeq(addresses) {
		if addr(a).Is4() {
			r.IPv4 = append(r.IPv4, Addr4{Address: a})
		} else {
			r.IPv6 = append(r.IPv6, Addr6{Address: a})
		}
	}
	return r
}

func text(r Record) string {
	var all []string
	for _, a := range r.Addresses() {
		all = append(all, a.String())
	}
	for _, c := range r.Claims() {
		all = append(all, string(c[:1]))
	}
	return strings.Join(all, " ")
}

// TestNext is about claim a in namespace x, which wants an address of 10.0.0.0/24 with the gateway 10.0.0.1.
func TestNext(t *testing.T) {
	inX := func(address string) *Known { return &Known{Namespace: "x", Address: addr(address)} }
	for name, tc := range map[string]struct {
		found  []Record
		others others
		alone  bool // it shares no record
		want   Verb
		record string // to write: addresses, and the first letters of the claims
		use    string
	}{
		"nothing there":                                 {want: Create, record: "a"},
		"its own":                                       {found: []Record{record("10.0.0.5", uidA)}, want: Use, use: "10.0.0.5", record: "10.0.0.5 a"},
		"somebody's":                                    {found: []Record{record("10.0.0.5")}, want: Taken, record: "10.0.0.5"},
		"of a claim that nobody knows":                  {found: []Record{record("10.0.0.5", uidB)}, want: Taken, record: "10.0.0.5 b"},
		"of a claim in another namespace":               {found: []Record{record("10.0.0.5", uidB)}, others: others{known: map[types.UID]*Known{uidB: {Namespace: "y", Address: addr("10.0.0.5")}}}, want: Taken, record: "10.0.0.5 b"},
		"of another claim of the machine":               {found: []Record{record("fd00::1", uidB)}, others: others{known: map[types.UID]*Known{uidB: inX("fd00::1")}}, want: Update, record: "fd00::1 b a"},
		"of another claim, and it is alone":             {found: []Record{record("fd00::1", uidB)}, others: others{known: map[types.UID]*Known{uidB: inX("fd00::1")}}, alone: true, want: Taken, record: "fd00::1 b"},
		"of a claim that has no IPAddress yet":          {found: []Record{record("fd00::1", uidB)}, others: others{known: map[types.UID]*Known{uidB: inX("")}}, want: Wait, record: "fd00::1 b"},
		"of a claim that was told it, and waits":        {found: []Record{record("fd00::1", uidB)}, others: others{known: map[types.UID]*Known{uidB: {Namespace: "x", Told: addr("fd00::1")}}}, want: Update, record: "fd00::1 b a"},
		"of a claim that was told another one":          {found: []Record{record("fd00::1", uidB)}, others: others{known: map[types.UID]*Known{uidB: {Namespace: "x", Told: addr("fd00::9")}}}, want: Wait, record: "fd00::1 b"},
		"of a claim that has another UID by now":        {found: []Record{record("fd00::1", uidB)}, others: others{left: map[types.UID]string{uidB: "fd00::1"}, in: "x"}, want: Update, record: "fd00::1 b a"},
		"of a claim that has another UID, elsewhere":    {found: []Record{record("fd00::1", uidB)}, others: others{left: map[types.UID]string{uidB: "fd00::1"}, in: "y"}, want: Taken, record: "fd00::1 b"},
		"one of two is the other's":                     {found: []Record{record("10.0.0.5 10.0.0.6", uidB, uidA)}, others: others{known: map[types.UID]*Known{uidB: inX("10.0.0.5")}}, want: Use, use: "10.0.0.6", record: "10.0.0.5 10.0.0.6 b a"},
		"one of two was told to the other":              {found: []Record{record("10.0.0.5 10.0.0.6", uidB, uidA)}, others: others{known: map[types.UID]*Known{uidB: {Namespace: "x", Told: addr("10.0.0.5")}}, held: "10.0.0.5"}, want: Use, use: "10.0.0.6", record: "10.0.0.5 10.0.0.6 b a"},
		"one of two is of an IPAddress without a claim": {found: []Record{record("10.0.0.5 10.0.0.6", uidB, uidA)}, others: others{left: map[types.UID]string{uidB: "10.0.0.5"}, held: "10.0.0.5"}, want: Use, use: "10.0.0.6", record: "10.0.0.5 10.0.0.6 b a"},
		"one of two is nobody's":                        {found: []Record{record("10.0.0.5 10.0.0.6", uidA)}, want: Ambiguous, record: "10.0.0.5 10.0.0.6 a"},
		"the gateway":                                   {found: []Record{record("10.0.0.1", uidA)}, want: Update, record: "10.0.0.1 a"},
		"the gateway, and another one":                  {found: []Record{record("10.0.0.1 10.0.0.2", uidA)}, want: Update, use: "10.0.0.2", record: "10.0.0.2 a"},
		"what another IPAddress has":                    {found: []Record{record("10.0.0.5", uidA)}, others: others{held: "10.0.0.5"}, want: Update, record: "10.0.0.5 a"},
		"of a subnet that the pool had":                 {found: []Record{record("10.9.0.5", uidA)}, want: Update, record: "10.9.0.5 a"},
		"several of the name, one of them ours":         {found: []Record{record("10.0.0.4"), record("10.0.0.5", uidA)}, want: Use, use: "10.0.0.5", record: "10.0.0.5 a"},
		"several of the name, none ours":                {found: []Record{record("fd00::1", uidB), record("fd00::2", uidC)}, others: others{known: map[types.UID]*Known{uidB: inX("fd00::1"), uidC: inX("fd00::2")}}, want: Taken, record: "fd00::1 b"},
	} {
		t.Run(name, func(t *testing.T) {
			c := Claim{UID: uidA, Namespace: "x", Name: "a", Wanted: Record{Name: "n"}, MayShare: !tc.alone,
				Subnets: []Subnet{{Prefix: netip.MustParsePrefix("10.0.0.0/24"), Gateway: addr("10.0.0.1")}}}
			step := Next(c, tc.found, tc.others)
			use := ""
			if step.Address.IsValid() {
				use = step.Address.String()
			}
			if diff := cmp.Diff([]string{tc.want.String(), tc.use, tc.record}, []string{step.Verb.String(), use, text(step.Record)}); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if adds := (step.Verb == Create || step.Verb == Update) && !step.Address.IsValid(); step.Next != adds {
				t.Errorf("asks for one more address: %t", step.Next)
			}
		})
	}
}

// TestRelease is about claim a, whose IPAddress has 10.0.0.5.
func TestRelease(t *testing.T) {
	b := func(address string) others {
		return others{known: map[types.UID]*Known{uidB: {Namespace: "x", Address: addr(address)}}}
	}
	const address = "10.0.0.5"
	for name, tc := range map[string]struct {
		claim  Released
		found  []Record
		others others
		want   []string // what stays of each record; "" for a record that is deleted
		wait   bool
	}{
		"its record":                                  {claim: Released{Address: addr(address)}, found: []Record{record(address, uidA)}, want: []string{""}},
		"it never got an IPAddress":                   {found: []Record{record("10.0.0.7", uidA)}, want: []string{""}},
		"nothing":                                     {claim: Released{Address: addr(address)}},
		"a record of somebody else":                   {claim: Released{Address: addr(address)}, found: []Record{record(address)}},
		"a record that another program made":          {claim: Released{Address: addr(address), Unmarked: true}, found: []Record{record(address)}, want: []string{""}},
		"a record of another program, not its":        {claim: Released{Address: addr(address), Unmarked: true}, found: []Record{record("10.0.0.6")}},
		"a record from before the claim was moved":    {claim: Released{Address: addr(address), Was: uidC}, found: []Record{record(address, uidC)}, want: []string{""}},
		"a record of another cluster":                 {claim: Released{Address: addr(address), Was: uidA}, found: []Record{record(address, uidC)}},
		"a copy of an IPAddress":                      {claim: Released{Address: addr(address), Was: uidB}, found: []Record{record(address, uidB)}, others: b(address)},
		"a shared record":                             {claim: Released{Address: addr(address)}, found: []Record{record(address+" fd00::1", uidA, uidB)}, others: b("fd00::1"), want: []string{"fd00::1 b"}},
		"a shared record, and no IPAddress":           {found: []Record{record(address+" fd00::1", uidA, uidB)}, others: b("fd00::1"), want: []string{"fd00::1 b"}},
		"a shared record, and nobody has one":         {found: []Record{record(address+" fd00::1", uidA, uidB)}, others: b(""), want: []string{""}, wait: true},
		"a shared record, and nobody gets one":        {found: []Record{record(address+" fd00::1", uidA, uidB)}, others: others{known: map[types.UID]*Known{uidB: {Namespace: "x", Leaves: true}}}, want: []string{address + " fd00::1 b"}},
		"a shared record, the other one was told":     {found: []Record{record(address+" fd00::1", uidA, uidB)}, others: others{known: map[types.UID]*Known{uidB: {Namespace: "x", Told: addr("fd00::1")}}}, want: []string{"fd00::1 b"}},
		"a shared record, told what is not there":     {found: []Record{record(address+" fd00::1", uidA, uidB)}, others: others{known: map[types.UID]*Known{uidB: {Namespace: "x", Told: addr("fd00::9")}}}, want: []string{""}, wait: true},
		"a shared record, the other claim is gone":    {found: []Record{record(address+" fd00::1", uidA, uidB)}, others: others{left: map[types.UID]string{uidB: "fd00::1"}}, want: []string{"fd00::1 b"}},
		"a moved claim, whose IPAddress is there":     {claim: Released{Address: addr(address), Was: uidC}, found: []Record{record(address+" fd00::1", uidC, uidB)}, others: others{left: map[types.UID]string{uidB: "fd00::1", uidC: address}}, want: []string{"fd00::1 b"}},
		"a moved claim, the other one is not moved":   {claim: Released{Address: addr(address), Was: uidC}, found: []Record{record(address+" fd00::1", uidC, uidB)}, others: b("fd00::1"), want: []string{"fd00::1 b"}},
		"a copy in the record of its original":        {claim: Released{Address: addr(address), Was: uidB}, found: []Record{record(address+" fd00::1", uidB, uidA)}, others: b(address), want: []string{address + " fd00::1 b"}},
		"its IPAddress says what another one has":     {claim: Released{Address: addr(address)}, found: []Record{record(address+" fd00::1", uidA, uidB)}, others: b(address), want: []string{address + " fd00::1 b"}},
		"somebody has added an address":               {claim: Released{Address: addr(address)}, found: []Record{record(address+" 10.0.0.9", uidA)}, want: []string{"10.0.0.9"}},
		"two records, because a create came twice":    {claim: Released{Address: addr(address)}, found: []Record{record(address, uidA), record("10.0.0.6", uidA)}, want: []string{"", ""}},
		"the address of a shared record was replaced": {claim: Released{Address: addr(address)}, found: []Record{record("10.0.0.6 fd00::1", uidA, uidB)}, others: b("fd00::1"), want: []string{"fd00::1 b"}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.claim.UID = uidA
			removals, wait := Release(tc.claim, tc.found, tc.others)
			var got []string
			for _, r := range removals {
				if rest := text(r.Record); r.Delete {
					got = append(got, "")
				} else {
					got = append(got, rest)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || wait != tc.wait {
				t.Errorf("wait: %t, -want +got:\n%s", wait, diff)
			}
		})
	}
}

func TestNames(t *testing.T) {
	own := "c." + string(uidA)
	for name, tc := range map[string]struct {
		naming Naming
		want   []string
		shares bool
	}{
		"the claim's":                     {Naming{}, []string{"c", own}, false},
		"it was chosen before":            {Naming{Hostname: "c"}, []string{"c", own}, false},
		"the other one was chosen before": {Naming{Hostname: own}, []string{own}, false},
		"the user's":                      {Naming{Hostname: "web"}, []string{"web"}, true},
		"in a zone":                       {Naming{DNSZone: "example.com"}, []string{"c.example.com"}, true},
		"of a machine in a zone":          {Naming{Machine: "m", DNSZone: "example.com"}, []string{"m.example.com"}, true},
		"of a machine without a zone":     {Naming{Machine: "m"}, []string{"c", own}, false},
		"a zone that came later":          {Naming{Hostname: "c", DNSZone: "example.com"}, []string{"c"}, true},
		"capitals, and a last dot":        {Naming{Hostname: "Web.Example.com."}, []string{"web.example.com"}, true},
		"a zone in capitals":              {Naming{Machine: "M", DNSZone: "Example.com."}, []string{"m.example.com"}, true},
		"it has a record":                 {Naming{Hostname: "c", Recorded: "c"}, []string{"c", own}, false},
		"it has the other record":         {Naming{Hostname: "c", Recorded: own}, []string{own}, false},
		"another wish before an address":  {Naming{Hostname: "db", Recorded: "web"}, []string{"db"}, true},
		"another wish after an address":   {Naming{Hostname: "db", Recorded: "web", Served: true}, []string{"web"}, true},
		"no wish any more":                {Naming{Recorded: "web", Served: true}, []string{"web"}, true},
	} {
		tc.naming.Claim, tc.naming.UID = "c", uidA
		names, shares := tc.naming.Names()
		if diff := cmp.Diff(tc.want, names); diff != "" || shares != tc.shares {
			t.Errorf("%s: shares: %t, -want +got:\n%s", name, shares, diff)
		}
	}
}

// A comment fits in Infoblox, and says the same when it is read again.
func TestMark(t *testing.T) {
	claims := []types.UID{uidA, uidB, uidC, uidA, uidB, uidC}[:maxClaims]
	for n := 1; n <= maxClaims; n++ {
		comment := Mark(claims[:n], strings.Repeat("x", 300))
		if len(comment) > maxComment {
			t.Errorf("%d claims: %d characters", n, len(comment))
		}
		if diff := cmp.Diff(claims[:n], Record{Comment: comment}.Claims()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	for _, comment := range []string{"", "web server", "Kubernetes IPAddressClaim a", string(uidA)} {
		if claims := (Record{Comment: comment}).Claims(); claims != nil {
			t.Errorf("%q is of %v", comment, claims)
		}
	}
}
