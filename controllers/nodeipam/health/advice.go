package health

import (
	"errors"
	"io"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"

	"github.com/multicidr/controller-manager/controllers/nodeipam/api"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// install is what to do if the CRD or a permission is missing. The chart has its own CRD, role and bindings. In a cluster that uses the chart,
// that file would bind a ServiceAccount that does not exist.
const install = "run helm upgrade if you use the Helm chart, else apply install-kube-controller-manager.yaml of the release"

// crdMissing is reported by the start, the watch and writes.
const crdMissing = "the CustomResourceDefinition of ClusterCIDR is not installed: " + install

// crdOfAnotherVersion is reported if the API server does not know fields of a ClusterCIDR that the controller writes. Then it hides such
// fields of the spec, too: for example, blocks that a ClusterCIDR excludes may be allocated.
const crdOfAnotherVersion = "the CustomResourceDefinition of ClusterCIDR is of another version, and fields of ClusterCIDRs may be hidden: " + install

// notTheLeader is what to do if the fencing policy refuses a write. Its answer names the Lease that it looks at.
const notTheLeader = "the API server takes another process for the leader: this passes if the Lease has just changed hands. " +
	"Otherwise compare the Lease that the answer names with that of this process. If they differ, correct paramRef in the ValidatingAdmissionPolicyBinding of that policy, or turn leader election on. " +
	"If they are the same, kube-apiserver does not read the Lease any more: apply fencing-kube-controller-manager.yaml of the release or, with the Helm chart, run helm upgrade, and restart each kube-apiserver"

// ReadProblem says why objects of a kind cannot be read, and what to do about it. kind is plural, such as Nodes. Only the resource of
// ClusterCIDRs is not the API server's own.
func ReadProblem(kind string, err error) Problem {
	var short *cache.VeryShortWatchError
	switch missing := apierrors.IsNotFound(err); {
	case missing && kind == "ClusterCIDRs":
		return Problem{What: crdMissing}
	case missing:
		return Problem{"the API server does not have them: see whether its --runtime-config turns them off, or whether a proxy or an older API server answers, too", err}
	case apierrors.IsForbidden(err) && kind == "ClusterCIDRs":
		return Problem{"the controller may not read ClusterCIDRs: " + install, err}
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return Problem{"the API server does not let this process watch them: " + install, err}
	case apierrors.IsTooManyRequests(err):
		return Problem{turnedAway, err}
	case errors.As(err, &short), errors.Is(err, io.ErrUnexpectedEOF):
		return Problem{"watches end as soon as they begin: look at the network, at proxies and load balancers before the API server, and at its log", err}
	case answered(err):
		return Problem{"the API server fails, or a proxy before it: look at its log and at etcd", err}
	default:
		return Problem{"the API server cannot be reached or understood: look at the network, and at proxies and load balancers before it", err}
	}
}

// WriteProblem says why a write failed and what to do about it. It returns the zero value if no request was sent. An admission webhook or
// policy can answer with any code; its message is in the error.
func WriteProblem(err error) Problem {
	var pause writes.Later
	if writes.NotItsTurn(err) || errors.As(err, &pause) && !answered(err) {
		return Problem{}
	}
	for _, c := range causes {
		if c.is(err) {
			return Problem{c.what, err}
		}
	}
	return Problem{"the API server does not answer in time: look at the network, at its load, at etcd and at admission webhooks", err}
}

// causes are why a write fails. The first one that fits an error is its cause.
var causes = []struct {
	is   func(error) bool
	what string
}{
	{causedBy(api.ErrStoredOtherwise), "the ClusterCIDR of the flags is stored with other ranges than it was sent with: if the CRD is not ours, " + install + "; else look for a mutating webhook or policy that changes it. " +
		"Then delete that ClusterCIDR, and it is made again"},
	{causedBy(api.ErrNotKept), "the API server stores what is written, and it is not there: look for a mutating webhook or policy, or another process with other flags, that takes it away; or the watch is late"},
	{resourceMissing, crdMissing},
	{crdTerminating, "the CustomResourceDefinition of ClusterCIDR is being deleted, which goes on until the last ClusterCIDR is gone: then " + install + ", and apply the ClusterCIDRs again"},
	{api.RefusedByPolicy, notTheLeader},
	{says("admission webhook", "calling webhook", "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy", "exceeded quota"), "an admission webhook or policy does not let it pass: repair, change or delete the one that the answer names"},
	{causedBy(api.ErrNoStatus), crdOfAnotherVersion}, // The ClusterCIDR may be gone.
	{says("field not declared in schema"), crdOfAnotherVersion},
	{apierrors.IsForbidden, "the API server forbids it: " + install},
	{apierrors.IsUnauthorized, "the API server does not know this process: renew its credentials"},
	{apierrors.IsTooManyRequests, turnedAway},
	{either(apierrors.IsNotFound, apierrors.IsConflict), "the API server answers as if the object were gone or another one: if the object is there, see which admission webhook or policy answers so"},
	{annotationsTooLong, "its annotations leave no room for the two that the controller adds: shorten or remove some, all together may have 256 KiB"},
	{either(apierrors.IsInvalid, apierrors.IsBadRequest), "the API server takes it for invalid: see whether another process has written the object, or an admission webhook or policy refuses it"},
	{failed, "the API server fails: look at its log, at etcd and at admission webhooks"},
}

const turnedAway = "the API server turns requests away: see whether it is overloaded, and its priority and fairness rules"

func causedBy(cause error) func(error) bool {
	return func(err error) bool { return errors.Is(err, cause) }
}

func either(a, b func(error) bool) func(error) bool {
	return func(err error) bool { return a(err) || b(err) }
}

// says is for causes that have no machine-readable form. Webhooks choose the code of their answers themselves.
func says(words ...string) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(err.Error(), w) })
	}
}

// resourceMissing: the resource does not exist, as opposed to an object. Of all resources written here, only the CRD's can be missing.
func resourceMissing(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

func crdTerminating(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "custom resource definition is terminating")
}

func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

func failed(err error) bool {
	return answered(err) && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err)
}

func annotationsTooLong(err error) bool {
	cause, ok := apierrors.StatusCause(err, metav1.CauseType(field.ErrorTypeTooLong))
	return ok && cause.Field == "metadata.annotations"
}
