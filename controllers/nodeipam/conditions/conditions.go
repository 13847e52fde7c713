// Package conditions words the conditions of a ClusterCIDR, for people.
package conditions

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/text"
)

// Shows reports whether a status contains everything in want.
func Shows(status, want networkingv1.ClusterCIDRStatus) bool {
	for _, w := range want.Conditions {
		if known := meta.FindStatusCondition(status.Conditions, w.Type); known == nil || !equality.Semantic.DeepEqual(*known, w) {
			return false
		}
	}
	return equality.Semantic.DeepEqual(status.IPv4, want.IPv4) && equality.Semantic.DeepEqual(status.IPv6, want.IPv6)
}

// Ready is the condition Ready. It is true for one reason only.
func Ready(reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if reason == networkingv1.ReasonAvailable {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: networkingv1.ConditionReady, Status: status, Reason: reason, Message: message}
}

// NotReady says why a pool that is not terminating can serve nobody, whatever Nodes hold, and what to do; reason is empty if nothing is wrong.
func NotReady(p *clustercidr.Pool) (reason, message string) {
	switch {
	case p.State == ipam.Invalid && p.Curable:
		return networkingv1.ReasonInvalid, p.Problem + ". Correct this field; until then nothing is allocated, and Nodes keep what they have."
	case p.State == ipam.Invalid:
		return networkingv1.ReasonInvalid, p.Problem + ". Delete this ClusterCIDR and create one that is right."
	case p.Superseded:
		return networkingv1.ReasonSuperseded, upperFirst(p.Problem) + ". It allocates nothing, and Nodes keep their podCIDRs. When no Node uses it, the controller deletes it if it has the permission (manifests/rbac/cluster-cidr-flag.yaml) and no user has changed it. " +
			"To go on with this range, put the flags back, or create a ClusterCIDR of your own with it."
	case p.State == ipam.Disabled:
		return networkingv1.ReasonDisabled, "spec.allocation is Disabled. Nodes keep what they have. Set it to Enabled to allocate from this ClusterCIDR."
	case p.AwaitsFinalizer(): // This is shown, and not written: in a moment it is another.
		return networkingv1.ReasonPending, "Its finalizer is being added. Until then nothing is allocated."
	case p.State == ipam.Pending && p.Cause == clustercidr.CauseNotKept:
		return networkingv1.ReasonPending, upperFirst(p.Problem) + clustercidr.WhoDoesNotKeepIt
	case p.State == ipam.Pending:
		return networkingv1.ReasonPending, upperFirst(p.Problem)
	}
	return "", ""
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// WholeSpace selects a message of its own for Overlapping; the condition's reason is still SpecialAddresses.
const WholeSpace = "Whole" + networkingv1.ReasonSpecialAddresses

// Overlapping is the condition Overlapping. found is, by reason, what else uses the addresses; addresses is how many Node addresses there are,
// of which not all need be in found.
func Overlapping(found map[string][]string, addresses int) metav1.Condition {
	condition := metav1.Condition{Type: networkingv1.ConditionOverlapping, Status: metav1.ConditionFalse, Reason: networkingv1.ReasonNoOverlap, Message: "Nobody else uses these addresses."}
	var messages []string
	for _, kind := range []struct{ reason, message string }{
		{networkingv1.ReasonServiceRange, "Service ranges, which are never allocated: %s."},
		{networkingv1.ReasonNodeAddress, "Addresses of Nodes, which Pods would get too; exclude them or use another range: %s."},
		{WholeSpace, "One block is the whole address space, so that one Node gets every address: %s. Create a ClusterCIDR with another range and block size, and delete this one."},
		{networkingv1.ReasonSpecialAddresses, "Addresses that hosts do not accept for Pods; exclude them or use another range: %s."},
		{networkingv1.ReasonClusterCIDR, "Other ClusterCIDRs, which share what is free: %s. If that is not meant, exclude in one of them what only the other is to allocate."},
	} {
		if texts := found[kind.reason]; len(texts) > 0 {
			slices.Sort(texts)
			texts = slices.Compact(texts)
			n := len(texts)
			if kind.reason == networkingv1.ReasonNodeAddress {
				n = addresses
			}
			messages = append(messages, fmt.Sprintf(kind.message, text.ListedOf(texts, n)))
			condition.Status, condition.Reason = metav1.ConditionTrue, cmp.Or(reasonIfTrue(condition), strings.TrimPrefix(kind.reason, "Whole"))
		}
	}
	if len(messages) > 0 {
		condition.Message = strings.Join(messages, " ")
	}
	return condition
}

func reasonIfTrue(condition metav1.Condition) string {
	if condition.Status == metav1.ConditionTrue {
		return condition.Reason
	}
	return ""
}

// Conflicted is the condition Conflicted. pairs are owners that hold the same addresses.
func Conflicted(pairs []string) metav1.Condition {
	if len(pairs) == 0 {
		return metav1.Condition{Type: networkingv1.ConditionConflicted, Status: metav1.ConditionFalse, Reason: networkingv1.ReasonNoOverlap, Message: "No address is held twice."}
	}
	return metav1.Condition{Type: networkingv1.ConditionConflicted, Status: metav1.ConditionTrue, Reason: networkingv1.ReasonOverlap,
		Message: fmt.Sprintf("The same addresses are held by %s. Delete the Nodes that should not have them and reboot their machines, which registers them again.", text.ListedFew(pairs))}
}
