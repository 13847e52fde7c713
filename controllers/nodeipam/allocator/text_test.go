package allocator

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	"github.com/multicidr/controller-manager/controllers/nodeipam/text"
)

func TestCut(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		most int
		want string
	}{
		"short":                        {"a text", 6, "a text"},
		"too long":                     {"a long text", 10, "a long ..."},
		"in the middle of a character": {"aaäää", 7, "aa ..."},
		"not UTF-8":                    {"a\xffb", 8, "a\uFFFDb"},
	} {
		if got := text.Cut(tc.text, tc.most); got != tc.want || len(got) > tc.most {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestListsSayHowManyMore: whatever is cut off from a list is counted.
func TestListsSayHowManyMore(t *testing.T) {
	long := slices.Repeat([]string{strings.Repeat("ü", 100)}, 12)
	if got, want := text.Listed(long), strings.Join(append(slices.Clone(long[:3]), "9 more"), "; "); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := text.ListedFew([]string{"b", "a"}), "a; b"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := text.ListedFew(long); !strings.HasSuffix(got, "; and more") {
		t.Errorf("got %q", got)
	}
	if got := text.Listed([]string{strings.Repeat("x", 2000)}); len(got) != text.MaxListed {
		t.Errorf("one text has %d bytes", len(got))
	}
}

// TestMessagesAreBounded: names and values as long as the API lets them be make no message that it refuses, and what to do is not cut off.
func TestMessagesAreBounded(t *testing.T) {
	b := New()
	longName := func(i int) string { return fmt.Sprintf("%0200d.%050d", i, i) }
	for i := range 40 {
		cc := ClusterCIDR(longName(i), Spec4("10.0.0.0/28", 4, nil))
		if i%2 == 0 {
			cc.Spec.ExcludedCIDRs = []string{strings.Repeat("ä", 100_000)}
		}
		Set(cc)(b)
		Shows(Node(longName(i)), "10.0.0.0/24")(b)
		b.SetService(longName(i), Pfxs(fmt.Sprintf("10.0.0.%d/32", i)))
	}
	full := ClusterCIDR("full", Spec4("10.0.0.0/16", 8, nil))
	Set(full)(b)
	many := Node("many")
	for i := range 10_000 {
		many.Spec.PodCIDRs = append(many.Spec.PodCIDRs, netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)}), 32).String(), strings.Repeat("x", 100))
	}
	blocks, _ := clustercidr.PodCIDRsOf(many)
	b.Observe(many, blocks, nil)
	for reason, message := range b.findings(many) {
		if len(message) > text.MaxMessage || !strings.Contains(message, "more") || !strings.HasSuffix(message, "registers it again.") {
			t.Errorf("%s has %d bytes: %s", reason, len(message), message)
		}
	}

	for name := range b.pools {
		cc := ClusterCIDR(name, networkingv1.ClusterCIDRSpec{})
		status, known := b.Status(cc)
		if !known {
			t.Fatalf("%s is not known", name)
		}
		for _, c := range status.Conditions {
			if len(c.Message) > text.MaxCondition || !utf8.ValidString(c.Message) {
				t.Errorf("the message of %s has %d bytes: %s", c.Type, len(c.Message), c.Message)
			}
		}
		if ready := meta.FindStatusCondition(status.Conditions, networkingv1.ConditionReady); ready.Reason == networkingv1.ReasonInvalid && !strings.HasSuffix(ready.Message, "Delete this ClusterCIDR and create one that is right.") {
			t.Errorf("what to do is cut off: %s", ready.Message)
		}
	}
	w := pendingNode{}
	for _, p := range b.pools {
		w.refusals = append(w.refusals, refusal{pool: p, full: nil, cover: strings.Repeat("x", 300)})
	}
	if message := NotAvailable(w.refusals, len(b.pools)); len(message) > text.MaxMessage || !strings.Contains(message, "Create another one") || !strings.Contains(message, " more.") {
		t.Errorf("%d bytes: %s", len(message), message)
	}
}
