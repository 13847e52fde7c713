package cluster

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// A Pod is found by each of its addresses, although the API server selects by the first one only. One that has ended is not: its address may be another Pod's.
func TestPodsWith(t *testing.T) {
	var pods []*corev1.Pod
	pod := func(name, node string, phase corev1.PodPhase, addresses ...string) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase}}
		for _, a := range addresses {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
		}
		if len(addresses) > 0 {
			p.Status.PodIP = addresses[0]
		}
		pods = append(pods, p)
	}
	pod("dual", "w1", corev1.PodRunning, "10.0.0.17", "fd00::17")
	pod("over", "w1", corev1.PodSucceeded, "10.0.0.18", "fd00::18")
	pod("next", "w1", corev1.PodRunning, "10.0.0.18", "fd00::18")
	pod("failed", "w1", corev1.PodFailed, "10.0.0.19")
	pod("host-a", "w2", corev1.PodRunning, "192.168.1.2", "fd01::2")
	pod("host-b", "w2", corev1.PodRunning, "192.168.1.2", "fd01::2")
	pod("elsewhere", "w2", corev1.PodRunning, "172.16.0.1", "fd02::1")
	pod("new", "w1", corev1.PodPending)

	kube := fake.NewClientset()
	kube.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		list := &corev1.PodList{}
		for _, p := range pods {
			// As in kube-apiserver: these are all fields of an address that a Pod can be selected by.
			if action.(clienttesting.ListAction).GetListRestrictions().Fields.Matches(fields.Set{"status.podIP": p.Status.PodIP, "spec.nodeName": p.Spec.NodeName}) {
				list.Items = append(list.Items, *p)
			}
		}
		return true, list, nil
	})
	r := &Reader{Kube: kube}
	for _, tc := range []struct {
		address string
		nodes   []string
		want    []string
	}{
		{"10.0.0.17", []string{"w1"}, []string{"shop/dual"}},
		{"fd00::17", []string{"w1"}, []string{"shop/dual"}},
		{"fd00::17", []string{"w2", "w1"}, []string{"shop/dual"}},
		{"10.0.0.18", []string{"w1"}, []string{"shop/next"}},
		{"fd00::18", []string{"w1"}, []string{"shop/next"}},
		{"10.0.0.19", []string{"w1"}, nil},
		{"fd01::2", []string{"w2"}, []string{"shop/host-a", "shop/host-b"}},
		{"172.16.0.1", []string{"w1"}, []string{"shop/elsewhere"}},
		{"172.16.0.1", nil, []string{"shop/elsewhere"}},
		{"fd02::1", nil, []string{"shop/elsewhere"}},
		{"10.0.0.99", nil, nil},
	} {
		t.Run(fmt.Sprint(tc.address, tc.nodes), func(t *testing.T) {
			got, _, err := r.PodsWith(t.Context(), netip.MustParseAddr(tc.address), tc.nodes)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Pods with %s (-want +got):\n%s", tc.address, diff)
			}
		})
	}
}
