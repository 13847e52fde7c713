package health

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// unwatchedFor is after what time without another error a watch counts as running again. A reflector that is refused tries again after a minute at
// most, and one that has nothing to tell hears a bookmark about once a minute.
const unwatchedFor = 2 * time.Minute

// Watches knows which kinds of objects the API server does not let this process watch, so that the health check can tell. Only an informer that
// does not run yet can be told whom to tell of errors, so there is one Watches for a factory of informers, made with it, and not one for each
// Controller. The zero value knows of none.
type Watches struct {
	mu      sync.Mutex
	refused map[string]refusedWatch // by kind
}

// refusedWatch is of a kind of object whose changes the API server does not let this process see.
type refusedWatch struct {
	err error
	at  time.Time
	// version is how new the informer was then, and now says how new it is: newer, once it hears anything again.
	version string
	now     func() string
}

// Of makes errors of an informer known. It has to be called before the informer starts; otherwise nobody hears of them.
func (w *Watches) Of(kind string, informer cache.SharedIndexInformer) {
	// An informer tells of errors, but not of their end.
	err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		cache.DefaultWatchErrorHandler(ctx, r, err)
		if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) && !apierrors.IsNotFound(err) {
			return
		}
		version := informer.LastSyncResourceVersion()
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.refused == nil {
			w.refused = map[string]refusedWatch{}
		}
		w.refused[kind] = refusedWatch{err: err, at: time.Now(), version: version, now: informer.LastSyncResourceVersion}
	})
	if err != nil {
		klog.Background().Error(err, "The health check cannot tell when the API server refuses a watch", "kind", kind)
	}
}

// unseen says which changes are not seen.
func (w *Watches) unseen() (problems []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, kind := range slices.Sorted(maps.Keys(w.refused)) {
		r := w.refused[kind]
		if r.now() != r.version || time.Since(r.at) > unwatchedFor {
			delete(w.refused, kind)
			continue
		}
		problems = append(problems, fmt.Sprintf("changes of %s are not seen: the API server does not let this process watch them: %s (%v)", kind, ApplyRBAC, r.err))
	}
	return problems
}
