package allocator

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pending"
)

// FuzzClusterCIDR puts ClusterCIDRs to use that an API server can have stored, also under an older CRD with fewer rules.
// Nothing panics, and one that is not Invalid obeys the rules: see checkPool.
func FuzzClusterCIDR(f *testing.F) {
	const selector = `{"nodeSelectorTerms":[{"matchExpressions":[{"key":"p","operator":"In","values":["x"]}]}]}`
	f.Add("10.0.0.0/16", "", int32(8), int32(-1), "", "Enabled", selector, "10.0.1.0")
	f.Add("10.244.7.9/16", "fd00::/48", int32(8), int32(64), "10.244.0.0/28", "", "", "fd00::")
	f.Add("", "fd00::/112", int32(4), int32(-1), "fd00::/112", "Disabled", `{"nodeSelectorTerms":[{}]}`, "x")
	f.Add("10.0.0.0/33", "::ffff:10.0.0.0/112", int32(-1), int32(200), "10.0.0.0/08", "x", `{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n"]}]}]}`, "::1%eth0")
	f.Add("0.0.0.0/0", "::/0", int32(32), int32(128), "::/0", "Enabled", `{"nodeSelectorTerms":null}`, "255.255.255.255")
	f.Add("010.0.0.0/8", "fe80::1%eth0/64", int32(2147483647), int32(-2147483648), "0.0.0.0/0", "", `{"nodeSelectorTerms":[{"matchExpressions":[{"key":"p","operator":"Gt","values":["99999999999999999999"]}]}]}`, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
	f.Fuzz(func(t *testing.T, ipv4, ipv6 string, hostBits, ipv6HostBits int32, excluded, allocation, selector, cursor string) {
		cc := &networkingv1.ClusterCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid-a", Finalizers: []string{networkingv1.Finalizer}},
			Spec:       networkingv1.ClusterCIDRSpec{IPv4: ipv4, IPv6: ipv6, PerNodeHostBits: hostBits, Allocation: networkingv1.AllocationMode(allocation)},
			Status:     networkingv1.ClusterCIDRStatus{IPv4: &networkingv1.RangeStatus{Cursor: cursor}, IPv6: &networkingv1.RangeStatus{Cursor: cursor}},
		}
		if ipv6HostBits != -1 {
			cc.Spec.IPv6PerNodeHostBits = &ipv6HostBits
		}
		if excluded != "" {
			cc.Spec.ExcludedCIDRs = []string{excluded}
		}
		if selector != "" {
			if err := json.Unmarshal([]byte(selector), &cc.Spec.NodeSelector); err != nil {
				return // no API server stores that
			}
		}
		p := clustercidr.Compile(cc)
		checkPool(t, cc, p)

		b := New()
		b.SetPool(p)
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "uid-n", Labels: map[string]string{"p": "x"}}}
		r, refusals, ok := b.Reserve(n)
		b.Sending(n, 0) // from then on they count as its own
		switch {
		case ok && p.State != ipam.Enabled:
			t.Errorf("it is %v and gives %v", p.State, r.Blocks)
		case ok && len(r.Blocks) != len(p.Ranges):
			t.Errorf("it has %v and gives %v", p.Ranges, r.Blocks)
		case ok:
			for i, block := range r.Blocks {
				if !p.Contains(block) || block.Bits() != p.Ranges[i].BlockBits || block != block.Masked() || slices.ContainsFunc(p.Exclusions, block.Overlaps) {
					t.Errorf("it gives %v of %v without %v", block, p.Ranges[i], p.Exclusions)
				}
			}
			if !b.InUse("a") {
				t.Error("nobody belongs to it after it gave blocks")
			}
		}
		_ = pending.NotAvailable(refusals, 1)
		if status, known := b.Status(cc); known {
			checkCounts(t, status)
		}
		b.NodeGone("n", "uid-n")
		b.DropPool("a")
		if left := b.ledger.Overlapping(netip.MustParsePrefix("::/0")); len(left) > 0 {
			t.Errorf("left over: %v", left)
		}
	})
}

// checkPool checks what the rest of the program relies on.
func checkPool(t *testing.T, cc *networkingv1.ClusterCIDR, p *clustercidr.Pool) {
	t.Helper()
	if (p.State == ipam.Invalid) != (p.Problem != "") {
		t.Errorf("it is %v because of %q", p.State, p.Problem)
	}
	for _, r := range p.Ranges {
		hostBits := r.Family().Bits() - r.BlockBits
		if !r.Prefix.IsValid() || r.Prefix != r.Prefix.Masked() || r.BlockBits < r.Prefix.Bits() || hostBits < clustercidr.MinHostBits && p.State == ipam.Enabled {
			t.Errorf("it has range %v with blocks of /%d", r.Prefix, r.BlockBits)
		}
	}
	if p.State == ipam.Invalid {
		return
	}
	want := 0
	for _, cidr := range []string{cc.Spec.IPv4, cc.Spec.IPv6} {
		if cidr != "" {
			want++
		}
	}
	if len(p.Ranges) != want || want == 0 || len(p.Exclusions) != len(cc.Spec.ExcludedCIDRs) || p.Selective != (cc.Spec.NodeSelector != nil) {
		t.Errorf("%+v became %+v", cc.Spec, p)
	}
}

// checkCounts checks that total = allocated + unavailable + free wherever none of them is capped.
func checkCounts(t *testing.T, status networkingv1.ClusterCIDRStatus) {
	t.Helper()
	for _, s := range []*networkingv1.RangeStatus{status.IPv4, status.IPv6} {
		if s == nil {
			continue
		}
		capped := s.Total == 1<<63-1
		if min(s.Total, s.Allocated, s.Unavailable, s.Free) < 0 || !capped && s.Total != s.Allocated+s.Unavailable+s.Free {
			t.Errorf("counts do not add up: %+v", s)
		}
	}
}

// FuzzPodCIDRs lets a Node show any podCIDRs. What can be read is held, by it alone and only as long as it is there.
func FuzzPodCIDRs(f *testing.F) {
	f.Add("10.0.0.0/24", "fd00::/64", "a")
	f.Add("010.0.0.0/024", "::ffff:10.0.0.0/120", "")
	f.Add("10.0.0.77/24", "10.0.0.0/24", "b")
	f.Add("0.0.0.0/0", "::/0", "a")
	f.Add("10.0.0.0/33", "fe80::1%eth0/64", "a")
	f.Fuzz(func(t *testing.T, first, second, annotation string) {
		n := &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "uid-n", Annotations: map[string]string{networkingv1.AnnotationClusterCIDR: annotation}},
			Spec:       v1.NodeSpec{PodCIDR: first, PodCIDRs: []string{first, second}},
			Status:     v1.NodeStatus{Addresses: []v1.NodeAddress{{Address: first}, {Address: second}}},
		}
		blocks, unreadable := clustercidr.PodCIDRsOf(n)
		if len(blocks)+len(unreadable) != 2 {
			t.Fatalf("two podCIDRs became %v and %q", blocks, unreadable)
		}
		for _, block := range blocks {
			if !block.IsValid() || block != block.Masked() || block.Addr().Is4In6() {
				t.Errorf("block %v", block)
			}
		}
		b := New()
		b.SetPool(clustercidr.Compile(ClusterCIDR("a", networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/16", IPv6: "fd00::/112", PerNodeHostBits: 8})))
		b.Observe(n, blocks, clustercidr.AddressesOf(n))
		_ = b.Findings(n)
		held := b.ledger.Held(OwnerOf(n.UID))
		for _, block := range blocks {
			if !slices.Contains(held, block) {
				t.Errorf("%v is not held: %v", block, held)
			}
		}
		other := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other", UID: "uid-other"}}
		if r, _, ok := b.Reserve(other); ok && (slices.ContainsFunc(r.Blocks, func(block netip.Prefix) bool { return slices.ContainsFunc(blocks, block.Overlaps) })) {
			t.Errorf("%v is given while %v is held", r.Blocks, blocks)
		}
		b.NodeGone("n", "uid-n")
		if held := b.ledger.Held(OwnerOf(n.UID)); len(held) > 0 || len(b.names) > 1 {
			t.Errorf("left over: %v", held)
		}
	})
}
