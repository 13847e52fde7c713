package ipam

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
)

// filled returns a ledger in which n Nodes hold blocks of p.
func filled(t testing.TB, p *Pool, n int) *Ledger {
	t.Helper()
	l := &Ledger{}
	for i := range n {
		reserve(t, l, numbered(i), p)
	}
	return l
}

// serve measures one Node that is created and deleted.
func serve(b *testing.B, l *Ledger, p *Pool) {
	b.Helper()
	o := Owner{Node, "comes and goes"}
	b.ReportAllocs()
	for b.Loop() {
		reserve(b, l, o, p)
		l.Hold(o)
	}
}

func BenchmarkServe(b *testing.B) {
	dual := pool("dual", cut(b, "10.0.0.0/8", 28), cut(b, "fd00::/32", 64))
	for _, n := range []int{1_000, 15_000, 100_000} {
		b.Run(fmt.Sprintf("dual stack, %d held", n), func(b *testing.B) { serve(b, filled(b, dual, n), dual) })
	}
	for name, r := range wide(b) {
		if r.Blocks() < 10_000 {
			continue
		}
		b.Run(name+", 10000 held", func(b *testing.B) { p := pool("p", r); serve(b, filled(b, p, 10_000), p) })
	}
	b.Run("99.99 % full, the free block behind the cursor", func(b *testing.B) {
		p := pool("p", cut(b, "10.0.0.0/14", 28)) // 16384 blocks
		l := filled(b, p, 16_384)
		l.Hold(numbered(0))
		serve(b, l, p)
	})
	b.Run("three block sizes in the same addresses, 15000 held", func(b *testing.B) {
		pools := []*Pool{
			pool("28", cut(b, "10.0.0.0/9", 28)), pool("24", cut(b, "10.0.0.0/9", 24)), pool("26", cut(b, "10.0.0.0/9", 26)),
		}
		l := &Ledger{}
		for i := range 15_000 {
			reserve(b, l, numbered(i), pools[i%len(pools)])
		}
		serve(b, l, pools[1])
	})
}

// BenchmarkManyPools measures an allocation among 100,000 Nodes that have blocks of 1,000 pools, all full but the last.
func BenchmarkManyPools(b *testing.B) {
	l := &Ledger{}
	var pools []*Pool
	for i := range 1000 {
		p := pool(fmt.Sprint(i), cut(b, fmt.Sprintf("10.%d.%d.0/18", i/4, i%4*64), 25), cut(b, fmt.Sprintf("fd00:%x::/57", i), 64))
		for n := range 100 {
			reserve(b, l, numbered(100*i+n), p)
		}
		pools = append(pools, p)
	}
	b.Run("free", func(b *testing.B) { serve(b, l, pools[500]) })
	b.Run("999 are full", func(b *testing.B) {
		for i, p := range pools[:999] {
			l.Hold(Owner{Service, p.ID}, p.Ranges[i%2].Prefix)
		}
		for b.Loop() {
			if p, _ := choose(l, pools...); p != pools[999] {
				b.Fatal("the last pool has a free block")
			}
		}
	})
}

// BenchmarkFull measures the answer that nothing is free. Every pending Node asks for it again.
func BenchmarkFull(b *testing.B) {
	p := pool("p", cut(b, "10.0.0.0/14", 28))
	l := filled(b, p, 16_384)
	b.ReportAllocs()
	for b.Loop() {
		if len(l.Full(p)) == 0 {
			b.Fatal("a full pool gave a block")
		}
	}
}

// BenchmarkExclusions measures an allocation where the search cannot skip much: exclusions are scattered, and everything between them is held,
// or everything but the last block.
func BenchmarkExclusions(b *testing.B) {
	for _, n := range []int{256, 1000} {
		p := pool("p", cut(b, "10.0.0.0/14", 28)) // 16384 blocks
		d := seeded(1)
		for range n {
			p.Excluded.Insert(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(d(4)), byte(d(256)), byte(d(256))}), 32))
		}
		l := &Ledger{}
		held := 0
		for ; len(l.Full(p)) == 0; held++ {
			reserve(b, l, numbered(held), p)
		}
		b.Run(fmt.Sprintf("%d, full", n), func(b *testing.B) {
			for b.Loop() {
				if len(l.Full(p)) == 0 {
					b.Fatal("a full pool gave a block")
				}
			}
		})
		b.Run(fmt.Sprintf("%d, count", n), func(b *testing.B) {
			for b.Loop() {
				l.Usage(p, p.Ranges[0])
			}
		})
		l.Hold(numbered(held - 1))
		l.setCursor(p, IPv4, p.Ranges[0].Prefix.Addr())
		b.Run(fmt.Sprintf("%d, one block free at the end", n), func(b *testing.B) {
			for b.Loop() {
				if len(l.Full(p)) > 0 {
					b.Fatal("there is a block")
				}
			}
		})
	}
}

// BenchmarkRebuild measures a start: every Node's podCIDRs become holdings of an empty ledger.
func BenchmarkRebuild(b *testing.B) {
	const nodes = 100_000
	p := pool("dual", cut(b, "10.0.0.0/8", 28), cut(b, "fd00::/32", 64))
	shown := filled(b, p, nodes).held[Node]
	b.ReportAllocs()
	for b.Loop() {
		var l Ledger
		for id, prefixes := range shown {
			l.Hold(Owner{Kind: Node, ID: id}, prefixes...)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/nodes, "ns/Node")
}

// BenchmarkMemory measures the heap that one Node's holdings take.
func BenchmarkMemory(b *testing.B) {
	const nodes = 100_000
	for name, p := range map[string]*Pool{
		"IPv4":       pool("v4", cut(b, "10.0.0.0/8", 28)),
		"dual stack": pool("dual", cut(b, "10.0.0.0/8", 28), cut(b, "fd00::/32", 64)),
	} {
		b.Run(name, func(b *testing.B) {
			var heap uint64
			for b.Loop() {
				before := heapInUse()
				l := filled(b, p, nodes)
				heap = heapInUse() - before
				runtime.KeepAlive(l)
			}
			b.ReportMetric(float64(heap)/nodes, "heap-B/Node")
		})
	}
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkReport measures how long it takes to count the free blocks and to find the conflicts of one Node among 100000.
func BenchmarkReport(b *testing.B) {
	p := pool("dual", cut(b, "10.0.0.0/8", 28), cut(b, "fd00::/32", 64))
	l := filled(b, p, 100_000)
	b.Run("Usage", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l.Usage(p, p.Ranges[0])
		}
	})
	b.Run("Conflicts", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for range l.Conflicts(numbered(50_000)) {
				b.Fatal("Nodes that were served share addresses")
			}
		}
	})
}
