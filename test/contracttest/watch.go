package contracttest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
)

// Show has a term see an object as it is now, as its watch does, if the Logic reads the kind. One that has no resource version gets one.
func Show(t *runner.Term, kind *runner.Kind, object metav1.Object) {
	f, ok := t.Feeds[kind]
	if !ok {
		return
	}
	object = object.(runtime.Object).DeepCopyObject().(metav1.Object)
	before, existed, _ := f.Indexer.Get(object) // Neither this nor Update fails for an object with metadata.
	if object.GetResourceVersion() == "" {
		shown.Add(1)
		object.SetResourceVersion(fmt.Sprint("shown-", shown.Load()))
	}
	_ = f.Indexer.Update(object)
	if existed {
		f.Handler.OnUpdate(before, object)
	} else {
		f.Handler.OnAdd(object, false)
	}
}

// shown counts the objects that had no resource version.
var shown atomic.Int64

// Gone has a term see the end of an object, in its last state, as its watch does, if the Logic reads the kind.
func Gone(t *runner.Term, kind *runner.Kind, object metav1.Object) {
	if f, ok := t.Feeds[kind]; ok {
		_ = f.Indexer.Delete(object)
		f.Handler.OnDelete(object)
	}
}

// change is an object as it is stored, or its last state.
type change struct {
	object *unstructured.Unstructured
	gone   bool
}

// watcher is the watch of one process.
type watcher struct {
	feeds map[*runner.Kind]*feed
	show  func(*runner.Kind, change)
}

func (w *watcher) send(kind *runner.Kind, c change) {
	if f, ok := w.feeds[kind]; ok {
		f.add(c)
	}
}

// connect shows everything that exists, and then sends every change.
func (s *Server) connect(kinds []*runner.Kind, show func(*runner.Kind, change)) *watcher {
	w := &watcher{feeds: map[*runner.Kind]*feed{}, show: show}
	s.mu.Lock()
	var all []runner.Key
	objects := map[runner.Key]*unstructured.Unstructured{}
	for _, kind := range kinds {
		w.feeds[kind] = &feed{more: make(chan struct{}, 1)}
	}
	for key, o := range s.objects {
		if w.feeds[key.Kind] != nil {
			all = append(all, key)
			objects[key] = o.DeepCopy()
		}
	}
	s.watchers[w] = true
	s.mu.Unlock()
	for _, key := range all {
		show(key.Kind, change{object: objects[key]})
	}
	return w
}

func (s *Server) disconnect(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers, w)
}

// feed has the changes of one kind that are not shown yet.
type feed struct {
	mu   sync.Mutex
	all  []change
	more chan struct{}
}

func (f *feed) add(c change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, c)
	select {
	case f.more <- struct{}{}:
	default:
	}
}

func (f *feed) next(ctx context.Context) (c change, ok bool) {
	for {
		f.mu.Lock()
		if len(f.all) > 0 {
			c, f.all = f.all[0], f.all[1:]
			f.mu.Unlock()
			return c, true
		}
		f.mu.Unlock()
		select {
		case <-ctx.Done():
			return change{}, false
		case <-f.more:
		}
	}
}

func notFound(kind *runner.Kind, name string) error {
	return apierrors.NewNotFound(resource(kind), name)
}
