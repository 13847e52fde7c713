package runner

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Pointer is a pointer to a struct of the API.
type Pointer[T any] interface {
	*T
	metav1.Object
	runtime.Object
}

// Lister reads the objects of a kind as the watch has shown them last. Nothing that it returns may be modified.
type Lister[T metav1.Object] struct{ indexer cache.Indexer }

// Get returns an object. The namespace is empty for a cluster-scoped kind.
func (l Lister[T]) Get(namespace, name string) (object T, ok bool) {
	found, ok, _ := l.indexer.GetByKey(cache.NewObjectName(namespace, name).String()) // It never fails.
	if ok {
		object = found.(T)
	}
	return object, ok
}

// List returns all objects, in no order.
func (l Lister[T]) List() []T { return typed[T](l.indexer.List()) }

func typed[T any](found []any) []T {
	all := make([]T, len(found))
	for i, object := range found {
		all[i] = object.(T)
	}
	return all
}

// Index lets By find objects by values of theirs. It is called by New of Config, once for each name.
func (l Lister[T]) Index(name string, values func(T) []string) {
	_ = l.indexer.AddIndexers(cache.Indexers{name: func(object any) ([]string, error) { return values(object.(T)), nil }}) // It fails only for a second one of the name.
}

// By returns the objects with a value, in no order.
func (l Lister[T]) By(index, value string) []T {
	found, _ := l.indexer.ByIndex(index, value) // It fails only without the index.
	return typed[T](found)
}

// Values returns the values of all objects.
func (l Lister[T]) Values(index string) []string { return l.indexer.ListIndexFuncValues(index) }

// Feed is how one kind is read.
type Feed struct {
	// Indexer has the objects as the watch has shown them last.
	Indexer cache.Indexer
	// Handler is told of every change, after the Indexer shows it.
	Handler cache.ResourceEventHandler

	informer cache.SharedIndexInformer // nil if the kind is absent, and in a test
}

// Read has a term read a kind, which must be one of Config.Reads, once. changed is called for every change, after the Lister shows it, in the order of
// the changes of this kind, concurrently with those of other kinds: before is nil for a new object, now for one that is gone. It is called
// for everything that exists before the first Reconcile. An object that was replaced by another of its name is first gone, then new.
// If nobody saw the end of an object, because the watch missed it, before has a deletionTimestamp in any case.
// For an Optional kind that is not served, the Lister stays empty.
func Read[T any, P Pointer[T]](t *Term, kind *Kind, changed func(before, now P)) Lister[P] {
	gone := func(before P) {
		t.waiting.Delete(before.GetUID())
		changed(before, nil)
	}
	f := &Feed{Indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), Handler: cache.ResourceEventHandlerFuncs{
		AddFunc: func(now any) { changed(nil, now.(P)) },
		UpdateFunc: func(before, now any) {
			switch b, n := before.(P), now.(P); {
			case b.GetResourceVersion() == n.GetResourceVersion(): // A list shows everything again.
			case b.GetUID() != n.GetUID():
				gone(unseen(b))
				changed(nil, n)
			default:
				changed(b, n)
			}
		},
		DeleteFunc: func(before any) {
			if missed, ok := before.(cache.DeletedFinalStateUnknown); ok {
				gone(unseen(missed.Obj.(P)))
			} else {
				gone(before.(P))
			}
		},
	}}
	if t.informer != nil {
		if _, served := t.Served(kind); served {
			f.informer = t.informer(kind, into[T, P])
			f.Indexer = f.informer.GetIndexer()
		}
	}
	if t.Feeds == nil {
		t.Feeds = map[*Kind]*Feed{}
	}
	t.Feeds[kind] = f
	return Lister[P]{f.Indexer}
}

// unseen returns the last known state of an object whose end nobody saw. It may have been marked as deleted since.
func unseen[P interface {
	metav1.Object
	runtime.Object
}](object P) P {
	if object.GetDeletionTimestamp() != nil {
		return object
	}
	now := metav1.Now()
	object = object.DeepCopyObject().(P)
	object.SetDeletionTimestamp(&now)
	return object
}

// into converts an object of an informer. All API versions of a kind have the fields that are read. One object that cannot be converted does not stop the
// others: only its metadata remains.
func into[T any, P interface {
	*T
	metav1.Object
}](from any) (any, error) {
	raw, ok := from.(*unstructured.Unstructured)
	if !ok {
		return from, nil // It has been converted.
	}
	object := P(new(T))
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, object); err != nil {
		klog.ErrorS(err, "An object cannot be read, so nothing is decided from it", "kind", raw.GetKind(), "object", klog.KObj(raw))
		object = P(new(T)) // Some fields may be set.
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"metadata": raw.Object["metadata"]}, object)
	}
	object.SetManagedFields(nil)
	return object, nil
}

// informer returns an informer of the objects that options select. Its first list is a consistent read, whereas that of client-go may come from a
// watch cache that lags. Then writes of an earlier leader could be missing.
func (c *Controller) informer(kind *Kind, version, namespace, fieldSelector string, transform cache.TransformFunc) cache.SharedIndexInformer {
	client, key := c.dynamic.Resource(kind.resource(version)).Namespace(namespace), Key{Kind: kind}
	informer := cache.NewSharedIndexInformerWithOptions(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			if opts.FieldSelector = fieldSelector; opts.ResourceVersion == "0" {
				opts.ResourceVersion = ""
			}
			list, err := client.List(ctx, opts)
			c.did(ctx, key, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.FieldSelector = fieldSelector
			w, err := client.Watch(ctx, opts)
			if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) { // The informer then lists.
				c.did(ctx, key, err)
			}
			return w, err
		},
	}, &unstructured.Unstructured{}, cache.SharedIndexInformerOptions{Indexers: cache.Indexers{}, ObjectDescription: kind.plural()})
	// These fail only for an informer that runs. The health check names errors.
	_ = informer.SetTransform(transform)
	_ = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		klog.FromContext(ctx).V(4).Info("Will read again", "what", kind.plural(), "err", err)
	})
	return informer
}
