package preflight

import (
	"context"
	"fmt"
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/manifests/crds"
)

// readCRD reads the CRD of ClusterCIDRs. A user who may not read it is told nothing about it.
func (c clients) readCRD(ctx context.Context, s *state) error {
	name := "clustercidrs." + networkingv1.GroupName
	object, err := there(c.anything.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")).Get(ctx, name, metav1.GetOptions{}))
	if err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("get CustomResourceDefinition %s: %w", name, err)
	}
	if err != nil || object == nil {
		return nil
	}
	s.crd = &apiextensionsv1.CustomResourceDefinition{}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, s.crd)
}

// lacking returns what this version's CRD of ClusterCIDRs has and another one has not: fields, or the status as a whole.
func lacking(crd *apiextensionsv1.CustomResourceDefinition) (paths []string, err error) {
	var own apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(crds.ClusterCIDRs, &own); err != nil {
		return nil, err
	}
	want, have := served(&own), served(crd)
	if have.Subresources == nil || have.Subresources.Status == nil {
		paths = append(paths, "status")
		delete(want.Schema.OpenAPIV3Schema.Properties, "status")
	}
	if have.Schema == nil || have.Schema.OpenAPIV3Schema == nil {
		return append(paths, "all fields"), nil
	}
	return append(paths, lackingFields(*want.Schema.OpenAPIV3Schema, *have.Schema.OpenAPIV3Schema, "")...), nil
}

// served is the version of a CRD that the controller uses.
func served(crd *apiextensionsv1.CustomResourceDefinition) (v apiextensionsv1.CustomResourceDefinitionVersion) {
	for _, v = range crd.Spec.Versions {
		if v.Name == networkingv1.SchemeGroupVersion.Version {
			return v
		}
	}
	return apiextensionsv1.CustomResourceDefinitionVersion{}
}

// lackingFields returns the paths of fields that are in one schema and not in the other, without what is below them.
func lackingFields(want, have apiextensionsv1.JSONSchemaProps, at string) (paths []string) {
	for _, name := range slices.Sorted(maps.Keys(want.Properties)) {
		if field, ok := have.Properties[name]; ok {
			paths = append(paths, lackingFields(want.Properties[name], field, at+name+".")...)
		} else {
			paths = append(paths, at+name)
		}
	}
	if want.Items != nil && want.Items.Schema != nil && have.Items != nil && have.Items.Schema != nil {
		paths = append(paths, lackingFields(*want.Items.Schema, *have.Items.Schema, at)...)
	}
	return paths
}

// checkCRD reports a CRD of an older version, or of kubernetes-sigs/node-ipam-controller.
func checkCRD(fs *findings, s *state, used usage) {
	if s.crd == nil {
		return
	}
	paths, err := lacking(s.crd)
	if err != nil {
		fs.add(problem, "installed", "the CRD of this version cannot be read: %v: this is a defect, report it", err)
	}
	if len(paths) == 0 {
		return
	}
	fs.add(warning, "installed", "the ClusterCIDR CRD is of another version and lacks %v: the API server hides these fields, so that blocks in excludedCIDRs can be allocated, for example. No ClusterCIDR is lost if you do this: %s", paths, used.install())
}
