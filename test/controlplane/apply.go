package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

// servedTimeout is how long a new custom resource may take to be served once its CRD is in.
const servedTimeout = 30 * time.Second

// Apply sends every object of the YAML files to the API server, in the order of the paths; of a directory
// it takes its .yaml files by name, but not those of directories in it. It is a server-side apply that takes over what others own.
func (cp *ControlPlane) Apply(ctx context.Context, paths ...string) error {
	objects, err := readObjects(paths)
	if err != nil {
		return err
	}
	return cp.ApplyObjects(ctx, objects...)
}

// ApplyObjects is Apply for objects in memory.
func (cp *ControlPlane) ApplyObjects(ctx context.Context, objects ...*unstructured.Unstructured) error {
	client, err := dynamic.NewForConfig(cp.AdminConfig())
	if err != nil {
		return err
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(cp.AdminConfig())
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discoveryClient))
	for _, object := range objects {
		if err := applyServed(ctx, client, mapper, object); err != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// applyServed waits for a kind whose CRD may have been applied a moment ago.
func applyServed(ctx context.Context, client dynamic.Interface, mapper meta.ResettableRESTMapper, object *unstructured.Unstructured) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, servedTimeout, true, func(ctx context.Context) (bool, error) {
		last = applyOne(ctx, client, mapper, object)
		// Until the new kind is served everywhere discovery does not know it, or the apply is Not Found.
		if meta.IsNoMatchError(last) || apierrors.IsNotFound(last) {
			mapper.Reset()
			return false, nil
		}
		return true, last
	})
	if wait.Interrupted(err) && last != nil {
		return last
	}
	return err
}

func applyOne(ctx context.Context, client dynamic.Interface, mapper meta.RESTMapper, object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	resource := dynamic.ResourceInterface(client.Resource(mapping.Resource))
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		namespace := object.GetNamespace()
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		resource = client.Resource(mapping.Resource).Namespace(namespace)
	}
	_, err = resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "controlplane", Force: true})
	return err
}

func readObjects(paths []string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, path := range paths {
		err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && file != path:
				return fs.SkipDir
			case entry.IsDir() || file != path && filepath.Ext(file) != ".yaml":
				return nil
			}
			found, err := readFile(file)
			objects = append(objects, found...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return objects, nil
}

func readFile(path string) ([]*unstructured.Unstructured, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		object := &unstructured.Unstructured{}
		switch err := decoder.Decode(object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", path, err)
		case len(object.Object) > 0: // An empty document, or one of comments only, is no object.
			objects = append(objects, object)
		}
	}
}
