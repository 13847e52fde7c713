// Package api is the controller's interface to the API server: its requests, their bodies, what their answers prove, and the fence that
// every write passes.
package api

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	clustercidrscheme "github.com/multicidr/controller-manager/apis/generated/clientset/versioned/scheme"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// Manager is the controller's name: in --controllers, and as its ServiceAccount, field manager and event source.
const Manager = "multi-cidr-node-ipam-controller"

// API is every request that the controller sends, except the reads of informers and events. Each request is sent once: a request that was
// repeated below this interface would be answered for its last attempt only.
type API interface {
	// GetNode reads a Node from etcd and bypasses every cache.
	GetNode(ctx context.Context, name string) (*v1.Node, error)
	// PatchNode returns the resource version that the Node has after the patch. It is empty if the patch was carried out and the answer
	// does not say which version it made.
	PatchNode(ctx context.Context, name string, patch []byte) (resourceVersion string, err error)
	// CreateClusterCIDR returns an error with ErrStoredOtherwise if the ClusterCIDR was created with another label, range or block size.
	CreateClusterCIDR(ctx context.Context, cc *networkingv1.ClusterCIDR) error
	PatchClusterCIDR(ctx context.Context, name string, patch []byte) error
	// ApplyStatus sends a StatusPatch. It returns an error with ErrNoStatus if there is no such object, or no such subresource.
	ApplyStatus(ctx context.Context, name string, patch []byte) error
}

// New returns the API of a real API server. The clients must not limit requests per second: Fenced does that.
func New(kube kubernetes.Interface, clusterCIDRs versioned.Interface) API {
	return clients{kube, clusterCIDRs}
}

type clients struct {
	kube         kubernetes.Interface
	clusterCIDRs versioned.Interface
}

func (c clients) GetNode(ctx context.Context, name string) (*v1.Node, error) {
	return c.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
}

func (c clients) PatchNode(ctx context.Context, name string, patch []byte) (string, error) {
	return PatchNode(ctx, c.kube, name, patch)
}

// briefly requests only the object's metadata in the answer. A Node lists the images on its disk, which the controller does not need.
const briefly = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// PatchNode sends a patch of a Node and returns the resource version that it made. It is exported for programs that measure an API server
// with the controller's own request.
func PatchNode(ctx context.Context, client kubernetes.Interface, name string, patch []byte) (resourceVersion string, err error) {
	result := client.CoreV1().RESTClient().Patch(types.StrategicMergePatchType).
		Resource("nodes").Name(name).
		VersionedParams(&metav1.PatchOptions{FieldManager: Manager}, scheme.ParameterCodec).
		SetHeader("Accept", briefly).
		MaxRetries(0).
		Body(patch).Do(ctx)
	if err := result.Error(); err != nil { // That of Raw lacks what the API server says.
		return "", err
	}
	answer, err := result.Raw()
	return versionIn(answer), err
}

func (c clients) CreateClusterCIDR(ctx context.Context, cc *networkingv1.ClusterCIDR) error {
	result := c.clusterCIDRs.NetworkingV1().RESTClient().Post().
		Resource("clustercidrs").
		VersionedParams(&metav1.CreateOptions{FieldManager: Manager}, clustercidrscheme.ParameterCodec).
		MaxRetries(0).
		Body(cc).Do(ctx)
	if err := result.Error(); err != nil {
		return err
	}
	answer, err := result.Raw()
	if err != nil {
		return err
	}
	var stored networkingv1.ClusterCIDR
	// An answer that cannot be decoded is about an object that is not what was sent.
	if json.Unmarshal(answer, &stored) != nil || !storedAs(cc, &stored) {
		return fmt.Errorf("ClusterCIDR %s: %w", cc.Name, ErrStoredOtherwise)
	}
	return nil
}

// storedAs reports whether an object has what the controller recognises it by, and what cannot be changed later.
func storedAs(sent, stored *networkingv1.ClusterCIDR) bool {
	is := stored.Spec
	is.Priority, is.ExcludedCIDRs, is.Allocation = sent.Spec.Priority, sent.Spec.ExcludedCIDRs, sent.Spec.Allocation
	return labels.SelectorFromSet(sent.Labels).Matches(labels.Set(stored.Labels)) && equality.Semantic.DeepEqual(is, sent.Spec)
}

func (c clients) PatchClusterCIDR(ctx context.Context, name string, patch []byte) error {
	return c.patch(types.MergePatchType, name, metav1.PatchOptions{FieldManager: Manager}, patch).Do(ctx).Error()
}

func (c clients) ApplyStatus(ctx context.Context, name string, patch []byte) error {
	force := true
	err := c.patch(types.ApplyPatchType, name, metav1.PatchOptions{FieldManager: Manager, Force: &force}, patch, "status").Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: %w", ErrNoStatus, err)
	}
	return err
}

// patch returns a patch of a ClusterCIDR whose answer is not decoded: the typed client would turn the answer about an object that cannot be
// decoded into an error, as if nobody knew whether the patch was carried out.
func (c clients) patch(t types.PatchType, name string, opts metav1.PatchOptions, patch []byte, subresources ...string) *rest.Request {
	return c.clusterCIDRs.NetworkingV1().RESTClient().Patch(t).
		Resource("clustercidrs").Name(name).SubResource(subresources...).
		VersionedParams(&opts, clustercidrscheme.ParameterCodec).
		MaxRetries(0).
		Body(patch)
}
