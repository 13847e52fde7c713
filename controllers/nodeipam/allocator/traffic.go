package allocator

import (
	"math"
	"net/netip"
	"slices"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
)

// Traffic is what happened to the blocks of a range since this process started, for metrics.
type Traffic struct {
	Allocations uint64 // blocks allocated to Nodes by this process
	Releases    uint64 // blocks that Nodes no longer hold
	// Histogram of tries: the count per bucket of TriesBuckets, and the sum.
	Tries    [len(TriesBuckets)]uint64
	TriesSum float64
}

// TriesBuckets are the buckets of kubernetes-sigs/node-ipam-controller.
var TriesBuckets = [...]float64{1, 5, 25, 125, 625}

func (s *State) trafficOf(p *pool.Pool) *[2]Traffic {
	of, ok := s.traffic[p.ID]
	if !ok {
		of = &[2]Traffic{}
		s.traffic[p.ID] = of
	}
	return of
}

func (s *State) cursors(p *pool.Pool) [2]netip.Addr {
	return [2]netip.Addr{s.ledger.Cursor(&p.Pool, ipam.IPv4), s.ledger.Cursor(&p.Pool, ipam.IPv6)}
}

// countAllocations counts blocks of p, one of each range, that were found by searches from these cursors.
func (s *State) countAllocations(p *pool.Pool, blocks []netip.Prefix, from [2]netip.Addr) {
	of := s.trafficOf(p)
	for i, r := range p.Ranges {
		t := &of[r.Family()]
		n := tries(r, from[r.Family()], blocks[i].Addr())
		t.Allocations++
		t.TriesSum += n
		if bucket := slices.IndexFunc(TriesBuckets[:], func(le float64) bool { return n <= le }); bucket >= 0 {
			t.Tries[bucket]++
		}
	}
}

// countReleases counts blocks that a Node no longer holds.
func (s *State) countReleases(n *node, blocks []netip.Prefix) {
	for _, block := range blocks {
		for p := range s.poolsAround(block) {
			if p.Contains(block) && s.belongs(n, blocks, p) {
				s.trafficOf(p)[ipam.FamilyOf(block)].Releases++
			}
		}
	}
}

// tries returns how many blocks a search over a bitmap would have looked at: those from the cursor to the block, and the block itself. Ours
// skips them, but the number shows how crowded the range is.
func tries(r ipam.Range, cursor, block netip.Addr) float64 {
	if !r.Prefix.Contains(cursor) {
		cursor = r.Prefix.Addr()
	}
	size := math.Ldexp(1, r.Family().Bits()-r.BlockBits) // of a block
	passed := math.Ceil(distance(cursor, block) / size)
	if passed < 0 { // wrapped around
		passed += math.Ldexp(1, r.BlockBits-r.Prefix.Bits())
	}
	return passed + 1
}

// distance returns how many addresses b is after a, negative if it is before; precise enough for a histogram.
func distance(a, b netip.Addr) (n float64) {
	x, y := a.As16(), b.As16()
	for i := range x {
		n = 256*n + float64(y[i]) - float64(x[i])
	}
	return n
}
