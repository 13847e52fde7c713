// Package contracttest is an API server in memory, and processes that run a Logic against it, for simulations under testing/synctest.
//
// [Server] stores objects as the real one does: merge patches with preconditions, finalizers, status apart. A [Fault] says what becomes of a request and of its
// answer. [Start] runs a Logic with a watch that lags; [Process.Crash] ends it in the middle of everything. [Move] moves objects as clusterctl does.
package contracttest

import (
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json" // whole numbers are int64, as unstructured objects have them

	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
)

// Server is an API server in memory. Use NewServer to make one. Safe for concurrent use.
type Server struct {
	name string
	// Stored is called, with the Server locked, after every change: before is nil for a new object, now for one that is gone. It may be nil.
	Stored func(kind *runner.Kind, before, now *unstructured.Unstructured)

	mu       sync.Mutex
	objects  map[runner.Key]*unstructured.Unstructured
	version  int
	uids     int
	watchers map[*watcher]bool
}

// NewServer returns an empty server. Its name is part of the UIDs that it assigns.
func NewServer(name string) *Server {
	return &Server{name: name, objects: map[runner.Key]*unstructured.Unstructured{}, watchers: map[*watcher]bool{}}
}

// Get returns a copy of an object; nil if there is none.
func (s *Server) Get(kind *runner.Kind, namespace, name string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[runner.Key{Kind: kind, Namespace: namespace, Name: name}]; o != nil {
		return o.DeepCopy()
	}
	return nil
}

// List returns copies of all objects of a kind, by namespace and name.
func (s *Server) List(kind *runner.Kind) (all []*unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, o := range s.objects {
		if key.Kind == kind {
			all = append(all, o.DeepCopy())
		}
	}
	slices.SortFunc(all, func(a, b *unstructured.Unstructured) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	return all
}

// Read reads an object into a struct; ok is false if there is none.
func Read[T any](s *Server, kind *runner.Kind, namespace, name string) (object *T, ok bool) {
	o := s.Get(kind, namespace, name)
	if o == nil {
		return nil, false
	}
	return To[T](o), true
}

// To converts an object.
func To[T any](o *unstructured.Unstructured) *T {
	object := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, object); err != nil {
		panic(err)
	}
	return object
}

// All returns all objects of a kind as structs, by namespace and name.
func All[T any](s *Server, kind *runner.Kind) (all []*T) {
	for _, o := range s.List(kind) {
		all = append(all, To[T](o))
	}
	return all
}

// Create stores an object, without its status. It gets a UID, a resource version and a creation time.
func (s *Server) Create(kind *runner.Kind, object any) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{Object: fields(object)}
	delete(o.Object, "status")
	o.SetAPIVersion(kind.Group + "/" + kind.Versions[0])
	o.SetKind(kind.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	key := runner.KeyOf(kind, o)
	if s.objects[key] != nil {
		return nil, apierrors.NewAlreadyExists(resource(kind), o.GetName())
	}
	s.uids++
	o.SetUID(types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012d", crc32.ChecksumIEEE([]byte(s.name)), s.uids)))
	o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	o.SetDeletionTimestamp(nil)
	o.SetGeneration(1)
	s.store(key, o)
	return o.DeepCopy(), nil
}

// Patch applies a merge patch.
func (s *Server) Patch(kind *runner.Kind, of types.NamespacedName, patch runner.Patch) (*unstructured.Unstructured, error) {
	var changes map[string]any
	if err := json.Unmarshal(patch.Body, &changes); err != nil {
		panic(err)
	}
	return s.Edit(kind, of, patch.Status, changes)
}

// Edit applies changes as a merge patch: to the status, otherwise to everything else. What they say of UID and resource version are preconditions.
func (s *Server) Edit(kind *runner.Kind, of types.NamespacedName, status bool, changes map[string]any) (*unstructured.Unstructured, error) {
	changes = fields(changes)
	s.mu.Lock()
	defer s.mu.Unlock()
	key := runner.Key{Kind: kind, Namespace: of.Namespace, Name: of.Name}
	before := s.objects[key]
	if before == nil {
		return nil, apierrors.NewNotFound(resource(kind), of.Name)
	}
	metadata, _ := changes["metadata"].(map[string]any)
	for field, now := range map[string]string{"uid": string(before.GetUID()), "resourceVersion": before.GetResourceVersion()} {
		if want, ok := metadata[field]; ok && want != now {
			return nil, apierrors.NewConflict(resource(kind), of.Name, fmt.Errorf("%s is %s, not %v", field, now, want))
		}
	}
	o := before.DeepCopy()
	if status {
		merge(o.Object, map[string]any{"status": changes["status"]})
	} else {
		delete(changes, "status")
		merge(o.Object, changes)
		o.SetDeletionTimestamp(before.GetDeletionTimestamp())
		if o.SetGeneration(before.GetGeneration()); fmt.Sprint(o.Object["spec"]) != fmt.Sprint(before.Object["spec"]) {
			o.SetGeneration(before.GetGeneration() + 1)
		}
	}
	if o.GetDeletionTimestamp() != nil {
		for _, f := range o.GetFinalizers() {
			if !slices.Contains(before.GetFinalizers(), f) {
				return nil, apierrors.NewInvalid(schema.GroupKind{Group: kind.Group, Kind: kind.Name}, of.Name, nil)
			}
		}
	}
	switch {
	case o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0:
		s.remove(key, o)
	case fmt.Sprint(o.Object) != fmt.Sprint(before.Object):
		s.store(key, o)
	}
	return o.DeepCopy(), nil
}

// Delete deletes an object; with a UID only if that is its. Finalizers keep it.
func (s *Server) Delete(kind *runner.Kind, of types.NamespacedName, uid types.UID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := runner.Key{Kind: kind, Namespace: of.Namespace, Name: of.Name}
	before := s.objects[key]
	switch {
	case before == nil:
		return apierrors.NewNotFound(resource(kind), of.Name)
	case uid != "" && before.GetUID() != uid:
		return apierrors.NewConflict(resource(kind), of.Name, fmt.Errorf("the UID is %s", before.GetUID()))
	case before.GetDeletionTimestamp() != nil:
		return nil
	}
	o := before.DeepCopy()
	if len(o.GetFinalizers()) == 0 {
		s.remove(key, o)
		return nil
	}
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	o.SetDeletionTimestamp(&now)
	s.store(key, o)
	return nil
}

// Drop removes an object at once, as it is, whatever its finalizers say. That is what the real server does with a finalizer that arrives while it deletes.
func (s *Server) Drop(kind *runner.Kind, of types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := runner.Key{Kind: kind, Namespace: of.Namespace, Name: of.Name}
	if o := s.objects[key]; o != nil {
		s.remove(key, o.DeepCopy())
	}
}

func (s *Server) store(key runner.Key, o *unstructured.Unstructured) {
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	before := s.objects[key]
	s.objects[key] = o
	s.changed(key, before, o, o)
}

// remove removes an object, whose last state is o.
func (s *Server) remove(key runner.Key, o *unstructured.Unstructured) {
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	before := s.objects[key]
	delete(s.objects, key)
	s.changed(key, before, nil, o)
}

func (s *Server) changed(key runner.Key, before, now, last *unstructured.Unstructured) {
	if s.Stored != nil {
		s.Stored(key.Kind, before, now)
	}
	for w := range s.watchers {
		w.send(key.Kind, change{object: last.DeepCopy(), gone: now == nil})
	}
}

// fields returns an object as JSON has it.
func fields(object any) (all map[string]any) {
	body, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(body, &all)
	}
	if err != nil {
		panic(err)
	}
	return all
}

// merge applies a JSON merge patch.
func merge(to, changes map[string]any) {
	for k, v := range changes {
		inner, isMap := v.(map[string]any)
		there, hasMap := to[k].(map[string]any)
		switch {
		case v == nil:
			delete(to, k)
		case isMap && hasMap:
			merge(there, inner)
		case isMap:
			there = map[string]any{}
			merge(there, inner)
			to[k] = there
		default:
			to[k] = v
		}
	}
}

func resource(kind *runner.Kind) schema.GroupResource {
	return schema.GroupResource{Group: kind.Group, Resource: kind.Resource}
}

// Strip removes all finalizers of an object.
func (s *Server) Strip(kind *runner.Kind, of types.NamespacedName) {
	_, _ = s.Edit(kind, of, false, map[string]any{"metadata": map[string]any{"finalizers": nil}})
}

// Annotate replaces all annotations of an object.
func (s *Server) Annotate(kind *runner.Kind, of types.NamespacedName, annotations map[string]string) {
	o := s.Get(kind, of.Namespace, of.Name)
	if o == nil {
		return
	}
	changes := map[string]any{}
	for k := range o.GetAnnotations() {
		changes[k] = nil
	}
	for k, v := range annotations {
		changes[k] = v
	}
	_, _ = s.Edit(kind, of, false, map[string]any{"metadata": map[string]any{"annotations": changes}})
}

// Dump returns the objects of kinds as text, for failures.
func (s *Server) Dump(kinds ...*runner.Kind) string {
	var b strings.Builder
	for _, kind := range kinds {
		for _, o := range s.List(kind) {
			fmt.Fprintf(&b, "%s %s/%s/%s deleted %v finalizers %v annotations %v spec %v status %v\n",
				s.name, kind, o.GetNamespace(), o.GetName(), o.GetDeletionTimestamp(), o.GetFinalizers(), slices.Sorted(maps.Values(o.GetAnnotations())), o.Object["spec"], o.Object["status"])
		}
	}
	return b.String()
}
