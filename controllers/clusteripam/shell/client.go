package shell

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/multicidr/controller-manager/controllers/clusteripam/shell/pace"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// clients implements API with a real API server. The typed clients of client-go repeat some requests by themselves. Then the last answer
// says nothing about the earlier attempts.
type clients struct {
	rest    rest.Interface
	manager string // the field manager
	served  func(*Kind) (apiVersion string, ok bool)
}

func newClients(config *rest.Config, manager string, served func(*Kind) (string, bool)) (*clients, error) {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion() // for the errors of the API server
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return &clients{rest: client, manager: manager, served: served}, nil
}

func (c *clients) Get(ctx context.Context, kind *Kind, of types.NamespacedName, object metav1.Object) error {
	path, _, err := c.path(kind, of)
	if err != nil {
		return err
	}
	return decoded(c.rest.Get().AbsPath(path...).Do(ctx), object)
}

func (c *clients) Create(ctx context.Context, kind *Kind, object, stored metav1.Object) error {
	path, apiVersion, err := c.path(kind, types.NamespacedName{Namespace: object.GetNamespace()})
	if err != nil {
		return err
	}
	var fields map[string]any
	if err := json.Unmarshal(Encode(object), &fields); err != nil {
		return err
	}
	fields["apiVersion"], fields["kind"] = apiVersion, kind.Name
	if status, ok := fields["status"].(map[string]any); ok && len(status) == 0 {
		delete(fields, "status") // Some schemas do not allow an empty one.
	}
	return decoded(c.rest.Post().AbsPath(path...).SetHeader("Content-Type", "application/json").Param("fieldManager", c.manager).MaxRetries(0).Body(Encode(fields)).Do(ctx), stored)
}

func (c *clients) Patch(ctx context.Context, kind *Kind, of types.NamespacedName, patch Patch, stored metav1.Object) error {
	path, apiVersion, err := c.path(kind, of)
	if err != nil {
		return err
	}
	if patch.Status {
		path = append(path, "status")
	}
	sort, body := types.MergePatchType, patch.Body
	if patch.Apply {
		sort = types.ApplyPatchType
		var fields map[string]any
		if err := json.Unmarshal(body, &fields); err != nil {
			return err
		}
		fields["apiVersion"], fields["kind"] = apiVersion, kind.Name
		body = Encode(fields)
	}
	request := c.rest.Patch(sort).AbsPath(path...).Param("fieldManager", c.manager)
	if patch.Apply {
		request.Param("force", "true")
	}
	return decoded(request.MaxRetries(0).Body(body).Do(ctx), stored)
}

func (c *clients) Delete(ctx context.Context, kind *Kind, of types.NamespacedName, uid types.UID, resourceVersion string) error {
	path, _, err := c.path(kind, of)
	if err != nil {
		return err
	}
	options := metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, Preconditions: &metav1.Preconditions{UID: &uid}}
	if resourceVersion != "" {
		options.Preconditions.ResourceVersion = &resourceVersion
	}
	return c.rest.Delete().AbsPath(path...).SetHeader("Content-Type", "application/json").MaxRetries(0).Body(Encode(options)).Do(ctx).Error()
}

// path returns the path of an object, or of all objects of a namespace if there is no name, and the API version in it.
func (c *clients) path(kind *Kind, of types.NamespacedName) (path []string, apiVersion string, err error) {
	apiVersion, ok := c.served(kind)
	if !ok {
		return nil, "", apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: kind.Resource}, of.Name)
	}
	path = []string{"apis", apiVersion}
	if kind.Group == "" {
		path[0] = "api"
	}
	if of.Namespace != "" {
		path = append(path, "namespaces", of.Namespace)
	}
	path = append(path, kind.Resource)
	if of.Name != "" {
		path = append(path, of.Name)
	}
	return path, apiVersion, nil
}

// decoded returns the error of an answer, or decodes the object in it. An object that cannot be decoded is no error: the request was carried
// out. Then into stays empty.
func decoded(answer rest.Result, into metav1.Object) error {
	if err := answer.Error(); err != nil { // That of Raw lacks what the API server says.
		return err
	}
	if into == nil {
		return nil
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

// fenced is an API whose writes pass a fence: a former leader must not give an address that its successor gives to another object. It also
// shows the results of its writes in the Stores, and patches no object too often.
type fenced struct {
	API
	fence   writes.Fence
	sources map[*Kind]Source
	note    func(kind *Kind, verb string, err error)
	pace    pace.Pace
}

func (f *fenced) Create(ctx context.Context, kind *Kind, object, stored metav1.Object) error {
	stored = f.blank(kind, stored)
	err := f.enter(ctx, kind, http.MethodPost, func(ctx context.Context) error { return f.API.Create(ctx, kind, object, stored) })
	if err != nil {
		return fmt.Errorf("create %v: %w", KeyOf(kind, object), err)
	}
	f.wrote(kind, stored)
	return nil
}

func (f *fenced) Patch(ctx context.Context, kind *Kind, of types.NamespacedName, patch Patch, stored metav1.Object) error {
	stored = f.blank(kind, stored)
	err := pace.ErrRestless
	if f.pace.Permits(patch.Body) {
		err = f.enter(ctx, kind, http.MethodPatch, func(ctx context.Context) error { return f.API.Patch(ctx, kind, of, patch, stored) })
	}
	if err != nil {
		what := "patch"
		if patch.Status {
			what = "patch the status of"
		}
		return fmt.Errorf("%s %v: %w", what, Key{kind, of.Namespace, of.Name}, err)
	}
	f.wrote(kind, stored)
	return nil
}

func (f *fenced) Delete(ctx context.Context, kind *Kind, of types.NamespacedName, uid types.UID, resourceVersion string) error {
	err := f.enter(ctx, kind, http.MethodDelete, func(ctx context.Context) error { return f.API.Delete(ctx, kind, of, uid, resourceVersion) })
	if err != nil {
		return fmt.Errorf("delete %v: %w", Key{kind, of.Namespace, of.Name}, err)
	}
	return nil
}

// enter sends a write once the fence permits it. A shutdown does not interrupt it.
func (f *fenced) enter(ctx context.Context, kind *Kind, verb string, write func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writes.Timeout)
	defer cancel()
	ctx, leave, err := f.fence.Enter(ctx, writes.Timeout)
	if err != nil {
		return err
	}
	err = write(ctx)
	if writes.Answered(err) {
		leave()
	}
	f.note(kind, verb, err)
	return err
}

// blank returns an empty object for the answer if the caller needs none and a Store does.
func (f *fenced) blank(kind *Kind, stored metav1.Object) metav1.Object {
	if source, ok := f.sources[kind]; ok && stored == nil {
		return source.blank()
	}
	return stored
}

func (f *fenced) wrote(kind *Kind, stored metav1.Object) {
	if source, ok := f.sources[kind]; ok && stored.GetUID() != "" && source.Reads().has(stored) {
		source.wrote(stored)
	}
}
