package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/multicidr/controller-manager/controllers/writes"
)

// client implements API for one term. The clients of client-go repeat some requests by themselves. Then the last answer says nothing about the
// earlier attempts. Its writes pass a fence: a former leader must not give an address that its successor gives to another object.
type client struct {
	rest    rest.Interface // of any group; it speaks JSON
	manager string         // the field manager
	served  func(*Kind) (apiVersion string, ok bool)
	fence   writes.Fence
	wrote   func(kind *Kind, verb string, err error) // counts
}

func (c *client) Get(ctx context.Context, kind *Kind, of types.NamespacedName, object metav1.Object) error {
	request, err := c.request("get", Key{kind, of.Namespace, of.Name})
	if err != nil {
		return err
	}
	return decoded(request.Do(ctx), object)
}

func (c *client) Create(ctx context.Context, kind *Kind, object, stored metav1.Object) error {
	key := KeyOf(kind, object)
	request, err := c.request("create", key)
	if err != nil {
		return err
	}
	apiVersion, _ := c.served(kind)
	object.(runtime.Object).GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind.Name))
	return c.write(ctx, "create", key, request.Param("fieldManager", c.manager).Body(encode(object)), stored)
}

func (c *client) Patch(ctx context.Context, kind *Kind, of types.NamespacedName, patch Patch, stored metav1.Object) error {
	key := Key{kind, of.Namespace, of.Name}
	request, err := c.request("patch", key)
	if err != nil {
		return err
	}
	if patch.Status {
		request.Suffix("status")
	}
	request.SetHeader("Content-Type", string(types.MergePatchType)).Param("fieldManager", c.manager)
	return c.write(ctx, "patch", key, request.Body(patch.Body), stored)
}

func (c *client) Delete(ctx context.Context, kind *Kind, of types.NamespacedName, uid types.UID) error {
	key := Key{kind, of.Namespace, of.Name}
	request, err := c.request("delete", key)
	if err != nil {
		return err
	}
	options := metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, Preconditions: &metav1.Preconditions{UID: &uid}}
	return c.write(ctx, "delete", key, request.Body(encode(options)), nil)
}

var methods = map[string]string{"get": http.MethodGet, "create": http.MethodPost, "patch": http.MethodPatch, "delete": http.MethodDelete}

// request returns a request for an object of a kind that is served.
func (c *client) request(verb string, key Key) (*rest.Request, error) {
	apiVersion, ok := c.served(key.Kind)
	if !ok {
		return nil, fmt.Errorf("%s %v: %w", verb, key, apierrors.NewNotFound(schema.GroupResource{Group: key.Kind.Group, Resource: key.Kind.Resource}, key.Name))
	}
	path := []string{"apis", apiVersion}
	if key.Kind.Group == "" {
		path[0] = "api"
	}
	if key.Namespace != "" {
		path = append(path, "namespaces", key.Namespace)
	}
	if path = append(path, key.Kind.Resource); verb != "create" {
		path = append(path, key.Name)
	}
	return c.rest.Verb(methods[verb]).AbsPath(path...).SetHeader("Content-Type", "application/json"), nil
}

// write sends a write once, when the fence permits it. A shutdown does not interrupt it.
func (c *client) write(ctx context.Context, verb string, key Key, request *rest.Request, stored metav1.Object) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writes.Timeout)
	defer cancel()
	ctx, leave, err := c.fence.Enter(ctx, writes.Timeout)
	if err == nil {
		answer := request.MaxRetries(0).Do(ctx)
		if err = answer.Error(); writes.Answered(err) {
			leave()
		}
		c.wrote(key.Kind, verb, err)
		if err == nil && stored != nil {
			err = decoded(answer, stored)
		}
	}
	if err != nil {
		return fmt.Errorf("%s %v: %w", verb, key, err)
	}
	return nil
}

// decoded returns the error of an answer, or decodes the object in it. An object that cannot be decoded is no error: the request was carried
// out. Then into has no UID.
func decoded(answer rest.Result, into metav1.Object) error {
	if err := answer.Error(); err != nil { // That of Raw lacks what the API server says.
		return err
	}
	text, err := answer.Raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		into.SetUID("")
	}
	into.SetManagedFields(nil)
	return nil
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

func mergePatch(object metav1.Object, version string, changes map[string]any) Patch {
	metadata := map[string]any{}
	if given, ok := changes["metadata"].(map[string]any); ok {
		maps.Copy(metadata, given)
	}
	metadata["uid"] = object.GetUID()
	if version != "" {
		metadata["resourceVersion"] = version
	}
	patch := maps.Clone(changes)
	if patch == nil {
		patch = map[string]any{}
	}
	patch["metadata"] = metadata
	return Patch{Body: encode(patch)}
}

// encode returns JSON.
func encode(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // Everything that is written can be encoded.
	}
	return body
}
