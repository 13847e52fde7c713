// Package stored reads ClusterCIDRs as they are stored, one by one.
package stored

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	clustercidrlisters "github.com/multicidr/controller-manager/apis/generated/listers/networking/v1"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fresh"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
)

// ClusterCIDRs are read as stored and decoded one by one. A typed client rejects a whole list if one object has a field of the wrong type,
// and then no Node would get podCIDRs. A different CRD may have admitted such an object.

// ClusterCIDRs returns a client for the resource.
func ClusterCIDRs(client dynamic.Interface) dynamic.ResourceInterface {
	return client.Resource(networkingv1.SchemeGroupVersion.WithResource("clustercidrs"))
}

// NewInformer returns the informer of ClusterCIDRs. It also differs from the generated one in that changes knows whether ClusterCIDRs can be
// read: an informer reports errors, but not when they end.
func NewInformer(client dynamic.Interface, resync time.Duration, changes *health.Changes) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformerWithOptions(
		cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				list, err := health.Listed(ctx, changes, opts, ClusterCIDRs(client).List)
				if err != nil {
					return nil, err
				}
				decoded := &networkingv1.ClusterCIDRList{ListMeta: metav1.ListMeta{
					ResourceVersion: list.GetResourceVersion(), Continue: list.GetContinue(), RemainingItemCount: list.GetRemainingItemCount(),
				}}
				for i := range list.Items {
					decoded.Items = append(decoded.Items, *Decode(&list.Items[i]))
				}
				return decoded, nil
			},
			WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				return changes.Watched(ctx, opts, func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
					w, err := ClusterCIDRs(client).Watch(ctx, opts)
					if err != nil {
						return nil, err
					}
					return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
						if u, ok := e.Object.(*unstructured.Unstructured); ok && e.Type != watch.Error {
							e.Object = Decode(u)
						}
						return e, true
					}), nil
				})
			},
		}, client),
		&networkingv1.ClusterCIDR{},
		cache.SharedIndexInformerOptions{ResyncPeriod: resync},
	)
}

// Decode returns a ClusterCIDR. If the object cannot be decoded, the result has its metadata, its status, its ranges (Nodes may have blocks in
// them) and clustercidr.AnnotationUndecodable.
func Decode(u *unstructured.Unstructured) *networkingv1.ClusterCIDR {
	cc := &networkingv1.ClusterCIDR{}
	err := decodeInto(u.Object, cc)
	if err == nil {
		delete(cc.Annotations, clustercidr.AnnotationUndecodable)
		disown(cc)
		return cc
	}
	cc = &networkingv1.ClusterCIDR{}
	if metadataErr := decodeInto(map[string]any{"metadata": u.Object["metadata"]}, cc); metadataErr != nil {
		cc = &networkingv1.ClusterCIDR{ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(), DeletionTimestamp: u.GetDeletionTimestamp(), Finalizers: u.GetFinalizers()}}
	}
	if decodeInto(map[string]any{"status": u.Object["status"]}, cc) != nil {
		cc.Status = networkingv1.ClusterCIDRStatus{}
	}
	disown(cc)
	cc.Spec.IPv4, _, _ = unstructured.NestedString(u.Object, "spec", "ipv4")
	cc.Spec.IPv6, _, _ = unstructured.NestedString(u.Object, "spec", "ipv6")
	metav1.SetMetaDataAnnotation(&cc.ObjectMeta, clustercidr.AnnotationUndecodable, err.Error())
	return cc
}

// disown clears the transition time of the controller's conditions if, according to the managed fields, another writer set it. The rest of
// a condition is compared with what it should be, but that time is only known from the object.
func disown(cc *networkingv1.ClusterCIDR) {
	for i := range cc.Status.Conditions {
		c := &cc.Status.Conditions[i]
		if slices.Contains(conditionTypes, c.Type) && !slices.ContainsFunc(cc.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return ownsTransition(f, c.Type) }) {
			c.LastTransitionTime = metav1.Time{}
		}
	}
}

// conditionTypes are the conditions that the controller writes.
var conditionTypes = []string{networkingv1.ConditionReady, networkingv1.ConditionOverlapping, networkingv1.ConditionConflicted}

// ownsTransition reports whether an entry says that this controller applied the condition's transition time.
func ownsTransition(f metav1.ManagedFieldsEntry, conditionType string) bool {
	if f.Manager != requests.Manager || f.Operation != metav1.ManagedFieldsOperationApply || f.Subresource != "status" || f.FieldsV1 == nil {
		return false
	}
	var fields map[string]any
	if err := json.Unmarshal([]byte(f.FieldsV1.String()), &fields); err != nil {
		return false
	}
	for _, name := range []string{"f:status", "f:conditions", fmt.Sprintf(`k:{"type":%q}`, conditionType), "f:lastTransitionTime"} {
		inner, ok := fields[name].(map[string]any)
		if !ok {
			return false
		}
		if len(inner) == 0 {
			return true // The whole of it: a CRD without a schema for the status has no owners for the parts of a list.
		}
		fields = inner
	}
	return false
}

// decodeInto decodes through JSON, as a typed client does: a number that does not fit is an error and is not truncated.
func decodeInto(object map[string]any, cc *networkingv1.ClusterCIDR) error {
	text, err := utiljson.Marshal(object)
	if err != nil {
		return err
	}
	return utiljson.Unmarshal(text, cc)
}

// StripManagedFields removes managed fields, which nothing reads from the cache.
func StripManagedFields(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// Existing is a lister of ClusterCIDRs without those that are known to be gone. The controller would allocate from them, and their finalizer
// is gone, too.
type Existing struct {
	clustercidrlisters.ClusterCIDRLister
	Gone *fresh.Gone
}

func (e Existing) List(selector labels.Selector) ([]*networkingv1.ClusterCIDR, error) {
	all, err := e.ClusterCIDRLister.List(selector)
	return slices.DeleteFunc(all, func(cc *networkingv1.ClusterCIDR) bool { return e.Gone.Knows(cc.Name, cc.ResourceVersion) }), err
}

func (e Existing) Get(name string) (*networkingv1.ClusterCIDR, error) {
	cc, err := e.ClusterCIDRLister.Get(name)
	if err == nil && e.Gone.Knows(name, cc.ResourceVersion) {
		return nil, apierrors.NewNotFound(networkingv1.Resource("clustercidrs"), name)
	}
	return cc, err
}

// Unreadable says why ClusterCIDRs cannot be read and what to do about it; the zero value if err is nil.
func Unreadable(err error, client versioned.Interface) health.Problem {
	switch {
	case err == nil:
		return health.Problem{}
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err) && !crdExists(client):
		return health.Problem{What: health.CRDMissing}
	case apierrors.IsForbidden(err):
		return health.Problem{What: "the controller may not read ClusterCIDRs: " + health.ApplyRBAC, Err: err}
	default:
		return health.Problem{What: "ClusterCIDRs cannot be read: look at the API server's log and load, at etcd, and at proxies between this process and the API server", Err: err}
	}
}

// crdExists asks discovery, which every client may use. A list without permission is Forbidden even if the resource does not exist. Without
// an answer from discovery, the CRD is assumed to exist.
func crdExists(client versioned.Interface) bool {
	_, err := client.Discovery().ServerResourcesForGroupVersion(networkingv1.SchemeGroupVersion.String())
	return !apierrors.IsNotFound(err)
}
