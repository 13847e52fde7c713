package inspect

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// Every address of a run is of its class, by who says of a single address, and cells count the addresses of runs.
func TestRunsSayWhatEachAddressIsFor(t *testing.T) {
	for seed := range uint64(300) {
		d := rand.New(rand.NewPCG(seed, 2))
		objects := Objects{}
		for i := range 1 + d.IntN(4) {
			cc := drawClusterCIDR(d, fmt.Sprint("cc", i))
			if d.IntN(4) == 0 {
				cc.Spec.Allocation = networkingv1.AllocationDisabled
			}
			objects.ClusterCIDRs = append(objects.ClusterCIDRs, cc)
		}
		for i := range d.IntN(6) {
			n := drawNode(d, fmt.Sprint("n", i))
			if d.IntN(3) == 0 {
				n.Spec = v1.NodeSpec{} // It gets a reservation.
			}
			objects.Nodes = append(objects.Nodes, n)
		}
		if d.IntN(2) == 0 {
			objects.ServiceCIDRs = append(objects.ServiceCIDRs, &networkingapiv1.ServiceCIDR{Spec: networkingapiv1.ServiceCIDRSpec{CIDRs: []string{fmt.Sprintf("10.0.%d.%d/%d", d.IntN(4), d.IntN(4)*64, 26+d.IntN(4))}}})
		}
		view := netip.MustParsePrefix([]string{"10.0.0.0/21", "10.0.2.0/24", "10.0.1.64/26", "10.0.3.255/32"}[d.IntN(4)])
		c := New(objects)
		runs := c.Runs(view)
		i := 0
		for address := view.Addr(); view.Contains(address); address = address.Next() {
			if want := classOf(c, address); runs[i].Class != want {
				t.Fatalf("seed %d: %v is %v, want %v", seed, address, runs[i].Class, want)
			}
			if address == runs[i].Last {
				i++
			}
		}
		if i != len(runs) {
			t.Fatalf("seed %d: %d runs of %v end beyond it: %v", seed, len(runs)-i, view, runs)
		}
		checkCells(t, seed, view, runs, d.IntN(6))
		for part := view; !part.IsSingleIP(); { // one half after the other
			lower, upper, _ := halves(part)
			if part = lower; d.IntN(2) == 0 {
				part = upper
			}
			if got, want := within(runs, part), c.Runs(part); !slices.Equal(got, want) {
				t.Fatalf("seed %d: %v of %v is %v, want %v", seed, part, runs, got, want)
			}
		}
	}
}

// classOf is the class of one address: what its class means, word by word.
func classOf(c *Cluster, address netip.Addr) Class {
	var holders, shown, services, ranges, excluding, open int
	for _, h := range c.state.Holdings(netip.PrefixFrom(address, address.BitLen())) {
		if h.Owner.Kind == ipam.Service {
			services++
			continue
		}
		holders++
		for _, node := range c.Nodes {
			if string(node.UID) == h.Owner.ID && clustercidr.ShowsPodCIDRs(node) {
				shown++
			}
		}
	}
	for _, p := range c.state.Pools() {
		if !slices.ContainsFunc(p.Ranges, func(r ipam.Range) bool { return r.Prefix.Contains(address) }) {
			continue
		}
		ranges++
		if slices.ContainsFunc(p.Exclusions, func(x netip.Prefix) bool { return x.Contains(address) }) {
			excluding++
		} else if p.State == ipam.Enabled {
			open++
		}
	}
	switch {
	case holders > 1 || holders == 1 && services > 0:
		return ClassConflicting
	case services > 0:
		return ClassServices
	case holders == 1 && shown == 0:
		return ClassKept
	case holders == 1 && ranges > 0:
		return ClassUsed
	case holders == 1:
		return ClassForeign
	case ranges == 0:
		return ClassOutside
	case ranges == excluding:
		return ClassExcluded
	case open > 0:
		return ClassFree
	}
	return ClassClosed
}

// checkCells counts every cell's addresses one by one.
func checkCells(t *testing.T, seed uint64, view netip.Prefix, runs []Run, n int) {
	cells := Cells(view, n, runs)
	for _, cell := range cells {
		count := [Classes]float64{}
		for address := cell.Prefix.Addr(); cell.Prefix.Contains(address); address = address.Next() {
			i := slices.IndexFunc(runs, func(r Run) bool { return !address.Less(r.First) && !r.Last.Less(address) })
			count[runs[i].Class] += 1 / sizeOf(cell.Prefix)
		}
		for class := range Classes {
			if math.Abs(cell.Share[class]-count[class]) > 1e-9 || cell.Has[class] != (count[class] > 0) {
				t.Fatalf("seed %d: %v of cell %v is %v, want %v, of %v", seed, class, cell.Prefix, cell.Share[class], count[class], runs)
			}
		}
	}
	if first, last := cells[0].Prefix.Addr(), lastOf(cells[len(cells)-1].Prefix); first != view.Addr() || last != lastOf(view) {
		t.Fatalf("cells of %v are from %v to %v", view, first, last)
	}
}

// The last address of a family has none behind it, and a part that is too small to be seen is known to be there.
func TestRunsAtTheEndsOfAFamily(t *testing.T) {
	objects := Objects{Nodes: []*v1.Node{Node("a"), Node("b")}}
	objects.Nodes[0].Spec.PodCIDRs = []string{"255.255.255.255/32"}
	objects.Nodes[1].Spec.PodCIDRs = []string{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"}
	for _, view := range []string{"0.0.0.0/0", "::/0"} {
		runs := New(objects).Runs(Pfx(view))
		if len(runs) != 2 || runs[1].Class != ClassForeign || runs[1].First != runs[1].Last || runs[0].Last.Next() != runs[1].First {
			t.Errorf("%s: %v", view, runs)
		}
		cells := Cells(Pfx(view), 3, runs)
		if last := cells[7]; last.Most() != ClassForeign || cells[6].Has[ClassForeign] || last.Share[ClassOutside] < 0.999 {
			t.Errorf("%s: the last cell is %+v", view, last)
		}
	}
}

// All ranges are on a map, each below those that contain it.
func TestMapNestsRanges(t *testing.T) {
	m := New(Objects{
		ClusterCIDRs: []*networkingv1.ClusterCIDR{
			ClusterCIDR("inner", networkingv1.ClusterCIDRSpec{IPv4: "10.0.16.0/20", PerNodeHostBits: 8}),
			ClusterCIDR("outer", networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/16", IPv6: "fd00::/48", PerNodeHostBits: 8, IPv6PerNodeHostBits: new(int32(64))}),
			ClusterCIDR("twin", networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/16", PerNodeHostBits: 4, Allocation: networkingv1.AllocationDisabled}),
			ClusterCIDR("other", networkingv1.ClusterCIDRSpec{IPv4: "10.1.0.0/16", PerNodeHostBits: 8}),
		},
		ServiceRanges: []netip.Prefix{Pfx("10.0.16.0/24")},
	}).Map(netip.Prefix{})
	var got []string
	for _, p := range m.Parts {
		got = append(got, fmt.Sprint(p.Depth, " ", p.CIDR, " ", strings.Join(p.What, "; ")))
	}
	want := []string{
		"0 10.0.0.0/16 ClusterCIDR outer /24; ClusterCIDR twin /28, Disabled", "1 10.0.16.0/20 ClusterCIDR inner /24", "2 10.0.16.0/24 --service-cluster-ip-range",
		"0 10.1.0.0/16 ClusterCIDR other /24", "0 fd00::/48 ClusterCIDR outer /64",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the map has %q, want %q", got, want)
	}
}
