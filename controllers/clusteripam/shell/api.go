package shell

import (
	"context"
	"encoding/json"
	"errors"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// API is every request that a Logic sends. What an error of a write says: writes.Answered, writes.NotSent, writes.NotThere.
type API interface {
	// Get reads an object from etcd, past every cache, into object: a pointer to a new struct of the kind.
	Get(ctx context.Context, kind *Kind, of types.NamespacedName, object metav1.Object) error
	// Create creates object, whose apiVersion and kind it sets. stored gets the object as it is stored: a pointer to a new struct, or nil.
	// It must not be modified, because the Store of the kind shows it from now on.
	Create(ctx context.Context, kind *Kind, object, stored metav1.Object) error
	// Patch changes an object. stored gets the result, like that of Create.
	Patch(ctx context.Context, kind *Kind, of types.NamespacedName, patch Patch, stored metav1.Object) error
	// Delete deletes the object with this UID and, if resourceVersion is not empty, only in this version.
	Delete(ctx context.Context, kind *Kind, of types.NamespacedName, uid types.UID, resourceVersion string) error
}

// ErrTakenBack is the error of a write that the API server has carried out although the object is not what the write asked for.
var ErrTakenBack = errors.New("the API server takes the change and stores the object without it: see which admission webhook or policy takes it back, " +
	"and whether the CustomResourceDefinition is of another version")

// Patch is a change of one object.
type Patch struct {
	// Apply: a server-side apply, which takes fields from other field managers. Otherwise it is a JSON merge patch.
	Apply bool
	// Status: of the status, otherwise of everything else.
	Status bool
	Body   []byte
}

// MergePatch returns a merge patch of an object. The UID is a precondition: the patch fails for another object of the same name. changes are
// the fields to change; nil removes a field.
func MergePatch(object metav1.Object, changes map[string]any) Patch {
	return mergePatch(object, "", changes)
}

// MergePatchOfVersion is MergePatch that fails, too, if the object has changed meanwhile. It is needed for lists, because a merge patch
// replaces them.
func MergePatchOfVersion(object metav1.Object, changes map[string]any) Patch {
	return mergePatch(object, object.GetResourceVersion(), changes)
}

// StatusPatch returns a merge patch of an object's status.
func StatusPatch(object metav1.Object, status any) Patch {
	p := mergePatch(object, "", map[string]any{"status": status})
	p.Status = true
	return p
}

func mergePatch(object metav1.Object, version string, changes map[string]any) Patch {
	metadata := map[string]any{}
	if given, ok := changes["metadata"].(map[string]any); ok {
		maps.Copy(metadata, given)
	}
	metadata["uid"] = object.GetUID()
	if version != "" {
		metadata["resourceVersion"] = version
	}
	patch := map[string]any{"metadata": metadata}
	for field, value := range changes {
		if field != "metadata" {
			patch[field] = value
		}
	}
	return Patch{Body: Encode(patch)}
}

// Encode returns JSON.
func Encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // Everything that a Logic writes can be encoded.
	}
	return text
}
