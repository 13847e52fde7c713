package nodeipam

import (
	"context"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	applyv1 "github.com/multicidr/controller-manager/apis/generated/applyconfiguration/networking/v1"
	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// api is all that the controller asks of the API server beyond what informers read.
type api interface {
	// getNode reads a Node from etcd, past every cache.
	getNode(ctx context.Context, name string) (*v1.Node, error)
	patchNode(ctx context.Context, name string, patch []byte) error
	// createClusterCIDR returns the ClusterCIDR as it is stored.
	createClusterCIDR(ctx context.Context, cc *networkingv1.ClusterCIDR) (*networkingv1.ClusterCIDR, error)
	patchClusterCIDR(ctx context.Context, name string, patch []byte) error
	deleteClusterCIDR(ctx context.Context, name string, uid types.UID, resourceVersion string) error
	applyStatus(ctx context.Context, patch *applyv1.ClusterCIDRApplyConfiguration) error
	// patchStatus is a merge patch of a ClusterCIDR's status.
	patchStatus(ctx context.Context, name string, patch []byte) error
	createEvent(ctx context.Context, event *v1.Event) error
	// patchEvent returns the event as it is then.
	patchEvent(ctx context.Context, namespace, name string, patch []byte) (*v1.Event, error)
}

// clients are the real API server.
type clients struct {
	kube         kubernetes.Interface
	clusterCIDRs versioned.Interface
}

// briefly asks for no more than the object's metadata in return. A Node lists the images on its disk, which nobody here reads.
const briefly = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// PatchNode sends a patch as the controller does, once: client-go would repeat it by itself after some errors, and the answer to the
// last try says nothing about the ones before. It is exported for test/scale, which measures the API server with it.
func PatchNode(ctx context.Context, client kubernetes.Interface, name string, patch []byte) error {
	return client.CoreV1().RESTClient().Patch(types.StrategicMergePatchType).
		Resource("nodes").Name(name).
		VersionedParams(&metav1.PatchOptions{FieldManager: Name}, scheme.ParameterCodec).
		SetHeader("Accept", briefly).
		MaxRetries(0).
		Body(patch).Do(ctx).Error()
}

func (c clients) getNode(ctx context.Context, name string) (*v1.Node, error) {
	return c.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
}

func (c clients) patchNode(ctx context.Context, name string, patch []byte) error {
	return PatchNode(ctx, c.kube, name, patch)
}

func (c clients) createClusterCIDR(ctx context.Context, cc *networkingv1.ClusterCIDR) (*networkingv1.ClusterCIDR, error) {
	return c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Create(ctx, cc, metav1.CreateOptions{FieldManager: Name})
}

func (c clients) patchClusterCIDR(ctx context.Context, name string, patch []byte) error {
	_, err := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: Name})
	return err
}

func (c clients) deleteClusterCIDR(ctx context.Context, name string, uid types.UID, resourceVersion string) error {
	return c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &resourceVersion}})
}

func (c clients) applyStatus(ctx context.Context, patch *applyv1.ClusterCIDRApplyConfiguration) error {
	_, err := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().ApplyStatus(ctx, patch, metav1.ApplyOptions{FieldManager: Name, Force: true})
	return err
}

func (c clients) patchStatus(ctx context.Context, name string, patch []byte) error {
	_, err := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: Name}, "status")
	return err
}

func (c clients) createEvent(ctx context.Context, event *v1.Event) error {
	_, err := c.kube.CoreV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{FieldManager: Name})
	return err
}

func (c clients) patchEvent(ctx context.Context, namespace, name string, patch []byte) (*v1.Event, error) {
	return c.kube.CoreV1().Events(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: Name})
}

// notThere reports whether an object that was to be written does not exist. An API server that does not serve the resource, because it has
// not got to know the CRD yet for instance, answers with 404 as well; nothing will happen that brings such a write back, so it has
// to be tried again.
func notThere(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
