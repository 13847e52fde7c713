package files

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// Apply replaces each ClusterCIDR that Read has returned, and that exists, by what kubectl apply makes of it: a field that the file leaves out
// stays as it is, unless the last kubectl apply named it.
func Apply(read []networkingv1.ClusterCIDR, existing []*networkingv1.ClusterCIDR) error {
	for i := range read {
		for _, now := range existing {
			if now.Name != read[i].Name {
				continue
			}
			if err := apply(&read[i], now); err != nil {
				return fmt.Errorf("ClusterCIDR %s: %w", now.Name, err)
			}
		}
	}
	return nil
}

func apply(cc, now *networkingv1.ClusterCIDR) error {
	file, err := lastApplied(cc)
	if err != nil {
		return err
	}
	last, err := lastApplied(now)
	if err != nil {
		return fmt.Errorf("its annotation %s cannot be read, and kubectl apply cannot read it either: %w", corev1.LastAppliedConfigAnnotation, err)
	}
	object, err := specOf(now)
	if err != nil {
		return err
	}
	spec, _ := object["spec"].(map[string]any)
	cc.Spec = networkingv1.ClusterCIDRSpec{}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(merged(file, spec, last), &cc.Spec)
}

// lastApplied is the spec in the annotation of kubectl apply; nil without the annotation, as after kubectl create or kubectl apply --server-side.
func lastApplied(cc *networkingv1.ClusterCIDR) (map[string]any, error) {
	text, ok := cc.Annotations[corev1.LastAppliedConfigAnnotation]
	if !ok {
		return nil, nil
	}
	var object struct {
		Spec map[string]any `json:"spec"`
	}
	err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &object)
	return object.Spec, err
}

// merged returns an object with the fields of a file. What the file does not name goes if the last file named it, and else stays. Lists are
// replaced as a whole.
func merged(file, object, last map[string]any) map[string]any {
	result := maps.Clone(object)
	if result == nil {
		result = map[string]any{}
	}
	for name := range last {
		if _, ok := file[name]; !ok {
			delete(result, name)
		}
	}
	for name, value := range file {
		fields, isObject := value.(map[string]any)
		if value == nil {
			delete(result, name)
		} else if isObject {
			before, _ := object[name].(map[string]any)
			named, _ := last[name].(map[string]any)
			result[name] = merged(fields, before, named)
		} else {
			result[name] = value
		}
	}
	return result
}
