package binding

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/text"
)

// Condition types of a ClusterIPAMClaim, beside those of k0rdent. Each is there only while it is True.
const (
	// ConditionBoundToCluster records the first spec.cluster. Its message is the name of the ClusterDeployment and nothing else.
	ConditionBoundToCluster = "BoundToCluster"
	// ConditionClusterChanged: spec.cluster is not what is recorded.
	ConditionClusterChanged = "ClusterChanged"
	// ConditionInputIgnored: the claim has fields that nobody uses.
	ConditionInputIgnored = "InputIgnored"
	// ConditionPrefixMissing: machines get addresses with the prefix length 0.
	ConditionPrefixMissing = "PrefixMissing"
	// ConditionGatewayOutside: the gateway is not in the subnet that machines configure.
	ConditionGatewayOutside = "GatewayOutside"
	// ConditionOldPoolInUse: the provider was changed, and addresses of the earlier provider's pool are in use.
	ConditionOldPoolInUse = "OldPoolInUse"
)

// Reasons of conditions and events.
const (
	ReasonBound               = "Bound"
	ReasonRecorded            = "Recorded"
	ReasonInvalidClaim        = "InvalidClaim"
	ReasonClusterIPAMConflict = "ClusterIPAMConflict"
	ReasonClusterIPAMDeleting = "ClusterIPAMDeleting"
	ReasonPoolConflict        = "PoolConflict"
	ReasonPoolDeleting        = "PoolDeleting"
	ReasonPoolNotReady        = "PoolNotReady"
	ReasonPoolExhausted       = "PoolExhausted"
	ReasonNoUsableAddress     = "NoUsableAddress"
	ReasonInstanceUnknown     = "InstanceUnknown"
	ReasonInstanceKept        = "InstanceKept"
	ReasonNotInstalled        = "NotInstalled"
	ReasonRefused             = "Refused"
)

// conditionTypes are the condition types that this package maintains.
var conditionTypes = []string{v1beta1.ConditionInvalidClaim, v1beta1.ConditionProviderError, ConditionBoundToCluster, ConditionClusterChanged, ConditionInputIgnored,
	ConditionPrefixMissing, ConditionGatewayOutside, ConditionOldPoolInUse}

// AnnotationCluster on a ClusterIPAM is the ClusterDeployment that the claim is bound to.
const AnnotationCluster = "networking.x-k8s.io/cluster-deployment"

// View is everything that a decision about one claim depends on. The objects have the name and namespace of the claim; nil for those that do
// not exist.
type View struct {
	Claim     *v1beta1.ClusterIPAMClaim
	IPAM      *v1beta1.ClusterIPAM
	InCluster *v1alpha2.InClusterIPPool
	Infoblox  *v1alpha1.InfobloxIPPool
	// NotInstalled has the kinds of pools that the API server does not serve.
	NotInstalled []string
	// Instances are the names of all InfobloxInstances, sorted, and DefaultInstance is the one for claims that do not name any.
	Instances       []string
	DefaultInstance string
	// Refused is why the API server has just refused one of the writes; empty if it has not.
	Refused string
	Now     metav1.Time
}

// provider is that of the claim, or for an invalid claim the one that it had when it was valid.
func (v View) provider(valid bool) string {
	if !valid && v.IPAM != nil && v.IPAM.Spec.Provider != "" {
		return v.IPAM.Spec.Provider
	}
	return v.Claim.Spec.Provider
}

// Owned reports whether a ClusterIPAM belongs to a claim.
func Owned(ipam *v1beta1.ClusterIPAM, claim *v1beta1.ClusterIPAMClaim) bool {
	owner := metav1.GetControllerOfNoCopy(ipam)
	return owner != nil && owner.UID == claim.UID
}

// Cluster returns the recorded ClusterDeployment of a claim; empty if none is recorded yet.
func Cluster(claim *v1beta1.ClusterIPAMClaim) string {
	if c := meta.FindStatusCondition(claim.Status.Conditions, ConditionBoundToCluster); c != nil {
		return c.Message
	}
	return ""
}

// decision is what is known about a claim so far, while Decide goes through its steps.
type decision struct {
	View
	network  *network // nil if the claim is invalid
	missing  []Write
	findings []Finding
	// problem is why the claim cannot give addresses, and what to do.
	problem *Finding
	// owned is whether there is a ClusterIPAM of this claim that can be used, and bound whether its pool is ready, too.
	owned, bound bool
}

func (d *decision) add(w *Write) {
	if w != nil {
		d.missing = append(d.missing, *w)
	}
}

// Decide returns the writes that a claim needs, in order: a later one is only right once the earlier ones are carried out.
func Decide(v View) []Write {
	if v.Claim == nil || v.Claim.DeletionTimestamp != nil {
		return nil // Garbage collection deletes what belongs to the claim.
	}
	d := decision{View: v}
	d.findings, d.network = judge(v)
	valid := d.network != nil
	ipam, problem := ipamOf(v, valid)
	d.add(ipam)
	d.problem = problem
	d.owned = v.IPAM != nil && Owned(v.IPAM, v.Claim) && problem == nil
	if problem == nil && (valid || d.owned) {
		d.bind(ipam == nil)
	}
	d.tellProblem()
	if d.owned && valid && v.Claim.Spec.ClusterIPAMRef == "" && v.Refused == "" {
		d.add(&Write{Verb: Patch, Kind: v1beta1.KindClusterIPAMClaim, Object: v.Claim, Changes: map[string]any{"spec": map[string]any{"clusterIPAMRef": v.Claim.Name}}})
		return d.missing // The event of this write brings the status.
	}
	d.add(claimStatus(v, d.bound, d.findings))
	return d.missing
}

// bind adds what the pools and the status of the ClusterIPAM need. settled is whether the ClusterIPAM needs no other write: that one changes its
// version, so its status has to wait, and its phase stays as it is.
func (d *decision) bind(settled bool) {
	p := poolOf(d.View, d.network)
	d.add(p.write(d.View))
	d.problem = p.problem
	if !d.owned {
		return
	}
	if settled {
		d.add(ipamStatus(d.View, p))
	}
	d.bound = p.ready && (settled || d.IPAM.Status.Phase == v1beta1.PhaseBound)
	if d.bound { // Until then an earlier provider's pool is kept.
		other, findings := otherPool(d.View, d.network != nil)
		d.add(other)
		d.findings = append(d.findings, findings...)
	}
}

// tellProblem adds the problem to the findings. A refusal of the API server comes first: it keeps the claim from everything else.
func (d *decision) tellProblem() {
	if d.Refused != "" {
		d.problem = &Finding{Reason: ReasonRefused, Message: text.Cut("The API server refuses what this claim needs: "+d.Refused, text.MaxMessage)}
	}
	if d.problem != nil {
		d.problem.Type = v1beta1.ConditionProviderError
		d.findings = append(d.findings, *d.problem)
	}
}

// judge reads the claim. The network is nil if the claim is invalid: then nothing is created or changed, and what exists stays.
func judge(v View) (findings []Finding, n *network) {
	spec := &v.Claim.Spec
	if read, err := readClaim(v.Claim); err != nil {
		kept := ""
		if v.IPAM != nil && Owned(v.IPAM, v.Claim) {
			kept = " Until then the pool stays as it is."
		}
		findings = append(findings, Finding{Type: v1beta1.ConditionInvalidClaim, Reason: ReasonInvalidClaim, Message: text.Cut(err.Error(), text.MaxProblem) + "." + kept})
	} else {
		n = &read
	}
	if ignored := ignoredInput(spec); len(ignored) > 0 {
		findings = append(findings, Finding{Type: ConditionInputIgnored, Reason: ConditionInputIgnored, Message: "Nobody uses " + strings.Join(ignored, ", ") + ". Remove what is not used."})
	}
	if n != nil {
		findings = append(findings, doubts(spec, n)...)
	}
	cluster := clusterOf(v)
	if cluster != "" {
		findings = append(findings, Finding{Type: ConditionBoundToCluster, Reason: ReasonRecorded, Message: cluster, Quiet: true})
	}
	if cluster != spec.Cluster {
		findings = append(findings, Finding{Type: ConditionClusterChanged, Reason: ConditionClusterChanged, Message: fmt.Sprintf(
			"The claim stays bound to the ClusterDeployment %s. Set spec.cluster to %s again. For another ClusterDeployment write another claim.", cluster, cluster)})
	}
	return findings, n
}

// doubts are about a network that a pool can allocate from, but with which machines probably reach nobody.
func doubts(spec *v1beta1.ClusterIPAMClaimSpec, n *network) (findings []Finding) {
	if n.prefix == 0 && len(spec.NodeNetwork.IPAddresses) > 0 {
		findings = append(findings, Finding{Type: ConditionPrefixMissing, Reason: ConditionPrefixMissing,
			Message: "spec.nodeNetwork has ipAddresses and no prefix, so machines get the prefix length 0. Set prefix, for example to 24."})
	}
	if subnet, stray := n.strayGateway(); stray {
		size := "prefix"
		if spec.Provider == v1beta1.ProviderInfoblox {
			size = "cidr"
		}
		findings = append(findings, Finding{Type: ConditionGatewayOutside, Reason: ConditionGatewayOutside, Message: fmt.Sprintf(
			"spec.nodeNetwork.gateway %s is not in %v, the subnet that machines configure. Correct gateway or %s, unless the machines have a route to this gateway.", n.gateway, subnet, size)})
	}
	return findings
}

// readClaim returns the network of a claim. An error says what is wrong, and then what to do. Without a provider nobody can say what a network
// needs, so that is read first.
func readClaim(claim *v1beta1.ClusterIPAMClaim) (network, error) {
	spec := &claim.Spec
	switch {
	case spec.Provider == "":
		return network{}, fmt.Errorf("spec.provider is empty. Set it to %s or %s", v1beta1.ProviderInCluster, v1beta1.ProviderInfoblox)
	case spec.ClusterIPAMRef != "" && spec.ClusterIPAMRef != claim.Name:
		return network{}, fmt.Errorf("spec.clusterIPAMRef is %q, but the ClusterIPAM of a claim has the name of the claim. Remove the field", text.Cut(spec.ClusterIPAMRef, text.MaxValue))
	}
	return readNetwork(spec)
}

func ignoredInput(spec *v1beta1.ClusterIPAMClaimSpec) (fields []string) {
	used := func(s v1beta1.AddressSpace) bool {
		return s.CIDR != "" || s.Gateway != "" || len(s.IPAddresses) > 0 || s.Prefix != 0
	}
	if used(spec.ClusterNetwork) {
		fields = append(fields, "spec.clusterNetwork")
	}
	if used(spec.ExternalNetwork) {
		fields = append(fields, "spec.externalNetwork")
	}
	if spec.Provider == v1beta1.ProviderInfoblox && len(spec.NodeNetwork.IPAddresses) > 0 {
		fields = append(fields, "spec.nodeNetwork.ipAddresses (Infoblox chooses from cidr)")
	}
	if cidr, err := netip.ParsePrefix(spec.NodeNetwork.CIDR); spec.Provider == v1beta1.ProviderInfoblox && err == nil && spec.NodeNetwork.Prefix != 0 && spec.NodeNetwork.Prefix != cidr.Bits() {
		fields = append(fields, "spec.nodeNetwork.prefix (Infoblox takes that of cidr)")
	}
	return fields
}

// clusterOf is the ClusterDeployment that a claim is bound to. What is recorded first stays.
func clusterOf(v View) string {
	if recorded := Cluster(v.Claim); recorded != "" {
		return recorded
	}
	if v.IPAM != nil && Owned(v.IPAM, v.Claim) && v.IPAM.Annotations[AnnotationCluster] != "" {
		return v.IPAM.Annotations[AnnotationCluster] // The status was lost, as in a restore from a backup.
	}
	return v.Claim.Spec.Cluster
}

// ipamOf returns the write that the ClusterIPAM of the claim needs. problem is why it cannot be used.
func ipamOf(v View, valid bool) (w *Write, problem *Finding) {
	if v.IPAM != nil {
		problem = ipamProblem(v)
	}
	switch {
	case problem != nil || !valid:
		return nil, problem
	case v.IPAM == nil:
		return createIPAM(v), nil
	default:
		return patchIPAM(v), nil
	}
}

func ipamSpec(claim *v1beta1.ClusterIPAMClaim) v1beta1.ClusterIPAMSpec {
	return v1beta1.ClusterIPAMSpec{Provider: claim.Spec.Provider, ClusterIPAMClaimRef: claim.Name}
}

func createIPAM(v View) *Write {
	create := &v1beta1.ClusterIPAM{ObjectMeta: ofClaim(v.Claim), Spec: ipamSpec(v.Claim)}
	create.OwnerReferences = []metav1.OwnerReference{ownerReference(v.Claim, true)}
	if cluster := clusterOf(v); cluster != "" {
		create.Annotations = map[string]string{AnnotationCluster: cluster}
	}
	return &Write{Verb: Create, Kind: v1beta1.KindClusterIPAM, Object: create}
}

// ipamProblem returns why the ClusterIPAM that exists is not for this claim, or not for long; nil if the claim owns it or may take it over.
func ipamProblem(v View) *Finding {
	claim, ipam := v.Claim, v.IPAM
	owned, ref := Owned(ipam, claim), ipam.Spec.ClusterIPAMClaimRef
	switch controller := metav1.GetControllerOfNoCopy(ipam); {
	case !owned && controller != nil:
		return &Finding{Reason: ReasonClusterIPAMConflict, Message: fmt.Sprintf(
			"ClusterIPAM %s belongs to %s %s with the UID %s. If that is gone, the ClusterIPAM goes, too. Otherwise rename this claim.", claim.Name, controller.Kind, controller.Name, controller.UID)}
	case !owned && ref != "" && ref != claim.Name:
		return &Finding{Reason: ReasonClusterIPAMConflict, Message: fmt.Sprintf(
			"ClusterIPAM %s is for the claim %s. Rename this claim, or delete the ClusterIPAM.", claim.Name, text.Cut(ref, text.MaxValue))}
	case ipam.DeletionTimestamp != nil:
		return &Finding{Reason: ReasonClusterIPAMDeleting, Message: fmt.Sprintf(
			"ClusterIPAM %s is being deleted and has finalizers: %s. It is created again when it is gone.", claim.Name, text.Listed(ipam.Finalizers))}
	}
	return nil
}

// patchIPAM returns the write that makes the ClusterIPAM what the claim says; nil if it is.
func patchIPAM(v View) *Write {
	claim, ipam, cluster := v.Claim, v.IPAM, clusterOf(v)
	changes, metadata := map[string]any{}, map[string]any{}
	if !Owned(ipam, claim) {
		metadata["ownerReferences"] = append(slices.Clone(ipam.OwnerReferences), ownerReference(claim, true))
	}
	if ipam.Annotations[AnnotationCluster] != cluster {
		metadata["annotations"] = map[string]any{AnnotationCluster: orNil(cluster)}
	}
	if len(metadata) > 0 {
		changes["metadata"] = metadata
	}
	if want := ipamSpec(claim); ipam.Spec != want {
		var claimRef any = claim.Name
		if ref := ipam.Spec.ClusterIPAMClaimRef; ref != "" && ref != claim.Name {
			claimRef = nil // The API server refuses to change it at once. It is set when it is gone.
		}
		changes["spec"] = map[string]any{"provider": want.Provider, "clusterIPAMClaimRef": claimRef}
	}
	if len(changes) == 0 {
		return nil
	}
	return &Write{Verb: PatchVersion, Kind: v1beta1.KindClusterIPAM, Object: ipam, Changes: changes}
}

// ipamStatus returns the write that the status of the ClusterIPAM needs.
func ipamStatus(v View, p pool) *Write {
	want := v1beta1.ClusterIPAMStatus{Phase: v1beta1.PhasePending, ProviderData: []v1beta1.ProviderData{p.providerData(v.Claim.Name)}}
	if p.ready {
		want.Phase = v1beta1.PhaseBound
	}
	if v.IPAM.Status.Phase == want.Phase && slices.EqualFunc(v.IPAM.Status.ProviderData, want.ProviderData, sameData) {
		return nil
	}
	return &Write{Verb: PatchStatus, Kind: v1beta1.KindClusterIPAM, Object: v.IPAM, Changes: map[string]any{"phase": want.Phase, "providerData": want.ProviderData}}
}

// sameData compares JSON by what it says, because its fields may be in any order.
func sameData(a, b v1beta1.ProviderData) bool {
	return a.Name == b.Name && a.Ready == b.Ready && (a.Config == b.Config || a.Config != nil && b.Config != nil && bytes.Equal(canonical(a.Config.Raw), canonical(b.Config.Raw)))
}

func canonical(raw []byte) []byte {
	var value any
	if json.Unmarshal(raw, &value) != nil {
		return raw
	}
	text, err := json.Marshal(value)
	if err != nil {
		return raw
	}
	return text
}

// otherPool releases the pool of the provider that the claim had before, once no address of it is in use. An InfobloxIPPool does not say how many
// are. Its finalizer keeps it while there are any.
func otherPool(v View, valid bool) (*Write, []Finding) {
	var (
		other metav1.Object
		kind  string
		used  bool
	)
	switch {
	case !valid:
	case v.Claim.Spec.Provider == v1beta1.ProviderInCluster && v.Infoblox != nil:
		other, kind = v.Infoblox, v1alpha1.KindInfobloxIPPool
	case v.Claim.Spec.Provider == v1beta1.ProviderInfoblox && v.InCluster != nil:
		other, kind = v.InCluster, v1alpha2.KindInClusterIPPool
		used = v.InCluster.Status.IPAddresses != nil && v.InCluster.Status.IPAddresses.Used > 0
	}
	if other == nil {
		return nil, nil
	}
	switch owner, _ := ownerOf(other, v.Claim); {
	case !owner:
		return nil, nil
	case used || other.GetDeletionTimestamp() != nil:
		return nil, []Finding{{Type: ConditionOldPoolInUse, Reason: ConditionOldPoolInUse, Message: "The provider was changed. " + kind + " " + v.Claim.Name +
			" of the earlier provider is deleted when none of its addresses is in use. New machines get addresses from the new pool. Replace the old machines."}}
	}
	return &Write{Verb: Delete, Kind: kind, Object: other}, nil
}

// claimStatus returns the write that the status of the claim needs.
func claimStatus(v View, bound bool, findings []Finding) *Write {
	conditions, events, changed := with(v.Claim.Status.Conditions, conditionTypes, findings, v.Now)
	if !changed && bound == v.Claim.Status.Bound {
		return nil
	}
	if bound && !v.Claim.Status.Bound {
		events = append(events, Event{Normal: true, Reason: ReasonBound, Message: "The pool of this claim can give addresses."})
	}
	return &Write{Verb: PatchStatus, Kind: v1beta1.KindClusterIPAMClaim, Object: v.Claim, Changes: map[string]any{"bound": bound, "conditions": conditions}, Events: events}
}
