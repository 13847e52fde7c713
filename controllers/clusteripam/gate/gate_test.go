package gate

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/claims"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/test/contracttest"
)

const (
	boundClaim = `{"metadata": {"name": "c", "uid": "u"}, "spec": {"provider": "in-cluster", "cluster": "d"},
		"status": {"bound": true}}`
	boundIPAM = `{"metadata": {"name": "c", "annotations": {"networking.x-k8s.io/cluster-deployment": "d"}, "ownerReferences": [{"uid": "u", "controller": true}]}, "spec": {"clusterIPAMClaimRef": "c"},
		"status": {"phase": "Bound", "providerData": [{"name": "ipPool", "ready": true, "config": {"name": "c", "kind": "InClusterIPPool", "apiGroup": "ipam.cluster.x-k8s.io"}}]}}`
	entry = `{"config":{"apiGroup":"ipam.cluster.x-k8s.io","kind":"InClusterIPPool","name":"c"},"name":"ipPool","ready":true}`
)

// viewOf is a ClusterDeployment that refers to a bound claim.
func viewOf(t *testing.T, config string) view {
	return view{
		Deployment: contracttest.Parsed[v1beta1.ClusterDeployment](t, `{"metadata": {"name": "d"}, "spec": {"ipamClaim": {"ref": "c"}, "config": `+config+`}}`),
		Claim:      contracttest.Parsed[v1beta1.ClusterIPAMClaim](t, boundClaim), IPAM: contracttest.Parsed[v1beta1.ClusterIPAM](t, boundIPAM),
	}
}

// TestConfig: what is written into the config of a ClusterDeployment whose claim is bound.
func TestConfig(t *testing.T) {
	const (
		theirs  = `{"name": "ipPool", "ready": true, "config": {"kind": "GlobalInClusterIPPool", "name": "c"}}`
		another = `{"name": "ipPool", "ready": true, "config": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "b"}}`
		earlier = `{"name": "ipPool", "ready": true, "config": {"apiGroup": "ipam.cluster.x-k8s.io/v1alpha1", "kind": "InfobloxIPPool", "name": "c"}}`
		more    = `{"name": "ipPool", "ready": true, "dns": "x", "config": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "c", "vlan": 7}}`
	)
	for name, tc := range map[string]struct {
		config string
		want   string // the changes of the config, or the reason of the condition
	}{
		"nothing":                            {"null", `{"ipPool":` + entry + `,"ipamEnabled":true}`},
		"other values":                       {`{"workers": 3}`, `{"ipPool":` + entry + `,"ipamEnabled":true}`},
		"turned off before there was a pool": {`{"ipamEnabled": false}`, `{"ipPool":` + entry + `,"ipamEnabled":true}`},
		"complete":                           {`{"ipamEnabled": true, "ipPool": ` + entry + `}`, reasonReady},
		"complete, and more":                 {`{"ipamEnabled": true, "ipPool": ` + more + `}`, reasonReady},
		"the pool alone":                     {`{"ipPool": ` + entry + `}`, `{"ipamEnabled":true}`},
		"turned off by a user":               {`{"ipamEnabled": false, "ipPool": ` + entry + `}`, reasonDisabled},
		"an entry of a user":                 {`{"ipamEnabled": true, "ipPool": ` + theirs + `}`, reasonConfigInvalid},
		"an entry of a user that is not on":  {`{"ipPool": ` + theirs + `}`, reasonConfigInvalid},
		"the pool of another claim":          {`{"ipamEnabled": true, "ipPool": ` + another + `}`, reasonConfigInvalid},
		"text":                               {`{"ipamEnabled": true, "ipPool": "c"}`, reasonConfigInvalid},
		"the pool of an earlier provider":    {`{"ipamEnabled": true, "ipPool": ` + earlier + `}`, `{"ipPool":{"config":{"apiGroup":"ipam.cluster.x-k8s.io","kind":"InClusterIPPool"}}}`},
		"no object":                          {`"text"`, reasonConfigInvalid},
		"an array where text is":             {`{"ipamEnabled": [true], "ipPool": ["c"]}`, reasonDisabled},
	} {
		t.Run(name, func(t *testing.T) {
			w, got := decide(viewOf(t, tc.config)), ""
			if w.Patch.Status {
				got = w.Events[0].Reason
			} else {
				text, err := json.Marshal(contracttest.Changes(t, w.Patch)["spec"].(map[string]any)["config"])
				if err != nil {
					t.Fatal(err)
				}
				got = string(text)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestConfigOfAnyShape: what another provider writes into a ClusterIPAM may have arrays. It is written once, and then says the same.
func TestConfigOfAnyShape(t *testing.T) {
	v := viewOf(t, "null")
	v.IPAM.Status.ProviderData[0].Config.Raw = []byte(`{"kind": "InClusterIPPool", "name": "c", "dns": ["10.0.0.2", {"zone": "x"}], "more": {"list": []}}`)
	config := string(decide(v).Want.(*v1beta1.ClusterDeployment).Spec.Config.Raw)
	for text, same := range map[string]bool{config: true, strings.Replace(config, "10.0.0.2", "10.0.0.3", 1): false} {
		v.Deployment = viewOf(t, text).Deployment
		if w := decide(v); w.Patch.Status != same {
			t.Errorf("with the config %s: %v, want the status: %v", text, contracttest.Changes(t, w.Patch), same)
		}
	}
}

// TestGateStaysClosed: what is needed to open it.
func TestGateStaysClosed(t *testing.T) {
	record := func(v *view, cluster string) { v.IPAM.Annotations[claims.AnnotationCluster] = cluster }
	for name, tc := range map[string]struct {
		change func(v *view)
		want   string
		says   string
	}{
		"no claim":                         {func(v *view) { v.Claim = nil }, reasonClaimMissing, "Create it with spec.cluster: d"},
		"a claim for nobody":               {func(v *view) { v.Claim.Spec.Cluster = ""; record(v, "") }, reasonClusterMismatch, "Set its spec.cluster to d"},
		"a claim for another one":          {func(v *view) { v.Claim.Spec.Cluster = "e"; record(v, "e") }, reasonClusterMismatch, "for the ClusterDeployment e"},
		"a claim that was changed":         {func(v *view) { record(v, "e") }, reasonClusterMismatch, "for the ClusterDeployment e"},
		"another one that is not recorded": {func(v *view) { v.Claim.Spec.Cluster = "e"; record(v, "") }, reasonClusterMismatch, "for the ClusterDeployment e"},
		"bound by k0rdent's manager":       {func(v *view) { record(v, "") }, reasonClaimNotBound, "Turn on cluster-ipam-controller"},
		"a claim that is not recorded":     {func(v *view) { v.Claim.Status.Bound = false; v.IPAM = nil }, reasonClaimNotBound, "is not bound."},
		"a claim that is being deleted":    {func(v *view) { v.Claim.DeletionTimestamp = &metav1.Time{} }, reasonClaimNotBound, "it is being deleted"},
		"a claim that is not bound":        {func(v *view) { v.Claim.Status.Bound = false }, reasonClaimNotBound, "is not bound."},
		"an invalid claim": {func(v *view) {
			v.Claim.Status = v1beta1.ClusterIPAMClaimStatus{Conditions: []metav1.Condition{{Type: v1beta1.ConditionInvalidClaim, Message: "Set its cidr."}}}
		}, reasonClaimNotBound, "Set its cidr."},
		"a ClusterIPAM of somebody else": {func(v *view) {
			v.Deployment.UID, v.Claim.OwnerReferences, v.IPAM.OwnerReferences[0].UID = "v", []metav1.OwnerReference{{UID: "v"}}, "x"
		}, reasonClaimNotBound, "its ClusterIPAM is not ready"},
		"a ClusterIPAM that is not bound": {func(v *view) { v.IPAM.Status.Phase = "Pending" }, reasonClaimNotBound, "its ClusterIPAM is not ready"},
		"a refusal":                       {func(v *view) { v.Refused = "no" }, reasonRefused, "no"},
	} {
		t.Run(name, func(t *testing.T) {
			v := viewOf(t, "null")
			tc.change(&v)
			w := decide(v)
			if !w.Patch.Status {
				t.Fatalf("want a status, got %v", contracttest.Changes(t, w.Patch))
			}
			c := w.Want.(*v1beta1.ClusterDeployment).Status.Conditions[0]
			if c.Status != metav1.ConditionFalse || c.Reason != tc.want || !strings.Contains(c.Message, tc.says) {
				t.Errorf("got %s %s: %s, want %s: %s", c.Status, c.Reason, c.Message, tc.want, tc.says)
			}
		})
	}
}

// TestNoClaim: k0rdent's manager writes an empty ipamClaim into every ClusterDeployment. That asks for no addresses.
func TestNoClaim(t *testing.T) {
	for _, claim := range []string{`null`, `{}`, `{"ref": ""}`} {
		d := contracttest.Parsed[v1beta1.ClusterDeployment](t, `{"metadata": {"name": "d"}, "spec": {"ipamClaim": `+claim+`}}`)
		if w := decide(view{Deployment: d}); w != nil {
			t.Errorf("ipamClaim %s: writes %v", claim, contracttest.Changes(t, w.Patch))
		}
	}
	d := contracttest.Parsed[v1beta1.ClusterDeployment](t, `{"metadata": {"name": "d"}, "status": {"conditions": [{"type": "IPAMReady", "status": "True"}]}}`)
	w := decide(view{Deployment: d}) // What others have written into the status stays.
	if text, _ := json.Marshal(contracttest.Changes(t, w.Patch)); string(text) != `{"status":{"conditions":null}}` {
		t.Errorf("when the claim is removed: %s", text)
	}
}

// TestInlineClaim shows the claim that a ClusterDeployment describes, as other programs read it.
func TestInlineClaim(t *testing.T) {
	d := contracttest.Parsed[v1beta1.ClusterDeployment](t, `{"metadata": {"name": "d", "namespace": "t", "uid": "v"}, "spec": {"ipamClaim": {"spec": {"provider": "in-cluster", "nodeNetwork": {"cidr": "10.0.0.0/24"}}}}}`)
	claim := decide(view{Deployment: d}).Want.(*v1beta1.ClusterIPAMClaim)
	got, err := json.Marshal([]any{claim, contracttest.Changes(t, decide(view{Deployment: d, Claim: claim}).Patch)})
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"metadata":{"name":"d-ipam","namespace":"t","ownerReferences":[{"apiVersion":"k0rdent.mirantis.com/v1beta1","kind":"ClusterDeployment","name":"d","uid":"v"}]},` +
		`"spec":{"provider":"in-cluster","cluster":"d","clusterIPAMRef":"d-ipam","nodeNetwork":{"cidr":"10.0.0.0/24"}}},{"spec":{"ipamClaim":{"ref":"d-ipam"}}}]`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestMovedAway: clusterctl deletes the inline claim before its ClusterDeployment, which does not make it again.
func TestMovedAway(t *testing.T) {
	q := &queue{}
	term := &runner.Term{Queue: q}
	newLogic(term)
	d := contracttest.Parsed[v1beta1.ClusterDeployment](t, `{"metadata": {"name": "d", "namespace": "t", "uid": "v"}, "spec": {"ipamClaim": {"ref": "d-ipam", "spec": {"provider": "in-cluster"}}}}`)
	claim := contracttest.Parsed[v1beta1.ClusterIPAMClaim](t, `{"metadata": {"name": "d-ipam", "namespace": "t", "annotations": {"clusterctl.cluster.x-k8s.io/delete-for-move": ""}, "ownerReferences": [{"kind": "ClusterDeployment", "name": "d", "uid": "v"}]}}`)
	contracttest.Show(term, runner.ClusterDeployments, d)
	contracttest.Show(term, runner.ClusterIPAMClaims, claim)
	if w := decide(view{Deployment: d, Claim: claim}); w != nil {
		t.Errorf("writes %v", w)
	}
	if contracttest.Gone(term, runner.ClusterIPAMClaims, claim); len(q.names) != 1 {
		t.Errorf("queued: %q, want only the ClusterDeployment itself", q.names)
	}
}

// TestClaimOfSomebodyElse: a claim that has the name of the one that a ClusterDeployment describes is only changed if it was created for it.
func TestClaimOfSomebodyElse(t *testing.T) {
	for name, tc := range map[string]struct {
		claim string
		want  string // the writes, and the reason of the condition
	}{
		"ours, and edited":               {`{"metadata": {"ownerReferences": [{"kind": "ClusterDeployment", "name": "d", "uid": "v"}]}, "spec": {"provider": "in-cluster", "cluster": "d", "nodeNetwork": {"cidr": "10.9.0.0/24", "prefix": 24}}}`, `patch {"spec":{"nodeNetwork":{"cidr":"10.0.0.0/24","prefix":null}}} ClaimNotBound`},
		"of an earlier one":              {`{"metadata": {"ownerReferences": [{"kind": "ClusterDeployment", "name": "d", "uid": "before"}]}, "spec": {"provider": "in-cluster", "cluster": "d", "nodeNetwork": {"cidr": "10.0.0.0/24"}}}`, "ClaimConflict"},
		"of a user, says something else": {`{"spec": {"provider": "in-cluster", "cluster": "d", "nodeNetwork": {"cidr": "10.9.0.0/24"}}}`, "ClaimConflict"},
		"of a user, says the same":       {`{"spec": {"provider": "in-cluster", "cluster": "d", "nodeNetwork": {"cidr": "10.0.0.0/24"}}}`, "ClaimNotBound"},
	} {
		t.Run(name, func(t *testing.T) {
			v := view{
				Deployment: contracttest.Parsed[v1beta1.ClusterDeployment](t, `{"metadata": {"name": "d", "uid": "v"}, "spec": {"ipamClaim": {"ref": "d-ipam", "spec": {"provider": "in-cluster", "nodeNetwork": {"cidr": "10.0.0.0/24"}}}}}`),
				Claim:      contracttest.Parsed[v1beta1.ClusterIPAMClaim](t, tc.claim),
			}
			got := ""
			for w := decide(v); w != nil; w = decide(v) {
				switch o := w.Want.(type) {
				case *v1beta1.ClusterIPAMClaim:
					text, err := json.Marshal(contracttest.Changes(t, w.Patch))
					if err != nil {
						t.Fatal(err)
					}
					got, v.Claim = "patch "+string(text)+" ", o
				case *v1beta1.ClusterDeployment:
					v.Deployment = o
				}
			}
			got += v.Deployment.Status.Conditions[0].Reason
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// queue notes which ClusterDeployments are to be worked on.
type queue struct{ names []string }

func (q *queue) Add(key runner.Key)                       { q.names = append(q.names, key.Name) }
func (q *queue) AddAfter(key runner.Key, _ time.Duration) { q.Add(key) }

// TestWake: a change of a claim or of its ClusterIPAM queues the ClusterDeployments that have the claim, whichever was there first.
func TestWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, took := &queue{}, time.Duration(0)
		term := &runner.Term{Queue: q, Took: func(d time.Duration) { took = d }}
		l := newLogic(term)
		object := func(namespace, name string) metav1.ObjectMeta {
			return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)}
		}
		claim := &v1beta1.ClusterIPAMClaim{ObjectMeta: object("t", "c")}
		ipam := &v1beta1.ClusterIPAM{ObjectMeta: object("t", "c")}
		d := &v1beta1.ClusterDeployment{ObjectMeta: object("t", "d"), Spec: v1beta1.ClusterDeploymentSpec{IPAMClaim: &v1beta1.ClusterDeploymentIPAMClaim{Ref: "c"}}}
		inline := &v1beta1.ClusterDeployment{ObjectMeta: object("t", "inline"), Spec: v1beta1.ClusterDeploymentSpec{IPAMClaim: &v1beta1.ClusterDeploymentIPAMClaim{Spec: &v1beta1.ClusterIPAMClaimSpec{}}}}
		step := func(name, want string, change func()) {
			t.Helper()
			q.names = nil
			change()
			if got := strings.Join(q.names, " "); got != want {
				t.Errorf("%s queues %q, want %q", name, got, want)
			}
		}
		step("a claim that nobody has", "", func() { contracttest.Show(term, runner.ClusterIPAMClaims, claim) })
		step("a ClusterDeployment", "d", func() { contracttest.Show(term, runner.ClusterDeployments, d) })
		step("one that describes its claim", "inline", func() { contracttest.Show(term, runner.ClusterDeployments, inline) })
		step("the claim", "d", func() { contracttest.Show(term, runner.ClusterIPAMClaims, claim) })
		step("its ClusterIPAM", "d", func() { contracttest.Show(term, runner.ClusterIPAMs, ipam) })
		step("a claim of that name elsewhere", "", func() {
			contracttest.Show(term, runner.ClusterIPAMClaims, &v1beta1.ClusterIPAMClaim{ObjectMeta: object("u", "c")})
		})
		step("the inline claim", "inline", func() {
			contracttest.Show(term, runner.ClusterIPAMClaims, &v1beta1.ClusterIPAMClaim{ObjectMeta: object("t", "inline-ipam")})
		})
		step("the end of the claim", "d", func() { contracttest.Gone(term, runner.ClusterIPAMClaims, claim) })

		if f := l.Figures(); f.Waiting[reasonClaimNotBound] != 2 || f.Bound != 0 {
			t.Errorf("figures %v", f)
		}
		time.Sleep(time.Second)
		d.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionIPAMReady, Status: metav1.ConditionTrue}}
		step("an open gate", "d", func() { contracttest.Show(term, runner.ClusterDeployments, d) })
		if took != time.Second || l.Figures().Bound != 1 {
			t.Errorf("it took %v; figures %v", took, l.Figures())
		}
		d.Spec.IPAMClaim.Ref = "another"
		step("another claim", "d", func() { contracttest.Show(term, runner.ClusterDeployments, d) })
		step("the claim that it had", "", func() { contracttest.Show(term, runner.ClusterIPAMClaims, claim) })
		step("the end of the ClusterDeployment", "", func() { contracttest.Gone(term, runner.ClusterDeployments, d) })
		step("the claim that nobody has any more", "", func() {
			contracttest.Show(term, runner.ClusterIPAMClaims, &v1beta1.ClusterIPAMClaim{ObjectMeta: object("t", "another")})
		})
	})
}
