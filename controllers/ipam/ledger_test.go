package ipam

import (
	"net/netip"
	"slices"
	"testing"
)

// TestReserveRefusesAPickThatCameTooLate changes something between a pick and its reservation. Either all blocks are reserved or
// none, even if only the block of one family is gone.
func TestReserveRefusesAPickThatCameTooLate(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(l *Ledger, o Owner, p *Pool)
		want      bool
	}{
		"nothing happened":                        {func(*Ledger, Owner, *Pool) {}, true},
		"another block was taken":                 {func(l *Ledger, _ Owner, _ *Pool) { l.Hold(numbered(2), pfx("10.0.1.0/24")) }, true},
		"the IPv4 block was taken":                {func(l *Ledger, _ Owner, _ *Pool) { l.Hold(numbered(2), pfx("10.0.0.0/24")) }, false},
		"an address in the IPv6 block was taken":  {func(l *Ledger, _ Owner, _ *Pool) { l.Hold(numbered(2), pfx("fd00::7/128")) }, false},
		"everything around a block was taken":     {func(l *Ledger, _ Owner, _ *Pool) { l.Hold(numbered(2), pfx("::/0")) }, false},
		"the owner was served from the same pool": {func(l *Ledger, o Owner, p *Pool) { reserve(t, l, o, p) }, false},
		"the owner showed a range of its own":     {func(l *Ledger, o Owner, _ *Pool) { l.Hold(o, pfx("192.0.2.0/24")) }, false},
		"the block was taken and given back": {func(l *Ledger, _ Owner, _ *Pool) {
			l.Hold(numbered(2), pfx("10.0.0.0/24"))
			l.Release(numbered(2))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var l Ledger
			o, p := numbered(1), pool("p", cut(t, "10.0.0.0/16", 24), cut(t, "fd00::/48", 64))
			pick, ok := choose(&l, p)
			if !ok {
				t.Fatal("an empty pool gave nothing")
			}
			tc.meanwhile(&l, o, p)
			before := slices.Collect(l.Holdings(pfx("::/0")))
			before = slices.AppendSeq(before, l.Holdings(pfx("0.0.0.0/0")))
			if got := l.Reserve(o, pick); got != tc.want {
				t.Fatalf("Reserve = %v, want %v", got, tc.want)
			}
			after := slices.AppendSeq(slices.Collect(l.Holdings(pfx("::/0"))), l.Holdings(pfx("0.0.0.0/0")))
			if !tc.want && !slices.Equal(before, after) {
				t.Errorf("a refused Reserve changed the holdings from %v to %v", before, after)
			}
			if want := []netip.Prefix{pfx("10.0.0.0/24"), pfx("fd00::/64")}; tc.want && !slices.Equal(l.Held(o), want) {
				t.Errorf("Held = %v, want %v", l.Held(o), want)
			}
		})
	}
}
