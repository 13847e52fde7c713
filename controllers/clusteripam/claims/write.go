package claims

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Write is one request to the API server. Without Is, Want is created; without Want, Is is deleted. Otherwise Want is a copy of Is with a changed
// status or with other changes, and Patch is the difference.
type Write struct {
	Kind     *runner.Kind
	Is, Want metav1.Object
	Patch    runner.Patch
	// Events tell the users of the object something, once the write is sent.
	Events []Finding
}

// Change returns the write that makes an object as it should be; nil if it is.
func Change(kind *runner.Kind, is, want metav1.Object, events ...Finding) *Write {
	patch, ok := runner.Change(is, want)
	if !ok {
		return nil
	}
	return &Write{Kind: kind, Is: is, Want: want, Patch: patch, Events: events}
}

// Carry sends the write that decide returns; the watch brings it back, and then the next one is decided. If the API server refuses it, decide is asked again
// with the reason, and then returns the write of a status, so that users see why. A conflict is no refusal: the object has changed since it was cached.
func Carry(ctx context.Context, t *runner.Term, decide func(refused string) *Write) error {
	w := decide("")
	if w == nil {
		return nil
	}
	err := w.send(ctx, t)
	if !w.Patch.Status && writes.Answered(err) && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)) {
		if tells := decide(err.Error()); tells != nil {
			_ = tells.send(ctx, t) // It is tried again together with what was refused.
		}
	}
	return err
}

// send makes the request of a write, and tells of it.
func (w *Write) send(ctx context.Context, t *runner.Term) (err error) {
	about := w.Is
	switch {
	case w.Is == nil:
		about = w.Want
		err = t.API.Create(ctx, w.Kind, w.Want, nil)
	case w.Want == nil:
		err = t.API.Delete(ctx, w.Kind, contract.NameOf(w.Is), w.Is.GetUID())
	default:
		err = t.Patch(ctx, w.Kind, w.Is, w.Patch, nil)
	}
	if err == nil || !writes.Answered(err) {
		for _, e := range w.Events {
			t.Event(about, w.Kind, e.Normal, e.Reason, e.Message)
		}
	}
	return err
}
