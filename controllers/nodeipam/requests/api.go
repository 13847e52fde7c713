// Package requests is the controller's interface to the API server: its requests and patches, and those of them that must pass the fence.
package requests

import (
	"context"
	"encoding/json"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	applyv1 "github.com/multicidr/controller-manager/apis/generated/applyconfiguration/networking/v1"
	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	clustercidrscheme "github.com/multicidr/controller-manager/apis/generated/clientset/versioned/scheme"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// Manager is the controller's name: in --controllers, and as its ServiceAccount, field manager and event source.
const Manager = "multi-cidr-node-ipam-controller"

// API is every request that the controller sends, except the reads of informers.
type API interface {
	// GetNode reads a Node from etcd and bypasses every cache.
	GetNode(ctx context.Context, name string) (*v1.Node, error)
	PatchNode(ctx context.Context, name string, patch []byte) error
	// CreateClusterCIDR returns the ClusterCIDR as stored.
	CreateClusterCIDR(ctx context.Context, cc *networkingv1.ClusterCIDR) (*networkingv1.ClusterCIDR, error)
	PatchClusterCIDR(ctx context.Context, name string, patch []byte) error
	DeleteClusterCIDR(ctx context.Context, name string, uid types.UID, resourceVersion string) error
	// ApplyStatus returns the status as stored.
	ApplyStatus(ctx context.Context, patch *applyv1.ClusterCIDRApplyConfiguration) (networkingv1.ClusterCIDRStatus, error)
	// PatchStatus sends a merge patch of a ClusterCIDR's status.
	PatchStatus(ctx context.Context, name string, patch []byte) error
	CreateEvent(ctx context.Context, event *v1.Event) error
	// PatchEvent returns the patched event.
	PatchEvent(ctx context.Context, namespace, name string, patch []byte) (*v1.Event, error)
}

// Clients implements API with a real API server.
type Clients struct {
	Kube         kubernetes.Interface
	ClusterCIDRs versioned.Interface
}

// briefly requests only the object's metadata in the answer. A Node lists the images on its disk, which the controller does not need.
const briefly = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// PatchNode sends a patch exactly once. client-go would retry it after some errors, and then the last answer says nothing about earlier
// attempts. It is exported for test/scale, which measures the API server with it.
func PatchNode(ctx context.Context, client kubernetes.Interface, name string, patch []byte) error {
	return client.CoreV1().RESTClient().Patch(types.StrategicMergePatchType).
		Resource("nodes").Name(name).
		VersionedParams(&metav1.PatchOptions{FieldManager: Manager}, scheme.ParameterCodec).
		SetHeader("Accept", briefly).
		MaxRetries(0).
		Body(patch).Do(ctx).Error()
}

func (c Clients) GetNode(ctx context.Context, name string) (*v1.Node, error) {
	return c.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
}

func (c Clients) PatchNode(ctx context.Context, name string, patch []byte) error {
	return PatchNode(ctx, c.Kube, name, patch)
}

func (c Clients) CreateClusterCIDR(ctx context.Context, cc *networkingv1.ClusterCIDR) (*networkingv1.ClusterCIDR, error) {
	return c.ClusterCIDRs.NetworkingV1().ClusterCIDRs().Create(ctx, cc, metav1.CreateOptions{FieldManager: Manager})
}

func (c Clients) PatchClusterCIDR(ctx context.Context, name string, patch []byte) error {
	return c.patchClusterCIDR(types.MergePatchType, name, metav1.PatchOptions{FieldManager: Manager}, patch).Do(ctx).Error()
}

// patchClusterCIDR returns a patch of a ClusterCIDR whose answer is not decoded. The typed client would turn the answer about an object that
// cannot be decoded into an error, as if nobody knew whether the patch was carried out.
func (c Clients) patchClusterCIDR(t types.PatchType, name string, opts metav1.PatchOptions, patch []byte, subresources ...string) *rest.Request {
	return c.ClusterCIDRs.NetworkingV1().RESTClient().Patch(t).
		Resource("clustercidrs").Name(name).SubResource(subresources...).
		VersionedParams(&opts, clustercidrscheme.ParameterCodec).
		Body(patch)
}

func (c Clients) DeleteClusterCIDR(ctx context.Context, name string, uid types.UID, resourceVersion string) error {
	return c.ClusterCIDRs.NetworkingV1().ClusterCIDRs().Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &resourceVersion}})
}

func (c Clients) ApplyStatus(ctx context.Context, patch *applyv1.ClusterCIDRApplyConfiguration) (networkingv1.ClusterCIDRStatus, error) {
	text, err := json.Marshal(patch)
	if err != nil {
		return networkingv1.ClusterCIDRStatus{}, err
	}
	force := true
	result := c.patchClusterCIDR(types.ApplyPatchType, *patch.Name, metav1.PatchOptions{FieldManager: Manager, Force: &force}, text, "status").Do(ctx)
	if err := result.Error(); err != nil { // That of Raw lacks what the API server says.
		return networkingv1.ClusterCIDRStatus{}, err
	}
	answer, err := result.Raw()
	if err != nil {
		return networkingv1.ClusterCIDRStatus{}, err
	}
	var stored struct {
		Status networkingv1.ClusterCIDRStatus `json:"status"`
	}
	err = json.Unmarshal(answer, &stored)
	return stored.Status, err
}

func (c Clients) PatchStatus(ctx context.Context, name string, patch []byte) error {
	return c.patchClusterCIDR(types.MergePatchType, name, metav1.PatchOptions{FieldManager: Manager}, patch, "status").Do(ctx).Error()
}

func (c Clients) CreateEvent(ctx context.Context, event *v1.Event) error {
	_, err := c.Kube.CoreV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{FieldManager: Manager})
	return err
}

func (c Clients) PatchEvent(ctx context.Context, namespace, name string, patch []byte) (*v1.Event, error) {
	return c.Kube.CoreV1().Events(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: Manager})
}
