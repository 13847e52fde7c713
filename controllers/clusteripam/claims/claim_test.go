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
)

// parsed decodes JSON.
func parsed[T any](t *testing.T, text string) *T {
	t.Helper()
	o := new(T)
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(o); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return o
}

func claimOf(t *testing.T, spec string) *v1beta1.ClusterIPAMClaim {
	return &v1beta1.ClusterIPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "t", Name: "c", UID: "u"}, Spec: *parsed[v1beta1.ClusterIPAMClaimSpec](t, spec)}
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
		"no such cidr":                     {inCluster + `, "nodeNetwork": {"cidr": "192.168.1.0/33"}`, "is not a CIDR"},
		"a range":                          {inCluster + `, "nodeNetwork": {"ipAddresses": ["10.0.0.1-10.0.0.5"]}`, `spec.nodeNetwork.ipAddresses has "10.0.0.1-10.0.0.5", which is not a single address`},
		"a cidr in the list":               {inCluster + `, "nodeNetwork": {"ipAddresses": ["10.0.0.0/24"]}`, "is not a single address"},
		"a zone":                           {inCluster + `, "nodeNetwork": {"ipAddresses": ["fe80::1%eth0"]}`, "is not a single address"},
		"a mapped cidr":                    {inCluster + `, "nodeNetwork": {"cidr": "::ffff:10.0.0.0/120"}`, `"::ffff:10.0.0.0/120" is an IPv4 address written as IPv6. Write it as IPv4, such as 10.0.0.0`},
		"a mapped address":                 {inCluster + `, "nodeNetwork": {"ipAddresses": ["::ffff:10.0.0.5"], "prefix": 120}`, "such as 10.0.0.5"},
		"a mapped gateway":                 {inCluster + `, "nodeNetwork": {"cidr": "fd00::/64", "gateway": "::ffff:10.0.0.1"}`, "write IPv4 as IPv4"},
		"a mapped network of Infoblox":     {infoblox + `, "nodeNetwork": {"cidr": "::ffff:10.0.0.0/120", "gateway": "10.0.0.1"}`, "is an IPv4 address written as IPv6"},
		"a mapped one that nobody uses":    {inCluster + `, "nodeNetwork": {"cidr": "10.0.0.0/24"}, "clusterNetwork": {"cidr": "::ffff:10.0.0.0/120"}`, `{"addresses":["10.0.0.0/24"],"prefix":24}`},
		"a bad cidr beside a list":         {inCluster + `, "nodeNetwork": {"cidr": "x", "ipAddresses": ["10.0.0.5"]}`, "is not a CIDR"},
		"a bad network that nobody uses":   {inCluster + `, "nodeNetwork": {"cidr": "10.0.0.0/24"}, "clusterNetwork": {"cidr": "x"}`, "spec.clusterNetwork.cidr"},
		"another one":                      {inCluster + `, "nodeNetwork": {"cidr": "10.0.0.0/24"}, "externalNetwork": {"ipAddresses": ["x"]}`, "spec.externalNetwork.ipAddresses"},
		"a negative prefix":                {inCluster + `, "nodeNetwork": {"cidr": "10.0.0.0/24", "prefix": -5}`, "prefix is -5"},
		"a prefix beyond the family":       {inCluster + `, "nodeNetwork": {"cidr": "10.0.0.0/24", "prefix": 33}`, "from 0 to 32"},
		"a cidr of several subnets":        {inCluster + `, "nodeNetwork": {"cidr": "10.0.0.0/23", "prefix": 24}`, "10.0.1.255 is not in 10.0.0.0/24"},
		"a list of several subnets":        {inCluster + `, "nodeNetwork": {"ipAddresses": ["10.0.0.5", "10.0.1.5"], "prefix": 24}`, "10.0.1.5 is not in 10.0.0.0/24"},
		"both families":                    {inCluster + `, "nodeNetwork": {"ipAddresses": ["10.0.0.5", "fd00::5"], "prefix": 24}`, "both IPv4 and IPv6"},
		"no gateway":                       {inCluster + `, "nodeNetwork": {"cidr": "10.0.0.0/24", "gateway": "x"}`, `gateway "x" is not an address`},
		"a gateway of another family":      {inCluster + `, "nodeNetwork": {"cidr": "10.0.0.0/24", "gateway": "fd00::1"}`, "is not an IPv4 address"},
		"Infoblox takes the cidr":          {infoblox + `, "nodeNetwork": {"cidr": "10.0.0.7/24", "gateway": "10.0.0.1", "ipAddresses": ["10.0.0.5"], "prefix": 16}`, `{"addresses":["10.0.0.7/24"],"prefix":24,"gateway":"10.0.0.1"}`},
		"Infoblox without a gateway":       {infoblox + `, "nodeNetwork": {"cidr": "10.0.0.0/24"}`, "gateway is empty"},
		"Infoblox without a cidr":          {infoblox + `, "nodeNetwork": {"ipAddresses": ["10.0.0.5"], "gateway": "10.0.0.1"}`, "Set its cidr"},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := readNetwork(parsed[v1beta1.ClusterIPAMClaimSpec](t, "{"+tc.spec+"}"))
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

// TestStrayGateway: a gateway that machines cannot reach is reported, and no other one.
func TestStrayGateway(t *testing.T) {
	for name, tc := range map[string]struct {
		network string
		want    string // the subnet in which the gateway is not
	}{
		"in the cidr":                     {network: `{"cidr": "10.0.0.0/24", "gateway": "10.0.0.1"}`},
		"in a cidr with host bits":        {network: `{"cidr": "10.0.0.200/24", "gateway": "10.0.0.1"}`},
		"none":                            {network: `{"cidr": "10.0.0.0/24"}`},
		"outside of the cidr":             {network: `{"cidr": "10.0.0.0/24", "gateway": "10.1.0.1"}`, want: "10.0.0.0/24"},
		"outside, IPv6":                   {network: `{"cidr": "fd00::/64", "gateway": "fd00:0:0:1::1"}`, want: "fd00::/64"},
		"outside of the cidr, in prefix":  {network: `{"cidr": "10.0.0.128/25", "prefix": 24, "gateway": "10.0.0.1"}`},
		"outside of the subnet of a list": {network: `{"ipAddresses": ["10.0.0.5"], "prefix": 24, "gateway": "10.0.1.1"}`, want: "10.0.0.0/24"},
		"a list without a prefix":         {network: `{"ipAddresses": ["10.0.0.5"], "gateway": "10.0.1.1"}`},
		"link-local":                      {network: `{"cidr": "fd00::/64", "gateway": "fe80::1"}`},
		"machines without a subnet":       {network: `{"ipAddresses": ["10.0.0.5"], "prefix": 32, "gateway": "10.0.1.1"}`},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := readNetwork(parsed[v1beta1.ClusterIPAMClaimSpec](t, `{"provider": "in-cluster", "nodeNetwork": `+tc.network+`}`))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if subnet, stray := n.strayGateway(); stray {
				got = subnet.String()
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestInstanceOfAClaim(t *testing.T) {
	pool := func(instance, ready string) *v1alpha1.InfobloxIPPool {
		return parsed[v1alpha1.InfobloxIPPool](t, `{"spec": {"instance": {"name": "`+instance+`"}, "subnets": []}, "status": {"conditions": [{"type": "Ready", "status": "`+ready+`", "reason": "", "message": "", "lastTransitionTime": null}]}}`)
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

// written formats writes: the verb, the kind, and what is sent.
func written(t *testing.T, all []Write) (lines []string) {
	for _, w := range all {
		verb, sent := "patch", any(w.Want)
		switch {
		case w.Is == nil:
			verb = "create"
		case w.Want == nil:
			verb = "delete"
		case w.OfStatus():
			verb, sent = "status", w.Changes()["status"]
		default:
			sent = w.Changes()
		}
		text, err := json.Marshal(sent)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, verb+" "+w.Kind.Name+" "+string(text))
	}
	return lines
}

// claimIn is the claim as a write makes it; nil if the write is about something else.
func claimIn(w Write) *v1beta1.ClusterIPAMClaim {
	claim, _ := w.Want.(*v1beta1.ClusterIPAMClaim)
	return claim
}

// TestDecide shows the exact objects of one claim's way, as other programs read them.
func TestDecide(t *testing.T) {
	v := view{Now: metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	v.Claim = claimOf(t, `{"provider": "in-cluster", "cluster": "d", "nodeNetwork": {"cidr": "192.168.1.0/24", "gateway": "192.168.1.1", "prefix": 24}}`)
	check := func(step string, want ...string) []Write {
		t.Helper()
		all := decide(v)
		got := slices.DeleteFunc(written(t, all), func(line string) bool { return strings.HasPrefix(line, "status ClusterIPAMClaim") })
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", step, diff)
		}
		return all
	}
	all := check("a new claim",
		`create ClusterIPAM {"metadata":{"name":"c","namespace":"t","annotations":{"networking.x-k8s.io/cluster-deployment":"d"},"ownerReferences":[{"apiVersion":"k0rdent.mirantis.com/v1beta1","kind":"ClusterIPAMClaim","name":"c","uid":"u","controller":true,"blockOwnerDeletion":true}]},"spec":{"provider":"in-cluster","clusterIPAMClaimRef":"c"}}`,
		`create InClusterIPPool {"metadata":{"name":"c","namespace":"t","ownerReferences":[{"apiVersion":"k0rdent.mirantis.com/v1beta1","kind":"ClusterIPAMClaim","name":"c","uid":"u"}]},"spec":{"addresses":["192.168.1.0/24"],"prefix":24,"gateway":"192.168.1.1"}}`)
	v.IPAM, v.InCluster = all[0].Want.(*v1beta1.ClusterIPAM), all[1].Want.(*v1alpha2.InClusterIPPool)
	check("nobody fills the pool's status",
		`status ClusterIPAM {"phase":"Pending","providerData":[{"config":{"apiGroup":"ipam.cluster.x-k8s.io","kind":"InClusterIPPool","name":"c"},"name":"ipPool"}]}`,
		`patch ClusterIPAMClaim {"spec":{"clusterIPAMRef":"c"}}`)
	v.Claim.Spec.ClusterIPAMRef = "c"
	v.InCluster.Status.IPAddresses = &v1alpha2.PoolUsage{Total: 253, Free: 253}
	all = check("a pool with addresses",
		`status ClusterIPAM {"phase":"Bound","providerData":[{"config":{"apiGroup":"ipam.cluster.x-k8s.io","kind":"InClusterIPPool","name":"c"},"name":"ipPool","ready":true}]}`)
	last := all[len(all)-1]
	if !claimIn(last).Status.Bound || len(last.Events) != 1 || last.Events[0].Reason != reasonBound {
		t.Errorf("the claim is not bound: %v %v", last.Changes(), last.Events)
	}
	v.Claim, v.IPAM = claimIn(last), all[0].Want.(*v1beta1.ClusterIPAM)
	without := v
	without.IPAM = nil
	if lines := written(t, decide(without)); !slices.Contains(lines, `status ClusterIPAMClaim {"bound":false}`) {
		t.Errorf("without its ClusterIPAM: %q", lines)
	}
	v.InCluster.Spec.ExcludedAddresses = []string{"192.168.1.9"}
	if all := decide(v); len(all) > 0 {
		t.Errorf("idle is idle, but: %q", written(t, all))
	}
	v.Claim.Spec.NodeNetwork = v1beta1.AddressSpace{CIDR: "192.168.0.0/23"}
	check("an edit reaches the pool, and only its fields", `patch InClusterIPPool {"spec":{"addresses":["192.168.0.0/23"],"gateway":null,"prefix":23}}`)
	v.Claim.Spec.NodeNetwork.CIDR = "nope"
	check("an invalid edit changes nothing that exists")
	v.Claim.Spec.Provider = v1beta1.ProviderInfoblox
	check("nor does one of the provider, too")
	v.Claim.Spec.NodeNetwork = v1beta1.AddressSpace{CIDR: "192.168.1.7/24", Gateway: "192.168.1.1"}
	v.Claim.Spec.Provider, v.Instances = v1beta1.ProviderInfoblox, []string{"i"}
	check("another provider: the earlier pool stays until the new one is ready",
		`patch ClusterIPAM {"spec":{"provider":"ipam-infoblox"}}`,
		`create InfobloxIPPool {"metadata":{"name":"c","namespace":"t","ownerReferences":[{"apiVersion":"k0rdent.mirantis.com/v1beta1","kind":"ClusterIPAMClaim","name":"c","uid":"u"}]},"spec":{"instance":{"name":"i"},"subnets":[{"cidr":"192.168.1.0/24","gateway":"192.168.1.1"}]}}`)
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
		"a gateway elsewhere":     {claim: `{"provider": "in-cluster", "nodeNetwork": {"cidr": "10.1.0.0/24", "gateway": "10.2.0.1"}}`, want: "Warning GatewayOutside"},
		"no usable address":       {claim: `{"provider": "in-cluster", ` + network + `}`, pool: &v1alpha2.PoolUsage{}, want: "IPAMProviderConditionError NoUsableAddress"},
		"a full pool":             {claim: `{"provider": "in-cluster", ` + network + `}`, pool: &v1alpha2.PoolUsage{Total: 253, Used: 253}, want: "IPAMProviderConditionError PoolExhausted"},
		"no such kind":            {claim: `{"provider": "in-cluster", ` + network + `}`, absent: []*runner.Kind{runner.InClusterIPPools}, want: "IPAMProviderConditionError NotInstalled"},
	} {
		t.Run(name, func(t *testing.T) {
			v := view{Claim: claimOf(t, tc.claim), NotInstalled: tc.absent}
			if tc.pool != nil {
				all := decide(v)
				v.IPAM, v.InCluster = all[0].Want.(*v1beta1.ClusterIPAM), all[1].Want.(*v1alpha2.InClusterIPPool)
				v.InCluster.Status.IPAddresses = tc.pool
				v.Claim.Spec.ClusterIPAMRef = "c"
			}
			all := decide(v)
			var got []string
			last := all[len(all)-1]
			for _, c := range claimIn(last).Status.Conditions {
				got = append(got, c.Type+" "+c.Reason)
			}
			condition, reason, _ := strings.Cut(tc.want, " ")
			if !slices.ContainsFunc(got, func(c string) bool { return strings.HasPrefix(c, condition+" ") && strings.Contains(c, reason) }) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if !slices.ContainsFunc(last.Events, func(e Event) bool { return e.Reason == reason && strings.HasSuffix(e.Message, ".") }) {
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
			v.IPAM = decide(v)[0].Want.(*v1beta1.ClusterIPAM)
			v.InCluster = parsed[v1alpha2.InClusterIPPool](t, tc.pool)
			var got []string
			for _, w := range decide(v) {
				if w.Kind == runner.InClusterIPPools {
					got = append(got, "patch "+w.Kind.Name)
				}
				if claim := claimIn(w); claim != nil {
					for _, c := range claim.Status.Conditions {
						got = append(got, c.Type+" "+c.Reason)
					}
				}
			}
			if got := strings.Join(got, ", "); got != tc.want {
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
		"names this claim":     {`{"spec": {"clusterIPAMClaimRef": "c"}}`, "adopt ClusterIPAM, "},
		"names no claim":       {`{}`, "adopt ClusterIPAM, "},
		"names another claim":  {`{"spec": {"clusterIPAMClaimRef": "x"}}`, "status ClusterIPAMClaim, ClusterIPAMConflict"},
		"of an earlier claim":  {`{"metadata": {` + controller + `}, "spec": {"clusterIPAMClaimRef": "c"}}`, "status ClusterIPAMClaim, ClusterIPAMConflict"},
		"ours, being deleted":  {`{"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"], "ownerReferences": [{"kind": "", "name": "", "uid": "u", "controller": true}]}}`, "status ClusterIPAMClaim, ClusterIPAMDeleting"},
		"recorded for another": {`{"metadata": {"annotations": {"networking.x-k8s.io/cluster-deployment": "e"}, "ownerReferences": [{"kind": "", "name": "", "uid": "u", "controller": true}]}, "spec": {"provider": "in-cluster", "clusterIPAMClaimRef": "c"}}`, "create InClusterIPPool, "},
	} {
		t.Run(name, func(t *testing.T) {
			v := view{Claim: claimOf(t, `{"provider": "in-cluster", "cluster": "d", "nodeNetwork": {"cidr": "10.0.0.0/24"}}`), IPAM: parsed[v1beta1.ClusterIPAM](t, tc.ipam)}
			all := decide(v)
			verb, _, _ := strings.Cut(written(t, all)[0], " {")
			if ipam, ok := all[0].Want.(*v1beta1.ClusterIPAM); ok && len(ipam.OwnerReferences) > len(v.IPAM.OwnerReferences) {
				verb = "adopt ClusterIPAM"
			}
			reason := ""
			if claim := claimIn(all[len(all)-1]); len(claim.Status.Conditions) > 0 && claim.Status.Conditions[0].Reason != ReasonPoolNotReady {
				reason = claim.Status.Conditions[0].Reason
			}
			if got := verb + ", " + reason; got != tc.want {
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
			v.IPAM = decide(v)[0].Want.(*v1beta1.ClusterIPAM)
			v.InCluster = parsed[v1alpha2.InClusterIPPool](t, `{"metadata": {"name": "c", "ownerReferences": [{"kind": "ClusterIPAMClaim", "name": "c", "uid": "u"}]},
				"spec": {"addresses": `+tc.pool+`}, "status": {"ipAddresses": {"total": 2, "used": 1, "free": 1, "outOfRange": 0}}}`)
			writes, waits, bound := "", false, false
			for _, w := range decide(v) {
				if w.Kind == runner.InClusterIPPools {
					text, _ := json.Marshal(w.Changes())
					writes = string(text)
				}
				if claim := claimIn(w); claim != nil {
					bound = claim.Status.Bound
					c := meta.FindStatusCondition(claim.Status.Conditions, conditionPoolWouldWiden)
					waits = c != nil && c.Status == metav1.ConditionTrue && strings.HasSuffix(c.Message, "set the annotation networking.x-k8s.io/confirm-pool of the claim to 10.0.0.0/24.")
				}
			}
			if writes != tc.writes || waits != tc.waits || !bound {
				t.Errorf("writes %s, waits: %v, bound: %v; want %s, %v, true", writes, waits, bound, tc.writes, tc.waits)
			}
		})
	}
}
