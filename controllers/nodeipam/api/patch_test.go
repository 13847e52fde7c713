package api

import (
	"encoding/json"
	"net/netip"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
)

func TestPatches(t *testing.T) {
	blocks := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/64")}
	cc := func(finalizers ...string) *networkingv1.ClusterCIDR {
		return &networkingv1.ClusterCIDR{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid-a", ResourceVersion: "7", Finalizers: finalizers}}
	}
	status := networkingv1.ClusterCIDRStatus{
		Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Available", ObservedGeneration: 2, LastTransitionTime: metav1.Unix(0, 0)}},
		IPv4:       &networkingv1.RangeStatus{CIDR: "10.0.0.0/16", BlockPrefixLength: 24, Total: 256, Free: 256},
	}
	for name, tc := range map[string]struct {
		got  []byte
		want string
	}{
		"IPv4 first": {PodCIDRsPatch("uid-n1", "a", PodCIDRs(blocks, ipam.IPv4), "me"),
			`{"metadata":{"annotations":{"networking.x-k8s.io/cluster-cidr":"a","networking.x-k8s.io/lease-holder":"me"},"uid":"uid-n1"},"spec":{"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24","fd00::/64"]}}`},
		"IPv6 first": {PodCIDRsPatch("uid-n1", "a", PodCIDRs(blocks, ipam.IPv6), "me"),
			`{"metadata":{"annotations":{"networking.x-k8s.io/cluster-cidr":"a","networking.x-k8s.io/lease-holder":"me"},"uid":"uid-n1"},"spec":{"podCIDR":"fd00::/64","podCIDRs":["fd00::/64","10.0.0.0/24"]}}`},
		"only our finalizer goes": {FinalizersPatch(cc("one", networkingv1.Finalizer, "two"), false),
			`{"metadata":{"finalizers":["one","two"],"resourceVersion":"7","uid":"uid-a"}}`},
		"the last finalizer goes, too": {FinalizersPatch(cc(networkingv1.Finalizer), false),
			`{"metadata":{"finalizers":[],"resourceVersion":"7","uid":"uid-a"}}`},
		"our finalizer comes, once": {FinalizersPatch(cc("one", networkingv1.Finalizer), true),
			`{"metadata":{"finalizers":["one","networking.x-k8s.io/cluster-cidr-finalizer"],"resourceVersion":"7","uid":"uid-a"}}`},
		"the controller disables": {AllocationPatch(cc(), networkingv1.AllocationDisabled),
			`{"metadata":{"annotations":{"networking.x-k8s.io/superseded":"true"},"resourceVersion":"7","uid":"uid-a"},"spec":{"allocation":"Disabled"}}`},
		"and enables again": {AllocationPatch(cc(), networkingv1.AllocationEnabled),
			`{"metadata":{"annotations":{"networking.x-k8s.io/superseded":null},"resourceVersion":"7","uid":"uid-a"},"spec":{"allocation":"Enabled"}}`},
		"a status": {StatusPatch(cc(), status),
			`{"apiVersion":"networking.x-k8s.io/v1","kind":"ClusterCIDR","metadata":{"name":"a","uid":"uid-a"},"status":{` +
				`"conditions":[{"type":"Ready","status":"True","observedGeneration":2,"lastTransitionTime":"1970-01-01T00:00:00Z","reason":"Available","message":""}],` +
				`"ipv4":{"cidr":"10.0.0.0/16","blockPrefixLength":24,"total":256,"allocated":0,"unavailable":0,"free":256}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, string(tc.got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzPodCIDRsPatch writes a patch with any names. It is JSON, and says what it should.
func FuzzPodCIDRsPatch(f *testing.F) {
	f.Add("uid", "a", "me")
	f.Add("\"", "\\", "\x00\xff</script>")
	f.Fuzz(func(t *testing.T, uid, clusterCIDR, identity string) {
		var node v1.Node
		if err := json.Unmarshal(PodCIDRsPatch(types.UID(uid), clusterCIDR, []string{"10.0.0.0/24"}, identity), &node); err != nil {
			t.Fatal(err)
		}
		if utf8.ValidString(uid+clusterCIDR) && utf8.ValidString(identity) &&
			(string(node.UID) != uid || node.Annotations[networkingv1.AnnotationClusterCIDR] != clusterCIDR || node.Annotations[networkingv1.AnnotationLeaseHolder] != identity) {
			t.Errorf("it writes %+v", node.ObjectMeta)
		}
	})
}
