package nodeipam

import (
	runtimepkg "runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	versionedfake "github.com/multicidr/controller-manager/apis/generated/clientset/versioned/fake"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/stored"
)

// Whatever is stored, an object by itself becomes a pool by itself, and keeps what can be read of it.
func TestDecode(t *testing.T) {
	for name, tc := range map[string]struct {
		spec        string
		annotations string
		want        networkingv1.ClusterCIDRSpec
		Problem     string
	}{
		"as it should be":                   {spec: `{"ipv4":"10.0.0.0/16","perNodeHostBits":8}`, want: networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/16", PerNodeHostBits: 8}},
		"a text for a number":               {spec: `{"ipv4":"10.0.0.0/16","perNodeHostBits":"8"}`, want: networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/16"}, Problem: "it cannot be decoded"},
		"a number that wraps around to 8":   {spec: `{"ipv4":"10.0.0.0/16","perNodeHostBits":4294967304}`, want: networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/16"}, Problem: "it cannot be decoded"},
		"a fraction":                        {spec: `{"ipv6":"fd00::/64","perNodeHostBits":8.5}`, want: networkingv1.ClusterCIDRSpec{IPv6: "fd00::/64"}, Problem: "it cannot be decoded"},
		"a text for a list":                 {spec: `{"ipv4":"10.0.0.0/16","perNodeHostBits":8,"excludedCIDRs":"10.0.0.0/24"}`, want: networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/16"}, Problem: "it cannot be decoded"},
		"no object":                         {spec: `7`, Problem: "it cannot be decoded"},
		"our annotation, written by a user": {spec: `{"ipv4":"10.0.0.0/16","perNodeHostBits":8}`, annotations: `{"networking.x-k8s.io/undecodable":"x"}`, want: networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/16", PerNodeHostBits: 8}},
		"fields that we do not know":        {spec: `{"ipv4":"10.0.0.0/16","perNodeHostBits":8,"x":[{}]}`, want: networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/16", PerNodeHostBits: 8}},
		"a range that is a number":          {spec: `{"ipv4":10,"perNodeHostBits":8}`, Problem: "it cannot be decoded"},
	} {
		t.Run(name, func(t *testing.T) {
			annotations := tc.annotations
			if annotations == "" {
				annotations = `{"a":"b"}`
			}
			var u unstructured.Unstructured
			text := `{"metadata":{"name":"a","uid":"u","finalizers":["` + networkingv1.Finalizer + `"],"annotations":` + annotations + `},"spec":` + tc.spec + `,"status":{"conditions":[{"type":"Ready"}]}}`
			if err := utiljson.Unmarshal([]byte(text), &u.Object); err != nil {
				t.Fatal(err)
			}
			cc := stored.Decode(&u)
			if cc.Name != "a" || cc.UID != "u" || len(cc.Finalizers) != 1 {
				t.Errorf("its metadata are %+v", cc.ObjectMeta)
			}
			if len(cc.Status.Conditions) != 1 {
				t.Errorf("its status is %+v", cc.Status)
			}
			if diff := cmp.Diff(tc.want, cc.Spec); diff != "" {
				t.Errorf("its spec (-want +got):\n%s", diff)
			}
			p := clustercidr.Compile(cc)
			if want := tc.Problem == ""; (p.State == ipam.Enabled) != want || !strings.HasPrefix(p.Problem, tc.Problem) {
				t.Errorf("it is %v: %q", p.State, p.Problem)
			}
		})
	}
}

// TestForeignTransitionTime: what another writer says of when a condition of ours changed is not taken over, and others' conditions stay.
func TestForeignTransitionTime(t *testing.T) {
	const fields = `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:lastTransitionTime":{}},"k:{\"type\":\"Conflicted\"}":{".":{},"f:message":{}}}}}`
	for name, tc := range map[string]struct {
		managed string
		keeps   []string // conditions, their times
	}{
		"ours, save for one":     {`[{"manager":"` + Name + `","operation":"Apply","subresource":"status","fieldsV1":` + fields + `}]`, []string{"Ready", "Theirs"}},
		"a CRD without schema":   {`[{"manager":"` + Name + `","operation":"Apply","subresource":"status","fieldsV1":{"f:status":{"f:conditions":{}}}}]`, []string{"Ready", "Conflicted", "Theirs"}},
		"another manager":        {`[{"manager":"kubectl","operation":"Apply","subresource":"status","fieldsV1":` + fields + `}]`, []string{"Theirs"}},
		"an update, not ours":    {`[{"manager":"` + Name + `","operation":"Update","subresource":"status","fieldsV1":` + fields + `}]`, []string{"Theirs"}},
		"fields that are a list": {`[{"manager":"` + Name + `","operation":"Apply","subresource":"status","fieldsV1":[]}]`, []string{"Theirs"}},
		"nobody":                 {`[]`, []string{"Theirs"}},
	} {
		t.Run(name, func(t *testing.T) {
			var u unstructured.Unstructured
			text := `{"metadata":{"name":"a","uid":"u","managedFields":` + tc.managed + `},"spec":{"ipv4":"10.0.0.0/16","perNodeHostBits":8},"status":{"conditions":[`
			for i, c := range []string{"Ready", "Conflicted", "Theirs"} {
				text += strings.Repeat(",", min(i, 1)) + `{"type":"` + c + `","status":"True","reason":"R","message":"","lastTransitionTime":"2001-01-01T00:00:00Z"}`
			}
			if err := utiljson.Unmarshal([]byte(text+"]}}"), &u.Object); err != nil {
				t.Fatal(err)
			}
			var keeps []string
			for _, c := range stored.Decode(&u).Status.Conditions {
				if !c.LastTransitionTime.IsZero() {
					keeps = append(keeps, c.Type)
				}
			}
			if diff := cmp.Diff(tc.keeps, keeps); diff != "" {
				t.Errorf("conditions with their time (-want +got):\n%s", diff)
			}
		})
	}
}

// A panic ends this controller and nothing else, and is not forgotten.
func TestPanic(t *testing.T) {
	c := newController(Config{}, parts{newQueue: newQueue})
	c.health.WaitFor(health.Problem{})
	c.safely(func() { panic("a defect") })
	<-c.broken
	c.safely(func() { t.Error("it goes on with a book that may be half changed") })
	if err := c.health.Check(nil); err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Errorf("health check: %v", err)
	}
}

// Whatever Run waits for, a panic ends it, and the informers that it started.
func TestPanicEndsRun(t *testing.T) {
	client := fake.NewClientset()
	c, err := New(Config{
		Client: client, ClusterCIDRClient: versionedfake.NewClientset(), Workers: 1,
		Dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
			networkingv1.SchemeGroupVersion.WithResource("clustercidrs"): "ClusterCIDRList",
		}),
		Nodes: informers.NewSharedInformerFactory(client, 0).Core().V1().Nodes(), // Nobody starts it.
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		c.Run(t.Context())
		close(ended)
	}()
	for c.clusterCIDRsVersion() == "" && !c.synced["ClusterCIDRs"]() {
		runtimepkg.Gosched()
	}
	c.safely(func() { panic("a defect") })
	<-ended
}
