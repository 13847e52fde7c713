package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// unseenFor is how long reads must fail before that counts as a problem: an API server that restarts is away for less.
	unseenFor = 10 * time.Second
	// counts is how long an error counts if no other one follows. An informer whose reads fail tries again after a minute at most.
	counts = 70 * time.Second
)

// Watches knows which kinds of objects cannot be read, for the health check. An informer tells of an error and not of its end, so an error
// counts until the informer shows something newer, or for a while. An informer does not tell of an API server that refuses connections, or
// turns a watch away because it is busy. Create one for all informers of a process. The zero value is ready. Safe for concurrent use.
type Watches struct {
	mu    sync.Mutex
	kinds []*kind
}

type kind struct {
	name     string // plural, such as Nodes
	informer cache.SharedIndexInformer
	// The first and last error of a series, and what the informer showed at the last; zero if there was none.
	first, last time.Time
	err         error
	version     string
	logged      bool // once per series
}

// Follow notes the errors of an informer from now on. It returns an error if the informer has been started. kind is plural, such as Nodes.
func (w *Watches) Follow(name string, informer cache.SharedIndexInformer) error {
	k := &kind{name: name, informer: informer}
	err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		cache.DefaultWatchErrorHandler(ctx, r, err)
		w.note(ctx, k, err)
	})
	if err != nil {
		return fmt.Errorf("follow the watch of %s: %w", name, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kinds = append(w.kinds, k)
	return nil
}

func (w *Watches) note(ctx context.Context, k *kind, err error) {
	if ctx.Err() != nil || errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // The process ends, or a watch ended as watches do.
	}
	if k.name == "ServiceCIDRs" && apierrors.IsNotFound(err) && k.informer.LastSyncResourceVersion() == "" {
		return // An API server of before v1.33 has never had any. The start goes on without them, and says so.
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if now.Sub(k.last) >= counts {
		k.first, k.logged = now, false
	}
	k.last, k.err, k.version = now, err, k.informer.LastSyncResourceVersion()
	if k.unseen(now) && !k.logged {
		k.logged = true
		klog.FromContext(ctx).Error(err, "Changes of "+k.name+" are not seen: "+ReadProblem(k.name, err).What)
	}
}

// unseen reports whether reads fail, have failed for a while, and nothing newer has come since the last error. What a list brings between
// two refused watches does not end the series.
func (k *kind) unseen(now time.Time) bool {
	return now.Sub(k.last) < counts && k.last.Sub(k.first) >= unseenFor && k.informer.LastSyncResourceVersion() == k.version
}

// unseen says which kinds of changes are not seen.
func (w *Watches) unseen() (problems []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, k := range w.kinds {
		if k.unseen(now) {
			problems = append(problems, fmt.Sprintf("changes of %s are not seen: %v, since %s", k.name, ReadProblem(k.name, k.err), k.first.UTC().Format(time.RFC3339)))
		}
	}
	return problems
}
