package claims

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/claims/binding"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
	"github.com/multicidr/controller-manager/controllers/writes"
)

var kinds = map[string]*shell.Kind{
	v1beta1.KindClusterIPAMClaim:  shell.ClusterIPAMClaims,
	v1beta1.KindClusterIPAM:       shell.ClusterIPAMs,
	v1beta1.KindClusterDeployment: shell.ClusterDeployments,
	v1alpha2.KindInClusterIPPool:  shell.InClusterIPPools,
	v1alpha1.KindInfobloxIPPool:   shell.InfobloxIPPools,
}

// Carry carries out writes in order, up to the first one that fails: the following ones are only right after it. If the API server refuses
// one, decide is asked again with the reason, and of its answer the statuses are written, so that users see why.
func Carry(ctx context.Context, parts shell.Parts, decide func(refused string) []binding.Write) error {
	for _, w := range decide("") {
		err := carryOut(ctx, parts, w)
		if err != nil && refused(err) && w.Verb != binding.PatchStatus {
			for _, w := range decide(err.Error()) {
				if w.Verb == binding.PatchStatus && carryOut(ctx, parts, w) != nil {
					break // It is tried again together with what was refused.
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// refused reports whether users have to do something about an error.
func refused(err error) bool {
	return errors.Is(err, shell.ErrTakenBack) ||
		writes.Answered(err) && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err))
}

// carryOut sends a write, tells of it, and sorts its errors for the queue.
func carryOut(ctx context.Context, parts shell.Parts, w binding.Write) error {
	err := send(ctx, parts.API, w)
	if err == nil || !writes.Answered(err) {
		for _, e := range w.Events {
			parts.Tell(shell.Event{About: w.Object, Kind: kinds[w.Kind], Normal: e.Normal, Reason: e.Reason, Message: e.Message})
		}
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || writes.NotThere(err) {
		return writes.RefusedLater{Err: err} // The object has changed since it was cached, and its event is coming.
	}
	return err
}

// send makes the request of a write. The API's errors say which one. To delete what is not there is none.
func send(ctx context.Context, api shell.API, w binding.Write) error {
	kind := kinds[w.Kind]
	of := types.NamespacedName{Namespace: w.Object.GetNamespace(), Name: w.Object.GetName()}
	switch w.Verb {
	case binding.Create:
		return api.Create(ctx, kind, w.Object, nil)
	case binding.Patch:
		return change(ctx, api, kind, w.Object, shell.MergePatch(w.Object, w.Changes))
	case binding.PatchVersion:
		return change(ctx, api, kind, w.Object, shell.MergePatchOfVersion(w.Object, w.Changes))
	case binding.PatchStatus:
		patch := shell.MergePatchOfVersion(w.Object, map[string]any{"status": w.Changes})
		patch.Status = true
		return api.Patch(ctx, kind, of, patch, nil)
	case binding.Delete:
		if err := api.Delete(ctx, kind, of, w.Object.GetUID(), w.Object.GetResourceVersion()); !writes.NotThere(err) {
			return err
		}
	}
	return nil
}

// change patches a cached object. If the API server stores nothing, no event will come that asks for the change again. A status is not sent here:
// what a CustomResourceDefinition of another version drops from it does no harm.
func change(ctx context.Context, api shell.API, kind *shell.Kind, cached metav1.Object, patch shell.Patch) error {
	stored := reflect.New(reflect.TypeOf(cached).Elem()).Interface().(metav1.Object)
	of := types.NamespacedName{Namespace: cached.GetNamespace(), Name: cached.GetName()}
	err := api.Patch(ctx, kind, of, patch, stored)
	if err == nil && stored.GetUID() == cached.GetUID() && stored.GetResourceVersion() == cached.GetResourceVersion() {
		return fmt.Errorf("patch %s %s: %w", kind, of, shell.ErrTakenBack)
	}
	return err
}
