package claims

import (
	"cmp"
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

// conditionTypes are the condition types that this package maintains.
var conditionTypes = []string{v1beta1.ConditionInvalidClaim, v1beta1.ConditionProviderError, conditionPoolWouldWiden, conditionWarning}

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
	// Of the condition Warning: spec.cluster is not what is recorded; the claim has fields that nobody uses; machines get the prefix length 0; the provider
	// was changed, and addresses of the earlier provider's pool are in use.
	reasonClusterChanged = "ClusterChanged"
	reasonInputIgnored   = "InputIgnored"
	reasonPrefixMissing  = "PrefixMissing"
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
	// Refused is why the API server has just refused a write; empty if it has not.
	Refused string
	Now     metav1.Time
}

// goes reports whether the claim is being deleted, or moved to another cluster: garbage collection deletes what belongs to it, and clusterctl begins with that.
func (v *view) goes() bool {
	return v.Claim.DeletionTimestamp != nil || contract.GoingAway(v.Claim) || v.IPAM != nil && contract.GoingAway(v.IPAM) ||
		v.InCluster != nil && contract.GoingAway(v.InCluster) || v.Infoblox != nil && contract.GoingAway(v.Infoblox)
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
	findings []Finding
	pool     pool // the zero value while the claim has no ClusterIPAM that it may use
	// problem is why the claim cannot give addresses, and what to do.
	problem *Finding
	// owned is whether there is a ClusterIPAM of this claim that can be used, and bound whether its pool is ready, too.
	owned, bound bool
}

func (d *decision) find(kind, reason, message string, args ...any) {
	d.findings = append(d.findings, Finding{Type: kind, Reason: reason, Message: fmt.Sprintf(message, args...)})
}

// decide returns the next write that a claim needs; nil if there is none.
func decide(v view) *Write {
	if v.goes() {
		return nil
	}
	d := decision{view: v, cluster: cmp.Or(Cluster(v.Claim, v.IPAM), v.Claim.Spec.Cluster)} // What is recorded first stays.
	d.judge()
	if v.IPAM != nil {
		d.problem = d.ipamProblem()
	}
	d.owned = Owned(v.IPAM, v.Claim) && d.problem == nil
	if d.problem == nil && (d.network != nil || d.owned) {
		d.judgePool()
		d.problem = d.pool.problem
	}
	d.bound = d.owned && d.pool.ready && v.IPAM.Status.Phase == v1beta1.PhaseBound
	other := d.releaseOther()
	said := d.claimStatus()
	switch {
	case v.Claim.Status.Bound && !d.bound: // It must not be believed any longer.
		return said
	case v.Refused != "": // The spec of what exists stays.
		return cmp.Or(d.ipamStatus(), said)
	default:
		return cmp.Or(d.ipam(), d.pool.write(), d.ref(), d.ipamStatus(), other, said)
	}
}

// judge reads the claim.
func (d *decision) judge() {
	spec := &d.Claim.Spec
	if n, err := readClaim(d.Claim); err == nil {
		d.network = &n
	} else {
		kept := ""
		if Owned(d.IPAM, d.Claim) {
			kept = " Until then the pool stays as it is."
		}
		d.find(v1beta1.ConditionInvalidClaim, reasonInvalidClaim, "%s.%s", text.Cut(err.Error(), text.MaxProblem), kept)
	}
	if d.network != nil && d.network.prefix == 0 {
		d.find(conditionWarning, reasonPrefixMissing, "spec.nodeNetwork has no prefix, so machines get the prefix length 0. Set prefix, for example to 24.")
	}
	if ignored := ignoredInput(spec); len(ignored) > 0 {
		d.find(conditionWarning, reasonInputIgnored, "Nobody uses %s. Remove what is not used.", strings.Join(ignored, ", "))
	}
	if d.cluster != spec.Cluster {
		d.find(conditionWarning, reasonClusterChanged,
			"The claim stays bound to the ClusterDeployment %s. Set spec.cluster to %s again. For another ClusterDeployment write another claim.", d.cluster, d.cluster)
	}
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

// ipam returns the write that the spec and the owner of the ClusterIPAM need.
func (d *decision) ipam() *Write {
	if d.network == nil || d.IPAM != nil && d.ipamProblem() != nil {
		return nil
	}
	want := &v1beta1.ClusterIPAM{ObjectMeta: ofClaim(d.Claim, true)}
	if d.IPAM != nil {
		want = d.IPAM.DeepCopy()
		if !d.owned {
			want.OwnerReferences = append(want.OwnerReferences, ofClaim(d.Claim, true).OwnerReferences...)
		}
	}
	if delete(want.Annotations, AnnotationCluster); d.cluster != "" {
		metav1.SetMetaDataAnnotation(&want.ObjectMeta, AnnotationCluster, d.cluster)
	}
	want.Spec = v1beta1.ClusterIPAMSpec{Provider: d.Claim.Spec.Provider, ClusterIPAMClaimRef: d.Claim.Name}
	if d.IPAM == nil {
		return &Write{Kind: runner.ClusterIPAMs, Want: want}
	}
	return Change(runner.ClusterIPAMs, d.IPAM, want)
}

// ref returns the write of the claim's reference to its ClusterIPAM.
func (d *decision) ref() *Write {
	if !d.owned || d.network == nil || d.Claim.Spec.ClusterIPAMRef != "" {
		return nil
	}
	want := d.Claim.DeepCopy()
	want.Spec.ClusterIPAMRef = want.Name
	return Change(runner.ClusterIPAMClaims, d.Claim, want)
}

// ipamStatus returns the write that the status of the ClusterIPAM needs.
func (d *decision) ipamStatus() *Write {
	if !d.owned {
		return nil
	}
	want := d.IPAM.DeepCopy()
	want.Status = v1beta1.ClusterIPAMStatus{Phase: v1beta1.PhasePending, ProviderData: []v1beta1.ProviderData{d.pool.providerData(d.Claim.Name)}}
	if d.pool.ready {
		want.Status.Phase = v1beta1.PhaseBound
	}
	return Change(runner.ClusterIPAMs, d.IPAM, want)
}

// claimStatus returns the write that the status of the claim needs. A refusal of the API server comes before other problems: it keeps the claim from
// everything else.
func (d *decision) claimStatus() *Write {
	if d.Refused != "" {
		d.problem = &Finding{Reason: reasonRefused, Message: text.Cut("The API server refuses what this claim needs: "+d.Refused, text.MaxMessage)}
	}
	if d.problem != nil {
		d.problem.Type = v1beta1.ConditionProviderError
		d.findings = append(d.findings, *d.problem)
	}
	want := d.Claim.DeepCopy()
	want.Status.Bound = d.bound
	events := tell(&want.Status.Conditions, d.findings, d.Now)
	if d.Claim.Status.Bound { // An empty status would be left out, and with it that the claim is not bound any more.
		want.Status.Conditions = append([]metav1.Condition{}, want.Status.Conditions...)
	}
	if d.bound && !d.Claim.Status.Bound {
		events = append(events, Finding{Normal: true, Reason: reasonBound, Message: "The pool of this claim can give addresses."})
	}
	return Change(runner.ClusterIPAMClaims, d.Claim, want, events...)
}

// Finding is something that a condition tells the users of an object, and an event when it begins.
type Finding struct {
	Type, Reason, Message string
	// Normal: all is well. The event is no warning.
	Normal bool
	// Quiet: as a rule it ends within milliseconds, so there is no event.
	Quiet bool
}

// tell has the conditions of a claim say what was found, and returns the events of new findings. Findings of one type share a condition. Conditions
// of other types stay.
func tell(conditions *[]metav1.Condition, findings []Finding, now metav1.Time) (events []Finding) {
	for _, kind := range conditionTypes {
		var reasons, messages []string
		before := ptr.Deref(meta.FindStatusCondition(*conditions, kind), metav1.Condition{})
		for _, f := range findings {
			if f.Type != kind {
				continue
			}
			reasons, messages = append(reasons, f.Reason), append(messages, f.Message)
			if !f.Quiet && !strings.Contains(before.Message, f.Message) {
				events = append(events, f)
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
