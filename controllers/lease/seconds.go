package lease

import (
	"slices"
	"time"
)

// seconds are the times of the renewals of one term, in whole seconds.
//
// client-go's electors compare the times of a Lease by whole seconds. A wall clock that is set back shows a second again. If a renewal had that
// second, a challenger that has seen the earlier one, and none in between, would count from the earlier one and take the lease too soon. Then a
// write would be too late that was sent before the clock was set back. So no renewal has a second that an earlier one had before the last.
type seconds struct {
	spans []span
	// last is the second of the last renewal, and began is when the first renewal with it was sent.
	last  int64
	began reading
}

// span is from its first to its last second, both included.
type span struct{ first, last int64 }

// spanGap is the longest time in seconds between two renewals of a span. The seconds between them count as shown although no renewal had
// them, so a term has one span until a clock is set or a machine is suspended.
const spanGap = 60

// next returns the time for a renewal that is sent now, and when the first renewal with the second of that time was sent. It is the wanted time unless
// that would show a second again.
func (s *seconds) next(wanted time.Time, now reading) (time.Time, reading) {
	second, age := wanted.Unix(), now.monotonic-s.began.monotonic
	switch shown := s.end(second); {
	case shown < second: // It is new.
	case age < time.Second:
		// With a short retry period there are many renewals in a second. The next free second each time would run ahead of all clocks.
		if second != s.last {
			wanted = time.Unix(s.last, 0).Add(age)
		}
		return wanted, s.began
	default:
		for shown >= second {
			second = shown + 1
			shown = s.end(second)
		}
		wanted = time.Unix(second, 0)
	}
	s.show(second)
	s.last, s.began = second, now
	return wanted, now
}

// end returns the end of the span in which a second is; if it is in none, a second before it.
func (s *seconds) end(second int64) int64 {
	if i := slices.IndexFunc(s.spans, func(p span) bool { return p.first <= second && second <= p.last }); i >= 0 {
		return s.spans[i].last
	}
	return second - 1
}

func (s *seconds) show(second int64) {
	for i := range s.spans {
		if p := &s.spans[i]; p.first-spanGap <= second && second <= p.last+spanGap {
			p.first, p.last = min(p.first, second), max(p.last, second)
			return
		}
	}
	s.spans = append(s.spans, span{second, second})
}
