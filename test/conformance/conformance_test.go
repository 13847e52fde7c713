package conformance

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// patience is how long either program may take. The original tries some things again only after seconds.
const patience = time.Minute

// A case is what users do, one step after the other.
type testCase struct {
	steps []step
	// row is of the table of differences in the document: the one that says why ours differs in this case. Without it there is no difference.
	row string
	// unusable: nobody can allocate from the pool, so it has no usage.
	unusable bool
}

type step struct {
	do action
	// want are the IPAddresses that there are afterwards.
	want string
	// ours are those of ours if they differ, "-" for none, and differs is what else does: the value of the original, then ours.
	ours    string
	differs []string
}

var cases = map[string]testCase{
	"addresses are allocated in order, and a free one is the next again": {steps: []step{
		{do: pool("addresses: [192.168.1.0/24], prefix: 24, gateway: 192.168.1.1")},
		{do: claim("a"), want: "a=192.168.1.2"},
		{do: claim("b"), want: "a=192.168.1.2 b=192.168.1.3"},
		{do: claim("e"), want: "a=192.168.1.2 b=192.168.1.3 e=192.168.1.4"},
		{do: remove(requests, "b"), want: "a=192.168.1.2 e=192.168.1.4"},
		{do: claim("f"), want: "a=192.168.1.2 e=192.168.1.4 f=192.168.1.3"},
		{do: claim("b"), want: "a=192.168.1.2 b=192.168.1.5 e=192.168.1.4 f=192.168.1.3"},
	}},
	"a deleted IPAddress stays until its claim is deleted": {steps: []step{
		{do: pool("addresses: [10.0.0.5-10.0.0.9], prefix: 24")},
		{do: claim("a"), want: "a=10.0.0.5"},
		{do: remove(addresses, "a"), want: "a=10.0.0.5"},
		{do: claim("b"), want: "a=10.0.0.5 b=10.0.0.6"},
		{do: remove(requests, "a"), want: "b=10.0.0.6"},
		{do: claim("c"), want: "b=10.0.0.6 c=10.0.0.5"},
	}},
	"a deleted pool stays until its last IPAddress is gone": {steps: []step{
		{do: pool("addresses: [10.0.0.5-10.0.0.9], prefix: 24")},
		{do: claim("a"), want: "a=10.0.0.5"},
		{do: claim("b"), want: "a=10.0.0.5 b=10.0.0.6"},
		{do: remove(pools, "p"), want: "a=10.0.0.5 b=10.0.0.6"},
		{do: remove(requests, "a"), want: "b=10.0.0.6"},
		{do: remove(requests, "b")},
		{do: pool("addresses: [10.0.0.7], prefix: 24")}, // the name is free again
		{do: claim("c"), want: "c=10.0.0.7"},
	}},
	"a full pool serves who waits when an address becomes free": {steps: []step{
		{do: pool("addresses: [10.0.0.5, 10.0.0.7], prefix: 24, gateway: 10.0.0.1")},
		{do: claim("a"), want: "a=10.0.0.5"},
		{do: claim("b"), want: "a=10.0.0.5 b=10.0.0.7"},
		{do: claim("c"), want: "a=10.0.0.5 b=10.0.0.7"},
		{do: remove(requests, "a"), want: "b=10.0.0.7 c=10.0.0.5"},
	}},
	"a full pool serves who waits when it grows": {steps: []step{
		{do: pool("addresses: [10.0.0.5], prefix: 24")},
		{do: claim("a"), want: "a=10.0.0.5"},
		{do: claim("b"), want: "a=10.0.0.5"},
		{do: pool("addresses: [10.0.0.4-10.0.0.5], prefix: 24, gateway: 10.0.0.1"), want: "a=10.0.0.5 b=10.0.0.4"}, // a has no gateway, b has
	}},
	"a claim that does not get an address can be deleted": {steps: []step{
		{do: pool("addresses: [10.0.0.5], prefix: 24")},
		{do: claim("a"), want: "a=10.0.0.5"},
		{do: claim("b"), want: "a=10.0.0.5"},
		{do: remove(requests, "b"), want: "a=10.0.0.5"},
		{do: remove(requests, "a")},
		{do: claim("c"), want: "c=10.0.0.5"},
	}},
	"a claim that is older than its pool": {steps: []step{
		{do: claim("a")},
		{do: pool("addresses: [10.0.0.5], prefix: 24"), want: "a=10.0.0.5"},
	}},
	"claims of other groups and kinds are left alone": {steps: []step{
		{do: pool("addresses: [10.0.0.5], prefix: 24")},
		{do: claimOf("group", "{apiGroup: ipam.example.com, kind: InClusterIPPool, name: p}", "metadata: {}")},
		{do: claimOf("kind", "{apiGroup: ipam.cluster.x-k8s.io, kind: OtherPool, name: p}", "metadata: {}")},
		{do: claim("a"), want: "a=10.0.0.5"},
	}},
	"IPAddresses of another program hold their addresses": {steps: []step{
		{do: foreign("x", "10.0.0.5"), want: "x=10.0.0.5"},
		{do: pool("addresses: [10.0.0.5-10.0.0.9], prefix: 24"), want: "x=10.0.0.5"},
		{do: claim("a"), want: "a=10.0.0.6 x=10.0.0.5"},
		{do: remove(addresses, "x"), want: "a=10.0.0.6"},
		{do: claim("b"), want: "a=10.0.0.6 b=10.0.0.5"},
	}},
	"an IPAddress of the claim's name is the claim's": {steps: []step{
		{do: pool("addresses: [10.0.0.5-10.0.0.9], prefix: 24")},
		{do: foreign("a", "10.0.0.7"), want: "a=10.0.0.7"},
		{do: claim("a"), want: "a=10.0.0.7"},
		{do: remove(requests, "a")},
	}},
	"pools in two namespaces": {steps: []step{
		{do: pool("addresses: [10.0.0.5], prefix: 24")},
		{do: poolNamed("2/p", "addresses: [10.0.0.5], prefix: 24")},
		{do: claim("a"), want: "a=10.0.0.5"},
		{do: claim("2/a"), want: "2/a=10.0.0.5 a=10.0.0.5"},
		{do: remove(requests, "a"), want: "2/a=10.0.0.5"},
	}},
	"a global pool serves all namespaces, each address once": {steps: []step{
		{do: globalPool("addresses: [10.0.0.5-10.0.0.7], prefix: 24, gateway: 10.0.0.1")},
		{do: claimOfGlobal("a"), want: "a=10.0.0.5"},
		{do: claimOfGlobal("2/a"), want: "2/a=10.0.0.6 a=10.0.0.5"},
		{do: remove(requests, "a"), want: "2/a=10.0.0.6"},
		{do: claimOfGlobal("2/b"), want: "2/a=10.0.0.6 2/b=10.0.0.5"},
		{do: remove(globalPools, "NAMESPACE"), want: "2/a=10.0.0.6 2/b=10.0.0.5"},
		{do: remove(requests, "2/a"), want: "2/b=10.0.0.5"},
		{do: remove(requests, "2/b")},
	}},
	"a changed pool: what is allocated stays": {steps: []step{
		{do: pool("addresses: [10.0.0.5-10.0.0.9], prefix: 24, gateway: 10.0.0.1")},
		{do: claim("a"), want: "a=10.0.0.5"},
		{do: pool("addresses: [10.0.0.5-10.0.0.9], prefix: 28, gateway: 10.0.0.2"), want: "a=10.0.0.5"},
		{do: claim("b"), want: "a=10.0.0.5 b=10.0.0.6"},
		{do: pool("addresses: [10.0.0.5-10.0.0.9], prefix: 28, gateway: 10.0.0.2, excludedAddresses: [10.0.0.7]"), want: "a=10.0.0.5 b=10.0.0.6"},
		{do: claim("c"), want: "a=10.0.0.5 b=10.0.0.6 c=10.0.0.8"},
	}},
	"a claim that is deleted while its pool is paused": {steps: []step{
		{do: pool("addresses: [10.0.0.5-10.0.0.9], prefix: 24")},
		{do: claim("a"), want: "a=10.0.0.5"},
		{do: patch(pools, "p", `{metadata: {annotations: {cluster.x-k8s.io/paused: ""}}}`), want: "a=10.0.0.5"},
		{do: remove(requests, "a"), want: "a=10.0.0.5"},
		{do: patch(pools, "p", `{metadata: {annotations: {cluster.x-k8s.io/paused: null}}}`)},
		{do: claim("b"), want: "b=10.0.0.5"},
	}},
	"a paused claim": {steps: []step{
		{do: pool("addresses: [10.0.0.5-10.0.0.9], prefix: 24")},
		{do: claimWith("a", `metadata: {annotations: {cluster.x-k8s.io/paused: ""}}`)},
		{do: claim("b"), want: "b=10.0.0.5"},
		{do: patch(requests, "a", `{metadata: {annotations: {cluster.x-k8s.io/paused: null}}}`), want: "a=10.0.0.6 b=10.0.0.5"},
	}},
	"a claim of a Cluster that is missing, and then paused": {steps: []step{
		{do: pool("addresses: [10.0.0.5-10.0.0.9], prefix: 24")},
		{do: claimWith("a", "metadata: {labels: {cluster.x-k8s.io/cluster-name: c}}")},
		{do: claim("b"), want: "b=10.0.0.5"},
		{do: cluster("c", true), want: "b=10.0.0.5"},
		{do: claim("d"), want: "b=10.0.0.5 d=10.0.0.6"},
		{do: cluster("c", false), want: "a=10.0.0.7 b=10.0.0.5 d=10.0.0.6"}, // with the label
		{do: remove(clusters, "c"), want: "a=10.0.0.7 b=10.0.0.5 d=10.0.0.6"},
		{do: remove(requests, "a"), want: "b=10.0.0.5 d=10.0.0.6"},
	}},
	"the Cluster of spec.clusterName": {steps: []step{
		{do: pool("addresses: [10.0.0.5-10.0.0.9], prefix: 24")},
		{do: claimOf("a", "{apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: p}, clusterName: c", "metadata: {labels: {example.com/label: x}}")},
		{do: claim("b"), want: "b=10.0.0.5"},
		{do: cluster("c", false), want: "a=10.0.0.6 b=10.0.0.5"},
	}},
	"a grace period": {steps: []step{
		{do: pool("addresses: [10.0.0.5], prefix: 24, addressReuseGracePeriodSeconds: 8")},
		{do: claim("a"), want: "a=10.0.0.5"},
		{do: remove(requests, "a"), want: "a=10.0.0.5"}, // as seen at once
		{do: claim("b"), want: "b=10.0.0.5"},
	}},

	// Which addresses a pool has.
	"IPv6":                                    allocates("addresses: [fd00::/120], prefix: 120, gateway: fd00::1", "fd00::2", "fd00::3"),
	"IPv6: ranges and exclusions":             allocates(`addresses: ["fd00::fffe-fd00::1:2"], prefix: 64, excludedAddresses: ["fd00::ffff-fd00::1:0"]`, "fd00::fffe", "fd00::1:1", "fd00::1:2", ""),
	"a network without gateway":               allocates("addresses: [10.0.0.0/30], prefix: 30", "10.0.0.1", "10.0.0.2", ""),
	"the first and the last address, allowed": allocates("addresses: [10.0.0.0/30], prefix: 30, gateway: 10.0.0.1, allocateReservedIPAddresses: true", "10.0.0.0", "10.0.0.2", "10.0.0.3", ""),
	"prefix 0":                                allocates("addresses: [172.16.40.200/31], prefix: 0", "172.16.40.200", "172.16.40.201", ""),
	"a part of a larger network":              allocates("addresses: [172.16.40.200/31], prefix: 24, gateway: 172.16.40.1", "172.16.40.200", "172.16.40.201", ""),
	"the end of a larger network":             allocates("addresses: [10.0.0.252/30], prefix: 24", "10.0.0.252", "10.0.0.253", "10.0.0.254", ""),
	"single addresses, unordered":             allocates("addresses: [10.0.0.9, 10.0.0.5, 10.0.0.7], prefix: 24", "10.0.0.5", "10.0.0.7", "10.0.0.9", ""),
	"entries that overlap":                    allocates("addresses: [10.0.0.5, 10.0.0.0/29, 10.0.0.4-10.0.0.6, 10.0.0.5], prefix: 24", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7", ""),
	"host bits in a CIDR":                     allocates("addresses: [10.0.0.5/30], prefix: 24", "10.0.0.4", "10.0.0.5"),
	"exclusions":                              allocates("addresses: [10.0.0.0/24], prefix: 24, gateway: 10.0.0.1, excludedAddresses: [10.0.0.2-10.0.0.9, 10.0.0.11, 10.0.0.128/25]", "10.0.0.10", "10.0.0.12"),
	"exclusions outside":                      allocates("addresses: [10.0.0.5-10.0.0.6], prefix: 24, excludedAddresses: [10.0.0.7, 192.168.0.0/16]", "10.0.0.5", "10.0.0.6", ""),
	"everything is excluded":                  allocates("addresses: [10.0.0.5-10.0.0.6], prefix: 24, excludedAddresses: [10.0.0.0/24]", ""),
	"an excluded gateway":                     allocates("addresses: [10.0.0.5-10.0.0.6], prefix: 24, gateway: 10.0.0.5, excludedAddresses: [10.0.0.5]", "10.0.0.6", ""),
	"a gateway outside":                       allocates("addresses: [10.0.0.5], prefix: 24, gateway: 192.168.7.1", "10.0.0.5", ""),
	"only the gateway":                        allocates("addresses: [10.0.0.1], prefix: 24, gateway: 10.0.0.1", ""),
	"a /31":                                   allocates("addresses: [10.0.0.4/31], prefix: 31", ""),
	"a /32":                                   allocates("addresses: [10.0.0.4/32], prefix: 32", ""),

	// Where ours is meant to differ.
	"a grace period that the pool does not outlive": {row: "a grace period when its pool is deleted", steps: []step{
		{do: pool("addresses: [10.0.0.5], prefix: 24, addressReuseGracePeriodSeconds: 1000")},
		{do: claim("a"), want: "a=10.0.0.5"},
		{do: remove(requests, "a"), want: "a=10.0.0.5"},
		{do: remove(pools, "p"), want: "a=10.0.0.5", ours: "-", differs: []string{"IPAddressClaim a: there, gone", "InClusterIPPool p: there, gone"}},
	}},
	"more addresses than a number can say": {row: "`free` of a pool", steps: []step{
		{do: pool("addresses: [fd00::/64], prefix: 64, gateway: fd00::1")},
		{do: claim("a"), want: "a=fd00::2", differs: []string{"InClusterIPPool p status.ipAddresses.free: 9223372036854775806, 9223372036854775807"}},
	}},
	"a paused pool": {row: "a claim for a paused pool", steps: []step{
		{do: pool("addresses: [10.0.0.5-10.0.0.9], prefix: 24")},
		{do: claim("a"), want: "a=10.0.0.5"},
		{do: patch(pools, "p", `{metadata: {annotations: {cluster.x-k8s.io/paused: ""}}}`), want: "a=10.0.0.5"},
		{do: claim("b"), want: "a=10.0.0.5", differs: []string{`IPAddressClaim b metadata.finalizers: ["ipam.cluster.x-k8s.io/ReleaseAddress"], none`}},
		{do: patch(pools, "p", `{metadata: {annotations: {cluster.x-k8s.io/paused: null}}}`), want: "a=10.0.0.5 b=10.0.0.6"},
	}},
	"a pool that has shrunk below what is used": {row: "`free` of a pool", steps: []step{
		{do: pool("addresses: [10.0.0.5-10.0.0.7], prefix: 24")},
		{do: claim("a"), want: "a=10.0.0.5"},
		{do: claim("b"), want: "a=10.0.0.5 b=10.0.0.6"},
		{do: pool("addresses: [10.0.0.6], prefix: 24"), want: "a=10.0.0.5 b=10.0.0.6", differs: []string{"InClusterIPPool p status.ipAddresses.free: -1, 0"}},
		{do: pool("addresses: [10.0.0.6-10.0.0.8], prefix: 24"), want: "a=10.0.0.5 b=10.0.0.6", differs: []string{"InClusterIPPool p status.ipAddresses.free: 1, 2"}},
		{do: remove(requests, "a"), want: "b=10.0.0.6"},
	}},
	"a claim in deletion that somebody else holds": {row: "a claim in deletion with finalizers of others", steps: []step{
		{do: pool("addresses: [10.0.0.5-10.0.0.9], prefix: 24")},
		{do: claimWith("a", "metadata: {finalizers: [example.com/machine]}"), want: "a=10.0.0.5"},
		{do: remove(requests, "a"), ours: "a=10.0.0.5", differs: []string{`IPAddressClaim a metadata.finalizers: ["example.com/machine"], ["example.com/machine","ipam.cluster.x-k8s.io/ReleaseAddress"]`, "InClusterIPPool p status.ipAddresses.free: 5, 4", "InClusterIPPool p status.ipAddresses.used: 0, 1"}},
		{do: claim("b"), want: "b=10.0.0.5", ours: "a=10.0.0.5 b=10.0.0.6", differs: []string{`IPAddressClaim a metadata.finalizers: ["example.com/machine"], ["example.com/machine","ipam.cluster.x-k8s.io/ReleaseAddress"]`, "InClusterIPPool p status.ipAddresses.free: 4, 3", "InClusterIPPool p status.ipAddresses.used: 1, 2"}},
	}},
	"an IPAddress that is forced away": {row: "an IPAddress that is forced away", steps: []step{
		{do: pool("addresses: [10.0.0.5-10.0.0.9], prefix: 24")},
		{do: claim("a"), want: "a=10.0.0.5"},
		{do: claim("b"), want: "a=10.0.0.5 b=10.0.0.6"},
		{do: remove(requests, "a"), want: "b=10.0.0.6"},
		{do: forceAway("b"), want: "b=10.0.0.5", ours: "b=10.0.0.6"},
	}},
	"a claim for a pool in deletion": {row: "a claim for a pool in deletion", steps: []step{
		{do: pool("addresses: [10.0.0.5-10.0.0.9], prefix: 24")},
		{do: claim("a"), want: "a=10.0.0.5"},
		{do: remove(pools, "p"), want: "a=10.0.0.5"},
		{do: claim("b"), want: "a=10.0.0.5 b=10.0.0.6", ours: "a=10.0.0.5", differs: []string{`IPAddressClaim b status.addressRef.name: "b", none`}},
	}},
}

// allocates is a case of a pool from which claims are allocated these addresses, and then, if the last one is empty, none.
func allocates(spec string, addresses ...string) testCase {
	steps := []step{{do: pool(spec)}}
	want := ""
	for i, address := range addresses {
		name := fmt.Sprintf("%c", 'a'+i)
		if address != "" {
			want = strings.TrimSpace(want + " " + name + "=" + address)
		}
		steps = append(steps, step{do: claim(name), want: want})
	}
	return testCase{steps: steps}
}

func poolNamed(name, spec string) action {
	return apply(pools, "InClusterIPPool", name, "{spec: {"+spec+"}}")
}

// foreign is an IPAddress that another program has written.
func foreign(name, address string) action {
	return apply(addresses, v1beta2.KindIPAddress, name, "{spec: {claimRef: {name: "+name+"}, "+
		"poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: p}, address: "+address+", prefix: 24}}")
}

// forceAway deletes an IPAddress and then its finalizer, which the original would otherwise add again.
func forceAway(name string) action {
	return func(ctx context.Context, s *side, namespace string) error {
		if err := remove(addresses, name)(ctx, s, namespace); err != nil {
			return err
		}
		return patch(addresses, name, "{metadata: {finalizers: null}}")(ctx, s, namespace)
	}
}

func cluster(name string, paused bool) action {
	return apply(clusters, "Cluster", name, fmt.Sprintf("{spec: {paused: %t, infrastructureRef: {apiGroup: example.com, kind: K, name: infrastructure}}}", paused))
}

func TestConformance(t *testing.T) {
	document, err := os.ReadFile("../../docs/reference/cluster-ipam-differences.md")
	if err != nil {
		t.Fatal(err)
	}
	sides := startSides(t)
	for i, name := range sortedKeys(cases, nil) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc, namespace := cases[name], fmt.Sprintf("case-%d-1", i)
			if tc.row != "" && !strings.Contains(string(document), "\n| "+tc.row+" |") {
				t.Errorf("the table of differences has no row %q", tc.row)
			}
			for _, s := range sides {
				s.namespace(t, namespace)
				s.namespace(t, second(namespace))
			}
			differs := false
			for i, step := range tc.steps {
				differs = differs || step.ours != "" || len(step.differs) > 0
				for _, s := range sides {
					if err := step.do(t.Context(), s, namespace); err != nil {
						t.Fatalf("step %d, %s: %v", i, s.name, err)
					}
				}
				if err := controlplane.Eventually(t.Context(), patience, func(ctx context.Context) error { return tc.compare(ctx, sides, namespace, step) }); err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
			}
			if differs != (tc.row != "") {
				t.Errorf("the row is %q, and it is %t that something differs", tc.row, differs)
			}
		})
	}
}

// compare compares both sides after a step.
func (tc testCase) compare(ctx context.Context, sides [2]*side, namespace string, after step) error {
	var states [2]state
	for i, s := range sides {
		var err error
		if states[i], err = s.state(ctx, namespace); err != nil {
			return err
		}
		want := after.want
		if after.ours != "" && i == 1 {
			want = strings.TrimPrefix(after.ours, "-")
		}
		if got := states[i].allocated(); got != want {
			return fmt.Errorf("%s has the IPAddresses %q, want %q", s.name, got, want)
		}
		if !tc.unusable && len(after.differs) == 0 { // Otherwise what differs shows that both have worked.
			if err := states[i].settled(); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	if got := difference(states[0], states[1]); !slices.Equal(got, after.differs) {
		return fmt.Errorf("the original and ours differ in %q, want %q", got, after.differs)
	}
	return nil
}

// settled reports whether pools and claims say what IPAddresses there are: without it, two programs that have done nothing yet would be equal.
func (s state) settled() error {
	used := map[string]int{}
	for key, values := range s {
		if name, ok := strings.CutPrefix(key, v1beta2.KindIPAddress+" "); ok {
			kind, pool := strings.Trim(values["spec.poolRef.kind"], `"`), strings.Trim(values["spec.poolRef.name"], `"`)
			if second := strings.HasPrefix(name, "2/"); second && kind == "InClusterIPPool" {
				pool = "2/" + pool
			}
			used[kind+" "+pool]++
			if claim := s[v1beta2.KindIPAddressClaim+" "+name]; claim != nil && claim["status.addressRef.name"] == "" {
				return fmt.Errorf("claim %s has no address in its status", name)
			}
		}
	}
	for key, values := range s {
		deleting := values["metadata.deletionTimestamp"] != ""
		if strings.Contains(key, "IPPool ") && !deleting && values["status.ipAddresses.used"] != strconv.Itoa(used[key]) {
			return fmt.Errorf("%s says that %q addresses are used, want %d", key, values["status.ipAddresses.used"], used[key])
		}
	}
	return nil
}

func (s *side) namespace(t *testing.T, name string) {
	t.Helper()
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
	resource := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	if _, err := s.client.Resource(resource).Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
