package claims

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Verb is what a Write does.
type Verb int

const (
	Create Verb = iota
	// Patch is a merge patch. It fails if another object has taken the name.
	Patch
	// PatchVersion is a Patch that fails, too, if the object has changed since it was cached.
	PatchVersion
	// PatchStatus is a merge patch of the status. It fails if the object has changed since it was cached.
	PatchStatus
	// Delete deletes the object with the cached UID.
	Delete
)

// Write is one request to the API server.
type Write struct {
	Verb Verb
	Kind *runner.Kind
	// Object is the one to create, or the cached one.
	Object metav1.Object
	// Changes are the fields of a patch; nil removes a field.
	Changes map[string]any
	// Events are told once the write is sent.
	Events []Event
}

// Event tells the users of the written object something.
type Event struct {
	Normal          bool // otherwise it is a warning
	Reason, Message string
}

// Carry carries out writes in order, up to the first one that fails: the following ones are only right after it. If the API server refuses
// one, decide is asked again with the reason, and of its answer the statuses are written, so that users see why. A conflict is no refusal: the object has
// changed since it was cached.
func Carry(ctx context.Context, t *runner.Term, decide func(refused string) []Write) error {
	for _, w := range decide("") {
		err := w.send(ctx, t)
		if err == nil {
			continue
		}
		if w.Verb != PatchStatus && writes.Answered(err) && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)) {
			for _, w := range decide(err.Error()) {
				if w.Verb == PatchStatus && w.send(ctx, t) != nil {
					break // It is tried again together with what was refused.
				}
			}
		}
		return err
	}
	return nil
}

// send makes the request of a write, and tells of it.
func (w *Write) send(ctx context.Context, t *runner.Term) (err error) {
	of := types.NamespacedName{Namespace: w.Object.GetNamespace(), Name: w.Object.GetName()}
	switch w.Verb {
	case Create:
		err = t.API.Create(ctx, w.Kind, w.Object, nil)
	case Patch:
		err = t.API.Patch(ctx, w.Kind, of, runner.MergePatch(w.Object, w.Changes), nil)
	case PatchVersion:
		err = t.API.Patch(ctx, w.Kind, of, runner.MergePatchOfVersion(w.Object, w.Changes), nil)
	case PatchStatus:
		patch := runner.MergePatchOfVersion(w.Object, map[string]any{"status": w.Changes})
		patch.Status = true
		err = t.API.Patch(ctx, w.Kind, of, patch, nil)
	case Delete:
		err = t.API.Delete(ctx, w.Kind, of, w.Object.GetUID())
	}
	if err == nil || !writes.Answered(err) {
		for _, e := range w.Events {
			t.Event(w.Object, w.Kind, e.Normal, e.Reason, e.Message)
		}
	}
	return err
}
