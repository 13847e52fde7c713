package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Change returns the patch that makes an object what it should be: of its status, if that differs, otherwise of everything else. ok is false if nothing differs.
// want is a changed copy of is. The patch fails if the object has changed since it was read, because it replaces lists.
func Change(is, want metav1.Object) (patch Patch, ok bool) {
	from, err := withStatus(is)
	to, err2 := withStatus(want)
	if err = errors.Join(err, err2); err == nil {
		from, err = jsonpatch.CreateMergePatch(from, to)
	}
	changes := map[string]any{}
	if err == nil {
		err = json.Unmarshal(from, &changes)
	}
	if err != nil {
		panic(err) // Objects of the API can be encoded.
	}
	if len(changes) == 0 {
		return Patch{}, false
	}
	patch = MergePatchOfVersion(is, changes)
	_, patch.Status = changes["status"]
	return patch, true
}

// withStatus returns an object with a status in any case: to remove a whole status would remove what others have written there, too.
func withStatus(object metav1.Object) ([]byte, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return jsonpatch.MergePatch([]byte(`{"status":{}}`), text)
}

// ErrNotKept is the error of a change that the API server confirms and does not store. No event follows it, so it is tried again.
var ErrNotKept = errors.New("the API server confirms the change and does not store it: look for an admission webhook or policy that takes it away, or a CustomResourceDefinition of another version")

// Change makes an object what it should be: see the function of this name. It sends nothing if it is so. With stored, the error can be ErrNotKept.
func (t *Term) Change(ctx context.Context, kind *Kind, is, want, stored metav1.Object) error {
	patch, ok := Change(is, want)
	if !ok {
		return nil
	}
	err := t.API.Patch(ctx, kind, types.NamespacedName{Namespace: is.GetNamespace(), Name: is.GetName()}, patch, stored)
	if err == nil && stored != nil && stored.GetResourceVersion() == is.GetResourceVersion() {
		return fmt.Errorf("patch %v: %w", KeyOf(kind, is), ErrNotKept)
	}
	return err
}
