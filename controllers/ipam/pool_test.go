package ipam

import (
	"fmt"
	"strings"
	"testing"
)

func TestCompareOrdersByOneRuleAfterTheOther(t *testing.T) {
	// In every row one rule decides, although all later rules say the opposite.
	small, large := cut(t, "10.0.0.0/24", 28), cut(t, "10.1.0.0/16", 24)
	for name, tc := range map[string]struct{ first, second Candidate }{
		"1. higher priority before lower": {
			first:  Candidate{&Pool{Priority: 1, Ranges: []Range{large}, Selector: "b", Name: "b"}, 0},
			second: Candidate{&Pool{Selective: true, Ranges: []Range{small}, Selector: "a", Name: "a"}, 2},
		},
		"1. no priority before a negative one": {
			first:  Candidate{&Pool{Ranges: []Range{large}, Selector: "b", Name: "b"}, 0},
			second: Candidate{&Pool{Priority: -1, Selective: true, Ranges: []Range{small}, Name: "a"}, 2},
		},
		"1. priorities at both ends of their type": {
			first:  Candidate{&Pool{Priority: 1<<31 - 1, Ranges: []Range{large}, Name: "b"}, 0},
			second: Candidate{&Pool{Priority: -1 << 31, Ranges: []Range{small}, Name: "a"}, 2},
		},
		"2. with a selector before without": {
			first:  Candidate{&Pool{Selective: true, Ranges: []Range{large}, Selector: "b", Name: "b"}, 0},
			second: Candidate{&Pool{Ranges: []Range{small}, Name: "a"}, 1},
		},
		"3. more requirements before fewer": {
			first:  Candidate{&Pool{Selective: true, Ranges: []Range{large}, Selector: "b", Name: "b"}, 2},
			second: Candidate{&Pool{Selective: true, Ranges: []Range{small}, Selector: "a", Name: "a"}, 1},
		},
		"4. fewer blocks before more": {
			first:  Candidate{&Pool{Ranges: []Range{cut(t, "10.1.0.0/22", 24)}, Selector: "b", Name: "b"}, 1},
			second: Candidate{&Pool{Ranges: []Range{cut(t, "10.0.0.0/25", 28)}, Selector: "a", Name: "a"}, 1},
		},
		"4. of two families the smaller one counts": {
			first:  Candidate{&Pool{Ranges: []Range{large, cut(t, "fd00::/119", 120)}, Selector: "b", Name: "b"}, 1},
			second: Candidate{&Pool{Ranges: []Range{cut(t, "10.0.0.0/22", 24)}, Selector: "a", Name: "a"}, 1},
		},
		"4. also where that is IPv4": {
			first:  Candidate{&Pool{Ranges: []Range{cut(t, "10.1.0.0/23", 24), cut(t, "fd00::/112", 120)}, Name: "b"}, 1},
			second: Candidate{&Pool{Ranges: []Range{cut(t, "10.0.0.0/22", 24), cut(t, "fd00::/118", 120)}, Name: "a"}, 1},
		},
		"4. more blocks than 64 bits can count": {
			first:  Candidate{&Pool{Ranges: []Range{cut(t, "fd01::/16", 88)}, Name: "b"}, 1},
			second: Candidate{&Pool{Ranges: []Range{cut(t, "fd00::/16", 112)}, Name: "a"}, 1},
		},
		"5. fewer host bits before more": {
			first:  Candidate{&Pool{Ranges: []Range{cut(t, "10.1.0.0/24", 28)}, Selector: "b", Name: "b"}, 1},
			second: Candidate{&Pool{Ranges: []Range{cut(t, "10.0.0.0/20", 24)}, Selector: "a", Name: "a"}, 1},
		},
		"5. of two families IPv4's host bits count": {
			first:  Candidate{&Pool{Ranges: []Range{cut(t, "10.1.0.0/16", 24), cut(t, "fd00::/48", 64)}, Name: "b"}, 1},
			second: Candidate{&Pool{Ranges: []Range{cut(t, "10.0.0.0/15", 23), cut(t, "fd00::/48", 64)}, Name: "a"}, 1},
		},
		"6. lower selector text before higher": {
			first:  Candidate{&Pool{Ranges: []Range{large}, Selector: "a", Name: "b"}, 1},
			second: Candidate{&Pool{Ranges: []Range{cut(t, "10.0.0.0/16", 24)}, Selector: "b", Name: "a"}, 1},
		},
		"7. lower address before higher, as a number": {
			first:  Candidate{&Pool{Ranges: []Range{cut(t, "10.2.0.0/16", 24)}, Name: "b"}, 1},
			second: Candidate{&Pool{Ranges: []Range{cut(t, "10.10.0.0/16", 24)}, Name: "a"}, 1},
		},
		"7. an IPv4 address before an IPv6 one": {
			first:  Candidate{&Pool{Ranges: []Range{cut(t, "255.0.0.0/16", 24)}, Name: "b"}, 1},
			second: Candidate{&Pool{Ranges: []Range{cut(t, "::/112", 120)}, Name: "a"}, 1},
		},
		"8. lower name before higher": {
			first:  Candidate{&Pool{Ranges: []Range{large}, Name: "a"}, 1},
			second: Candidate{&Pool{Ranges: []Range{large}, Name: "b"}, 1},
		},
		"nothing fails without a range": {
			first:  Candidate{&Pool{Name: "a"}, 1},
			second: Candidate{&Pool{Name: "b"}, 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Compare(tc.first, tc.second); got >= 0 {
				t.Errorf("Compare(first, second) = %d, want it negative", got)
			}
			if got := Compare(tc.second, tc.first); got <= 0 {
				t.Errorf("Compare(second, first) = %d, want it positive", got)
			}
			if _, by := Order(tc.first, tc.second); !strings.HasPrefix(name, fmt.Sprintf("%d.", by)) && tc.first.Ranges != nil {
				t.Errorf("rule %d decides", by)
			}
		})
	}
}

// TestCompareIsATotalOrder checks what sorting needs, with candidates that are alike in most ways.
func TestCompareIsATotalOrder(t *testing.T) {
	d := seeded(1)
	var all []Candidate
	for i := range 120 {
		p := &Pool{
			Name:      fmt.Sprint(i),
			Priority:  int32(d(2)),
			Selective: d(2) == 0,
			Selector:  one(d, []string{"", "a", "b"}),
		}
		for f := IPv4; f <= IPv6; f++ {
			if d(3) > 0 {
				p.Ranges = append(p.Ranges, d.someRange(f))
			}
		}
		all = append(all, Candidate{p, d(2)})
	}
	for _, a := range all {
		for _, b := range all {
			ab := Compare(a, b)
			if (ab == 0) != (a == b) {
				t.Fatalf("Compare(%+v, %+v) = %d", a, b, ab)
			}
			if ab < 0 != (Compare(b, a) > 0) {
				t.Fatalf("Compare(%+v, %+v) is not antisymmetric", a, b)
			}
			for _, c := range all {
				if ab < 0 && Compare(b, c) < 0 && Compare(a, c) >= 0 {
					t.Fatalf("Compare is not transitive for %+v, %+v, %+v", a, b, c)
				}
			}
		}
	}
}
