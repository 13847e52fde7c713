package shell

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Source is a Store of any type.
type Source interface {
	// Reads returns what the Store holds.
	Reads() Reads
	// blank returns an empty object.
	blank() metav1.Object
	// find returns an object; nil if there is none.
	find(namespace, name string) metav1.Object
	// known returns the objects that were shown and not dropped.
	known() []metav1.Object
	// decode converts an object. If err is not nil, the object has only the fields that could be converted.
	decode(from *unstructured.Unstructured) (object metav1.Object, err error)
	// show and drop change the Store, as the watch does. was is what the watch showed of this object last, or else of what had its name; nil if there is none.
	// own is what the Store showed of it since, because this process had written it, and what the watch has missed; nil if there is none.
	show(object metav1.Object) (was, own metav1.Object)
	drop(object metav1.Object) (was, own metav1.Object)
	// listed records that the Store shows everything as of a resource version.
	listed(version string)
	// wrote shows the result of a write before the watch does.
	wrote(object metav1.Object)
}

// Reads says which objects a Store holds.
type Reads struct {
	Kind *Kind
	// Optional: the controller works without the kind.
	Optional bool
	// Namespace restricts the objects to one namespace, and Name to one object; empty means all.
	Namespace, Name string
}

// has reports whether an object is one of those.
func (r Reads) has(object metav1.Object) bool {
	return (r.Namespace == "" || r.Namespace == object.GetNamespace()) && (r.Name == "" || r.Name == object.GetName())
}

// Store holds all objects of a kind. Safe for concurrent use. Nothing that it returns may be modified.
type Store[T metav1.Object] struct {
	reads  Reads
	create func() T

	mu      sync.RWMutex
	objects map[types.NamespacedName]T
	// behind is what the watch has shown last of objects that this process has written or replaced since; nil if it has not shown one.
	behind  map[types.UID]metav1.Object
	broken  map[types.UID]broken // objects that could not be converted completely
	version string               // the highest resource version that the watch has shown
}

// broken is what could be converted of an object, and why that is not all.
type broken struct {
	object metav1.Object
	why    error
}

// Pointer is a pointer to a struct of the API.
type Pointer[T any] interface {
	*T
	metav1.Object
}

// NewStore returns an empty Store, for example NewStore[v1beta1.ClusterIPAM](Reads{Kind: ClusterIPAMs}).
func NewStore[T any, P Pointer[T]](reads Reads) *Store[P] {
	return &Store[P]{
		reads:   reads,
		create:  func() P { return new(T) },
		objects: map[types.NamespacedName]P{},
		behind:  map[types.UID]metav1.Object{},
		broken:  map[types.UID]broken{},
	}
}

// Reads implements Source.
func (s *Store[T]) Reads() Reads { return s.reads }

// Get returns an object. The namespace is empty for a cluster-scoped kind.
func (s *Store[T]) Get(namespace, name string) (object T, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	object, ok = s.objects[types.NamespacedName{Namespace: namespace, Name: name}]
	return object, ok
}

// List returns all objects, sorted by namespace and name.
func (s *Store[T]) List() []T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]T, 0, len(s.objects))
	for _, o := range s.objects {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b T) int {
		return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
	})
	return all
}

// Broken returns why an object could not be converted completely; nil if it was. Such an object has only some of its fields: what it holds
// stays taken, and nothing new is decided from it.
func (s *Store[T]) Broken(object T) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.broken[object.GetUID()].why
}

func (s *Store[T]) blank() metav1.Object { return s.create() }

func (s *Store[T]) find(namespace, name string) metav1.Object {
	if object, ok := s.Get(namespace, name); ok {
		return object
	}
	return nil
}

func (s *Store[T]) known() (all []metav1.Object) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, object := range s.objects {
		all = append(all, object)
	}
	for uid, object := range s.behind {
		if object == nil {
			continue
		}
		if current, ok := s.objects[nameOf(object)]; !ok || current.GetUID() != uid { // replaced
			all = append(all, object)
		}
	}
	return all
}

func (s *Store[T]) decode(from *unstructured.Unstructured) (metav1.Object, error) {
	object := s.create()
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(from.Object, object)
	if err != nil {
		// This decoder goes on after a field that it cannot convert. A field of the metadata is always right: the API server decodes it.
		object = s.create()
		if text, failed := json.Marshal(from.Object); failed == nil {
			_ = json.Unmarshal(text, object)
		}
	}
	object.SetManagedFields(nil)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.broken[object.GetUID()] = broken{object, err}
	}
	return object, err
}

func nameOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

func (s *Store[T]) show(object metav1.Object) (was, own metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen(object)
	name, uid := nameOf(object), object.GetUID()
	if s.broken[uid].object != object { // Not before: the Store has shown the broken one until now.
		delete(s.broken, uid)
	}
	before, ok := s.objects[name]
	if ok && s.isOwn(before) && newer(before, object.GetResourceVersion()) {
		was, s.behind[uid] = s.behind[uid], object
		return was, nil
	}
	if ok {
		if was, own = s.shown(before); before.GetUID() == uid && before.GetResourceVersion() == object.GetResourceVersion() {
			own = nil // The watch has not missed it.
		}
	}
	s.objects[name] = object.(T)
	return was, own
}

// isOwn reports whether the Store shows what this process has written, and the watch does not yet.
func (s *Store[T]) isOwn(object T) bool {
	_, behind := s.behind[object.GetUID()]
	return behind
}

// shown takes what the watch has shown last of an object in the Store; nil if it has not shown it. own is the object if this process has written it since.
func (s *Store[T]) shown(object T) (last, own metav1.Object) {
	uid := object.GetUID()
	last, behind := s.behind[uid]
	if delete(s.behind, uid); behind {
		return last, object
	}
	return object, nil
}

func (s *Store[T]) drop(object metav1.Object) (was, own metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen(object)
	name, uid := nameOf(object), object.GetUID()
	was = s.behind[uid]
	if before, ok := s.objects[name]; ok && before.GetUID() == uid { // Otherwise the Store shows another object of this name, which this process has created since.
		was, own = s.shown(before)
		delete(s.objects, name)
	}
	delete(s.broken, uid)
	delete(s.behind, uid)
	return was, own
}

func (s *Store[T]) wrote(object metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !newer(object, s.version) {
		return // The watch is ahead. It has shown this write, and perhaps what came after it.
	}
	before, ok := s.objects[nameOf(object)]
	if ok && newer(before, object.GetResourceVersion()) {
		return
	}
	if ok {
		if last, _ := s.shown(before); last != nil {
			s.behind[before.GetUID()] = last
		}
	}
	if _, behind := s.behind[object.GetUID()]; !behind {
		s.behind[object.GetUID()] = nil
	}
	s.objects[nameOf(object)] = object.(T)
}

func (s *Store[T]) listed(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen(&metav1.ObjectMeta{ResourceVersion: version})
}

// seen records how far the watch is.
func (s *Store[T]) seen(object metav1.Object) {
	if newer(object, s.version) {
		s.version = object.GetResourceVersion()
	}
}

// newer reports whether an object is newer than a resource version. Resource versions of one kind are ordered (KEP-5504).
func newer(object metav1.Object, version string) bool {
	if version == "" {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), version)
	return err == nil && order > 0
}
