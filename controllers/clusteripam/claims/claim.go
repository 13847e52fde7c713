package claims

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/text"
)

// Condition types of a ClusterIPAMClaim, beside those of k0rdent. Each is there only while it is True.
const (
	// conditionPoolWouldWiden: the pool has other addresses than the claim says, and waits for a confirmation.
	conditionPoolWouldWiden = "PoolWouldWiden"
	// conditionWarning: the claim works, and probably not as its author expects. Its reason has all reasons, its message all messages.
	conditionWarning = "Warning"
)

// conditionTypes are the condition types that this package maintains. The last ones are those of earlier versions, which are removed.
var conditionTypes = []string{
	v1beta1.ConditionInvalidClaim, v1beta1.ConditionProviderError, conditionPoolWouldWiden, conditionWarning,
	"BoundToCluster", "ClusterChanged", "InputIgnored", "PrefixMissing", "GatewayOutside", "OldPoolInUse",
}

// Reasons of conditions and events.
const (
	reasonBound               = "Bound"
	reasonInvalidClaim        = "InvalidClaim"
	reasonClusterIPAMConflict = "ClusterIPAMConflict"
	reasonClusterIPAMDeleting = "ClusterIPAMDeleting"
	reasonPoolConflict        = "PoolConflict"
	reasonPoolDeleting        = "PoolDeleting"
	ReasonPoolNotReady        = "PoolNotReady"
	reasonPoolExhausted       = "PoolExhausted"
	reasonNoUsableAddress     = "NoUsableAddress"
	reasonInstanceUnknown     = "InstanceUnknown"
	reasonInstanceKept        = "InstanceKept"
	reasonNotInstalled        = "NotInstalled"
	reasonRefused             = "Refused"
	// Of the condition Warning: spec.cluster is not what is recorded; the claim has fields that nobody uses; machines get the prefix length 0; the gateway is
	// not in the subnet that machines configure; the provider was changed, and addresses of the earlier provider's pool are in use.
	reasonClusterChanged = "ClusterChanged"
	reasonInputIgnored   = "InputIgnored"
	reasonPrefixMissing  = "PrefixMissing"
	reasonGatewayOutside = "GatewayOutside"
	reasonOldPoolInUse   = "OldPoolInUse"
)

// AnnotationCluster on a ClusterIPAM is the ClusterDeployment that the claim is bound to.
const AnnotationCluster = "networking.x-k8s.io/cluster-deployment"

// view is everything that a decision about one claim depends on. The objects have the name and namespace of the claim; nil for those that do
// not exist.
type view struct {
	Claim     *v1beta1.ClusterIPAMClaim
	IPAM      *v1beta1.ClusterIPAM
	InCluster *v1alpha2.InClusterIPPool
	Infoblox  *v1alpha1.InfobloxIPPool
	// NotInstalled has the kinds of pools that the API server does not serve.
	NotInstalled []*runner.Kind
	// Instances are the names of all InfobloxInstances, sorted, and DefaultInstance is the one for claims that do not name any.
	Instances       []string
	DefaultInstance string
	// Refused is why the API server has just refused one of the writes; empty if it has not.
	Refused string
	Now     metav1.Time
}

// Owned reports whether a ClusterIPAM exists and belongs to a claim.
func Owned(ipam *v1beta1.ClusterIPAM, claim *v1beta1.ClusterIPAMClaim) bool {
	if ipam == nil {
		return false
	}
	owner := metav1.GetControllerOfNoCopy(ipam)
	return owner != nil && owner.UID == claim.UID
}

// Cluster returns the recorded ClusterDeployment of a claim; empty if none is recorded yet.
func Cluster(claim *v1beta1.ClusterIPAMClaim, ipam *v1beta1.ClusterIPAM) string {
	if !Owned(ipam, claim) {
		return ""
	}
	return ipam.Annotations[AnnotationCluster]
}

// decision is what is known about a claim so far, while decide goes through its steps.
type decision struct {
	view
	network  *network // nil if the claim is invalid: then nothing is created or changed, and what exists stays
	cluster  string   // the ClusterDeployment that the claim is bound to
	missing  []Write
	findings []Finding
	// problem is why the claim cannot give addresses, and what to do.
	problem *Finding
	// owned is whether there is a ClusterIPAM of this claim that can be used, and bound whether its pool is ready, too.
	owned, bound bool
}

func (d *decision) find(kind, reason, message string, args ...any) {
	d.findings = append(d.findings, Finding{Type: kind, Reason: reason, Message: fmt.Sprintf(message, args...)})
}

// decide returns the writes that a claim needs, in order: a later one is only right once the earlier ones are carried out.
func decide(v view) []Write {
	if v.Claim.DeletionTimestamp != nil || contract.GoingAway(v.Claim) {
		return nil // Garbage collection deletes what belongs to the claim.
	}
	d := decision{view: v, cluster: v.Claim.Spec.Cluster}
	if recorded := Cluster(v.Claim, v.IPAM); recorded != "" {
		d.cluster = recorded // What is recorded first stays.
	}
	d.judge()
	d.missing = d.ipam()
	d.owned = Owned(v.IPAM, v.Claim) && d.problem == nil
	if d.problem == nil && (d.network != nil || d.owned) {
		d.bind(len(d.missing) == 0)
	}
	d.tellProblem()
	if d.owned && d.network != nil && v.Claim.Spec.ClusterIPAMRef == "" && v.Refused == "" {
		want := v.Claim.DeepCopy()
		want.Spec.ClusterIPAMRef = want.Name
		return append(d.missing, Change(runner.ClusterIPAMClaims, v.Claim, want)...) // The event of this write brings the status.
	}
	return append(d.missing, d.claimStatus()...)
}

// tellProblem adds the problem to the findings. A refusal of the API server comes first: it keeps the claim from everything else.
func (d *decision) tellProblem() {
	if d.Refused != "" {
		d.problem = &Finding{Reason: reasonRefused, Message: text.Cut("The API server refuses what this claim needs: "+d.Refused, text.MaxMessage)}
	}
	if d.problem != nil {
		d.problem.Type = v1beta1.ConditionProviderError
		d.findings = append(d.findings, *d.problem)
	}
}

// judge reads the claim.
func (d *decision) judge() {
	spec := &d.Claim.Spec
	if n, err := readClaim(d.Claim); err == nil {
		d.network = &n
		d.doubt()
	} else {
		kept := ""
		if Owned(d.IPAM, d.Claim) {
			kept = " Until then the pool stays as it is."
		}
		d.find(v1beta1.ConditionInvalidClaim, reasonInvalidClaim, "%s.%s", text.Cut(err.Error(), text.MaxProblem), kept)
	}
	if ignored := ignoredInput(spec); len(ignored) > 0 {
		d.find(conditionWarning, reasonInputIgnored, "Nobody uses %s. Remove what is not used.", strings.Join(ignored, ", "))
	}
	if d.cluster != spec.Cluster {
		d.find(conditionWarning, reasonClusterChanged,
			"The claim stays bound to the ClusterDeployment %s. Set spec.cluster to %s again. For another ClusterDeployment write another claim.", d.cluster, d.cluster)
	}
}

// doubt is about a network that a pool can allocate from, but with which machines probably reach nobody.
func (d *decision) doubt() {
	spec := &d.Claim.Spec
	if d.network.prefix == 0 && len(spec.NodeNetwork.IPAddresses) > 0 {
		d.find(conditionWarning, reasonPrefixMissing, "spec.nodeNetwork has ipAddresses and no prefix, so machines get the prefix length 0. Set prefix, for example to 24.")
	}
	if subnet, stray := d.network.strayGateway(); stray {
		size := "prefix"
		if spec.Provider == v1beta1.ProviderInfoblox {
			size = "cidr"
		}
		d.find(conditionWarning, reasonGatewayOutside,
			"spec.nodeNetwork.gateway %s is not in %v, the subnet that machines configure. Correct gateway or %s, unless the machines have a route to this gateway.", d.network.gateway, subnet, size)
	}
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
	for field, s := range map[string]*v1beta1.AddressSpace{"spec.clusterNetwork": &spec.ClusterNetwork, "spec.externalNetwork": &spec.ExternalNetwork} {
		if s.CIDR != "" || s.Gateway != "" || len(s.IPAddresses) > 0 || s.Prefix != 0 {
			fields = append(fields, field)
		}
	}
	slices.Sort(fields)
	if spec.Provider != v1beta1.ProviderInfoblox {
		return fields
	}
	if len(spec.NodeNetwork.IPAddresses) > 0 {
		fields = append(fields, "spec.nodeNetwork.ipAddresses (Infoblox chooses from cidr)")
	}
	if cidr, err := netip.ParsePrefix(spec.NodeNetwork.CIDR); err == nil && spec.NodeNetwork.Prefix != 0 && spec.NodeNetwork.Prefix != cidr.Bits() {
		fields = append(fields, "spec.nodeNetwork.prefix (Infoblox takes that of cidr)")
	}
	return fields
}

// ipam returns the write that the ClusterIPAM of the claim needs, or finds why it cannot be used.
func (d *decision) ipam() []Write {
	if d.IPAM != nil {
		d.problem = d.ipamProblem()
	}
	if d.problem != nil || d.network == nil {
		return nil
	}
	want := &v1beta1.ClusterIPAM{ObjectMeta: ofClaim(d.Claim, true)}
	if d.IPAM != nil {
		want = d.IPAM.DeepCopy()
		if !Owned(d.IPAM, d.Claim) {
			want.OwnerReferences = append(want.OwnerReferences, ofClaim(d.Claim, true).OwnerReferences...)
		}
	}
	if delete(want.Annotations, AnnotationCluster); d.cluster != "" {
		metav1.SetMetaDataAnnotation(&want.ObjectMeta, AnnotationCluster, d.cluster)
	}
	want.Spec = v1beta1.ClusterIPAMSpec{Provider: d.Claim.Spec.Provider, ClusterIPAMClaimRef: d.Claim.Name}
	if d.IPAM == nil {
		return []Write{{Kind: runner.ClusterIPAMs, Want: want}}
	}
	return Change(runner.ClusterIPAMs, d.IPAM, want)
}

// ipamProblem returns why the ClusterIPAM that exists is not for this claim, or not for long; nil if the claim owns it or may take it over.
func (d *decision) ipamProblem() *Finding {
	name, ipam, owned, ref := d.Claim.Name, d.IPAM, Owned(d.IPAM, d.Claim), d.IPAM.Spec.ClusterIPAMClaimRef
	switch controller := metav1.GetControllerOfNoCopy(ipam); {
	case !owned && controller != nil:
		return &Finding{Reason: reasonClusterIPAMConflict, Message: fmt.Sprintf(
			"ClusterIPAM %s belongs to %s %s with the UID %s. If that is gone, the ClusterIPAM goes, too. Otherwise rename this claim.", name, controller.Kind, controller.Name, controller.UID)}
	case !owned && ref != "" && ref != name:
		return &Finding{Reason: reasonClusterIPAMConflict, Message: fmt.Sprintf(
			"ClusterIPAM %s is for the claim %s. Rename this claim, or delete the ClusterIPAM.", name, text.Cut(ref, text.MaxValue))}
	case ipam.DeletionTimestamp != nil:
		return &Finding{Reason: reasonClusterIPAMDeleting, Message: fmt.Sprintf(
			"ClusterIPAM %s is being deleted and has finalizers: %s. It is created again when it is gone.", name, text.Listed(ipam.Finalizers))}
	}
	return nil
}

// bind adds what the pools and the status of the ClusterIPAM need. settled is whether the ClusterIPAM needs no other write: that one changes its
// version, so its status has to wait, and its phase stays as it is.
func (d *decision) bind(settled bool) {
	p := d.pool()
	d.missing = append(d.missing, p.write()...)
	d.problem = p.problem
	if !d.owned {
		return
	}
	if settled {
		d.missing = append(d.missing, d.ipamStatus(p)...)
	}
	d.bound = p.ready && (settled || d.IPAM.Status.Phase == v1beta1.PhaseBound)
	if d.bound && d.network != nil { // Until then an earlier provider's pool is kept.
		d.releaseOther()
	}
}

// ipamStatus returns the write that the status of the ClusterIPAM needs.
func (d *decision) ipamStatus(p *pool) []Write {
	want := d.IPAM.DeepCopy()
	want.Status = v1beta1.ClusterIPAMStatus{Phase: v1beta1.PhasePending, ProviderData: []v1beta1.ProviderData{p.providerData(d.Claim.Name)}}
	if p.ready {
		want.Status.Phase = v1beta1.PhaseBound
	}
	return Change(runner.ClusterIPAMs, d.IPAM, want)
}

// claimStatus returns the write that the status of the claim needs.
func (d *decision) claimStatus() []Write {
	want := d.Claim.DeepCopy()
	want.Status.Bound = d.bound
	events := tell(&want.Status.Conditions, d.findings, d.Now)
	if d.Claim.Status.Bound { // An empty status would be left out, and with it that the claim is not bound any more.
		want.Status.Conditions = append([]metav1.Condition{}, want.Status.Conditions...)
	}
	if d.bound && !d.Claim.Status.Bound {
		events = append(events, Event{Normal: true, Reason: reasonBound, Message: "The pool of this claim can give addresses."})
	}
	return Change(runner.ClusterIPAMClaims, d.Claim, want, events...)
}

// Finding is something that a condition with status True tells the users of an object, and an event when it begins.
type Finding struct {
	Type, Reason, Message string
	// Quiet: as a rule it ends within milliseconds, so there is no event.
	Quiet bool
}

// tell has the conditions of a claim say what was found, and returns the events of new findings. Findings of one type share a condition. Conditions
// of other types stay.
func tell(conditions *[]metav1.Condition, findings []Finding, now metav1.Time) (events []Event) {
	for _, kind := range conditionTypes {
		var reasons, messages []string
		before := ptr.Deref(meta.FindStatusCondition(*conditions, kind), metav1.Condition{})
		for _, f := range findings {
			if f.Type != kind {
				continue
			}
			reasons, messages = append(reasons, f.Reason), append(messages, f.Message)
			if !f.Quiet && !strings.Contains(before.Message, f.Message) {
				events = append(events, Event{Reason: f.Reason, Message: f.Message})
			}
		}
		if len(reasons) == 0 {
			meta.RemoveStatusCondition(conditions, kind)
			continue
		}
		meta.SetStatusCondition(conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: strings.Join(reasons, ","), Message: text.Cut(strings.Join(messages, " "), text.MaxCondition), LastTransitionTime: now,
		})
	}
	return events
}
