package v1

// Names that the controller writes on objects. Changing one breaks running clusters.
const (
	// Finalizer keeps a ClusterCIDR until no Node holds a block of it. The controller adds it as soon as it sees
	// the object; allocation does not wait for it.
	Finalizer = "networking.x-k8s.io/cluster-cidr-finalizer"

	// AnnotationClusterCIDR on a Node names the ClusterCIDR that its podCIDRs were allocated from.
	AnnotationClusterCIDR = "networking.x-k8s.io/cluster-cidr"

	// LabelCreatedFromFlags on a ClusterCIDR named created-from-flags-<hash> says that the controller created it from its flags and updates
	// it when they change. On a ClusterCIDR of another name it means nothing.
	LabelCreatedFromFlags = "networking.x-k8s.io/created-from-flags"

	// AnnotationSuperseded on such a ClusterCIDR says that the controller, not a user, set spec.allocation to Disabled, because the
	// controller's flags do not ask for this ClusterCIDR any more. If they do again, the controller sets it to Enabled.
	AnnotationSuperseded = "networking.x-k8s.io/superseded"

	// AnnotationLeaseHolder on a Node is the identity of the process that wrote its podCIDRs: the identity in the Lease or, without leader
	// election, one that the process made up. An admission policy can compare it with the Lease, and refuse the write of a deposed leader. A
	// process can tell from it what another process has written.
	AnnotationLeaseHolder = "networking.x-k8s.io/lease-holder"
)

// Condition types of a ClusterCIDR.
const (
	// ConditionReady is True while podCIDRs can be allocated from the ClusterCIDR.
	ConditionReady = "Ready"

	// ConditionOverlapping is True while the ranges, without excludedCIDRs, share addresses with another ClusterCIDR, a service range, the
	// address of a Node, or special addresses such as loopback or multicast. No address is allocated twice because of it, but the overlap
	// may be a mistake.
	ConditionOverlapping = "Overlapping"

	// ConditionConflicted is True while two Nodes, or a Node and a service range, have the same addresses inside the ranges. The message
	// names them.
	ConditionConflicted = "Conflicted"
)

// Reasons of ConditionReady.
const (
	// ReasonAvailable (True): there is a free block in every family.
	ReasonAvailable = "Available"
	// ReasonExhausted (False): at least one family has no free block.
	ReasonExhausted = "Exhausted"
	// ReasonNone (False): spec.allocation is None, so that Nodes get no podCIDRs because of this ClusterCIDR.
	ReasonNone = "None"
	// ReasonDisabled (False): spec.allocation is Disabled.
	ReasonDisabled = "Disabled"
	// ReasonSuperseded (False): the controller created it from its flags, and they do not ask for it any more; the message
	// says how many Nodes still use it.
	ReasonSuperseded = "Superseded"
	// ReasonTerminating (False): the object is being deleted, and Nodes still hold its blocks.
	ReasonTerminating = "Terminating"
	// ReasonInvalid (False): the object was stored under an older CRD and breaks a rule; the message says which.
	ReasonInvalid = "Invalid"
)

// Reasons of ConditionConflicted and ConditionOverlapping. If several apply, the reason is the first one; the message has all of them.
const (
	// ReasonServiceRange (True): with a service range.
	ReasonServiceRange = "ServiceRange"
	// ReasonNodeAddress (True): with the address of a Node.
	ReasonNodeAddress = "NodeAddress"
	// ReasonSpecialAddresses (True): with loopback, link-local or multicast addresses.
	ReasonSpecialAddresses = "SpecialAddresses"
	// ReasonClusterCIDR (True): with another ClusterCIDR.
	ReasonClusterCIDR = "ClusterCIDR"
	// ReasonOverlap (True): the podCIDRs of two Nodes, or of a Node and a service range, share addresses.
	ReasonOverlap = "Overlap"
	// ReasonNoOverlap (False): no two holders share an address.
	ReasonNoOverlap = "NoOverlap"
)
