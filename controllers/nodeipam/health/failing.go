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

// Wrote notes the outcome of the last sync of an object. news reports a new sort of failure for this kind, or the end of the last failure that
// was news. tell is what to report about this object; empty if its failure was reported. An object that waits for others (writes.Pending) does
// not fail.
func (h *Health) Wrote(kind Kind, name string, err error) (news bool, tell string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	pending := errors.As(err, new(writes.Pending))
	if err == nil || pending {
		delete(h.failing[kind], name)
		if len(h.failing[kind]) > 0 {
			return false, ""
		}
		news = len(h.logged[kind]) > 0 && !pending
		delete(h.logged, kind)
		return news, ""
	}
	p := WriteProblem(err)
	if p.What == "" {
		return false, "" // Nothing was tried, so an earlier failure may persist.
	}
	f := h.failureOf(kind, name, err)
	f.Problem = p
	if !f.lasting(h.clock()) {
		return false, ""
	}
	news = !h.logged[kind].Has(p.What)
	h.logged[kind].Insert(p.What)
	if !f.told {
		f.told, tell = true, p.String()
	}
	return news, tell
}

// failureOf returns the failure of an object, and starts one if there is none.
func (h *Health) failureOf(kind Kind, name string, err error) *failure {
	if h.failing == nil {
		h.failing, h.logged = map[Kind]map[string]*failure{}, map[Kind]sets.Set[string]{}
	}
	if h.failing[kind] == nil {
		h.failing[kind] = map[string]*failure{}
	}
	if h.logged[kind] == nil {
		h.logged[kind] = sets.New[string]()
	}
	f := h.failing[kind][name]
	if f == nil {
		f = &failure{since: h.clock()}
		if errors.Is(err, api.ErrNotKept) { // Each try is confirmed and ends the failure, so it would never last.
			f.since = f.since.Add(-failsFor)
		}
		h.failing[kind][name] = f
	}
	return f
}

// Failing is the number of objects of a kind whose writes fail.
func (h *Health) Failing(kind Kind) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock()
	for _, f := range h.failing[kind] {
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
		for _, name := range slices.Sorted(maps.Keys(h.failing[kind])) {
			if f := h.failing[kind][name]; f.lasting(now) {
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
	first := h.failing[kind][names[0]]
	since := first.since
	for _, name := range names {
		if f := h.failing[kind][name]; f.since.Before(since) {
			since = f.since
		}
	}
	which := string(kind) + " " + names[0]
	if more := len(names) - 1; more > 0 {
		which += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s cannot be written: %v, since %s", which, first.Problem, since.UTC().Format(time.RFC3339))
}
