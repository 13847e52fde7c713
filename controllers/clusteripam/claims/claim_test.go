package claims

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/test/contracttest"
)

func claimOf(t *testing.T, spec string) *v1beta1.ClusterIPAMClaim {
	return &v1beta1.ClusterIPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "t", Name: "c", UID: "u"}, Spec: *contracttest.Parsed[v1beta1.ClusterIPAMClaimSpec](t, spec)}
}

func TestNetworkOfAClaim(t *testing.T) {
	const inCluster, infoblox = `"provider": "in-cluster"`, `"provider": "ipam-infoblox"`
	for name, tc := range map[string]struct {
		spec string
		want string // the pool's addresses, prefix and gateway as JSON, or what the message contains
	}{
		"all fields":                       {inCluster + `, "nodeNetwork": {"cidr": "192.168.1.0/24", "gateway": "192.168.1.1", "prefix": 24}`, `{"addresses":["192.168.1.0/24"],"prefix":24,"gateway":"192.168.1.1"}`},
		"prefix is that of the cidr":       {inCluster + `, "nodeNetwork": {"cidr": "172.16.40.200/29"}`, `{"addresses":["172.16.40.200/29"],"prefix":29}`},
		"a shorter prefix stays":           {inCluster + `, "nodeNetwork": {"cidr": "172.16.40.200/29", "prefix": 24, "gateway": "172.16.40.1"}`, `{"addresses":["172.16.40.200/29"],"prefix":24,"gateway":"172.16.40.1"}`},
		"the list wins":                    {inCluster + `, "nodeNetwork": {"cidr": "10.0.0.0/24", "ipAddresses": ["10.0.0.7", "10.0.0.5"], "prefix": 24}`, `{"addresses":["10.0.0.7","10.0.0.5"],"prefix":24}`},
		"a list without prefix":            {inCluster + `, "nodeNetwork": {"ipAddresses": ["10.0.0.5", "10.9.0.7"]}`, `{"addresses":["10.0.0.5","10.9.0.7"],"prefix":0}`},
		"IPv6":                             {inCluster + `, "nodeNetwork": {"cidr": "fd00::/64", "gateway": "fd00::1"}`, `{"addresses":["fd00::/64"],"prefix":64,"gateway":"fd00::1"}`},
		"a gateway outside of the network": {inCluster + `, "nodeNetwork": {"cidr": "10.0.0.0/24", "gateway": "192.168.7.1"}`, `{"addresses":["10.0.0.0/24"],"prefix":24,"gateway":"192.168.7.1"}`},
		"nothing":                          {inCluster, "names no addresses"},
		"no cidr":                          {inCluster + `, "nodeNetwork": {"cidr": "not-a-valid-cidr"}`, `spec.nodeNetwork.cidr "not-a-valid-cidr" is not a CIDR`},
		"a range":                          {inCluster + `, "nodeNetwork": {"ipAddresses": ["10.0.0.1-10.0.0.5"]}`, `spec.nodeNetwork.ipAddresses has "10.0.0.1-10.0.0.5", which is not a single address`},
		"a cidr in the list":               {inCluster + `, "nodeNetwork": {"ipAddresses": ["10.0.0.0/24"]}`, "is not a single address"},
		"a zone":                           {inCluster + `, "nodeNetwork": {"ipAddresses": ["fe80::1%eth0"]}`, "is not a single address"},
		"a mapped cidr":                    {inCluster + `, "nodeNetwork": {"cidr": "::ffff:10.0.0.0/120"}`, `"::ffff:10.0.0.0/120" is an IPv4 address written as IPv6. Write it as IPv4, such as 10.0.0.0`},
		"a mapped one that nobody uses":    {inCluster + `, "nodeNetwork": {"cidr": "10.0.0.0/24"}, "clusterNetwork": {"cidr": "::ffff:10.0.0.0/120"}`, `{"addresses":["10.0.0.0/24"],"prefix":24}`},
		"a bad cidr beside a list":         {inCluster + `, "nodeNetwork": {"cidr": "x", "ipAddresses": ["10.0.0.5"]}`, "is not a CIDR"},
		"a bad network that nobody uses":   {inCluster + `, "nodeNetwork": {"cidr": "10.0.0.0/24"}, "clusterNetwork": {"cidr": "x"}`, "spec.clusterNetwork.cidr"},
		"another one":                      {inCluster + `, "nodeNetwork": {"cidr": "10.0.0.0/24"}, "externalNetwork": {"ipAddresses": ["x"]}`, "spec.externalNetwork.ipAddresses"},
		"a list of several subnets":        {inCluster + `, "nodeNetwork": {"ipAddresses": ["10.0.0.5", "10.0.1.5"], "prefix": 24}`, "10.0.1.5 is not in 10.0.0.0/24"},
		"Infoblox takes the cidr":          {infoblox + `, "nodeNetwork": {"cidr": "10.0.0.7/24", "gateway": "10.0.0.1", "ipAddresses": ["10.0.0.5"], "prefix": 16}`, `{"addresses":["10.0.0.7/24"],"prefix":24,"gateway":"10.0.0.1"}`},
		"Infoblox without a gateway":       {infoblox + `, "nodeNetwork": {"cidr": "10.0.0.0/24"}`, "gateway is empty"},
		"Infoblox without a cidr":          {infoblox + `, "nodeNetwork": {"ipAddresses": ["10.0.0.5"], "gateway": "10.0.0.1"}`, "Set its cidr"},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := readClaim(claimOf(t, "{"+tc.spec+"}"))
			if err != nil {
				if strings.HasPrefix(tc.want, "{") || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got error %v, want %s", err, tc.want)
				}
				return
			}
			got, _ := json.Marshal(v1alpha2.InClusterIPPoolSpec{Addresses: n.addresses, Prefix: n.prefix, Gateway: n.gateway})
			if string(got) != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestInstanceOfAClaim(t *testing.T) {
	pool := func(instance, ready string) *v1alpha1.InfobloxIPPool {
		return contracttest.Parsed[v1alpha1.InfobloxIPPool](t, `{"spec": {"instance": {"name": "`+instance+`"}, "subnets": []}, "status": {"conditions": [{"type": "Ready", "status": "`+ready+`", "reason": "", "message": "", "lastTransitionTime": null}]}}`)
	}
	for name, tc := range map[string]struct {
		view
		asked  string
		want   string
		reason string
	}{
		"the only one":                         {view: view{Instances: []string{"i"}}, want: "i"},
		"none":                                 {reason: reasonInstanceUnknown},
		"several":                              {view: view{Instances: []string{"i", "j"}}, reason: reasonInstanceUnknown},
		"that of the flag":                     {view: view{Instances: []string{"i", "j"}, DefaultInstance: "j"}, want: "j"},
		"that of the annotation":               {view: view{Instances: []string{"i"}, DefaultInstance: "j"}, asked: "k", want: "k"},
		"that of the pool":                     {view: view{Instances: []string{"i", "j"}, DefaultInstance: "i", Infoblox: pool("j", "False")}, want: "j"},
		"a pool that works does not move":      {view: view{Infoblox: pool("i", "True")}, asked: "j", want: "i", reason: reasonInstanceKept},
		"a pool that does not work can move":   {view: view{Infoblox: pool("i", "False")}, asked: "j", want: "j"},
		"a pool that is where it is asked for": {view: view{Infoblox: pool("i", "True")}, asked: "i", want: "i"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.Claim = claimOf(t, `{"provider": "ipam-infoblox"}`)
			if tc.asked != "" {
				tc.Claim.Annotations = map[string]string{v1beta1.AnnotationInfobloxInstance: tc.asked}
			}
			got, problem := (&decision{view: tc.view}).instance()
			reason := ""
			if problem != nil {
				reason = problem.Reason
			}
			if got != tc.want || reason != tc.reason {
				t.Errorf("got %q and reason %q, want %q and %q", got, reason, tc.want, tc.reason)
			}
		})
	}
}

// formatted formats a write: the verb, the kind, and what is sent.
func formatted(t *testing.T, w *Write) string {
	t.Helper()
	if w == nil {
		return ""
	}
	var verb string
	var sent any
	switch {
	case w.Is == nil:
		verb, sent = "create", w.Want
	case w.Want == nil:
		verb = "delete"
	case w.Patch.Status:
		verb, sent = "status", contracttest.Changes(t, w.Patch)["status"]
	default:
		verb, sent = "patch", contracttest.Changes(t, w.Patch)
	}
	text, err := json.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	return verb + " " + w.Kind.Name + " " + string(text)
}

// apply carries a write out.
func (v *view) apply(w *Write) {
	switch o := w.Want.(type) {
	case *v1beta1.ClusterIPAMClaim:
		v.Claim = o
	case *v1beta1.ClusterIPAM:
		v.IPAM = o
	case *v1alpha2.InClusterIPPool:
		v.InCluster = o
	case *v1alpha1.InfobloxIPPool:
		v.Infoblox = o
	}
}

// settle carries all writes out, and returns them.
func (v *view) settle(t *testing.T) (all []*Write) {
	t.Helper()
	for range 10 {
		w := decide(*v)
		if w == nil {
			return all
		}
		v.apply(w)
		all = append(all, w)
	}
	t.Fatal("there is no end of writes")
	return nil
}

// conditions returns the types and reasons of the conditions of the claim.
func (v *view) conditions() string {
	var all []string
	for _, c := range v.Claim.Status.Conditions {
		all = append(all, c.Type+" "+c.Reason)
	}
	return strings.Join(all, ", ")
}

// TestDecide shows the exact objects of one claim's way, as other programs read them.
func TestDecide(t *testing.T) {
	v := view{Now: metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	v.Claim = claimOf(t, `{"provider": "in-cluster", "cluster": "d", "nodeNetwork": {"cidr": "192.168.1.0/24", "gateway": "192.168.1.1", "prefix": 24}}`)
	step := func(name string, want ...string) {
		t.Helper()
		var got []string
		for _, w := range v.settle(t) {
			if line := formatted(t, w); !strings.Contains(line, "conditions") {
				got = append(got, line)
			}
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", name, diff)
		}
	}
	step("a new claim, and nobody fills the status of its pool",
		`create ClusterIPAM {"metadata":{"name":"c","namespace":"t","annotations":{"networking.x-k8s.io/cluster-deployment":"d"},"ownerReferences":[{"apiVersion":"k0rdent.mirantis.com/v1beta1","kind":"ClusterIPAMClaim","name":"c","uid":"u","controller":true,"blockOwnerDeletion":true}]},"spec":{"provider":"in-cluster","clusterIPAMClaimRef":"c"}}`,
		`create InClusterIPPool {"metadata":{"name":"c","namespace":"t","ownerReferences":[{"apiVersion":"k0rdent.mirantis.com/v1beta1","kind":"ClusterIPAMClaim","name":"c","uid":"u"}]},"spec":{"addresses":["192.168.1.0/24"],"prefix":24,"gateway":"192.168.1.1"}}`,
		`patch ClusterIPAMClaim {"spec":{"clusterIPAMRef":"c"}}`,
		`status ClusterIPAM {"phase":"Pending","providerData":[{"config":{"apiGroup":"ipam.cluster.x-k8s.io","kind":"InClusterIPPool","name":"c"},"name":"ipPool"}]}`)
	v.Claim.Status.Conditions = nil
	v.InCluster.Status.IPAddresses = &v1alpha2.PoolUsage{Total: 253, Free: 253}
	step("a pool with addresses",
		`status ClusterIPAM {"phase":"Bound","providerData":[{"config":{"apiGroup":"ipam.cluster.x-k8s.io","kind":"InClusterIPPool","name":"c"},"name":"ipPool","ready":true}]}`,
		`status ClusterIPAMClaim {"bound":true}`)
	without := v
	without.IPAM = nil
	if got := formatted(t, decide(without)); got != `status ClusterIPAMClaim {"bound":false}` {
		t.Errorf("without its ClusterIPAM: %s", got)
	}
	v.InCluster.Spec.ExcludedAddresses = []string{"192.168.1.9"}
	step("idle is idle")
	v.Claim.Spec.NodeNetwork = v1beta1.AddressSpace{CIDR: "192.168.0.0/23"}
	step("an edit reaches the pool, and only its fields", `patch InClusterIPPool {"spec":{"addresses":["192.168.0.0/23"],"gateway":null,"prefix":23}}`)
	v.Claim.Spec.NodeNetwork.CIDR = "nope"
	step("an invalid edit changes nothing that exists")
	v.Claim.Spec.Provider = v1beta1.ProviderInfoblox
	step("nor does one of the provider, too")
	v.Claim.Status.Conditions = nil
	v.Claim.Spec.NodeNetwork = v1beta1.AddressSpace{CIDR: "192.168.1.7/24", Gateway: "192.168.1.1"}
	v.Claim.Spec.Provider, v.Instances = v1beta1.ProviderInfoblox, []string{"i"}
	step("another provider: the earlier pool stays until the new one is ready",
		`status ClusterIPAMClaim {"bound":false}`,
		`patch ClusterIPAM {"spec":{"provider":"ipam-infoblox"}}`,
		`create InfobloxIPPool {"metadata":{"name":"c","namespace":"t","ownerReferences":[{"apiVersion":"k0rdent.mirantis.com/v1beta1","kind":"ClusterIPAMClaim","name":"c","uid":"u"}]},"spec":{"instance":{"name":"i"},"subnets":[{"cidr":"192.168.1.0/24","gateway":"192.168.1.1"}]}}`,
		`status ClusterIPAM {"phase":"Pending","providerData":[{"config":{"apiGroup":"ipam.cluster.x-k8s.io","kind":"InfobloxIPPool","name":"c"},"name":"ipPool"}]}`)
}

// TestConditions: what is reported of each thing that the API server accepts and that the original programs ignore.
func TestConditions(t *testing.T) {
	const network = `"nodeNetwork": {"cidr": "10.0.0.0/24"}`
	for name, tc := range map[string]struct {
		claim  string
		pool   *v1alpha2.PoolUsage
		absent []*runner.Kind
		want   string // the condition's type and reason
	}{
		"invalid":                 {claim: `{"provider": "in-cluster"}`, want: "InvalidClaimCondition InvalidClaim"},
		"no spec":                 {claim: `{"provider": ""}`, want: "InvalidClaimCondition InvalidClaim"},
		"another ClusterIPAM":     {claim: `{"provider": "in-cluster", "clusterIPAMRef": "x", ` + network + `}`, want: "InvalidClaimCondition InvalidClaim"},
		"networks without use":    {claim: `{"provider": "in-cluster", "clusterNetwork": {"cidr": "10.9.0.0/16"}, ` + network + `}`, want: "Warning InputIgnored"},
		"a prefix of Infoblox":    {claim: `{"provider": "ipam-infoblox", "nodeNetwork": {"cidr": "10.1.0.128/25", "prefix": 24, "gateway": "10.1.0.1"}}`, want: "Warning InputIgnored"},
		"a list without a prefix": {claim: `{"provider": "in-cluster", "nodeNetwork": {"ipAddresses": ["10.0.0.5"]}}`, want: "Warning PrefixMissing"},
		"no usable address":       {claim: `{"provider": "in-cluster", ` + network + `}`, pool: &v1alpha2.PoolUsage{}, want: "IPAMProviderConditionError NoUsableAddress"},
		"a full pool":             {claim: `{"provider": "in-cluster", ` + network + `}`, pool: &v1alpha2.PoolUsage{Total: 253, Used: 253}, want: "IPAMProviderConditionError PoolExhausted"},
		"no such kind":            {claim: `{"provider": "in-cluster", ` + network + `}`, absent: []*runner.Kind{runner.InClusterIPPools}, want: "IPAMProviderConditionError NotInstalled"},
	} {
		t.Run(name, func(t *testing.T) {
			v := view{Claim: claimOf(t, tc.claim), NotInstalled: tc.absent}
			if tc.pool != nil {
				v.settle(t)
				v.Claim.Status = v1beta1.ClusterIPAMClaimStatus{}
				v.InCluster.Status.IPAddresses = tc.pool
			}
			all := v.settle(t)
			condition, reason, _ := strings.Cut(tc.want, " ")
			if c := meta.FindStatusCondition(v.Claim.Status.Conditions, condition); c == nil || !strings.Contains(c.Reason, reason) {
				t.Errorf("got %q, want %q", v.conditions(), tc.want)
			}
			if last := all[len(all)-1]; !slices.ContainsFunc(last.Events, func(e Finding) bool { return e.Reason == reason && strings.HasSuffix(e.Message, ".") }) {
				t.Errorf("no event says so: %v", last.Events)
			}
		})
	}
}

// TestPoolOfSomebodyElse: a pool with the name of the claim is only adopted if nothing changes by that.
func TestPoolOfSomebodyElse(t *testing.T) {
	const conflict = "IPAMProviderConditionError PoolConflict"
	for name, tc := range map[string]struct {
		pool string
		want string // the writes and conditions
	}{
		"says the same":               {`{"spec": {"addresses": ["10.0.0.0/24"], "prefix": 24, "excludedAddresses": ["10.0.0.9"]}}`, "patch InClusterIPPool, IPAMProviderConditionError PoolNotReady"},
		"says something else":         {`{"spec": {"addresses": ["10.9.0.0/24"], "prefix": 24}}`, conflict},
		"belongs to an earlier claim": {`{"metadata": {"ownerReferences": [{"kind": "ClusterIPAMClaim", "name": "c", "uid": "before"}]}, "spec": {"addresses": ["10.0.0.0/24"], "prefix": 24}}`, conflict},
	} {
		t.Run(name, func(t *testing.T) {
			v := view{Claim: claimOf(t, `{"provider": "in-cluster", "clusterIPAMRef": "c", "nodeNetwork": {"cidr": "10.0.0.0/24"}}`)}
			v.IPAM = decide(v).Want.(*v1beta1.ClusterIPAM)
			v.InCluster = contracttest.Parsed[v1alpha2.InClusterIPPool](t, tc.pool)
			got := ""
			for _, w := range v.settle(t) {
				if w.Kind == runner.InClusterIPPools {
					got = "patch InClusterIPPool, "
				}
			}
			if got += v.conditions(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestClusterIPAMOfSomebodyElse: a ClusterIPAM with the name of the claim is adopted if it has no controller and names this claim or none.
func TestClusterIPAMOfSomebodyElse(t *testing.T) {
	const controller = `"ownerReferences": [{"kind": "ClusterIPAMClaim", "name": "c", "uid": "before", "controller": true}]`
	for name, tc := range map[string]struct {
		ipam string
		want string // the first write, and the reason of the condition
	}{
		"names this claim":     {`{"spec": {"clusterIPAMClaimRef": "c"}}`, "adopt ClusterIPAM"},
		"names no claim":       {`{}`, "adopt ClusterIPAM"},
		"names another claim":  {`{"spec": {"clusterIPAMClaimRef": "x"}}`, "status ClusterIPAMClaim, ClusterIPAMConflict"},
		"of an earlier claim":  {`{"metadata": {` + controller + `}, "spec": {"clusterIPAMClaimRef": "c"}}`, "status ClusterIPAMClaim, ClusterIPAMConflict"},
		"ours, being deleted":  {`{"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"], "ownerReferences": [{"kind": "", "name": "", "uid": "u", "controller": true}]}}`, "status ClusterIPAMClaim, ClusterIPAMDeleting"},
		"recorded for another": {`{"metadata": {"annotations": {"networking.x-k8s.io/cluster-deployment": "e"}, "ownerReferences": [{"kind": "", "name": "", "uid": "u", "controller": true}]}, "spec": {"provider": "in-cluster", "clusterIPAMClaimRef": "c"}}`, "create InClusterIPPool"},
	} {
		t.Run(name, func(t *testing.T) {
			v := view{Claim: claimOf(t, `{"provider": "in-cluster", "cluster": "d", "nodeNetwork": {"cidr": "10.0.0.0/24"}}`), IPAM: contracttest.Parsed[v1beta1.ClusterIPAM](t, tc.ipam)}
			first := decide(v)
			got, _, _ := strings.Cut(formatted(t, first), " {")
			if ipam, ok := first.Want.(*v1beta1.ClusterIPAM); ok && len(ipam.OwnerReferences) > len(v.IPAM.OwnerReferences) {
				got = "adopt ClusterIPAM"
			}
			if first.Patch.Status {
				v.apply(first)
				got += ", " + v.Claim.Status.Conditions[0].Reason
			}
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestPoolWouldWiden: k0rdent's manager made a pool of clusterNetwork.ipAddresses until v1.8. It gets the addresses of nodeNetwork only when somebody has
// confirmed them.
func TestPoolWouldWiden(t *testing.T) {
	const both = `{"provider": "in-cluster", "clusterIPAMRef": "c", "nodeNetwork": {"cidr": "10.0.0.0/24", "gateway": "10.0.0.1"}, "clusterNetwork": {"ipAddresses": ["10.0.0.50", "10.0.0.51"]}}`
	for name, tc := range map[string]struct {
		claim     string
		pool      string // its addresses
		confirmed string
		waits     bool
		writes    string
	}{
		"not confirmed":                 {claim: both, pool: `["10.0.0.50", "10.0.0.51"]`, waits: true},
		"confirmed":                     {claim: both, pool: `["10.0.0.50", "10.0.0.51"]`, confirmed: "10.0.0.0/24", writes: `{"spec":{"addresses":["10.0.0.0/24"],"gateway":"10.0.0.1","prefix":24}}`},
		"other addresses are confirmed": {claim: both, pool: `["10.0.0.50", "10.0.0.51"]`, confirmed: "10.0.0.0/25", waits: true},
		"a pool with other addresses":   {claim: both, pool: `["10.0.0.50"]`, writes: `{"spec":{"addresses":["10.0.0.0/24"],"gateway":"10.0.0.1","prefix":24}}`},
		"nodeNetwork says the same": {
			claim: `{"provider": "in-cluster", "clusterIPAMRef": "c", "nodeNetwork": {"ipAddresses": ["10.0.0.50"], "prefix": 24}, "clusterNetwork": {"ipAddresses": ["10.0.0.50"]}}`,
			pool:  `["10.0.0.50"]`, writes: `{"spec":{"prefix":24}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := view{Claim: claimOf(t, tc.claim)}
			v.Claim.Annotations = map[string]string{v1beta1.AnnotationConfirmPool: tc.confirmed}
			v.IPAM = decide(v).Want.(*v1beta1.ClusterIPAM)
			v.InCluster = contracttest.Parsed[v1alpha2.InClusterIPPool](t, `{"metadata": {"name": "c", "ownerReferences": [{"kind": "ClusterIPAMClaim", "name": "c", "uid": "u"}]},
				"spec": {"addresses": `+tc.pool+`}, "status": {"ipAddresses": {"total": 2, "used": 1, "free": 1, "outOfRange": 0}}}`)
			writes := ""
			for _, w := range v.settle(t) {
				if w.Kind == runner.InClusterIPPools {
					text, _ := json.Marshal(contracttest.Changes(t, w.Patch))
					writes = string(text)
				}
			}
			c := meta.FindStatusCondition(v.Claim.Status.Conditions, conditionPoolWouldWiden)
			waits := c != nil && c.Status == metav1.ConditionTrue && strings.HasSuffix(c.Message, "set the annotation networking.x-k8s.io/confirm-pool of the claim to 10.0.0.0/24.")
			if writes != tc.writes || waits != tc.waits || !v.Claim.Status.Bound {
				t.Errorf("writes %s, waits: %v, bound: %v; want %s, %v, true", writes, waits, v.Claim.Status.Bound, tc.writes, tc.waits)
			}
		})
	}
}
