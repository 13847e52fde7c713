package allocator

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pending"
)

// TestTallyIsInStep drives books through random histories and compares what is kept in step with what a walk over all Nodes
// finds, after every step.
func TestTallyIsInStep(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			dice := rand.New(rand.NewPCG(seed, 0))
			b := New()
			cidr := func() string { return fmt.Sprintf("10.0.%d.%d/%d", dice.IntN(4), dice.IntN(4)*64, 22+dice.IntN(6)) }
			var history []string
			for range 300 {
				name := fmt.Sprint("n", dice.IntN(12))
				n := Node(name, UID(types.UID(fmt.Sprint(name, "-", dice.IntN(8)/7))), From(fmt.Sprint("p", dice.IntN(5))))
				pool := fmt.Sprint("p", dice.IntN(4))
				var done string
				switch dice.IntN(9) {
				case 0, 1:
					cc := ClusterCIDR(pool, Spec4(cidr(), 4, nil))
					cc.UID = types.UID(fmt.Sprint(pool, dice.IntN(2)))
					if dice.IntN(3) == 0 {
						Deleted(cc)
					}
					if dice.IntN(3) == 0 {
						cc.Spec.ExcludedCIDRs = []string{cidr()}
					}
					done = fmt.Sprintf("set %s %v %v", cc.UID, cc.Spec.IPv4, cc.Spec.ExcludedCIDRs)
					Set(cc)(b)
				case 2:
					done = "drop " + pool
					b.DropPool(pool)
				case 3:
					done = "gone " + name
					Gone(name)(b)
				case 4:
					ranges := []netip.Prefix{Pfx(cidr())}[:dice.IntN(2)]
					done = fmt.Sprint("service ", ranges)
					b.SetService("s", ranges)
				case 5, 6:
					blocks := []netip.Prefix{Pfx(cidr()), Pfx(cidr())}[:1+dice.IntN(2)]
					done = fmt.Sprintf("%s/%s shows %v", name, n.UID, blocks)
					b.Observe(n, blocks, nil)
				default:
					r, _, ok := b.Reserve(n)
					done = fmt.Sprintf("reserve %s/%s: %v %v", name, n.UID, r.Blocks, ok)
				}
				history = append(history, done)
				if diff := cmp.Diff(walked(b), kept(b)); diff != "" {
					t.Fatalf("(-walk +kept):\n%s\nafter\n%s", diff, strings.Join(history, "\n"))
				}
			}
			// Nothing may be left of what is gone.
			for _, name := range slices.Collect(maps.Keys(b.nodes)) {
				Gone(name)(b)
			}
			for _, name := range slices.Collect(maps.Keys(b.pools)) {
				b.DropPool(name)
			}
			b.SetService("s", nil)
			anywhere := func(r clustercidr.Ranges) int { return len(slices.Collect(r.Overlapping(ipam.Everything...))) }
			if diff := cmp.Diff(newStats(), b.stats, cmp.AllowUnexported(stats{}, ipam.PrefixSet{}), cmp.Comparer(func(a, b ipam.PrefixSet) bool { return a == b }),
				cmp.Comparer(func(a, b clustercidr.Ranges) bool { return anywhere(a) == anywhere(b) })); diff != "" {
				t.Errorf("left over (-want +got):\n%s", diff)
			}
			if len(b.near) > 0 {
				t.Error("surroundings of addresses are left over")
			}
		})
	}
}

type summary struct {
	Holding            int
	Sharing, Outsiders []types.UID
	Blocking           map[string]int
	InUse              []string
	Ranges             []string
}

func kept(b *State) summary {
	f := b.Figures()
	s := summary{Holding: f.Holding, Sharing: slices.Sorted(maps.Keys(b.sharing)), Outsiders: slices.Sorted(maps.Keys(b.outOfRange)), Blocking: f.Blockers}
	for name := range b.pools {
		if b.InUse(name) {
			s.InUse = append(s.InUse, name)
		}
	}
	slices.Sort(s.InUse)
	for _, r := range f.Ranges {
		s.Ranges = append(s.Ranges, fmt.Sprintf("%s %d allocated %d free", r.ClusterCIDR, r.Status.Allocated, r.Status.Free))
	}
	slices.Sort(s.Ranges)
	return s
}

func walked(b *State) summary {
	s := summary{Blocking: map[string]int{}}
	for _, e := range b.nodes {
		blocks := b.ledger.Held(OwnerOf(e.uid))
		if len(blocks) == 0 {
			continue
		}
		s.Holding++
		if len(slices.Collect(b.conflicts(e.uid))) > 0 {
			s.Sharing = append(s.Sharing, e.uid)
		}
		inside := false
		for _, p := range b.pools {
			inside = inside || slices.ContainsFunc(blocks, p.Contains)
		}
		if !inside {
			s.Outsiders = append(s.Outsiders, e.uid)
		}
	}
	slices.Sort(s.Sharing)
	slices.Sort(s.Outsiders)
	for name, p := range b.pools {
		members := 0
		for _, e := range b.nodes {
			if b.BelongsTo(e.uid, p) {
				members++
			}
		}
		if p.State == ipam.Terminating {
			s.Blocking[name] = members
		}
		if members > 0 {
			s.InUse = append(s.InUse, name)
		}
		for _, r := range p.Ranges {
			allocated := map[netip.Prefix]bool{}
			for _, h := range b.ledger.Overlapping(r.Prefix) {
				if h.Owner.Kind == ipam.Node && h.Prefix.Bits() == r.BlockBits {
					allocated[h.Prefix] = true
				}
			}
			s.Ranges = append(s.Ranges, fmt.Sprintf("%s %d allocated %d free", name, len(allocated), b.ledger.Free(&p.Pool, r)))
		}
	}
	slices.Sort(s.InUse)
	slices.Sort(s.Ranges)
	return s
}

func TestWaitReasonOf(t *testing.T) {
	by := func(states ...ipam.State) (refusals []pending.Refusal) {
		for _, s := range states {
			refusals = append(refusals, pending.Refusal{Pool: &clustercidr.Pool{Pool: ipam.Pool{State: s}}})
		}
		return refusals
	}
	cases := map[string]struct {
		pools    int
		refusals []pending.Refusal
		want     pending.Reason
	}{
		"there is no ClusterCIDR":                {want: "NoClusterCIDR"},
		"none selects the Node":                  {pools: 2, want: "NotSelected"},
		"the only one is full":                   {pools: 1, refusals: by(ipam.Enabled), want: "Full"},
		"the second is full, the first disabled": {pools: 2, refusals: by(ipam.Disabled, ipam.Enabled), want: "Full"},
		"none is enabled, the first is invalid":  {pools: 2, refusals: by(ipam.Invalid, ipam.Terminating), want: "Invalid"},
	}
	for sentence, tc := range cases {
		t.Run(sentence, func(t *testing.T) {
			got := pending.ReasonOf(tc.pools, tc.refusals)
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if !slices.Contains(pending.Reasons, got) {
				t.Errorf("%s is not among those that are shown: %v", got, pending.Reasons)
			}
		})
	}
}
