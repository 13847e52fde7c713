package health

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/multicidr/controller-manager/controllers/writes"
)

// Kind is a kind of write, as shown to people and in the metric.
type Kind string

const (
	WritesNode        Kind = "Node"
	WritesClusterCIDR Kind = "ClusterCIDR"
	WritesStatus      Kind = "status of ClusterCIDR"
)

var Kinds = []Kind{WritesNode, WritesClusterCIDR, WritesStatus}

// FailsFor is how long an object's writes must fail before that counts as a problem. Transient failures usually end earlier.
const FailsFor = 2 * time.Second

// failure is an object whose writes fail, for whatever reason.
type failure struct {
	Problem
	since time.Time
	// lasts is whether retrying does not help until somebody changes something.
	lasts bool
	// told is what was reported about it, once per series of failures; empty if nothing was.
	told string
	// paused is whether nothing is tried now, because the object waits for others. That ends no series of failures, and is no problem.
	paused bool
	// written is the count in Health.written when the failure began.
	written int
}

// lasting reports whether the failure counts as a problem.
func (f *failure) lasting(now time.Time) bool {
	return !f.paused && (f.lasts || now.Sub(f.since) >= FailsFor)
}

// Wrote notes the outcome of the last sync of an object. news reports a new sort of failure for this kind, or the end of the last one; tell
// reports that this object's failure has not been reported yet.
func (h *Health) Wrote(kind Kind, name string, err error) (news, tell bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		before := h.anyTold(kind, "")
		delete(h.failures[kind], name)
		return before && !h.anyTold(kind, ""), false
	}
	if f := h.failures[kind][name]; f != nil {
		f.paused = errors.As(err, new(writes.Pending))
	}
	p, lasts := WriteProblem(err)
	if p.What == "" {
		return false, false // Nothing was tried, so an earlier failure may persist.
	}
	now := h.clock()
	f := h.failureOf(kind, name, now)
	other := f.What != p.What
	f.lasts = f.lasts || lasts
	f.Problem = Problem{} // so that anyTold does not count it
	news = !h.anyTold(kind, p.What)
	f.Problem = p
	if !f.lasting(now) || f.told != "" && (!other || !lasts) {
		return false, false
	}
	tell, f.told = f.told == "", p.String()
	return news, tell
}

// anyTold reports whether a failure of this kind was reported with this problem; an empty what means any problem.
func (h *Health) anyTold(kind Kind, what string) bool {
	for _, f := range h.failures[kind] {
		if f.told != "" && (what == "" || f.What == what) {
			return true
		}
	}
	return false
}

// failureOf returns the failure of an object, and starts one if there is none.
func (h *Health) failureOf(kind Kind, name string, now time.Time) *failure {
	if h.failures == nil {
		h.failures = map[Kind]map[string]*failure{}
	}
	if h.failures[kind] == nil {
		h.failures[kind] = map[string]*failure{}
	}
	f := h.failures[kind][name]
	if f == nil {
		f = &failure{since: now, written: h.written[kind]}
		h.failures[kind][name] = f
	}
	return f
}

// Stored notes that a write succeeded.
func (h *Health) Stored(kind Kind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.written == nil {
		h.written = map[Kind]int{}
	}
	h.written[kind]++
}

// Told is what to report about the failing writes of an object; empty if they no longer fail.
func (h *Health) Told(kind Kind, name string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f := h.failures[kind][name]; f != nil {
		return f.told
	}
	return ""
}

// Failing is the number of objects of a kind whose writes fail.
func (h *Health) Failing(kind Kind) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock()
	for _, f := range h.failures[kind] {
		if f.lasting(now) {
			n++
		}
	}
	return n
}

// unwritten says which writes fail, grouped by cause.
func (h *Health) unwritten() (problems []string) {
	now := h.clock()
	for _, kind := range Kinds {
		causes := map[string][]string{} // names of objects, by Problem.What
		for _, name := range slices.Sorted(maps.Keys(h.failures[kind])) {
			if f := h.failures[kind][name]; f.lasting(now) {
				causes[f.What] = append(causes[f.What], name)
			}
		}
		var of []string
		for _, names := range causes {
			of = append(of, h.cannotBeWritten(kind, names))
		}
		slices.Sort(of)
		problems = append(problems, of...)
	}
	return problems
}

// cannotBeWritten is about objects that fail for one cause.
func (h *Health) cannotBeWritten(kind Kind, names []string) string {
	first := h.failures[kind][names[0]]
	oldest := first
	for _, name := range names {
		if f := h.failures[kind][name]; f.since.Before(oldest.since) {
			oldest = f
		}
	}
	which := string(kind) + " " + names[0]
	if more := len(names) - 1; more > 0 {
		which += fmt.Sprintf(" and %d more", more)
	}
	others := "and no other was written"
	if n := h.written[kind] - oldest.written; n > 0 {
		others = fmt.Sprintf("while %d others were written", n)
	}
	return fmt.Sprintf("%s cannot be written: %v, since %s, %s", which, first.Problem, oldest.since.UTC().Format(time.RFC3339), others)
}
