package lease

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestNoSecondIsShownAgain sends renewals while somebody sets the wall clock to and fro, and suspends the machine.
func TestNoSecondIsShownAgain(t *testing.T) {
	again, kept := 0, 0
	for seed := range uint64(2000) {
		d := rand.New(rand.NewPCG(seed, 1))
		retry := []time.Duration{50, 300, 1000, 2000, 7000}[d.IntN(5)] * time.Millisecond
		var s seconds
		now := reading{wall: time.Unix(1_000_000, int64(d.IntN(1e9)))}
		first := map[int64]time.Duration{} // when the first renewal with a second was sent
		var last int64
		var ahead time.Duration // how far any clock has been ahead of the monotonic one
		for range 200 {
			passed := retry + time.Duration(d.Int64N(int64(retry/4)))
			now.monotonic += passed
			now.wall = now.wall.Add(passed)
			switch d.IntN(20) {
			case 0:
				now.wall = now.wall.Add(time.Duration(d.IntN(30_000)) * time.Millisecond)
			case 1:
				now.wall = now.wall.Add(-time.Duration(d.IntN(90_000)) * time.Millisecond)
			case 2:
				now.wall = time.Unix(last-int64(d.IntN(4)), int64(d.IntN(1e9)))
			}
			ahead = max(ahead, now.wall.Sub(time.Unix(1_000_000, 0))-now.monotonic)
			at, began := s.next(now.wall, now)
			sent, shown := first[at.Unix()]
			switch {
			case !shown:
				first[at.Unix()], sent = now.monotonic, now.monotonic
			case at.Unix() != last:
				t.Fatalf("seed %d: after %v a renewal has the second of one that was sent after %v, and others had others in between", seed, now.monotonic, sent)
			case now.monotonic-sent >= time.Second:
				t.Fatalf("seed %d: two renewals that are %v apart have one second", seed, now.monotonic-sent)
			default:
				kept++
			}
			if began.monotonic != sent {
				t.Fatalf("seed %d: the lease counts from %v, and the first renewal with this second was sent after %v", seed, began.monotonic, sent)
			}
			if at.Unix() != now.wall.Unix() {
				again++
			} else if !at.Equal(now.wall) {
				t.Fatalf("seed %d: the time is %v, want %v, which no renewal had", seed, at, now.wall)
			}
			if most := time.Unix(1_000_001, 0).Add(ahead + now.monotonic); at.After(most) {
				t.Fatalf("seed %d: a renewal has the time %v, and no clock has ever gone faster than %v", seed, at, most)
			}
			last = at.Unix()
		}
	}
	if again == 0 || kept == 0 {
		t.Errorf("%d renewals would have had a second again, %d had that of the one before: want some of both", again, kept)
	}
}
