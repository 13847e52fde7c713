package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/incluster"
	nodeapi "github.com/multicidr/controller-manager/controllers/nodeipam/api"
)

// A bare loop is the least that can serve Nodes or claims: it watches them, and sends for each the requests that ours would, with the same content but
// for the next block or address. It remembers nothing, checks nothing, and ends at the first error. What it takes is what the API server takes.
type loop struct {
	workers int // as many as ours has by default
	watch   func(context.Context, metav1.ListOptions) (watch.Interface, error)
	waits   func(runtime.Object) bool
	serve   func(ctx context.Context, o runtime.Object, number uint32) error
}

const (
	nodeLoop    = "bare-loop-of-nodes"
	addressLoop = "bare-loop-of-addresses"
)

var loops = map[string]func(*rest.Config) (*loop, error){nodeLoop: newNodeLoop, addressLoop: newAddressLoop}

// runLoop takes from the kubeconfig where the API server is, and from the other file, if it is named, who it is.
func runLoop(ctx context.Context, kubeconfig, tokenFile string, of func(*rest.Config) (*loop, error)) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	if tokenFile != "" {
		config.BearerTokenFile, config.CertData, config.KeyData = tokenFile, nil, nil
	}
	l, err := of(config)
	if err != nil {
		return err
	}
	// Longer than any burst of one run, so that the watch is never held up by the requests.
	failed, found := make(chan error), make(chan runtime.Object, 1<<17)
	go func() {
		// A watch from no version begins with all there is.
		failed <- follow(ctx, l.watch, "", func(event watch.EventType, o runtime.Object, _ string) bool {
			if event == watch.Added && l.waits(o) {
				found <- o
			}
			return false
		})
	}()
	var next atomic.Uint32
	for range l.workers {
		go func() {
			for o := range found {
				if err := l.serve(ctx, o, next.Add(1)); err != nil {
					failed <- err
				}
			}
		}()
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

func newNodeLoop(config *rest.Config) (*loop, error) {
	kube, err := kubernetes.NewForConfig(protobuf(config))
	if err != nil {
		return nil, err
	}
	nodes := kube.CoreV1().Nodes()
	return &loop{
		workers: 30,
		watch:   nodes.Watch,
		waits:   func(o runtime.Object) bool { return len(o.(*corev1.Node).Spec.PodCIDRs) == 0 },
		serve: func(ctx context.Context, o runtime.Object, number uint32) error {
			node, cidr := o.(*corev1.Node), nthPrefix(int(number)<<hostBits, maskLength).String()
			patch, err := json.Marshal(map[string]any{
				"metadata": map[string]any{"uid": node.UID, "annotations": map[string]string{
					networkingv1.AnnotationClusterCIDR: rangeName,
					networkingv1.AnnotationLeaseHolder: "host_00000000-0000-4000-8000-000000000000",
				}},
				"spec": map[string]any{"podCIDR": cidr, "podCIDRs": []string{cidr}},
			})
			if err != nil {
				return err
			}
			_, err = nodeapi.PatchNode(ctx, kube, node.Name, patch)
			return err
		},
	}, nil
}

func newAddressLoop(config *rest.Config) (*loop, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	pool, err := client.Resource(ipPools).Namespace(metav1.NamespaceDefault).Get(context.Background(), rangeName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	claims := client.Resource(ipClaims).Namespace(metav1.NamespaceDefault)
	return &loop{
		workers: 10,
		watch:   claims.Watch,
		waits:   func(o runtime.Object) bool { return len(o.(*unstructured.Unstructured).GetFinalizers()) == 0 },
		serve: func(ctx context.Context, o runtime.Object, number uint32) error {
			return allocateNext(ctx, client, o.(*unstructured.Unstructured), pool.GetUID(), number)
		},
	}, nil
}

func allocateNext(ctx context.Context, client dynamic.Interface, claim *unstructured.Unstructured, pool types.UID, number uint32) error {
	claimsOf, name := client.Resource(ipClaims).Namespace(claim.GetNamespace()), claim.GetName()
	patch := func(change map[string]any, subresources ...string) error {
		body, err := json.Marshal(change)
		if err == nil {
			_, err = claimsOf.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{}, subresources...)
		}
		return err
	}
	first := netip.MustParseAddr(firstAddress).As4()
	address := netip.AddrFrom4([4]byte{first[0], first[1] + byte(number>>16), byte(number >> 8), byte(number)})
	moves := map[string]string{
		contract.AnnotationOwner: fmt.Sprintf("%s/%s/%s", claim.GetNamespace(), name, claim.GetUID()), incluster.AnnotationAddress: address.String(),
	}
	if err := patch(map[string]any{"metadata": map[string]any{
		"uid": claim.GetUID(), "finalizers": []string{v1beta2.FinalizerReleaseAddress}, "annotations": moves, "labels": map[string]string{contract.LabelMove: ""},
	}}); err != nil {
		return err
	}
	o := object(ipAddress, v1beta2.KindIPAddress, name, map[string]any{
		"claimRef": map[string]any{"name": name}, "poolRef": poolOfAll, "address": address.String(), "prefix": int64(12),
	})
	yes, no := true, false
	o.SetFinalizers([]string{v1beta2.FinalizerProtectAddress})
	o.SetAnnotations(moves)
	o.SetOwnerReferences([]metav1.OwnerReference{
		{APIVersion: claim.GetAPIVersion(), Kind: claim.GetKind(), Name: name, UID: claim.GetUID(), Controller: &yes, BlockOwnerDeletion: &yes},
		{APIVersion: ipPools.GroupVersion().String(), Kind: v1alpha2.KindInClusterIPPool, Name: rangeName, UID: pool, Controller: &no, BlockOwnerDeletion: &yes},
	})
	if _, err := client.Resource(ipAddress).Namespace(claim.GetNamespace()).Create(ctx, o, metav1.CreateOptions{}); err != nil {
		return err
	}
	ready := metav1.Condition{
		Type: v1beta2.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: claim.GetGeneration(), LastTransitionTime: metav1.Now(),
		Reason: "Ready", Message: fmt.Sprintf("The address is %v.", address),
	}
	status := map[string]any{"addressRef": map[string]any{"name": name}, "conditions": []metav1.Condition{ready}}
	return patch(map[string]any{"metadata": map[string]any{"uid": claim.GetUID()}, "status": status}, "status")
}
