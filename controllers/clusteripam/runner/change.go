package runner

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
)

// Change returns the patch that makes an object what it should be: of its status, if that differs, otherwise of everything else. ok is false if nothing differs.
// want is a changed copy of is. The patch fails for another object of the same name, and if the object has changed since it was read: it replaces lists.
func Change(is, want metav1.Object) (patch Patch, ok bool) {
	changes := difference(fields(is), fields(want))
	if len(changes) == 0 {
		return Patch{}, false
	}
	_, patch.Status = changes["status"]
	metadata, _ := changes["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["uid"], metadata["resourceVersion"] = is.GetUID(), is.GetResourceVersion()
	changes["metadata"] = metadata
	patch.Body = encode(changes)
	return patch, true
}

// fields returns an object as its JSON has it, with a status in any case: to remove a whole status would remove what others have written there, too.
func fields(object metav1.Object) map[string]any {
	all := map[string]any{}
	if err := json.Unmarshal(encode(object), &all); err != nil {
		panic(err) // Objects of the API can be encoded.
	}
	if all["status"] == nil {
		all["status"] = map[string]any{}
	}
	return all
}

// difference returns the JSON merge patch between two objects. It is not a library's, because those read numbers as floats, which cannot say how many addresses
// an IPv6 pool has.
func difference(from, to map[string]any) map[string]any {
	changes := map[string]any{}
	for key, value := range to {
		before, had := from[key]
		was, wasObject := before.(map[string]any)
		is, isObject := value.(map[string]any)
		switch {
		case wasObject && isObject:
			if inner := difference(was, is); len(inner) > 0 {
				changes[key] = inner
			}
		case !had || !equality.Semantic.DeepEqual(before, value):
			changes[key] = value
		}
	}
	for key := range from {
		if _, stays := to[key]; !stays {
			changes[key] = nil
		}
	}
	return changes
}

// ErrNotKept is the error of a change that the API server confirms and does not store. No event follows it, so it is tried again.
var ErrNotKept = errors.New("the API server confirms the change and does not store it: look for an admission webhook or policy that takes it away, or a CustomResourceDefinition of another version")

// Change makes an object what it should be: see the function of this name. It sends nothing if it is so.
func (t *Term) Change(ctx context.Context, kind *Kind, is, want, stored metav1.Object) error {
	patch, ok := Change(is, want)
	if !ok {
		return nil
	}
	return t.Patch(ctx, kind, is, patch, stored)
}

// Patch sends a patch of an object. stored gets the object as it is stored: a pointer to a new struct, or nil. The error can be ErrNotKept.
func (t *Term) Patch(ctx context.Context, kind *Kind, is metav1.Object, patch Patch, stored metav1.Object) error {
	if stored == nil {
		stored = &metav1.PartialObjectMetadata{}
	}
	err := t.API.Patch(ctx, kind, types.NamespacedName{Namespace: is.GetNamespace(), Name: is.GetName()}, patch, stored)
	if err == nil && stored.GetResourceVersion() == is.GetResourceVersion() {
		return fmt.Errorf("patch %v: %w", KeyOf(kind, is), ErrNotKept)
	}
	return err
}
