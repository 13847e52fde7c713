package nodeipam

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/conditions"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/steps"
	"github.com/multicidr/controller-manager/controllers/nodeipam/internal/testapi"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
	"github.com/multicidr/controller-manager/controllers/writes"
)

func TestStatus(t *testing.T) {
	a := ClusterCIDR("a", networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/22", IPv6: "fd00::/64", PerNodeHostBits: 8})
	excluding := ClusterCIDR("a", networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/22", IPv6: "fd00::/64", PerNodeHostBits: 8, ExcludedCIDRs: []string{"10.0.2.128/28"}})
	isTerminating := ClusterCIDR("a", a.Spec, Deleted)
	service := func(ranges ...string) Step {
		return func(b *allocator.State) { b.SetService("ServiceCIDR s", Pfxs(ranges...)) }
	}
	// counts writes a range as total = allocated + unavailable + free, and the cursor.
	counts := func(r *networkingv1.RangeStatus) string {
		return fmt.Sprintf("%s /%d %d = %d + %d + %d at %q", r.CIDR, r.BlockPrefixLength, r.Total, r.Allocated, r.Unavailable, r.Free, r.Cursor)
	}
	const full6 = "fd00::/64 /120 72057594037927936 = "
	for name, tc := range map[string]struct {
		steps            []Step
		cc               *networkingv1.ClusterCIDR
		want4, want6     string
		wantReady        string
		wantOverlapping  string
		wantConflicted   string
		wantReadyMessage string
	}{
		"nobody holds anything": {
			steps: []Step{Set(a)}, cc: a,
			want4: `10.0.0.0/22 /24 4 = 0 + 0 + 4 at ""`, want6: full6 + `0 + 0 + 72057594037927936 at ""`, wantReady: "True Available",
		},
		"one Node, reserved or shown": {
			steps: []Step{Set(a), Reserve(Node("n1"))}, cc: a,
			want4: `10.0.0.0/22 /24 4 = 1 + 0 + 3 at "10.0.1.0"`, want6: full6 + `1 + 0 + 72057594037927935 at "fd00::100"`, wantReady: "True Available",
		},
		"blocks of two Nodes, one excluded, one in part a service range": {
			steps: []Step{Set(excluding), Reserve(Node("n1")), service("10.0.3.0/28"), Shows(Node("n2"), "10.0.1.0/24")}, cc: excluding,
			want4: `10.0.0.0/22 /24 4 = 2 + 2 + 0 at "10.0.1.0"`, want6: full6 + `1 + 0 + 72057594037927935 at "fd00::100"`,
			wantReady: "False Exhausted", wantOverlapping: "10.0.3.0/28 of ServiceCIDR s",
			wantReadyMessage: "No free block for IPv4. Blocks that nobody holds are in spec.excludedCIDRs: 10.0.2.128/28. Remove from it what this ClusterCIDR may allocate. Create another ClusterCIDR",
		},
		"a larger podCIDR takes all and is no block": {
			steps: []Step{Set(a), Shows(Node("n1"), "10.0.0.0/8")}, cc: a,
			want4: `10.0.0.0/22 /24 4 = 0 + 4 + 0 at ""`, want6: full6 + `0 + 0 + 72057594037927936 at ""`, wantReady: "False Exhausted",
			wantReadyMessage: "No free block for IPv4. These podCIDRs are larger than a block, so that one Node takes many: Node n1 (10.0.0.0/8). Delete the Nodes",
		},
		"larger podCIDRs inside the range, of which each takes half": {
			steps: []Step{Set(a), Shows(Node("n2"), "10.0.2.0/23"), Shows(Node("n1"), "10.0.0.0/23")}, cc: a,
			want4: `10.0.0.0/22 /24 4 = 0 + 4 + 0 at ""`, want6: full6 + `0 + 0 + 72057594037927936 at ""`, wantReady: "False Exhausted",
			wantReadyMessage: "takes many: Node n1 (10.0.0.0/23); Node n2 (10.0.2.0/23). Delete",
		},
		"smaller podCIDRs of an earlier block size": {
			steps: []Step{Set(a), Shows(Node("n1"), "10.0.0.0/26"), Shows(Node("n2"), "10.0.0.64/26")}, cc: a,
			want4: `10.0.0.0/22 /24 4 = 0 + 1 + 3 at ""`, want6: full6 + `0 + 0 + 72057594037927936 at ""`, wantReady: "True Available",
		},
		"two Nodes with one block, counted once": {
			steps: []Step{Set(a), Shows(Node("n1"), "10.0.0.0/24"), Shows(Node("n2"), "10.0.0.0/24"), Shows(Node("n3"), "10.0.0.128/25")}, cc: a,
			want4: `10.0.0.0/22 /24 4 = 1 + 0 + 3 at ""`, want6: full6 + `0 + 0 + 72057594037927936 at ""`, wantReady: "True Available",
			wantConflicted: "Node n1 (10.0.0.0/24) and Node n2 (10.0.0.0/24); Node n1 (10.0.0.0/24) and Node n3 (10.0.0.128/25); Node n2 (10.0.0.0/24) and Node n3 (10.0.0.128/25)",
		},
		"a Node inside a service range": {
			steps: []Step{Set(a), Shows(Node("n1"), "10.0.0.0/24"), service("10.0.0.0/23")}, cc: a,
			want4: `10.0.0.0/22 /24 4 = 1 + 1 + 2 at ""`, want6: full6 + `0 + 0 + 72057594037927936 at ""`, wantReady: "True Available",
			wantConflicted: "Node n1 (10.0.0.0/24) and service range ServiceCIDR s (10.0.0.0/23)", wantOverlapping: "10.0.0.0/23 of ServiceCIDR s",
		},
		"a Node in an excluded range is no conflict": {
			steps: []Step{Set(excluding), Shows(Node("n1"), "10.0.2.0/24")}, cc: excluding,
			want4: `10.0.0.0/22 /24 4 = 1 + 0 + 3 at ""`, want6: full6 + `0 + 0 + 72057594037927936 at ""`, wantReady: "True Available",
		},
		"the address of a Node and another ClusterCIDR in the range": {
			steps: []Step{Set(a), Set(ClusterCIDR("b", Spec4("10.0.0.0/8", 8, nil))), func(b *allocator.State) {
				b.Observe(Node("n1"), nil, []netip.Prefix{Pfx("10.0.0.7/32"), Pfx("192.0.2.7/32")})
			}}, cc: a,
			want4: `10.0.0.0/22 /24 4 = 0 + 0 + 4 at ""`, want6: full6 + `0 + 0 + 72057594037927936 at ""`, wantReady: "True Available",
			wantOverlapping: "use another range: 10.0.0.7/32 of n1. Other ClusterCIDRs, which share what is free: b.",
		},
		"being deleted, with Nodes": {
			steps: []Step{Set(a), Reserve(Node("n2")), Reserve(Node("n1")), Set(isTerminating)}, cc: isTerminating,
			want4: `10.0.0.0/22 /24 4 = 2 + 0 + 2 at "10.0.2.0"`, want6: full6 + `2 + 0 + 72057594037927934 at "fd00::200"`,
			wantReady: "False Terminating", wantReadyMessage: "2 Nodes belong to it: n1; n2. It goes when they are deleted.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := allocator.New()
			for _, s := range tc.steps {
				s(b)
			}
			status, known := b.Status(tc.cc)
			if !known {
				t.Fatal("the book does not know it")
			}
			if diff := cmp.Diff([]string{tc.want4, tc.want6}, []string{counts(status.IPv4), counts(status.IPv6)}); diff != "" {
				t.Errorf("ranges (-want +got):\n%s", diff)
			}
			ready := meta.FindStatusCondition(status.Conditions, networkingv1.ConditionReady)
			if got := string(ready.Status) + " " + ready.Reason; got != tc.wantReady || !strings.Contains(ready.Message, tc.wantReadyMessage) {
				t.Errorf("Ready %s: %s; want %s: %s", got, ready.Message, tc.wantReady, tc.wantReadyMessage)
			}
			for condition, want := range map[string]string{networkingv1.ConditionOverlapping: tc.wantOverlapping, networkingv1.ConditionConflicted: tc.wantConflicted} {
				got := meta.FindStatusCondition(status.Conditions, condition)
				if (got.Status == metav1.ConditionTrue) != (want != "") || !strings.Contains(got.Message, want) {
					t.Errorf("%s %s: %s; want %q", condition, got.Status, got.Message, want)
				}
			}
			written := tc.cc.DeepCopy()
			written.Status = status
			if again, _ := b.Status(written); !equality.Semantic.DeepEqual(again, status) {
				t.Errorf("computed again it differs, so that it would be written for ever:\n%s", cmp.Diff(status, again))
			}
		})
	}
}

// TestForeignStatusIsRemoved: a server-side apply leaves what others have put into a status, so that has to be removed by name.
func TestForeignStatusIsRemoved(t *testing.T) {
	cc := ClusterCIDR("a", Spec4("10.0.0.0/22", 8, nil))
	cc.ResourceVersion = "7"
	b := allocator.New()
	Set(cc)(b)
	want, _ := b.Status(cc)
	for name, tc := range map[string]struct {
		change func(*networkingv1.ClusterCIDRStatus)
		want   string // the status in the patch
	}{
		"as it should be":            {func(*networkingv1.ClusterCIDRStatus) {}, ""},
		"empty":                      {func(s *networkingv1.ClusterCIDRStatus) { *s = networkingv1.ClusterCIDRStatus{} }, ""},
		"a wrong number":             {func(s *networkingv1.ClusterCIDRStatus) { s.IPv4.Free = 77 }, ""},
		"a family that is not there": {func(s *networkingv1.ClusterCIDRStatus) { s.IPv6 = &networkingv1.RangeStatus{CIDR: "fd00::/64"} }, `{"ipv6":null}`},
		"a cursor that is not there": {func(s *networkingv1.ClusterCIDRStatus) { s.IPv4.Cursor = "10.0.1.0" }, `{"ipv4":{"cursor":null}}`},
	} {
		t.Run(name, func(t *testing.T) {
			is := cc.DeepCopy()
			is.Status = *want.DeepCopy()
			tc.change(&is.Status)
			if shows := conditions.Shows(is.Status, want); shows != (name == "as it should be") {
				t.Errorf("it shows what it should: %v", shows)
			}
			patch := tc.want
			if patch != "" {
				patch = `{"metadata":{"resourceVersion":"7","uid":"` + string(cc.UID) + `"},"status":` + patch + `}`
			}
			if got := string(requests.ForeignStatus(is, want)); got != patch {
				t.Errorf("patch %s, want %s", got, patch)
			}
		})
	}
}

// A number that does not fit into an int64 is given as the largest one; all others are exact, also where the total is not.
func TestStatusOfAHugeRange(t *testing.T) {
	const most = math.MaxInt64
	for name, tc := range map[string]struct {
		spec                                networkingv1.ClusterCIDRSpec
		steps                               []Step
		total, allocated, unavail, wantFree int64
	}{
		"2^104 blocks, one of them allocated": {
			spec: networkingv1.ClusterCIDRSpec{IPv6: "fd00::/8", PerNodeHostBits: 16}, steps: []Step{Reserve(Node("n1"))},
			total: most, allocated: 1, wantFree: most,
		},
		"2^64 blocks, one of them allocated and one excluded": {
			spec:  networkingv1.ClusterCIDRSpec{IPv6: "fd00::/48", PerNodeHostBits: 16, ExcludedCIDRs: []string{"fd00::ffff:0/128"}},
			steps: []Step{Reserve(Node("n1"))},
			total: most, allocated: 1, unavail: 1, wantFree: most,
		},
		"2^123 blocks, all but one excluded or of a Service": {
			spec: networkingv1.ClusterCIDRSpec{IPv6: "8000::/1", PerNodeHostBits: 4, ExcludedCIDRs: []string{"c000::/2"}},
			steps: []Step{func(b *allocator.State) {
				var all []string
				for bits := 3; bits <= 124; bits++ { // what is beside 8000::/124
					address := [16]byte{0x80}
					address[(bits-1)/8] |= 0x80 >> ((bits - 1) % 8)
					all = append(all, netip.PrefixFrom(netip.AddrFrom16(address), bits).String())
				}
				b.SetService("ServiceCIDR s", Pfxs(all...))
			}},
			total: most, unavail: most, wantFree: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := allocator.New()
			cc := ClusterCIDR("a", tc.spec)
			for _, step := range append([]Step{Set(cc)}, tc.steps...) {
				step(b)
			}
			status, _ := b.Status(cc)
			got := status.IPv6
			if got.Total != tc.total || got.Allocated != tc.allocated || got.Unavailable != tc.unavail || got.Free != tc.wantFree {
				t.Errorf("got %+v, want %d = %d + %d + %d", got, tc.total, tc.allocated, tc.unavail, tc.wantFree)
			}
		})
	}
}

func TestStatusOfAnotherObjectOfThatName(t *testing.T) {
	b := allocator.New()
	Set(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil)))(b)
	if _, known := b.Status(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil), func(cc *networkingv1.ClusterCIDR) { cc.UID = "second" })); known {
		t.Error("the book answers for an object that it has not seen yet")
	}
	if _, known := b.Status(ClusterCIDR("b", Spec4("10.0.0.0/16", 8, nil))); known {
		t.Error("the book answers for an object that it does not know")
	}
}

// A status is written once a second at most, whoever asks for it; and under a limit of requests that would take them from Nodes.
func TestStatusWaits(t *testing.T) {
	now := time.Unix(0, 0)
	s := &testapi.Server{Gate: &testapi.Gate{}}
	c := controllerOf(t, s, ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil)))
	c.now = func() time.Time { return now }
	for _, step := range []struct {
		what  string
		pass  time.Duration
		nodes int // in the queue
		want  int // writes
	}{
		{"one that was never written is", 0, 1, 1},
		{"Nodes come first", statusPatience - 1, 1, 0},
		{"but not for ever", 1, 1, 1},
		{"without any, not twice in a second either", statusInterval - 1, 0, 0},
		{"but then", 1, 0, 1},
	} {
		now = now.Add(step.pass)
		s.Arrived = nil
		for range step.nodes {
			c.nodeQueue.Add("n")
		}
		err := c.syncStatus(t.Context(), "a")
		if errors.Is(err, requests.ErrNotKept) { // this server keeps nothing
			err = nil
		}
		if (err == nil) != (step.want > 0) || err != nil && !errors.As(err, new(writes.Later)) {
			t.Fatalf("%s: error %v", step.what, err)
		}
		if len(s.Arrived) != step.want {
			t.Errorf("%s: %d writes, want %d", step.what, len(s.Arrived), step.want)
		}
		for range step.nodes {
			name, _ := c.nodeQueue.Get()
			c.nodeQueue.Done(name)
		}
	}
}
