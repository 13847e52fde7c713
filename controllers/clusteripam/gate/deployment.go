package gate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
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
	ReasonReady           = "IPAMReady"
	ReasonClaimMissing    = "ClaimMissing"
	ReasonClaimConflict   = "ClaimConflict"
	ReasonClaimNotBound   = "ClaimNotBound"
	ReasonClusterMismatch = "ClusterMismatch"
	ReasonConfigInvalid   = "ConfigInvalid"
	ReasonDisabled        = "IPAMDisabled"
	ReasonRefused         = "Refused"
)

// View is everything that a decision about one ClusterDeployment depends on; nil for objects that do not exist.
type View struct {
	Deployment *v1beta1.ClusterDeployment
	// Claim and IPAM have the name that ClaimName returns.
	Claim *v1beta1.ClusterIPAMClaim
	IPAM  *v1beta1.ClusterIPAM
	// Refused is why the API server has just refused one of the writes; empty if it has not.
	Refused string
	Now     metav1.Time
}

// ClaimName returns the name of the claim of a ClusterDeployment; empty for none. inline is whether the ClusterDeployment describes the claim.
func ClaimName(d *v1beta1.ClusterDeployment) (name string, inline bool) {
	switch c := d.Spec.IPAMClaim; {
	case c == nil:
		return "", false
	case c.Spec != nil:
		return d.Name + v1beta1.InlineClaimSuffix, true
	default:
		return c.Ref, false
	}
}

// Decide returns the writes that a ClusterDeployment needs, in order.
func Decide(v View) (missing []claims.Write) {
	d := v.Deployment
	if d.DeletionTimestamp != nil || contract.GoingAway(d) {
		return nil
	}
	name, inline := ClaimName(d)
	if name == "" {
		return status(v, nil)
	}
	spec := map[string]any{}
	var problem *finding
	if inline {
		missing, problem = inlineClaim(v, name)
		if d.Spec.IPAMClaim.Ref != name {
			spec["ipamClaim"] = map[string]any{"ref": name}
		}
	}
	if problem == nil {
		problem = whyClosed(v, name)
	}
	if problem == nil {
		var config map[string]any
		if config, problem = addresses(v); len(config) > 0 {
			spec["config"] = config
		}
	}
	if len(spec) > 0 && v.Refused == "" {
		// The event of this write brings the status.
		return append(missing, claims.Write{Verb: claims.PatchVersion, Kind: runner.ClusterDeployments, Object: d, Changes: map[string]any{"spec": spec}})
	}
	return append(missing, status(v, outcome(v, name, problem))...)
}

// outcome is what the condition says of a ClusterDeployment with a claim. A refusal of the API server comes first: it keeps the ClusterDeployment
// from everything else.
func outcome(v View, name string, problem *finding) *finding {
	switch {
	case v.Refused != "":
		return &finding{reason: ReasonRefused, message: "The API server refuses a change that this ClusterDeployment needs: " + v.Refused}
	case problem != nil:
		return problem
	default:
		return &finding{ready: true, reason: ReasonReady, message: fmt.Sprintf("ClusterIPAMClaim %s is bound, and spec.config says where the addresses come from.", name)}
	}
}

// finding is what the condition IPAMReady says.
type finding struct {
	ready           bool
	reason, message string
	quiet           bool // as a rule it ends within milliseconds, so there is no event
}

// status returns the write that the condition needs. Without a finding the condition is removed.
func status(v View, f *finding) []claims.Write {
	d := v.Deployment
	conditions := slices.Clone(d.Status.Conditions)
	var events []claims.Event
	changed := false
	if f == nil {
		changed = meta.RemoveStatusCondition(&conditions, v1beta1.ConditionIPAMReady)
	} else {
		c := metav1.Condition{Type: v1beta1.ConditionIPAMReady, Status: metav1.ConditionFalse, Reason: f.reason, Message: text.Cut(f.message, text.MaxMessage), LastTransitionTime: v.Now}
		if f.ready {
			c.Status = metav1.ConditionTrue
		}
		if changed = meta.SetStatusCondition(&conditions, c); changed && !f.quiet {
			events = []claims.Event{{Normal: f.ready, Reason: f.reason, Message: c.Message}}
		}
	}
	if !changed {
		return nil
	}
	return []claims.Write{{Verb: claims.PatchStatus, Kind: runner.ClusterDeployments, Object: d, Changes: map[string]any{"conditions": conditions}, Events: events}}
}

// inlineClaim returns the write that the claim needs that the ClusterDeployment describes. A claim of this name that somebody else has created is
// not changed. It may be used if it says the same.
func inlineClaim(v View, name string) ([]claims.Write, *finding) {
	d, claim := v.Deployment, v.Claim
	want := *d.Spec.IPAMClaim.Spec.DeepCopy()
	want.ClusterIPAMRef = name
	if want.Cluster == "" {
		want.Cluster = d.Name
	}
	if claim == nil {
		create := &v1beta1.ClusterIPAMClaim{Spec: want}
		create.Namespace, create.Name = d.Namespace, name
		create.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1beta1.GroupVersion.String(), Kind: v1beta1.KindClusterDeployment, Name: d.Name, UID: d.UID}}
		return []claims.Write{{Verb: claims.Create, Kind: runner.ClusterIPAMClaims, Object: create}},
			&finding{reason: ReasonClaimMissing, message: fmt.Sprintf("ClusterIPAMClaim %s does not exist yet.", name), quiet: true}
	}
	changes := differences(&claim.Spec, &want)
	switch owner, earlier := claims.OwnerOf(claim, d, v1beta1.KindClusterDeployment); {
	case !owner && earlier:
		return nil, &finding{reason: ReasonClaimConflict, message: fmt.Sprintf(
			"ClusterIPAMClaim %s belongs to an earlier ClusterDeployment of this name. It is created again when it is gone.", name)}
	case !owner && len(changes) > 0:
		return nil, &finding{reason: ReasonClaimConflict, message: fmt.Sprintf(
			"ClusterIPAMClaim %s was not created for this ClusterDeployment, and says something else. Delete it, or remove spec.ipamClaim.spec and set spec.ipamClaim.ref.", name)}
	case claim.DeletionTimestamp != nil:
		return nil, nil // whyClosed says so
	case len(changes) > 0:
		return []claims.Write{{Verb: claims.Patch, Kind: runner.ClusterIPAMClaims, Object: claim, Changes: map[string]any{"spec": changes}}}, nil
	}
	return nil, nil
}

// differences are the changes that make a claim's spec what the ClusterDeployment describes. A cluster can be set and never be changed.
func differences(is, want *v1beta1.ClusterIPAMClaimSpec) map[string]any {
	changes := map[string]any{}
	if is.Provider != want.Provider {
		changes["provider"] = want.Provider
	}
	if is.Cluster == "" {
		changes["cluster"] = want.Cluster
	}
	for field, space := range map[string][2]*v1beta1.AddressSpace{
		"nodeNetwork":     {&is.NodeNetwork, &want.NodeNetwork},
		"clusterNetwork":  {&is.ClusterNetwork, &want.ClusterNetwork},
		"externalNetwork": {&is.ExternalNetwork, &want.ExternalNetwork},
	} {
		if !equality.Semantic.DeepEqual(space[0], space[1]) {
			to := space[1]
			changes[field] = map[string]any{"cidr": claims.OrNil(to.CIDR), "gateway": claims.OrNil(to.Gateway), "ipAddresses": claims.OrNil(to.IPAddresses), "prefix": claims.OrNil(to.Prefix)}
		}
	}
	return changes
}

// whyClosed returns why the claim gives this ClusterDeployment no addresses, and what to do; nil if it does.
func whyClosed(v View, name string) *finding {
	d, claim := v.Deployment, v.Claim
	if claim == nil {
		return &finding{reason: ReasonClaimMissing, message: fmt.Sprintf("There is no ClusterIPAMClaim %s. Create it with spec.cluster: %s, or correct spec.ipamClaim.ref.", name, d.Name)}
	}
	if owner, _ := claims.OwnerOf(claim, d, v1beta1.KindClusterDeployment); !owner {
		if f := whyNotFor(d, claim, claims.Cluster(claim, v.IPAM)); f != nil {
			return f
		}
	}
	return whyNotBound(claim, v.IPAM)
}

// whyNotFor returns why a claim that the ClusterDeployment only refers to is not for it; nil if it is. cluster is the recorded one.
func whyNotFor(d *v1beta1.ClusterDeployment, claim *v1beta1.ClusterIPAMClaim, cluster string) *finding {
	switch asked := claim.Spec.Cluster; {
	case cluster == d.Name:
		return nil
	case cluster == "" && asked == d.Name && claim.Status.Bound: // k0rdent's manager does not record it.
		return &finding{reason: ReasonClaimNotBound, message: fmt.Sprintf("ClusterIPAMClaim %s is bound, and nobody has recorded for which ClusterDeployment: its ClusterIPAM has no annotation %s. "+
			"Turn on cluster-ipam-controller.", claim.Name, claims.AnnotationCluster)}
	case cluster == "" && asked == d.Name:
		return notBound(claim, true, ".") // What is not recorded can still change.
	case cluster == "" && asked == "":
		return &finding{reason: ReasonClusterMismatch, message: fmt.Sprintf("ClusterIPAMClaim %s is for no ClusterDeployment. Set its spec.cluster to %s.", claim.Name, d.Name)}
	default:
		return &finding{reason: ReasonClusterMismatch, message: fmt.Sprintf("ClusterIPAMClaim %s is for the ClusterDeployment %s. Set spec.ipamClaim.ref to another claim.",
			claim.Name, text.Cut(cmp.Or(cluster, asked), text.MaxValue))}
	}
}

// whyNotBound returns why a claim has no addresses to give, whoever asks; nil if it has.
func whyNotBound(claim *v1beta1.ClusterIPAMClaim, ipam *v1beta1.ClusterIPAM) *finding {
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

func notBound(claim *v1beta1.ClusterIPAMClaim, quiet bool, why string) *finding {
	return &finding{reason: ReasonClaimNotBound, message: fmt.Sprintf("ClusterIPAMClaim %s is not bound%s", claim.Name, why), quiet: quiet}
}

// addresses returns the changes of the config, or why there are none.
func addresses(v View) (changes map[string]any, _ *finding) {
	config, ok := configOf(v.Deployment)
	if !ok {
		return nil, &finding{reason: ReasonConfigInvalid, message: "spec.config is not an object, so the addresses cannot be written into it. Make it an object, or remove it."}
	}
	changes = map[string]any{}
	foreign, present := "", false
	for _, data := range v.IPAM.Status.ProviderData {
		entry := entryOf(data)
		is, set := config[data.Name]
		present = present || set
		switch {
		case says(is, entry):
		case !set || isPoolOf(is, v.Claim.Name):
			changes[data.Name] = entry
		default:
			foreign = data.Name
		}
	}
	enabled, set := config[v1beta1.ConfigIPAMEnabled]
	if enabled != true {
		changes[v1beta1.ConfigIPAMEnabled] = true
	}
	switch {
	case enabled != true && set && present:
		return nil, &finding{reason: ReasonDisabled, message: "spec.config.ipamEnabled is not true. Set it to true, or remove it."}
	case foreign != "": // Nobody knows whether what it says gives addresses.
		return nil, &finding{reason: ReasonConfigInvalid, message: fmt.Sprintf(
			"spec.config.%s does not name the pool of ClusterIPAMClaim %s and stays as it is. To get the pool of the claim, remove it.", foreign, v.Claim.Name)}
	}
	return changes, nil
}

// configOf is the config of a ClusterDeployment; ok is false if it is something else than an object.
func configOf(d *v1beta1.ClusterDeployment) (config map[string]any, ok bool) {
	if c := d.Spec.Config; c != nil && len(c.Raw) > 0 {
		return config, json.Unmarshal(c.Raw, &config) == nil
	}
	return nil, true
}

// isPoolOf reports whether an entry of a config names a pool that a claim has, or had before its provider was changed.
func isPoolOf(entry any, claim string) bool {
	fields, _ := entry.(map[string]any)
	pool, _ := fields["config"].(map[string]any)
	return pool["name"] == claim && (pool["kind"] == runner.InClusterIPPools.Name || pool["kind"] == runner.InfobloxIPPools.Name)
}

// says reports whether to merge an entry into another one changes nothing. Both are as JSON decodes them.
func says(is, entry any) bool {
	fields, ok := entry.(map[string]any)
	if !ok {
		return reflect.DeepEqual(is, entry)
	}
	has, _ := is.(map[string]any)
	for field, value := range fields {
		if !says(has[field], value) {
			return false
		}
	}
	return true
}

// entryOf is one entry of the config as JSON decodes it: the whole entry of the ClusterIPAM.
func entryOf(data v1beta1.ProviderData) (entry map[string]any) {
	text, err := json.Marshal(data)
	if err == nil {
		err = json.Unmarshal(text, &entry)
	}
	if err != nil {
		panic(err) // It came from JSON.
	}
	return entry
}
