package v1

// Names that the controller writes on objects. Changing one breaks running clusters.
const (
	// Finalizer keeps a ClusterCIDR until no Node holds a block from it. It is added before the first block is given.
	Finalizer = "networking.x-k8s.io/cluster-cidr-finalizer"

	// AnnotationClusterCIDR on a Node names the ClusterCIDR that its podCIDRs came from.
	AnnotationClusterCIDR = "networking.x-k8s.io/cluster-cidr"

	// LabelCreatedFromFlags on a ClusterCIDR named created-from-flags-<hash> says that the controller made it from its flags and keeps it
	// in step with them. On a ClusterCIDR of another name it means nothing.
	LabelCreatedFromFlags = "networking.x-k8s.io/created-from-flags"

	// AnnotationSuperseded on such a ClusterCIDR says that the controller, and no user, set spec.allocation to Disabled, because its
	// flags do not ask for it any more. Flags that come back set it to Enabled again.
	AnnotationSuperseded = "networking.x-k8s.io/superseded"

	// AnnotationLeaseHolder on a Node is the identity of the process that assigned its podCIDRs: that in the Lease, or one of its own without
	// leader election. An admission policy can compare it with the Lease and so refuse the write of a leader that has been deposed, and a
	// process can tell what another one has written.
	AnnotationLeaseHolder = "networking.x-k8s.io/lease-holder"
)

// Condition types of a ClusterCIDR.
const (
	// ConditionReady is True while the ClusterCIDR can serve a Node.
	ConditionReady = "Ready"

	// ConditionOverlapping is True while the ranges, without what is excluded, share addresses with another ClusterCIDR, a service range, the
	// address of a Node, or addresses that have a meaning of their own. Nothing of that is ever given twice, but it may not be what was meant.
	ConditionOverlapping = "Overlapping"

	// ConditionConflicted is True while two holders overlap inside the ranges; the message names them.
	ConditionConflicted = "Conflicted"
)

// Reasons of ConditionReady.
const (
	// ReasonAvailable (True): there is a free block in every family.
	ReasonAvailable = "Available"
	// ReasonExhausted (False): at least one family has no free block.
	ReasonExhausted = "Exhausted"
	// ReasonPending (False): the finalizer could not be added so far, or is not kept; the message says why.
	ReasonPending = "Pending"
	// ReasonDisabled (False): spec.allocation is Disabled.
	ReasonDisabled = "Disabled"
	// ReasonSuperseded (False): it was made from the controller's flags, which do not ask for it any more.
	ReasonSuperseded = "Superseded"
	// ReasonTerminating (False): the object is being deleted and waits for the Nodes that hold its blocks.
	ReasonTerminating = "Terminating"
	// ReasonInvalid (False): the object was stored under an older CRD and breaks a rule; the message says which.
	ReasonInvalid = "Invalid"
)

// Reasons of ConditionConflicted and ConditionOverlapping. The first that applies is given; the message has all.
const (
	// ReasonServiceRange (True): with a service range.
	ReasonServiceRange = "ServiceRange"
	// ReasonNodeAddress (True): with the address of a Node.
	ReasonNodeAddress = "NodeAddress"
	// ReasonSpecialAddresses (True): with loopback, link-local or multicast addresses, or one block is the whole address space.
	ReasonSpecialAddresses = "SpecialAddresses"
	// ReasonClusterCIDR (True): with another ClusterCIDR.
	ReasonClusterCIDR = "ClusterCIDR"
	// ReasonOverlap (True): the podCIDRs of two Nodes, or of a Node and a service range, share addresses.
	ReasonOverlap = "Overlap"
	// ReasonNoOverlap (False): no two holders share an address.
	ReasonNoOverlap = "NoOverlap"
)
