package opening

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/claims/binding"
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

// AnnotationWritten on a ClusterDeployment is the JSON of the entries that the controller wrote into its config last, by their keys.
const AnnotationWritten = "networking.x-k8s.io/ipam-config"

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
func Decide(v View) (missing []binding.Write) {
	d := v.Deployment
	if d == nil || d.DeletionTimestamp != nil {
		return nil
	}
	name, inline := ClaimName(d)
	if name == "" {
		return status(v, nil)
	}
	spec, metadata := map[string]any{}, map[string]any{}
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
		if config, problem = addresses(v, metadata); len(config) > 0 {
			spec["config"] = config
		}
	}
	if len(spec) > 0 && v.Refused == "" {
		changes := map[string]any{"spec": spec}
		if len(metadata) > 0 {
			changes["metadata"] = metadata
		}
		// The event of this write brings the status.
		return append(missing, binding.Write{Verb: binding.PatchVersion, Kind: v1beta1.KindClusterDeployment, Object: d, Changes: changes})
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
func status(v View, f *finding) []binding.Write {
	d := v.Deployment
	conditions := slices.Clone(d.Status.Conditions)
	var events []binding.Event
	changed := false
	if f == nil {
		changed = meta.RemoveStatusCondition(&conditions, v1beta1.ConditionIPAMReady)
	} else {
		c := metav1.Condition{Type: v1beta1.ConditionIPAMReady, Status: metav1.ConditionFalse, Reason: f.reason, Message: text.Cut(f.message, text.MaxMessage), LastTransitionTime: v.Now}
		if f.ready {
			c.Status = metav1.ConditionTrue
		}
		if changed = meta.SetStatusCondition(&conditions, c); changed && !f.quiet {
			events = []binding.Event{{Normal: f.ready, Reason: f.reason, Message: c.Message}}
		}
	}
	if !changed {
		return nil
	}
	return []binding.Write{{Verb: binding.PatchStatus, Kind: v1beta1.KindClusterDeployment, Object: d, Changes: map[string]any{"conditions": conditions}, Events: events}}
}

// inlineClaim returns the write that the claim needs that the ClusterDeployment describes. A claim of this name that somebody else has created is
// not changed. It may be used if it says the same.
func inlineClaim(v View, name string) ([]binding.Write, *finding) {
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
		return []binding.Write{{Verb: binding.Create, Kind: v1beta1.KindClusterIPAMClaim, Object: create}},
			&finding{reason: ReasonClaimMissing, message: fmt.Sprintf("ClusterIPAMClaim %s does not exist yet.", name), quiet: true}
	}
	changes := differences(&claim.Spec, &want)
	switch owner, earlier := ownerOf(claim, d); {
	case !owner && earlier:
		return nil, &finding{reason: ReasonClaimConflict, message: fmt.Sprintf(
			"ClusterIPAMClaim %s belongs to an earlier ClusterDeployment of this name. It is created again when it is gone.", name)}
	case !owner && len(changes) > 0:
		return nil, &finding{reason: ReasonClaimConflict, message: fmt.Sprintf(
			"ClusterIPAMClaim %s was not created for this ClusterDeployment, and says something else. Delete it, or remove spec.ipamClaim.spec and set spec.ipamClaim.ref.", name)}
	case claim.DeletionTimestamp != nil:
		return nil, nil // whyClosed says so
	case len(changes) > 0:
		return []binding.Write{{Verb: binding.Patch, Kind: v1beta1.KindClusterIPAMClaim, Object: claim, Changes: map[string]any{"spec": changes}}}, nil
	}
	return nil, nil
}

// ownerOf reports whether a claim belongs to a ClusterDeployment, and whether it belongs to an earlier one of the same name, so that garbage
// collection is going to delete it.
func ownerOf(claim *v1beta1.ClusterIPAMClaim, d *v1beta1.ClusterDeployment) (owner, earlier bool) {
	for _, r := range claim.OwnerReferences {
		owner = owner || r.UID == d.UID
		earlier = earlier || r.Kind == v1beta1.KindClusterDeployment && r.UID != d.UID
	}
	return owner, earlier
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
			changes[field] = map[string]any{"cidr": orNil(to.CIDR), "gateway": orNil(to.Gateway), "ipAddresses": orNil(to.IPAddresses), "prefix": orNil(to.Prefix)}
		}
	}
	return changes
}

// orNil returns nil for an empty value: a merge patch removes the field.
func orNil(value any) any {
	if v := reflect.ValueOf(value); v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0 {
		return nil
	}
	return value
}

// whyClosed returns why the claim gives this ClusterDeployment no addresses, and what to do; nil if it does.
func whyClosed(v View, name string) *finding {
	d, claim := v.Deployment, v.Claim
	if claim == nil {
		return &finding{reason: ReasonClaimMissing, message: fmt.Sprintf("There is no ClusterIPAMClaim %s. Create it with spec.cluster: %s, or correct spec.ipamClaim.ref.", name, d.Name)}
	}
	if owner, _ := ownerOf(claim, d); !owner {
		if f := whyNotFor(d, claim); f != nil {
			return f
		}
	}
	return whyNotBound(claim, v.IPAM)
}

// whyNotFor returns why a claim that the ClusterDeployment only refers to is not for it; nil if it is.
func whyNotFor(d *v1beta1.ClusterDeployment, claim *v1beta1.ClusterIPAMClaim) *finding {
	switch cluster := binding.Cluster(claim); {
	case cluster == "" && claim.Status.Bound && claim.Spec.Cluster == d.Name: // k0rdent's manager does not record it.
		return &finding{reason: ReasonClaimNotBound, message: fmt.Sprintf("ClusterIPAMClaim %s is bound, and nobody has recorded for which ClusterDeployment: it has no condition %s. Turn on cluster-ipam-controller.",
			claim.Name, binding.ConditionBoundToCluster)}
	case cluster == "" && claim.Spec.Cluster == d.Name:
		return notBound(claim, true, ".") // What is not recorded can still change.
	case cluster == "" && claim.Spec.Cluster == "":
		return &finding{reason: ReasonClusterMismatch, message: fmt.Sprintf("ClusterIPAMClaim %s is for no ClusterDeployment. Set its spec.cluster to %s.", claim.Name, d.Name)}
	case cluster != d.Name:
		if cluster == "" {
			cluster = claim.Spec.Cluster
		}
		return &finding{reason: ReasonClusterMismatch, message: fmt.Sprintf("ClusterIPAMClaim %s is for the ClusterDeployment %s. Set spec.ipamClaim.ref to another claim.",
			claim.Name, text.Cut(cluster, text.MaxValue))}
	}
	return nil
}

// whyNotBound returns why a claim has no addresses to give, whoever asks; nil if it has.
func whyNotBound(claim *v1beta1.ClusterIPAMClaim, ipam *v1beta1.ClusterIPAM) *finding {
	switch {
	case claim.DeletionTimestamp != nil:
		return notBound(claim, false, ": it is being deleted. Create it again.")
	case !claim.Status.Bound:
		for _, kind := range []string{v1beta1.ConditionInvalidClaim, v1beta1.ConditionProviderError} {
			if c := meta.FindStatusCondition(claim.Status.Conditions, kind); c != nil {
				return notBound(claim, c.Reason == binding.ReasonPoolNotReady, ": "+c.Message)
			}
		}
		return notBound(claim, true, ".")
	case ipam == nil || !binding.Owned(ipam, claim) || ipam.Status.Phase != v1beta1.PhaseBound || len(ipam.Status.ProviderData) == 0:
		return notBound(claim, true, ": its ClusterIPAM is not ready.")
	}
	return nil
}

func notBound(claim *v1beta1.ClusterIPAMClaim, quiet bool, why string) *finding {
	return &finding{reason: ReasonClaimNotBound, message: fmt.Sprintf("ClusterIPAMClaim %s is not bound%s", claim.Name, why), quiet: quiet}
}

// addresses returns the changes of the config, and adds the annotation for them to metadata.
func addresses(v View, metadata map[string]any) (changes map[string]any, _ *finding) {
	config := map[string]any{}
	if c := v.Deployment.Spec.Config; c != nil && len(c.Raw) > 0 {
		if err := json.Unmarshal(c.Raw, &config); err != nil {
			return nil, &finding{reason: ReasonConfigInvalid, message: "spec.config is not an object, so the addresses cannot be written into it. Make it an object, or remove it."}
		}
	}
	c := compare(v, config)
	enabled, set := config[v1beta1.ConfigIPAMEnabled]
	switch {
	case enabled != true && set && c.present:
		return nil, &finding{reason: ReasonDisabled, message: "spec.config.ipamEnabled is not true. Set it to true, or remove it."}
	case c.foreign != "": // Nobody knows whether what it says gives addresses.
		return nil, &finding{reason: ReasonConfigInvalid, message: fmt.Sprintf(
			"spec.config.%s was not written by this controller and stays as it is. To get the pool of the claim, remove it.", c.foreign)}
	case enabled != true:
		c.changes[v1beta1.ConfigIPAMEnabled] = true
	}
	if len(c.changes) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(c.entries)
	if err != nil {
		panic(err) // It was JSON before.
	}
	metadata["annotations"] = map[string]any{AnnotationWritten: string(text)}
	return c.changes, nil
}

// comparison is what the config of a ClusterDeployment says about the pools of its claim.
type comparison struct {
	entries map[string]any // what it should say, by keys
	changes map[string]any // those of the entries that are to be written
	present bool           // whether it has any of the keys
	foreign string         // a key whose entry somebody else has written; empty for none
}

// compare compares a config with the ClusterIPAM. An entry is replaced only if it is what this controller wrote last.
func compare(v View, config map[string]any) comparison {
	var written map[string]any
	_ = json.Unmarshal([]byte(v.Deployment.Annotations[AnnotationWritten]), &written) // Whatever else is there was not written by this controller.

	c := comparison{entries: map[string]any{}, changes: map[string]any{}}
	for _, data := range v.IPAM.Status.ProviderData {
		entry := entryOf(data)
		c.entries[data.Name] = entry
		is, present := config[data.Name]
		c.present = c.present || present
		switch {
		case !present:
			c.changes[data.Name] = entry
		case reflect.DeepEqual(is, entry):
		case reflect.DeepEqual(is, written[data.Name]):
			c.changes[data.Name] = entry
		default:
			c.foreign = data.Name
		}
	}
	return c
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
