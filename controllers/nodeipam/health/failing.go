package health

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/multicidr/controller-manager/controllers/nodeipam/api"
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

// failsFor is how long an object's writes must fail before that counts as a problem. Transient failures usually end earlier.
const failsFor = 2 * time.Second

// failure is an object whose writes fail, for whatever reason.
type failure struct {
	Problem
	since time.Time
	told  bool // it was reported
}

// lasting reports whether the failure counts as a problem.
func (f *failure) lasting(now time.Time) bool { return now.Sub(f.since) >= failsFor }

// failures are the failing writes of one kind.
type failures struct {
	by     map[string]*failure // by the object's name
	logged sets.Set[string]    // what was news about them, by Problem.What
}

// Wrote notes the outcome of the last sync of an object. news reports a new sort of failure for this kind, or the end of the last failure that
// was news. tell is what to report about this object; empty if its failure was reported. An object that waits for others (writes.Pending) does
// not fail.
func (h *Health) Wrote(kind Kind, name string, err error) (news bool, tell string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.writes[kind]
	pending := errors.As(err, new(writes.Pending))
	if err == nil || pending {
		delete(of.by, name)
		if len(of.by) > 0 {
			return false, ""
		}
		news = len(of.logged) > 0 && !pending
		clear(of.logged)
		return news, ""
	}
	p := WriteProblem(err)
	if p.What == "" {
		return false, "" // Nothing was tried, so an earlier failure may persist.
	}
	now := time.Now()
	f := of.by[name]
	if f == nil {
		f = &failure{since: now}
		if errors.Is(err, api.ErrNotKept) { // Each try is confirmed and ends the failure, so it would never last.
			f.since = now.Add(-failsFor)
		}
		of.by[name] = f
	}
	f.Problem = p
	if !f.lasting(now) {
		return false, ""
	}
	news = !of.logged.Has(p.What)
	of.logged.Insert(p.What)
	if !f.told {
		f.told, tell = true, p.String()
	}
	return news, tell
}

// Failing is the number of objects of a kind whose writes fail.
func (h *Health) Failing(kind Kind) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for _, f := range h.writes[kind].by {
		if f.lasting(now) {
			n++
		}
	}
	return n
}

// unwritten says which writes fail, grouped by cause.
func (h *Health) unwritten() (problems []string) {
	now := time.Now()
	for _, kind := range Kinds {
		by, causes := h.writes[kind].by, map[string][]string{} // names of objects, by Problem.What
		for _, name := range slices.Sorted(maps.Keys(by)) {
			if by[name].lasting(now) {
				causes[by[name].What] = append(causes[by[name].What], name)
			}
		}
		var of []string
		for _, names := range causes {
			which := fmt.Sprintf("%s %s", kind, names[0])
			if more := len(names) - 1; more > 0 {
				which += fmt.Sprintf(" and %d more", more)
			}
			oldest := slices.MinFunc(names, func(a, b string) int { return by[a].since.Compare(by[b].since) })
			of = append(of, fmt.Sprintf("%s cannot be written: %v, since %s", which, by[names[0]].Problem, by[oldest].since.UTC().Format(time.RFC3339)))
		}
		problems = append(problems, slices.Sorted(slices.Values(of))...)
	}
	return problems
}
