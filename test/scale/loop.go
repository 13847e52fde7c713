package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	nodeapi "github.com/multicidr/controller-manager/controllers/nodeipam/api"
)

const (
	loopCommand = "bare-loop"
	// loopWorkers is as many as upstream's has by default.
	loopWorkers = 30
)

// loop is the least that can serve Nodes: it watches them and sends a PATCH for each, the one that our controller sends, with the next
// block of the ClusterCIDR called "range". It remembers nothing, checks nothing, and ends at the first error. What it takes is what the
// API server takes.
type loop struct {
	kube  kubernetes.Interface
	next  atomic.Int64
	found chan *corev1.Node
}

// runLoop takes from the kubeconfig where the API server is, and from the other file who it is. workers is how many PATCHes it sends at a time.
func runLoop(ctx context.Context, kubeconfig, tokenFile string, workers int) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.BearerTokenFile = -1, tokenFile
	config.CertData, config.KeyData = nil, nil
	// Longer than any burst of one run, so that the watch is never held up by the PATCHes.
	l := &loop{found: make(chan *corev1.Node, 1<<17)}
	if l.kube, err = kubernetes.NewForConfig(protobuf(config)); err != nil {
		return err
	}
	failed := make(chan error)
	go func() { failed <- l.find(ctx) }()
	go func() {
		if err := waitForRange(ctx, config); err != nil {
			failed <- err
			return
		}
		for range workers {
			go func() { failed <- l.serve(ctx) }()
		}
	}()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// find finds all Nodes without podCIDRs, those that come later too.
func (l *loop) find(ctx context.Context) error {
	list, err := l.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		l.see(&list.Items[i])
	}
	return follow(ctx, l.kube, list.ResourceVersion, func(event watch.EventType, node *corev1.Node) {
		if event == watch.Added {
			l.see(node)
		}
	})
}

func (l *loop) see(node *corev1.Node) {
	if len(node.Spec.PodCIDRs) == 0 {
		l.found <- node
	}
}

// waitForRange returns when there is the ClusterCIDR.
func waitForRange(ctx context.Context, config *rest.Config) error {
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	w, err := client.NetworkingV1().ClusterCIDRs().Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", rangeName).String()})
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if _, ok := event.Object.(*networkingv1.ClusterCIDR); ok {
			return nil
		}
	}
	return fmt.Errorf("the watch of ClusterCIDRs ended")
}

func (l *loop) serve(ctx context.Context) error {
	for node := range l.found {
		cidr := nthPrefix(int(l.next.Add(1)-1)<<hostBits, maskLength).String()
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
		if _, err := nodeapi.PatchNode(ctx, l.kube, node.Name, patch); err != nil {
			return err
		}
	}
	return nil
}
