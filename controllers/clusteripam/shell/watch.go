package shell

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// listWatch is what a reflector needs to read a kind. Its first list is a consistent read, whereas that of client-go may come from a watch
// cache that lags. Then the writes of an earlier leader could be missing. note gets the result of every request.
func listWatch[L runtime.Object](client interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}, name string, note func(error)) cache.ListerWatcher {
	only := func(opts *metav1.ListOptions) {
		if name != "" {
			opts.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			if only(&opts); opts.ResourceVersion == "0" {
				opts.ResourceVersion = ""
			}
			list, err := client.List(ctx, opts)
			if ctx.Err() == nil {
				note(err)
			}
			if err != nil {
				return nil, err
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			only(&opts)
			w, err := client.Watch(ctx, opts)
			if ctx.Err() == nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) { // The reflector then lists.
				note(err)
			}
			return w, err
		},
	}
}

// sink is where a reflector puts what it reads. It calls shows and gone in the order of the events, from one goroutine.
type sink struct {
	shows, gone func(metav1.Object)
	// known returns the objects that were shown and are not gone.
	known func() []metav1.Object
	// goneSince handles an object that a list no longer has.
	goneSince func(object metav1.Object)
	// listed is told the resource version of a list that was passed on; nil if nobody needs it.
	listed func(version string)
	synced chan struct{} // closed after the first list
	once   sync.Once
}

func (s *sink) Add(object any) error    { return s.pass(object, s.shows) }
func (s *sink) Update(object any) error { return s.pass(object, s.shows) }
func (s *sink) Delete(object any) error { return s.pass(object, s.gone) }
func (s *sink) Resync() error           { return nil }

func (s *sink) pass(object any, to func(metav1.Object)) error {
	o, ok := object.(metav1.Object)
	if !ok {
		return fmt.Errorf("the API server sent a %T", object)
	}
	to(o)
	return nil
}

// Replace handles a list: the first one, or one after a watch that missed events.
func (s *sink) Replace(list []any, version string) error {
	exists := map[types.UID]bool{}
	for _, object := range list {
		if o, ok := object.(metav1.Object); ok {
			exists[o.GetUID()] = true
		}
	}
	s.forget(exists, version)
	for _, object := range list {
		if err := s.pass(object, s.shows); err != nil {
			return err
		}
	}
	if s.listed != nil {
		s.listed(version)
	}
	s.forget(exists, version) // The answer to a write of what is gone may have arrived meanwhile. Nothing else would end that object.
	s.once.Do(func() { close(s.synced) })
	return nil
}

// forget handles what is not in a list.
func (s *sink) forget(exists map[types.UID]bool, version string) {
	for _, object := range s.known() {
		if !exists[object.GetUID()] && !newer(object, version) { // A newer one was written by this process since.
			s.goneSince(object)
		}
	}
}

// reflect keeps a sink up to date until ctx is done.
func reflect(ctx context.Context, name string, lw cache.ListerWatcher, s *sink) {
	cache.NewReflectorWithOptions(lw, nil, s, cache.ReflectorOptions{Name: name, TypeDescription: name}).RunWithContext(ctx)
}
