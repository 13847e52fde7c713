package gate

import (
	"cmp"
	"encoding/json"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/claims"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/text"
)

// Reasons of the condition IPAMReady, and of events.
const (
	reasonReady           = "IPAMReady"
	reasonClaimMissing    = "ClaimMissing"
	reasonClaimConflict   = "ClaimConflict"
	reasonClaimNotBound   = "ClaimNotBound"
	reasonClusterMismatch = "ClusterMismatch"
	reasonConfigInvalid   = "ConfigInvalid"
	reasonDisabled        = "IPAMDisabled"
	reasonRefused         = "Refused"
)

// view is everything that a decision about one ClusterDeployment depends on; nil for objects that do not exist.
type view struct {
	Deployment *v1beta1.ClusterDeployment
	// Claim and IPAM have the name that claimName returns.
	Claim *v1beta1.ClusterIPAMClaim
	IPAM  *v1beta1.ClusterIPAM
	// Refused is why the API server has just refused one of the writes; empty if it has not.
	Refused string
	Now     metav1.Time
}

// claimName returns the name of the claim of a ClusterDeployment; empty for none. inline is whether the ClusterDeployment describes the claim.
func claimName(d *v1beta1.ClusterDeployment) (name string, inline bool) {
	switch c := d.Spec.IPAMClaim; {
	case c == nil:
		return "", false
	case c.Spec != nil:
		return d.Name + v1beta1.InlineClaimSuffix, true
	default:
		return c.Ref, false
	}
}

// decide returns the next write that a ClusterDeployment needs; nil if there is none.
func decide(v view) *claims.Write {
	d := v.Deployment
	if d.DeletionTimestamp != nil || contract.GoingAway(d) || v.Claim != nil && contract.GoingAway(v.Claim) {
		return nil
	}
	name, inline := claimName(d)
	if name == "" {
		return status(v, nil)
	}
	if v.Refused != "" { // It keeps the ClusterDeployment from everything else.
		return status(v, &claims.Finding{Reason: reasonRefused, Message: "The API server refuses a change that this ClusterDeployment needs: " + v.Refused})
	}
	want := d.DeepCopy()
	var problem *claims.Finding
	if inline {
		write, conflict := inlineClaim(v, name)
		if write != nil {
			return write
		}
		problem, want.Spec.IPAMClaim.Ref = conflict, name
	}
	problem = cmp.Or(problem, whyClosed(v, name))
	if problem == nil {
		problem = open(v, want)
	}
	ready := &claims.Finding{Normal: true, Reason: reasonReady, Message: fmt.Sprintf("ClusterIPAMClaim %s is bound, and spec.config says where the addresses come from.", name)}
	return cmp.Or(claims.Change(runner.ClusterDeployments, d, want), status(v, cmp.Or(problem, ready)))
}

// status returns the write that the condition needs. Without a finding the condition is removed.
func status(v view, f *claims.Finding) *claims.Write {
	want := v.Deployment.DeepCopy()
	if f == nil {
		meta.RemoveStatusCondition(&want.Status.Conditions, v1beta1.ConditionIPAMReady)
		return claims.Change(runner.ClusterDeployments, v.Deployment, want)
	}
	c := metav1.Condition{Type: v1beta1.ConditionIPAMReady, Status: metav1.ConditionFalse, Reason: f.Reason, Message: text.Cut(f.Message, text.MaxMessage), LastTransitionTime: v.Now}
	if f.Normal {
		c.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&want.Status.Conditions, c)
	if f.Quiet {
		return claims.Change(runner.ClusterDeployments, v.Deployment, want)
	}
	return claims.Change(runner.ClusterDeployments, v.Deployment, want, *f)
}

// inlineClaim returns the write that the claim needs that the ClusterDeployment describes. A claim of this name that somebody else has created is
// not changed. It may be used if it says the same.
func inlineClaim(v view, name string) (*claims.Write, *claims.Finding) {
	d, claim, says := v.Deployment, v.Claim, v.Deployment.Spec.IPAMClaim.Spec
	if claim == nil {
		create := &v1beta1.ClusterIPAMClaim{Spec: *says.DeepCopy()}
		create.Namespace, create.Name, create.Spec.ClusterIPAMRef, create.Spec.Cluster = d.Namespace, name, name, cmp.Or(says.Cluster, d.Name)
		create.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1beta1.GroupVersion.String(), Kind: v1beta1.KindClusterDeployment, Name: d.Name, UID: d.UID}}
		return &claims.Write{Kind: runner.ClusterIPAMClaims, Want: create}, nil
	}
	want := claim.DeepCopy()
	want.Spec = *says.DeepCopy()
	// A cluster can be set and never be changed.
	want.Spec.Cluster, want.Spec.ClusterIPAMRef = cmp.Or(claim.Spec.Cluster, says.Cluster, d.Name), claim.Spec.ClusterIPAMRef
	change := claims.Change(runner.ClusterIPAMClaims, claim, want)
	switch owner, earlier := claims.OwnerOf(claim, d, v1beta1.KindClusterDeployment); {
	case !owner && earlier:
		return nil, &claims.Finding{Reason: reasonClaimConflict, Message: fmt.Sprintf(
			"ClusterIPAMClaim %s belongs to an earlier ClusterDeployment of this name. It is created again when it is gone.", name)}
	case !owner && change != nil:
		return nil, &claims.Finding{Reason: reasonClaimConflict, Message: fmt.Sprintf(
			"ClusterIPAMClaim %s was not created for this ClusterDeployment, and says something else. Delete it, or remove spec.ipamClaim.spec and set spec.ipamClaim.ref.", name)}
	case claim.DeletionTimestamp != nil:
		return nil, nil // whyClosed says so
	}
	return change, nil
}

// whyClosed returns why the claim gives this ClusterDeployment no addresses, and what to do; nil if it does.
func whyClosed(v view, name string) *claims.Finding {
	d, claim := v.Deployment, v.Claim
	if claim == nil {
		return &claims.Finding{Reason: reasonClaimMissing, Message: fmt.Sprintf("There is no ClusterIPAMClaim %s. Create it with spec.cluster: %s, or correct spec.ipamClaim.ref.", name, d.Name)}
	}
	if inline, _ := claims.OwnerOf(claim, d, v1beta1.KindClusterDeployment); !inline {
		// What is recorded counts: spec.cluster can be removed and set again.
		switch recorded := claims.Cluster(claim, v.IPAM); cmp.Or(recorded, claim.Spec.Cluster) {
		case d.Name:
			if recorded == "" && claim.Status.Bound { // k0rdent's manager does not record it.
				return notBound(claim, false, " to this ClusterDeployment. Turn on cluster-ipam-controller.")
			}
		case "":
			return &claims.Finding{Reason: reasonClusterMismatch, Message: fmt.Sprintf("ClusterIPAMClaim %s is for no ClusterDeployment. Set its spec.cluster to %s.", name, d.Name)}
		default:
			return &claims.Finding{Reason: reasonClusterMismatch, Message: fmt.Sprintf("ClusterIPAMClaim %s is for the ClusterDeployment %s. Set spec.ipamClaim.ref to another claim.",
				name, text.Cut(cmp.Or(recorded, claim.Spec.Cluster), text.MaxValue))}
		}
	}
	return whyNotBound(claim, v.IPAM)
}

// whyNotBound returns why a claim has no addresses to give, whoever asks; nil if it has.
func whyNotBound(claim *v1beta1.ClusterIPAMClaim, ipam *v1beta1.ClusterIPAM) *claims.Finding {
	switch {
	case claim.DeletionTimestamp != nil:
		return notBound(claim, false, ": it is being deleted. Create it again.")
	case !claim.Status.Bound:
		for _, kind := range []string{v1beta1.ConditionInvalidClaim, v1beta1.ConditionProviderError} {
			if c := meta.FindStatusCondition(claim.Status.Conditions, kind); c != nil {
				return notBound(claim, c.Reason == claims.ReasonPoolNotReady, ": "+c.Message)
			}
		}
		return notBound(claim, true, ".")
	case !claims.Owned(ipam, claim) || ipam.Status.Phase != v1beta1.PhaseBound || len(ipam.Status.ProviderData) == 0:
		return notBound(claim, true, ": its ClusterIPAM is not ready.")
	}
	return nil
}

func notBound(claim *v1beta1.ClusterIPAMClaim, quiet bool, why string) *claims.Finding {
	return &claims.Finding{Reason: reasonClaimNotBound, Message: fmt.Sprintf("ClusterIPAMClaim %s is not bound%s", claim.Name, why), Quiet: quiet}
}

// open writes into the config of a ClusterDeployment where its addresses come from, or returns why it does not.
func open(v view, want *v1beta1.ClusterDeployment) *claims.Finding {
	before := []byte("{}")
	if c := want.Spec.Config; c != nil && len(c.Raw) > 0 {
		before = c.Raw
	}
	var config map[string]any
	if json.Unmarshal(before, &config) != nil {
		return &claims.Finding{Reason: reasonConfigInvalid, Message: "spec.config is not an object, so the addresses cannot be written into it. Make it an object, or remove it."}
	}
	enabled, set := config[v1beta1.ConfigIPAMEnabled]
	changes := map[string]any{v1beta1.ConfigIPAMEnabled: true}
	for _, data := range v.IPAM.Status.ProviderData {
		switch is, present := config[data.Name]; {
		case present && set && enabled != true:
			return &claims.Finding{Reason: reasonDisabled, Message: "spec.config.ipamEnabled is not true. Set it to true, or remove it."}
		case present && !isPoolOf(is, v.Claim.Name): // Nobody knows whether what it says gives addresses.
			return &claims.Finding{Reason: reasonConfigInvalid, Message: fmt.Sprintf(
				"spec.config.%s does not name the pool of ClusterIPAMClaim %s and stays as it is. To get the pool of the claim, remove it.", data.Name, v.Claim.Name)}
		}
		changes[data.Name] = data
	}
	patch, err := json.Marshal(changes)
	if err == nil {
		patch, err = jsonpatch.MergePatch(before, patch)
	}
	if err != nil {
		panic(err) // All of it came from JSON.
	}
	want.Spec.Config = &apiextensionsv1.JSON{Raw: patch}
	return nil
}

// isPoolOf reports whether an entry of a config names a pool that a claim has, or had before its provider was changed.
func isPoolOf(entry any, claim string) bool {
	fields, _ := entry.(map[string]any)
	pool, _ := fields["config"].(map[string]any)
	return pool["name"] == claim && (pool["kind"] == runner.InClusterIPPools.Name || pool["kind"] == runner.InfobloxIPPools.Name)
}
