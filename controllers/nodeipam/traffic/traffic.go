// Package traffic counts what happens to the blocks of ranges, for metrics. It decides nothing.
package traffic

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/multicidr/controller-manager/controllers/ipam"
)

// Counts is what happened to the blocks of a range since this process started to track it.
type Counts struct {
	Allocations uint64 // blocks allocated to Nodes by this process
	Releases    uint64 // blocks that Nodes no longer hold
	// Histogram of Tries: the count per bucket of TriesBuckets, and the sum.
	Tries    [len(TriesBuckets)]uint64
	TriesSum float64
}

// TriesBuckets are the buckets of kubernetes-sigs/node-ipam-controller.
var TriesBuckets = [...]float64{1, 5, 25, 125, 625}

// allocated counts a block that was allocated.
func (c *Counts) allocated(tries float64) {
	c.Allocations++
	c.TriesSum += tries
	if bucket := slices.IndexFunc(TriesBuckets[:], func(le float64) bool { return tries <= le }); bucket >= 0 {
		c.Tries[bucket]++
	}
}

// Counters are the counts of all pools, by Pool.ID and Family. A later ClusterCIDR of the same name has another ID.
type Counters map[string]*[2]Counts

// Of returns the counts of a pool's ranges, by Family.
func (c Counters) Of(p *ipam.Pool) *[2]Counts {
	of, ok := c[p.ID]
	if !ok {
		of = &[2]Counts{}
		c[p.ID] = of
	}
	return of
}

// Allocated counts the blocks of a pick.
func (c Counters) Allocated(pick ipam.Pick) {
	of := c.Of(pick.Pool)
	for i, block := range pick.Blocks {
		r := pick.Pool.Ranges[i]
		of[r.Family()].allocated(Tries(r, pick.From[r.Family()], block.Addr()))
	}
}

// Tries returns how many blocks of a range a search over a bitmap would have looked at to find the block at an address: those from the cursor
// that are not free, and the block itself. The actual search skips them, but the number shows how crowded the range is.
func Tries(r ipam.Range, cursor, block netip.Addr) float64 {
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

// distance returns how many addresses b is after a, negative if it is before; precise enough for a metric.
func distance(a, b netip.Addr) float64 {
	if b.Less(a) {
		return -distance(b, a)
	}
	x, y := a.As16(), b.As16()
	low, borrow := bits.Sub64(binary.BigEndian.Uint64(y[8:]), binary.BigEndian.Uint64(x[8:]), 0)
	high, _ := bits.Sub64(binary.BigEndian.Uint64(y[:8]), binary.BigEndian.Uint64(x[:8]), borrow)
	return math.Ldexp(float64(high), 64) + float64(low)
}
