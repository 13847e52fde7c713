package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// encoded is a page of Nodes as the API server sends it.
func encoded(t testing.TB, n int) (*corev1.NodeList, []byte) {
	fields := &metav1.FieldsV1{}
	if err := fields.UnmarshalJSON([]byte(`{"f:a":{` + strings.Repeat(`"f:b":{},`, 250) + `"f:c":{}}}`)); err != nil {
		t.Fatal(err)
	}
	list := &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "more"}}
	for i := range n {
		node := corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprint("n", i), UID: "u", Labels: map[string]string{"pool": "a"}, Annotations: map[string]string{networkingv1.AnnotationClusterCIDR: "a", "other": "x"},
				CreationTimestamp: metav1.Unix(int64(i), 0), ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: fields}},
			},
			Spec: corev1.NodeSpec{PodCIDR: "10.0.0.0/24", PodCIDRs: []string{"10.0.0.0/24", "fd00::/64"}},
			Status: corev1.NodeStatus{
				Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeHostName, Address: "n"}},
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			},
		}
		if i%2 == 1 {
			node.DeletionTimestamp, node.Spec, node.Status = &metav1.Time{Time: time.Unix(9, 0)}, corev1.NodeSpec{}, corev1.NodeStatus{}
		}
		for j := range 30 {
			node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{fmt.Sprintf("registry.example.com/team/image-%d@sha256:%064d", j, i)}, SizeBytes: 1 << 20})
		}
		list.Items = append(list.Items, node)
	}
	body, err := runtime.Encode(scheme.Codecs.EncoderForVersion(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), corev1.SchemeGroupVersion), list)
	if err != nil {
		t.Fatal(err)
	}
	return list, body
}

// What is decoded of a Node is all that is kept of a whole one.
func TestDecodeNodes(t *testing.T) {
	list, body := encoded(t, 4)
	got, err := decodeNodes(body)
	if err != nil {
		t.Fatal(err)
	}
	if got.ListMeta != list.ListMeta || len(got.Items) != len(list.Items) {
		t.Fatalf("%+v with %d items, want %+v with %d", got.ListMeta, len(got.Items), list.ListMeta, len(list.Items))
	}
	for i := range list.Items {
		if diff := cmp.Diff(trim(&list.Items[i]), trim(&got.Items[i])); diff != "" {
			t.Errorf("Node %d (-want +got):\n%s", i, diff)
		}
		if got.Items[i].Status.Images != nil || got.Items[i].ManagedFields != nil {
			t.Error("more than what is needed is decoded")
		}
	}
	for n := range len(body) - len(protobufPrefix) {
		_, _ = decodeNodes(body[:len(protobufPrefix)+n]) // An answer that is cut off is an error or fewer Nodes, and no panic.
	}
}

func BenchmarkDecode(b *testing.B) {
	_, body := encoded(b, 1000)
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			if _, err := runtime.Decode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), body); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("needed", func(b *testing.B) {
		for b.Loop() {
			if _, err := decodeNodes(body); err != nil {
				b.Fatal(err)
			}
		}
	})
}
