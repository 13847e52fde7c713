package opening

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/claims/binding"
)

func parsed[T any](t *testing.T, text string) *T {
	t.Helper()
	o := new(T)
	if err := json.Unmarshal([]byte(text), o); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return o
}

const (
	boundClaim = `{"metadata": {"name": "c", "uid": "u"}, "spec": {"provider": "in-cluster", "cluster": "d"},
		"status": {"bound": true, "conditions": [{"type": "BoundToCluster", "status": "True", "reason": "Recorded", "message": "d"}]}}`
	boundIPAM = `{"metadata": {"name": "c", "ownerReferences": [{"uid": "u", "controller": true}]}, "spec": {"clusterIPAMClaimRef": "c"},
		"status": {"phase": "Bound", "providerData": [{"name": "ipPool", "ready": true, "config": {"name": "c", "kind": "InClusterIPPool", "apiGroup": "ipam.cluster.x-k8s.io"}}]}}`
	entry = `{"config":{"apiGroup":"ipam.cluster.x-k8s.io","kind":"InClusterIPPool","name":"c"},"name":"ipPool","ready":true}`
)

// TestConfig: what is written into the config of a ClusterDeployment whose claim is bound.
func TestConfig(t *testing.T) {
	const stale = `{"name": "ipPool", "ready": true, "config": {"kind": "InfobloxIPPool"}}`
	for name, tc := range map[string]struct {
		config  string
		written string // the annotation
		want    string // the changes of the config, or the reason of the condition
	}{
		"nothing":                              {"null", "", `{"ipPool":` + entry + `,"ipamEnabled":true}`},
		"other values":                         {`{"workers": 3}`, "", `{"ipPool":` + entry + `,"ipamEnabled":true}`},
		"turned off before there was a pool":   {`{"ipamEnabled": false}`, "", `{"ipPool":` + entry + `,"ipamEnabled":true}`},
		"complete":                             {`{"ipamEnabled": true, "ipPool": ` + entry + `}`, "", ReasonReady},
		"the pool alone":                       {`{"ipPool": ` + entry + `}`, "", `{"ipamEnabled":true}`},
		"turned off by a user":                 {`{"ipamEnabled": false, "ipPool": ` + entry + `}`, "", ReasonDisabled},
		"an entry of a user":                   {`{"ipamEnabled": true, "ipPool": ` + stale + `}`, "", ReasonConfigInvalid},
		"an entry of a user that is not on":    {`{"ipPool": ` + stale + `}`, "", ReasonConfigInvalid},
		"an entry of a user after one of ours": {`{"ipamEnabled": true, "ipPool": ` + stale + `}`, `{"ipPool": ` + entry + `}`, ReasonConfigInvalid},
		"an earlier entry":                     {`{"ipamEnabled": true, "ipPool": ` + stale + `}`, `{"ipPool": ` + stale + `}`, `{"ipPool":` + entry + `}`},
		"no object":                            {`"text"`, "", ReasonConfigInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			d := parsed[v1beta1.ClusterDeployment](t, `{"metadata": {"name": "d"}, "spec": {"ipamClaim": {"ref": "c"}, "config": `+tc.config+`}}`)
			if tc.written != "" {
				d.Annotations = map[string]string{AnnotationWritten: tc.written}
			}
			all := Decide(View{Deployment: d, Claim: parsed[v1beta1.ClusterIPAMClaim](t, boundClaim), IPAM: parsed[v1beta1.ClusterIPAM](t, boundIPAM)})
			if len(all) != 1 {
				t.Fatalf("want one write, got %v", all)
			}
			got := ""
			if all[0].Verb == binding.PatchStatus {
				got = all[0].Events[0].Reason
			} else {
				text, err := json.Marshal(all[0].Changes["spec"].(map[string]any)["config"])
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

// TestGateStaysClosed: what is needed to open it.
func TestGateStaysClosed(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(v *View)
		want   string
	}{
		"no claim":                        {func(v *View) { v.Claim = nil }, ReasonClaimMissing},
		"a claim for nobody":              {func(v *View) { v.Claim.Spec.Cluster, v.Claim.Status.Conditions = "", nil }, ReasonClusterMismatch},
		"a claim for another one":         {func(v *View) { v.Claim.Status.Conditions[0].Message = "e" }, ReasonClusterMismatch},
		"a claim that was changed":        {func(v *View) { v.Claim.Spec.Cluster, v.Claim.Status.Conditions[0].Message = "d", "e" }, ReasonClusterMismatch},
		"a claim that is not recorded":    {func(v *View) { v.Claim.Status.Conditions = nil }, ReasonClaimNotBound},
		"a claim that is not bound":       {func(v *View) { v.Claim.Status.Bound = false }, ReasonClaimNotBound},
		"a ClusterIPAM of somebody else":  {func(v *View) { v.IPAM.OwnerReferences[0].UID = "x" }, ReasonClaimNotBound},
		"a ClusterIPAM that is not bound": {func(v *View) { v.IPAM.Status.Phase = "Pending" }, ReasonClaimNotBound},
	} {
		t.Run(name, func(t *testing.T) {
			v := View{
				Deployment: parsed[v1beta1.ClusterDeployment](t, `{"metadata": {"name": "d"}, "spec": {"ipamClaim": {"ref": "c"}}}`),
				Claim:      parsed[v1beta1.ClusterIPAMClaim](t, boundClaim), IPAM: parsed[v1beta1.ClusterIPAM](t, boundIPAM),
			}
			tc.change(&v)
			all := Decide(v)
			if len(all) != 1 || all[0].Verb != binding.PatchStatus {
				t.Fatalf("want a status, got %v", all)
			}
			if problem := whyClosed(v, "c"); problem == nil || problem.reason != tc.want {
				t.Errorf("got %v, want %s", problem, tc.want)
			}
		})
	}
}

// TestBoundByAnother: a claim that k0rdent's manager has bound, and cluster-ipam-controller is off. The user learns what to do.
func TestBoundByAnother(t *testing.T) {
	v := View{
		Deployment: parsed[v1beta1.ClusterDeployment](t, `{"metadata": {"name": "d"}, "spec": {"ipamClaim": {"ref": "c"}}}`),
		Claim:      parsed[v1beta1.ClusterIPAMClaim](t, boundClaim), IPAM: parsed[v1beta1.ClusterIPAM](t, boundIPAM),
	}
	v.Claim.Status.Conditions = nil
	all := Decide(v)
	if len(all) != 1 || len(all[0].Events) != 1 || !strings.Contains(all[0].Events[0].Message, "Turn on cluster-ipam-controller") {
		t.Errorf("want a status with an event that says what to do, got %v", all)
	}
}

// TestNoClaim: k0rdent's manager writes an empty ipamClaim into every ClusterDeployment. That asks for no addresses.
func TestNoClaim(t *testing.T) {
	for _, claim := range []string{`null`, `{}`, `{"ref": ""}`} {
		d := parsed[v1beta1.ClusterDeployment](t, `{"metadata": {"name": "d"}, "spec": {"ipamClaim": `+claim+`}}`)
		if all := Decide(View{Deployment: d}); len(all) > 0 {
			t.Errorf("ipamClaim %s: writes %v", claim, all)
		}
	}
}

// TestInlineClaim shows the claim that a ClusterDeployment describes, as other programs read it.
func TestInlineClaim(t *testing.T) {
	d := parsed[v1beta1.ClusterDeployment](t, `{"metadata": {"name": "d", "namespace": "t", "uid": "v"}, "spec": {"ipamClaim": {"spec": {"provider": "in-cluster", "nodeNetwork": {"cidr": "10.0.0.0/24"}}}}}`)
	all := Decide(View{Deployment: d})
	if len(all) != 2 {
		t.Fatalf("want the claim and its name, got %v", all)
	}
	got, err := json.Marshal([]any{all[0].Object, all[1].Changes})
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"metadata":{"name":"d-ipam","namespace":"t","ownerReferences":[{"apiVersion":"k0rdent.mirantis.com/v1beta1","kind":"ClusterDeployment","name":"d","uid":"v"}]},` +
		`"spec":{"provider":"in-cluster","cluster":"d","clusterIPAMRef":"d-ipam","nodeNetwork":{"cidr":"10.0.0.0/24"}}},{"spec":{"ipamClaim":{"ref":"d-ipam"}}}]`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
