package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// poolLabel is what examples/ select Nodes by.
const poolLabel = "example.com/pool"

// groups are the Nodes' groups of examples/README.md that each get a ClusterCIDR of their own.
var groups = []struct{ pool, zone, name string }{
	{pool: "general", zone: "zone-b", name: "worker"},
	{pool: "edge", zone: "zone-c", name: "store"},
	{pool: "gpu", zone: "zone-a", name: "gpu"},
}

// newNode is the i-th Node as its kubelet would register it; the groups take turns.
func newNode(i int) *corev1.Node {
	group := groups[i%len(groups)]
	name := fmt.Sprintf("%s-%02d", group.name, i/len(groups)+1)
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name,
		Labels: map[string]string{
			corev1.LabelHostname:     name,
			corev1.LabelOSStable:     "linux",
			corev1.LabelArchStable:   "amd64",
			corev1.LabelTopologyZone: group.zone,
			poolLabel:                group.pool,
		},
	}}
}

func registerNodes(ctx context.Context, config *rest.Config, count int) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for i := range count {
		if _, err := client.CoreV1().Nodes().Create(ctx, newNode(i), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("register Node: %w", err)
		}
	}
	return nil
}
