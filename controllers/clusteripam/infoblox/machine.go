package infoblox

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
)

// ownerDepth is how many owner references lie between a claim and its Machine at most.
const ownerDepth = 5

// machineOf returns the name of the Machine that a claim is for: its owner, or an owner of that, for example Metal3Data, Metal3Machine, Machine. Without a Machine
// it is the name of the claim's owner, or the claim's.
func (l *logic) machineOf(ctx context.Context, claim *v1beta2.IPAddressClaim) (name string, err error) {
	owners := claim.OwnerReferences
	for range ownerDepth {
		var above []metav1.OwnerReference
		for _, o := range owners {
			if group, _, _ := strings.Cut(o.APIVersion, "/"); o.Kind == runner.Machines.Name && group == runner.GroupClusterAPI {
				return o.Name, nil
			}
		}
		for _, o := range owners { // One that cannot be read need not be on the way to the Machine.
			more, failure := l.ownersOf(ctx, claim.Namespace, o)
			above, err = append(above, more...), cmp.Or(err, failure)
		}
		owners = above
	}
	if owner := metav1.GetControllerOf(claim); owner != nil {
		return owner.Name, err
	}
	return claim.Name, err
}

// ownersOf reads the owner references of an owner. One that does not exist has none.
func (l *logic) ownersOf(ctx context.Context, namespace string, o metav1.OwnerReference) ([]metav1.OwnerReference, error) {
	gv, err := schema.ParseGroupVersion(o.APIVersion)
	if err != nil {
		return nil, nil
	}
	plural, _ := meta.UnsafeGuessKindToResource(gv.WithKind(o.Kind))
	kind := &runner.Kind{Name: o.Kind, Group: gv.Group, Resource: plural.Resource, Versions: []string{gv.Version}}
	object := &metav1.PartialObjectMetadata{}
	switch err := l.term.API.Get(ctx, kind, types.NamespacedName{Namespace: namespace, Name: o.Name}, object); {
	case apierrors.IsForbidden(err):
		return nil, waits(v1beta2.ReasonAllocationFailed, checkEvery, "The host name is that of the Machine, and the controller may not read the %s %s on the way to it: %v. "+
			"Give it get on %s of the group %s. Or set the annotation %s of the claim.",
			o.Kind, o.Name, err, plural.Resource, gv.Group, v1alpha1.AnnotationHostname)
	case apierrors.IsNotFound(err), err == nil && object.UID != o.UID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the %s %s: %w", o.Kind, o.Name, err)
	}
	return object.OwnerReferences, nil
}
