package allocator

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pending"
	"github.com/multicidr/controller-manager/controllers/text"
)

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
	for reason, message := range b.Findings(many) {
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
		if ready := meta.FindStatusCondition(status.Conditions, networkingv1.ConditionReady); ready.Reason == networkingv1.ReasonInvalid && !strings.HasSuffix(ready.Message, "Correct this field; until then nothing is allocated, and Nodes keep what they have.") {
			t.Errorf("what to do is cut off: %s", ready.Message)
		}
	}
	w := pendingNode{}
	for _, p := range b.pools {
		w.refusals = append(w.refusals, pending.Refusal{Pool: p, Cover: strings.Repeat("x", 300)})
	}
	if message := pending.NotAvailable(w.refusals, len(b.pools)); len(message) > text.MaxMessage || !strings.Contains(message, "Create another one") || !strings.Contains(message, " more.") {
		t.Errorf("%d bytes: %s", len(message), message)
	}
}
