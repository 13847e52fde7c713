// Package health reports what prevents the controller from working, and what to do about it. It only advises: nothing restarts because of
// it.
package health

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/multicidr/controller-manager/controllers/text"
)

// Health collects what prevents the controller from working. The health check, the log and the debug page show it. Health sends no
// requests: it learns from those of the controller. Safe for concurrent use.
type Health struct {
	watches *Watches

	mu sync.Mutex
	// waitsFor is what the start waits for before allocation begins; the zero value once it has begun.
	waitsFor Problem
	writes   map[Kind]*failures
}

// New returns one that knows of no problem but those of these watches.
func New(watches *Watches) *Health {
	h := &Health{watches: watches, writes: map[Kind]*failures{}}
	for _, kind := range Kinds {
		h.writes[kind] = &failures{by: map[string]*failure{}, logged: sets.Set[string]{}}
	}
	return h
}

// Problem is what is wrong and what to do about it. Two problems with equal What are the same problem, even if Err differs: an error can
// contain a port or a time, and so differ at every attempt.
type Problem struct {
	What string
	Err  error // the API server's answer; nil if there is none
}

func (p Problem) String() string {
	if p.Err == nil {
		return p.What
	}
	return text.Cut(fmt.Sprintf("%s (%v)", p.What, p.Err), text.MaxProblem)
}

// WaitFor sets what the start waits for; the zero value means that allocation has begun. It reports whether that is new.
func (h *Health) WaitFor(p Problem) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed = h.waitsFor.What != p.What
	h.waitsFor = p
	return changed
}

// Check returns an error that says what to do, as long as the controller cannot do all of its work.
func (h *Health) Check(*http.Request) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var problems []string
	if h.waitsFor.What != "" {
		problems = append(problems, fmt.Sprintf("not serving Nodes yet; waiting for %v", h.waitsFor))
	}
	problems = append(problems, h.watches.unseen()...)
	problems = append(problems, h.unwritten()...)
	if len(problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(problems, "; "))
}
