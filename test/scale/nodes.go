package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/multicidr/controller-manager/test/chaos/checker"
)

// newNode is a Node as a kubelet registers it, with about as much in it.
func newNode(name string, index int) *corev1.Node {
	resources := corev1.ResourceList{}
	for name, quantity := range map[corev1.ResourceName]string{"cpu": "8", "memory": "32Gi", "ephemeral-storage": "200Gi", "pods": "110", "hugepages-2Mi": "0"} {
		resources[name] = resource.MustParse(quantity)
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				"beta.kubernetes.io/arch":          "amd64",
				"beta.kubernetes.io/os":            "linux",
				"kubernetes.io/arch":               "amd64",
				"kubernetes.io/hostname":           name,
				"kubernetes.io/os":                 "linux",
				"node.kubernetes.io/instance-type": "standard-8",
				"topology.kubernetes.io/region":    "north",
				"topology.kubernetes.io/zone":      "north-" + strconv.Itoa(index%3),
			},
			Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
		},
		Spec: corev1.NodeSpec{ProviderID: "example://north/" + name},
		Status: corev1.NodeStatus{
			Capacity:    resources,
			Allocatable: resources,
			Conditions:  conditions(time.Now()),
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: netip.AddrFrom4([4]byte{172, byte(16 + index>>16), byte(index >> 8), byte(index)}).String()},
				{Type: corev1.NodeHostName, Address: name},
			},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID:               fmt.Sprintf("%032x", index),
				SystemUUID:              fmt.Sprintf("%08x-0000-4000-8000-000000000000", index),
				BootID:                  fmt.Sprintf("%08x-0000-4000-8000-000000000001", index),
				KernelVersion:           "6.12.0-1-amd64",
				OSImage:                 "Debian GNU/Linux 13 (trixie)",
				ContainerRuntimeVersion: "containerd://2.2.1",
				KubeletVersion:          "v1.37.1",
				OperatingSystem:         "linux",
				Architecture:            "amd64",
			},
		},
	}
}

// conditions are those that a kubelet reports.
func conditions(now time.Time) (all []corev1.NodeCondition) {
	for _, c := range []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "kubelet has sufficient PID available"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"},
	} {
		c.LastHeartbeatTime, c.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
		all = append(all, c)
	}
	return all
}

// nodes are Nodes, each created by one of the clients after change, if any, has changed it.
func (c *cluster) nodes(clients []kubernetes.Interface, change func(index int, node *corev1.Node)) objects {
	free := make(chan kubernetes.Interface, len(clients))
	for _, client := range clients {
		free <- client
	}
	api := c.kube.CoreV1().Nodes()
	return objects{
		version: func(ctx context.Context) (string, error) {
			list, err := api.List(ctx, metav1.ListOptions{Limit: 1})
			if err != nil {
				return "", err
			}
			return list.ResourceVersion, nil
		},
		watch: api.Watch,
		create: func(ctx context.Context, name string, index int) error {
			client := <-free
			defer func() { free <- client }()
			node := newNode(name, index)
			if change != nil {
				change(index, node)
			}
			_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
			return err
		},
		served: func(o runtime.Object) bool { return len(o.(*corev1.Node).Spec.PodCIDRs) > 0 },
	}
}

// together creates 16 Nodes at a time, over one connection.
func (c *cluster) together() (clients []kubernetes.Interface) {
	for range creators {
		clients = append(clients, c.kube)
	}
	return clients
}

// apart are so many clients, each of which has a connection of its own, as kubelets have.
func (c *cluster) apart(clients int) (all []kubernetes.Interface, err error) {
	for range clients {
		config := protobuf(c.AdminConfig())
		config.Dial = (&net.Dialer{}).DialContext // client-go shares connections of configurations without one
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		if _, err := client.Discovery().ServerVersion(); err != nil { // which opens the connection
			return nil, err
		}
		all = append(all, client)
	}
	return all, nil
}

// overlaps returns an error that names Nodes with common addresses.
func (c *cluster) overlaps(ctx context.Context) error {
	list, err := c.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return checker.Overlaps(list.Items)
}
