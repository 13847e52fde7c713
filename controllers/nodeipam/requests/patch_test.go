package requests

import (
	"encoding/json"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// FuzzPatches writes patches for objects with any names. They are JSON, and say what they should.
func FuzzPatches(f *testing.F) {
	f.Add("uid", "a", "me", "example.com/hold", "7")
	f.Add("\"", "\\", "\x00\xff", "</script>", "")
	f.Fuzz(func(t *testing.T, uid, pool, holder, finalizer, resourceVersion string) {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), CreationTimestamp: metav1.NewTime(time.Unix(0, 0))}}
		blocks := Pfxs("fd00::/64", "10.0.0.0/24")
		var node v1.Node
		if err := json.Unmarshal(PodCIDRsPatch(n, allocator.Reservation{ClusterCIDR: pool, Blocks: blocks}, ipam.IPv4, holder), &node); err != nil {
			t.Fatal(err)
		}
		if utf8.ValidString(uid) && utf8.ValidString(pool) && utf8.ValidString(holder) && (string(node.UID) != uid || node.Annotations[networkingv1.AnnotationClusterCIDR] != pool || node.Annotations[networkingv1.AnnotationLeaseHolder] != holder) {
			t.Errorf("it writes %+v", node.ObjectMeta)
		}
		if !slices.Equal(node.Spec.PodCIDRs, []string{"10.0.0.0/24", "fd00::/64"}) || node.Spec.PodCIDR != "10.0.0.0/24" {
			t.Errorf("it writes %+v", node.Spec)
		}
		cc := &networkingv1.ClusterCIDR{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), ResourceVersion: resourceVersion, Finalizers: []string{finalizer}}}
		for _, present := range []bool{true, false} {
			var patched networkingv1.ClusterCIDR
			if err := json.Unmarshal(FinalizersPatch(cc, present), &patched); err != nil {
				t.Fatal(err)
			}
			want := slices.DeleteFunc([]string{finalizer, networkingv1.Finalizer}, func(f string) bool { return f == networkingv1.Finalizer })
			if present {
				want = append(want, networkingv1.Finalizer)
			}
			if len(patched.Finalizers) != len(want) || utf8.ValidString(resourceVersion) && patched.ResourceVersion != resourceVersion {
				t.Errorf("finalizers %q became %q", cc.Finalizers, patched.Finalizers)
			}
		}
	})
}

func TestPatches(t *testing.T) {
	n := Node("n1")
	r := allocator.Reservation{ClusterCIDR: "a", Blocks: Pfxs("10.0.0.0/24", "fd00::/64")}
	cc := ClusterCIDR("a", networkingv1.ClusterCIDRSpec{}, func(cc *networkingv1.ClusterCIDR) {
		cc.ResourceVersion = "7"
		cc.Finalizers = []string{"one", networkingv1.Finalizer, "two"}
	})
	for name, tc := range map[string]struct {
		got  []byte
		want string
	}{
		"IPv4 first": {PodCIDRsPatch(n, r, ipam.IPv4, "me"),
			`{"metadata":{"uid":"uid-n1","annotations":{"networking.x-k8s.io/cluster-cidr":"a","networking.x-k8s.io/lease-holder":"me"}},"spec":{"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24","fd00::/64"]}}`},
		"IPv6 first": {PodCIDRsPatch(n, r, ipam.IPv6, "me"),
			`{"metadata":{"uid":"uid-n1","annotations":{"networking.x-k8s.io/cluster-cidr":"a","networking.x-k8s.io/lease-holder":"me"}},"spec":{"podCIDR":"fd00::/64","podCIDRs":["fd00::/64","10.0.0.0/24"]}}`},
		"only our finalizer goes": {FinalizersPatch(cc, false),
			`{"metadata":{"uid":"uid-a","resourceVersion":"7","finalizers":["one","two"]}}`},
		"the last finalizer goes, too": {FinalizersPatch(ClusterCIDR("a", networkingv1.ClusterCIDRSpec{}), false),
			`{"metadata":{"uid":"uid-a","finalizers":[]}}`},
		"our finalizer comes, once": {FinalizersPatch(cc, true),
			`{"metadata":{"uid":"uid-a","resourceVersion":"7","finalizers":["one","two","networking.x-k8s.io/cluster-cidr-finalizer"]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, string(tc.got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if want := Pfxs("10.0.0.0/24", "fd00::/64"); !slices.Equal(r.Blocks, want) {
		t.Errorf("the reservation was changed to %v", r.Blocks)
	}
}
