package files

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"sigs.k8s.io/yaml"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/manifests/crds"
)

// rules are those of the CRD of this version, applied with the API server's own code: the cluster may have an older CRD, or none yet.
type rules struct {
	schema    *schema.Structural
	validator validation.SchemaValidator
	cel       *cel.Validator
}

func readRules() (rules, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(crds.ClusterCIDRs, &crd); err != nil {
		return rules{}, err
	}
	var all apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &all, nil); err != nil {
		return rules{}, err
	}
	structural, err := schema.NewStructural(&all)
	if err != nil {
		return rules{}, err
	}
	validator, _, err := validation.NewSchemaValidator(&all)
	return rules{structural, validator, cel.NewValidator(structural, true, celconfig.PerCallLimit)}, err
}

// Refusal is why a ClusterCIDR cannot be applied.
type Refusal struct {
	ClusterCIDR string `json:"clusterCIDR"`
	Message     string `json:"message"`
}

// Refusals returns why ClusterCIDRs that Read has returned cannot be applied to a cluster in which others exist.
func Refusals(ctx context.Context, read []networkingv1.ClusterCIDR, existing []*networkingv1.ClusterCIDR) (all []Refusal, err error) {
	if len(read) == 0 {
		return nil, nil
	}
	r, err := readRules()
	if err != nil {
		return nil, fmt.Errorf("the rules for ClusterCIDRs cannot be read: %w: this is a defect, report it", err)
	}
	before := map[string]*networkingv1.ClusterCIDR{}
	for _, cc := range existing {
		before[cc.Name] = cc
	}
	seen := map[string]bool{}
	for i := range read {
		cc := &read[i]
		if seen[cc.Name] {
			all = append(all, Refusal{cc.Name, "it is there more than once: give each its own name"})
		}
		seen[cc.Name] = true
		found, err := r.refusals(ctx, cc, before[cc.Name])
		if err != nil {
			return nil, fmt.Errorf("ClusterCIDR %s cannot be checked: %w", cc.Name, err)
		}
		for _, refusal := range found {
			all = append(all, Refusal{cc.Name, refusal.Error()})
		}
	}
	return all, nil
}

// refusals returns why the API server would not store a ClusterCIDR; before is the one of that name that exists, or nil.
func (r rules) refusals(ctx context.Context, cc, before *networkingv1.ClusterCIDR) (field.ErrorList, error) {
	object, err := written(cc)
	if err != nil {
		return nil, err
	}
	if before == nil {
		refusals := append(validation.ValidateCustomResource(nil, object, r.validator), listtype.ValidateListSetsAndMaps(nil, r.schema, object)...)
		if len(refusals) == 0 { // The API server does not apply the rules either to an object that its schema refuses.
			refusals, _ = r.cel.Validate(ctx, nil, r.schema, object, nil, celconfig.RuntimeCELCostBudget)
		}
		return refusals, nil
	}
	old, err := specOf(before)
	if err != nil {
		return nil, err
	}
	correlated := common.NewCorrelatedObject(object, old, &model.Structural{Structural: r.schema})
	refusals := append(validation.ValidateCustomResourceUpdate(nil, object, old, r.validator, validation.WithRatcheting(correlated)), listtype.ValidateListSetsAndMaps(nil, r.schema, object)...)
	if len(refusals) == 0 {
		refusals, _ = r.cel.Validate(ctx, nil, r.schema, object, old, celconfig.RuntimeCELCostBudget, cel.WithRatcheting(correlated))
	}
	return refusals, nil
}

// written returns the same as specOf with what the file says, as it is there: the Go type has no word for a value that is empty, or for a null in a list, and the
// API server refuses some of them.
func written(cc *networkingv1.ClusterCIDR) (map[string]any, error) {
	object, err := specOf(cc)
	if err != nil {
		return nil, err
	}
	file, err := lastApplied(cc)
	if err != nil || file == nil {
		return object, err
	}
	spec, _ := withoutNulls(object["spec"]).(map[string]any)
	if spec = merged(withoutNulls(file).(map[string]any), spec, nil); cc.Spec.PerNodeHostBits == 0 && file["perNodeHostBits"] == nil {
		delete(spec, "perNodeHostBits")
	}
	object["spec"] = spec
	return object, nil
}

// withoutNulls returns a value without the fields that are null: the API server drops them before it looks at an object.
func withoutNulls(value any) any {
	switch value := value.(type) {
	case map[string]any:
		fields := map[string]any{}
		for name, field := range value {
			if field != nil {
				fields[name] = withoutNulls(field)
			}
		}
		return fields
	case []any:
		items := make([]any, len(value))
		for i, item := range value {
			items[i] = withoutNulls(item)
		}
		return items
	}
	return value
}

// specOf returns the part of a ClusterCIDR that the rules are about.
func specOf(cc *networkingv1.ClusterCIDR) (object map[string]any, err error) {
	object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(&networkingv1.ClusterCIDR{TypeMeta: isClusterCIDR, Spec: cc.Spec})
	if err != nil {
		return nil, err
	}
	object["metadata"] = map[string]any{"name": cc.Name} // Rules name it.
	delete(object, "status")
	return object, nil
}
