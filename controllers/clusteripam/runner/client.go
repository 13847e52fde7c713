package runner

import (
	"context"
	"encoding/json"
	"fmt"
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
	request, err := c.request(http.MethodGet, Key{kind, of.Namespace, of.Name})
	if err != nil {
		return err
	}
	return decoded(request.Do(ctx), object)
}

func (c *client) Create(ctx context.Context, kind *Kind, object, stored metav1.Object) error {
	apiVersion, _ := c.served(kind)
	object.(runtime.Object).GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind.Name))
	return c.write(ctx, http.MethodPost, KeyOf(kind, object), Patch{Body: encode(object)}, stored)
}

func (c *client) Patch(ctx context.Context, kind *Kind, of types.NamespacedName, patch Patch, stored metav1.Object) error {
	return c.write(ctx, http.MethodPatch, Key{kind, of.Namespace, of.Name}, patch, stored)
}

func (c *client) Delete(ctx context.Context, kind *Kind, of types.NamespacedName, uid types.UID) error {
	options := metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, Preconditions: &metav1.Preconditions{UID: &uid}}
	return c.write(ctx, http.MethodDelete, Key{kind, of.Namespace, of.Name}, Patch{Body: encode(options)}, nil)
}

// request returns a request for an object of a kind that is served.
func (c *client) request(method string, key Key) (*rest.Request, error) {
	apiVersion, ok := c.served(key.Kind)
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: key.Kind.Group, Resource: key.Kind.Resource}, key.Name)
	}
	path := []string{"apis", apiVersion}
	if key.Kind.Group == "" {
		path[0] = "api"
	}
	if key.Namespace != "" {
		path = append(path, "namespaces", key.Namespace)
	}
	if path = append(path, key.Kind.Resource); method != http.MethodPost {
		path = append(path, key.Name)
	}
	return c.rest.Verb(method).AbsPath(path...), nil
}

// verbs are what the API server calls the methods.
var verbs = map[string]string{http.MethodPost: "create", http.MethodPatch: "patch", http.MethodDelete: "delete"}

// write sends a write once, when the fence permits it. A shutdown does not interrupt it.
func (c *client) write(ctx context.Context, method string, key Key, patch Patch, stored metav1.Object) (err error) {
	verb := verbs[method]
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s %v: %w", verb, key, err)
		}
	}()
	request, err := c.request(method, key)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writes.Timeout)
	defer cancel()
	ctx, leave, err := c.fence.Enter(ctx, writes.Timeout)
	if err != nil {
		c.wrote(key.Kind, verb, err)
		return err
	}
	if patch.Status {
		request.Suffix("status")
	}
	contentType := "application/json"
	if method == http.MethodPatch {
		contentType = string(types.MergePatchType)
	}
	answer := request.SetHeader("Content-Type", contentType).Param("fieldManager", c.manager).Body(patch.Body).MaxRetries(0).Do(ctx)
	if err = answer.Error(); writes.Answered(err) {
		leave()
	}
	if c.wrote(key.Kind, verb, err); err == nil && stored != nil {
		err = decoded(answer, stored)
	}
	return err
}

// decoded returns the error of an answer, or decodes the object in it.
func decoded(answer rest.Result, into metav1.Object) error {
	if err := answer.Error(); err != nil { // That of Raw lacks what the API server says.
		return err
	}
	text, err := answer.Raw()
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	into.SetManagedFields(nil)
	return err
}

// encode returns JSON.
func encode(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // Everything that is written can be encoded.
	}
	return body
}
