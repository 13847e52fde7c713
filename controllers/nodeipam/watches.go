package nodeipam

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// unwatchedFor is after what time without another error a watch counts as running again. A reflector that is refused tries again after a minute at
// most, and one that has nothing to tell hears a bookmark about once a minute.
const unwatchedFor = 2 * time.Minute

// unwatched is a kind of object whose changes the API server does not let this process see.
type unwatched struct {
	err error
	at  time.Time
	// version is how new the informer was then: it is newer once it hears anything again.
	version string
}

// noteWatch makes the health check tell of a watch that the API server refuses. An informer tells of errors, but not of their end. If it runs
// already, then this is not possible, and it tells nobody: after a panic the controller before has seen to it, in the health that it had.
func (c *Controller) noteWatch(kind string, informer cache.SharedIndexInformer) {
	c.health.versions[kind] = informer.LastSyncResourceVersion
	err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		cache.DefaultWatchErrorHandler(ctx, r, err)
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) {
			c.health.noWatch(kind, err)
		}
	})
	if err != nil {
		klog.Background().V(4).Info("Cannot tell when a watch is refused", "kind", kind, "err", err)
	}
}

// noWatch notes that the API server has refused to tell of changes of a kind.
func (h *health) noWatch(kind string, err error) {
	version := h.versions[kind]()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unwatched[kind] = unwatched{err: err, at: h.clock(), version: version}
}

// unseen says which changes are not seen. The caller holds mu.
func (h *health) unseen() (problems []string) {
	for _, kind := range slices.Sorted(maps.Keys(h.unwatched)) {
		u := h.unwatched[kind]
		if h.versions[kind]() != u.version || h.clock().Sub(u.at) > unwatchedFor {
			delete(h.unwatched, kind)
			continue
		}
		problems = append(problems, fmt.Sprintf("changes of %s are not seen: the API server does not let this process watch them: %s (%v)", kind, ApplyRBAC, u.err))
	}
	return problems
}
