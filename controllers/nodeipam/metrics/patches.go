package metrics

import (
	"context"
	"errors"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/multicidr/controller-manager/controllers/writes"
)

// PatchResults are the values of the label result.
var PatchResults = []string{"success", "gone", "forbidden", "invalid", "throttled", "timeout", "error"}

func patchResult(err error) string {
	switch {
	case err == nil:
		return "success"
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return "gone"
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return "forbidden"
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return "invalid"
	case apierrors.IsTooManyRequests(err):
		return "throttled"
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), utilnet.IsTimeout(err), errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	default:
		return "error"
	}
}

// Patching must be called before a PATCH of podCIDRs, and patched with the answer. It counts the PATCH and records how long the Node had no
// podCIDRs. The start of that time must be read first, because the watch may show the podCIDRs before the answer arrives.
func (s *FirstSeen) Patching(node *v1.Node, now func() time.Time) (patched func(error)) {
	since, waits := s.since(node)
	return func(err error) {
		if writes.NotItsTurn(err) {
			return // no request was sent
		}
		nodePatches.WithLabelValues(patchResult(err)).Inc()
		if err == nil && waits {
			s.over(node)
			assignmentDuration.Observe(now().Sub(since).Seconds())
		}
	}
}

// FirstSeen is when Nodes without podCIDRs were first seen. The zero value is empty. Safe for concurrent use.
type FirstSeen struct {
	mu sync.Mutex
	of map[string]seen // by Node name
}

type seen struct {
	uid  types.UID
	at   time.Time
	over bool // The podCIDRs were written. An older state of the Node in the cache must not start another wait.
}

// See notes the Node of an event.
func (s *FirstSeen) See(node *v1.Node, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch known, ok := s.of[node.Name]; {
	case len(node.Spec.PodCIDRs) > 0:
		delete(s.of, node.Name)
	case !ok || known.uid != node.UID:
		if s.of == nil {
			s.of = map[string]seen{}
		}
		s.of[node.Name] = seen{uid: node.UID, at: now}
	}
}

// since returns when the Node was first seen without podCIDRs; ok is false if it was not, or if its podCIDRs were
// written since.
func (s *FirstSeen) since(node *v1.Node) (at time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.of[node.Name]
	return seen.at, seen.uid == node.UID && !seen.over
}

// over notes that the Node's podCIDRs were written.
func (s *FirstSeen) over(node *v1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seen, ok := s.of[node.Name]; ok && seen.uid == node.UID {
		seen.over = true
		s.of[node.Name] = seen
	}
}

// Gone forgets the Node of this name, which no longer exists.
func (s *FirstSeen) Gone(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, name)
}

// Waiting reports whether a Node of this name was seen without podCIDRs, and not with them since.
func (s *FirstSeen) Waiting(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.of[name]
	return ok
}
