package claims

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/test/contracttest"
)

// api is an API server in memory, with the watch that shows its changes to a term, at once.
type api struct {
	t       *testing.T
	term    *runner.Term
	objects map[runner.Key]map[string]any
	version int
	queued  []runner.Key
	wrote   []string // verb and key of every write that was carried out
	said    []string // reasons of events
	took    []time.Duration
	refuse  func(verb string, key runner.Key) error // nil carries a write out
	drop    *runner.Kind                            // patches of this kind are confirmed and not stored
	absent  map[*runner.Kind]bool
}

func newAPI(t *testing.T) *api {
	return &api{t: t, objects: map[runner.Key]map[string]any{}, absent: map[*runner.Kind]bool{}}
}

// begin begins a term, which is shown everything that exists.
func (a *api) begin() *logic {
	a.term = &runner.Term{
		API: a, Queue: a,
		Served: func(kind *runner.Kind) (string, bool) { return kind.Group + "/" + kind.Versions[0], !a.absent[kind] },
		Event: func(_ metav1.Object, _ *runner.Kind, _ bool, reason, _ string) {
			a.said = append(a.said, reason)
		},
		Unanswered: func() time.Duration { return 0 },
		Took:       func(d time.Duration) { a.took = append(a.took, d) },
	}
	l := newLogic(a.term, "")
	for key := range a.objects {
		contracttest.Show(a.term, key.Kind, a.read(key))
	}
	return l
}

func (a *api) Add(key runner.Key)                       { a.queued = append(a.queued, key) }
func (a *api) AddAfter(key runner.Key, _ time.Duration) { a.Add(key) }

// run works on keys until none is queued. One whose work fails is queued again.
func (a *api) run(logic runner.Logic) {
	a.t.Helper()
	for attempts := 0; len(a.queued) > 0; attempts++ {
		if attempts == 100 {
			a.t.Fatalf("it does not end; writes: %q", a.wrote)
		}
		key := a.queued[0]
		a.queued = a.queued[1:]
		if err := logic.Reconcile(a.t.Context(), key); err != nil && a.refuse == nil {
			a.Add(key)
		}
	}
}

// put stores an object as users do.
func (a *api) put(kind *runner.Kind, object metav1.Object) {
	a.t.Helper()
	fields := map[string]any{}
	text, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	a.store(runner.KeyOf(kind, object), fields)
}

// store stores an object, and shows it.
func (a *api) store(key runner.Key, fields map[string]any) {
	a.version++
	metadata := fields["metadata"].(map[string]any)
	metadata["resourceVersion"] = strconv.Itoa(a.version)
	if metadata["uid"] == nil {
		metadata["uid"] = fmt.Sprintf("uid-%d", a.version)
	}
	a.objects[key] = fields
	contracttest.Show(a.term, key.Kind, a.read(key))
}

// remove ends an object, and shows that.
func (a *api) remove(key runner.Key) {
	last := a.read(key)
	delete(a.objects, key)
	contracttest.Gone(a.term, key.Kind, last)
}

// read returns a copy of an object; nil if there is none.
func (a *api) read(key runner.Key) metav1.Object {
	fields, ok := a.objects[key]
	if !ok {
		return nil
	}
	object := map[*runner.Kind]func() metav1.Object{
		runner.ClusterIPAMClaims: func() metav1.Object { return &v1beta1.ClusterIPAMClaim{} },
		runner.ClusterIPAMs:      func() metav1.Object { return &v1beta1.ClusterIPAM{} },
		runner.InClusterIPPools:  func() metav1.Object { return &v1alpha2.InClusterIPPool{} },
		runner.InfobloxIPPools:   func() metav1.Object { return &v1alpha1.InfobloxIPPool{} },
		runner.InfobloxInstances: func() metav1.Object { return &v1alpha1.InfobloxInstance{} },
	}[key.Kind]()
	text, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(text, object)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return object
}

// Get implements runner.API. The Logic of claims makes no such request.
func (a *api) Get(context.Context, *runner.Kind, types.NamespacedName, metav1.Object) error {
	return apierrors.NewMethodNotSupported(schema.GroupResource{}, http.MethodGet)
}

// Create implements runner.API.
func (a *api) Create(_ context.Context, kind *runner.Kind, object, _ metav1.Object) error {
	key := runner.KeyOf(kind, object)
	if a.objects[key] != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: kind.Resource}, key.Name)
	}
	if err := a.arrives("create", key); err != nil {
		return err
	}
	a.wrote = append(a.wrote, "create "+kind.Name)
	a.put(kind, object)
	return nil
}

// Patch implements runner.API.
func (a *api) Patch(_ context.Context, kind *runner.Kind, of types.NamespacedName, patch runner.Patch, stored metav1.Object) error {
	key, verb, body := runner.Key{Kind: kind, Namespace: of.Namespace, Name: of.Name}, "patch", map[string]any{}
	if err := json.Unmarshal(patch.Body, &body); err != nil {
		return err
	}
	if patch.Status {
		verb = "status"
	}
	if err := a.arrives(verb, key); err != nil {
		return err
	}
	is, ok := a.objects[key]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: kind.Resource}, of.Name)
	}
	for _, field := range []string{"uid", "resourceVersion"} {
		if given := body["metadata"].(map[string]any)[field]; given != nil && given != is["metadata"].(map[string]any)[field] {
			return apierrors.NewConflict(schema.GroupResource{Resource: kind.Resource}, of.Name, fmt.Errorf("%s is another one", field))
		}
	}
	if a.drop != kind {
		a.wrote = append(a.wrote, verb+" "+kind.Name)
		a.store(key, merged(is, body).(map[string]any))
	}
	stored.SetResourceVersion(a.read(key).GetResourceVersion())
	return nil
}

// Delete implements runner.API. Nothing has finalizers here.
func (a *api) Delete(_ context.Context, kind *runner.Kind, of types.NamespacedName, uid types.UID) error {
	key := runner.Key{Kind: kind, Namespace: of.Namespace, Name: of.Name}
	if o := a.read(key); o == nil || o.GetUID() != uid {
		return apierrors.NewNotFound(schema.GroupResource{Resource: kind.Resource}, of.Name)
	}
	a.wrote = append(a.wrote, "delete "+kind.Name)
	a.remove(key)
	return nil
}

func (a *api) arrives(verb string, key runner.Key) error {
	if a.refuse == nil {
		return nil
	}
	return a.refuse(verb, key)
}

// merged applies a JSON merge patch.
func merged(is, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	result := map[string]any{}
	if fields, ok := is.(map[string]any); ok {
		maps.Copy(result, fields)
	}
	for field, change := range changes {
		if change == nil {
			delete(result, field)
		} else {
			result[field] = merged(result[field], change)
		}
	}
	return result
}
