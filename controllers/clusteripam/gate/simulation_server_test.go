package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
)

// The simulated API server. It keeps objects as JSON, and every version of them, so that a cache can lag behind it. It has what matters of the
// real one: preconditions, finalizers, fields that cannot be changed once set, and no new version without a change.

type object = map[string]any

// change is one version of one object.
type change struct {
	kind   *shell.Kind
	name   string
	object object // of a deletion, the last version
	typed  metav1.Object
	gone   bool
}

type server struct {
	changes []change
	objects map[*shell.Kind]map[string]object
	typed   map[*shell.Kind]map[string]metav1.Object
	uids    int
	// takesBack are the kinds of which an admission policy takes back what controllers change in the spec.
	takesBack map[*shell.Kind]bool
	// onWrite is told of every change: before is nil for a new object, after for one that is gone.
	onWrite func(by string, kind *shell.Kind, before, after object)
}

var kinds = []*shell.Kind{shell.ClusterIPAMClaims, shell.ClusterIPAMs, shell.InClusterIPPools, shell.InfobloxIPPools, shell.InfobloxInstances, shell.ClusterDeployments}

func newServer() *server {
	s := &server{objects: map[*shell.Kind]map[string]object{}, typed: map[*shell.Kind]map[string]metav1.Object{}, takesBack: map[*shell.Kind]bool{}}
	for _, k := range kinds {
		s.objects[k], s.typed[k] = map[string]object{}, map[string]metav1.Object{}
	}
	return s
}

// at returns a value in an object; nil if there is none.
func at(o object, path ...string) any {
	var v any = o
	for _, field := range path {
		m, _ := v.(map[string]any)
		v = m[field]
	}
	return v
}

// set changes a value in an object; nil removes it.
func set(o object, value any, path ...string) {
	for _, field := range path[:len(path)-1] {
		next, ok := o[field].(map[string]any)
		if !ok {
			next = map[string]any{}
			o[field] = next
		}
		o = next
	}
	if value == nil {
		delete(o, path[len(path)-1])
	} else {
		o[path[len(path)-1]] = value
	}
}

// copyOf also turns Go values into what JSON decodes to.
func copyOf[T any](o any) (to T) {
	text, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(text, &to)
	}
	if err != nil {
		panic(err)
	}
	return to
}

func same(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// merge is RFC 7386.
func merge(into, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	result, ok := into.(map[string]any)
	if !ok {
		result = map[string]any{}
	}
	for field, value := range p {
		if value == nil {
			delete(result, field)
		} else {
			result[field] = merge(result[field], value)
		}
	}
	return result
}

// once are the fields that cannot be changed once they are set, although they can be removed.
var once = map[*shell.Kind][]string{shell.ClusterIPAMClaims: {"cluster", "clusterIPAMRef"}, shell.ClusterIPAMs: {"clusterIPAMClaimRef"}}

func (s *server) create(by string, kind *shell.Kind, o object) error {
	o = copyOf[object](o)
	name, _ := at(o, "metadata", "name").(string)
	if s.objects[kind][name] != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: kind.Resource}, name)
	}
	s.uids++
	set(o, fmt.Sprintf("%s-%d", name, s.uids), "metadata", "uid")
	set(o, "ns", "metadata", "namespace")
	delete(o, "status")
	s.store(by, kind, nil, o)
	return nil
}

// patch applies a merge patch, either to the status or to everything else.
func (s *server) patch(by string, kind *shell.Kind, name string, status bool, patch object) error {
	before := s.objects[kind][name]
	resource := schema.GroupResource{Resource: kind.Resource}
	if before == nil {
		return apierrors.NewNotFound(resource, name)
	}
	after, _ := merge(runtime.DeepCopyJSON(before), copyOf[object](patch)).(object)
	for _, precondition := range []string{"uid", "resourceVersion"} {
		if at(after, "metadata", precondition) != at(before, "metadata", precondition) {
			return apierrors.NewConflict(resource, name, errors.New(precondition+" differs"))
		}
	}
	if status {
		status := after["status"]
		after = runtime.DeepCopyJSON(before)
		set(after, status, "status")
	} else {
		set(after, before["status"], "status")
	}
	if s.takesBack[kind] && strings.Contains(by, "/") {
		set(after, before["spec"], "spec")
	}
	for _, field := range once[kind] {
		is, will := at(before, "spec", field), at(after, "spec", field)
		if is != nil && is != "" && will != nil && will != is {
			err := apierrors.NewInvalid(schema.GroupKind{Kind: kind.Name}, name, nil)
			err.ErrStatus.Message = field + " is immutable once set"
			return err
		}
	}
	if !reflect.DeepEqual(before, after) {
		s.store(by, kind, before, after)
	}
	return nil
}

func (s *server) delete(by string, kind *shell.Kind, name, uid, version string) error {
	before := s.objects[kind][name]
	resource := schema.GroupResource{Resource: kind.Resource}
	switch {
	case before == nil:
		return apierrors.NewNotFound(resource, name)
	case uid != "" && at(before, "metadata", "uid") != uid, version != "" && at(before, "metadata", "resourceVersion") != version:
		return apierrors.NewConflict(resource, name, errors.New("precondition failed"))
	case at(before, "metadata", "deletionTimestamp") != nil:
		return nil
	}
	after := runtime.DeepCopyJSON(before)
	set(after, "2026-01-01T00:00:00Z", "metadata", "deletionTimestamp")
	s.store(by, kind, before, after)
	return nil
}

func (s *server) store(by string, kind *shell.Kind, before, after object) {
	name, _ := at(after, "metadata", "name").(string)
	set(after, strconv.Itoa(len(s.changes)+1), "metadata", "resourceVersion")
	finalizers, _ := at(after, "metadata", "finalizers").([]any)
	gone := at(after, "metadata", "deletionTimestamp") != nil && len(finalizers) == 0
	o := typed(kind, after)
	s.changes = append(s.changes, change{kind, name, after, o, gone})
	if gone {
		delete(s.objects[kind], name)
		delete(s.typed[kind], name)
		after = nil
	} else {
		s.objects[kind][name], s.typed[kind][name] = after, o
	}
	s.onWrite(by, kind, before, after)
}

// collectGarbage deletes objects whose owners are all gone, and removes references to owners that are gone. It reports whether it did something.
func (s *server) collectGarbage() (did bool) {
	uids := map[any]bool{}
	for _, k := range kinds {
		for _, o := range s.objects[k] {
			uids[at(o, "metadata", "uid")] = true
		}
	}
	for _, k := range kinds {
		for _, name := range sortedKeys(s.objects[k]) {
			o := s.objects[k][name]
			owners, _ := at(o, "metadata", "ownerReferences").([]any)
			live := slices.DeleteFunc(slices.Clone(owners), func(r any) bool { return !uids[r.(map[string]any)["uid"]] })
			switch {
			case len(live) == len(owners):
			case len(live) > 0:
				did = s.patch("garbage collector", k, name, false, object{"metadata": object{"ownerReferences": live}}) == nil || did
			case at(o, "metadata", "deletionTimestamp") == nil:
				did = s.delete("garbage collector", k, name, "", "") == nil || did
			}
		}
	}
	return did
}
