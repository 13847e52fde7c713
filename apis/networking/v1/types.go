package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// How the rules below behave on an update (tested in test/integration/admission_test.go):
//
//   - The API server does not apply a rule about one field while that field is unchanged (CRD ratcheting). An object
//     that was stored under an older CRD therefore keeps accepting status, finalizer and label updates, and can be deleted.
//   - The API server would apply a rule across immutable fields as soon as anything in the spec changes. Such a rule
//     starts with oldSelf.hasValue(), so it holds at creation only. Immutability keeps it true from then on. An old
//     object that breaks such a rule can still be disabled.
//   - A rule makes spec required, and not the schema. The API server never ratchets a missing required field, so an
//     old object without a spec would keep its finalizer for ever.
//   - The rules for a requirement of the nodeSelector are in hack/crd-node-selector.patch.yaml, because the Go type of
//     the nodeSelector belongs to core/v1.

// ClusterCIDR is a source of Pod addresses for Nodes: an IPv4 range, an IPv6 range, or one of each. Each range is cut
// into blocks of equal size. The controller allocates to a Node one block of each range of one ClusterCIDR, as its
// spec.podCIDRs. A cluster can have any number of ClusterCIDRs, and their ranges can overlap: no address is allocated
// twice.
//
// If the nodeSelectors of several ClusterCIDRs match a Node, the controller tries those ClusterCIDRs in this order:
// higher priority first; those with a nodeSelector before those without; more requirements in the matching term first;
// fewer blocks in total first; fewer host bits first; then by selector text, address and name. It allocates from the
// first ClusterCIDR that has a free block in each of its families.
//
// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=cc
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="IPv4",type=string,JSONPath=`.spec.ipv4`,description="IPv4 range"
// +kubebuilder:printcolumn:name="Block4",type=integer,JSONPath=`.status.ipv4.blockPrefixLength`,description="Prefix length of one Node's IPv4 block"
// +kubebuilder:printcolumn:name="Allocated4",type=integer,JSONPath=`.status.ipv4.allocated`,description="Number of IPv4 blocks that Nodes hold"
// +kubebuilder:printcolumn:name="Free4",type=integer,JSONPath=`.status.ipv4.free`,description="Number of free IPv4 blocks"
// +kubebuilder:printcolumn:name="IPv6",type=string,JSONPath=`.spec.ipv6`,description="IPv6 range"
// +kubebuilder:printcolumn:name="Block6",type=integer,JSONPath=`.status.ipv6.blockPrefixLength`,description="Prefix length of one Node's IPv6 block"
// +kubebuilder:printcolumn:name="Allocated6",type=integer,JSONPath=`.status.ipv6.allocated`,description="Number of IPv6 blocks that Nodes hold"
// +kubebuilder:printcolumn:name="Free6",type=integer,JSONPath=`.status.ipv6.free`,description="Number of free IPv6 blocks"
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Available: new blocks can be allocated. Any other state, such as Exhausted or Disabled, is why none can be: the reason of the condition Ready. Empty: the controller has written no status yet"
// +kubebuilder:printcolumn:name="Priority",type=integer,priority=1,JSONPath=`.spec.priority`,description="Higher is tried first"
// +kubebuilder:printcolumn:name="Allocation",type=string,priority=1,JSONPath=`.spec.allocation`,description="Enabled; Disabled: no new blocks are allocated; None: its Nodes need no podCIDRs"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule="has(self.spec) || (oldSelf.hasValue() && !has(oldSelf.value().spec))",message="spec is required and cannot be removed: set spec.perNodeHostBits, and spec.ipv4, spec.ipv6 or both",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule=`oldSelf.hasValue() || !has(self.spec) || self.metadata.name.startsWith("created-from-flags-") || self.spec.?allocation.orValue("") == "None" || self.spec.?perNodeHostBits.orValue(4) >= 4`,fieldPath=".spec.perNodeHostBits",message="must be at least 4 (16 addresses): for example 8 for an IPv4 block of /24"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule=`oldSelf.hasValue() || !has(self.spec) || self.metadata.name.startsWith("created-from-flags-") || self.spec.?allocation.orValue("") == "None" || self.spec.?ipv6PerNodeHostBits.orValue(4) >= 4`,fieldPath=".spec.ipv6PerNodeHostBits",message="must be at least 4 (16 addresses): for example 64 for an IPv6 block of /64"
type ClusterCIDR struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state: the ranges, the size of their blocks, and the Nodes that they are for. Required.
	// +optional
	Spec ClusterCIDRSpec `json:"spec,omitzero"`

	// status is what the controller has observed. It affects no allocation.
	// +optional
	Status ClusterCIDRStatus `json:"status,omitzero"`
}

// ClusterCIDRSpec is the desired state of a ClusterCIDR. The ranges, the block sizes and the nodeSelector are
// immutable (KEP-2593), because Nodes hold blocks that were cut by them. To change one of them, create a second
// ClusterCIDR and delete the first one. The first one is removed when its last Node is gone.
//
// +kubebuilder:validation:XValidation:rule=`(has(self.ipv4) ? self.ipv4 : "") == (has(oldSelf.ipv4) ? oldSelf.ipv4 : "")`,fieldPath=".ipv4",message="ipv4 cannot be changed, added or removed: create another ClusterCIDR with the range you want, then delete this one"
// +kubebuilder:validation:XValidation:rule=`(has(self.ipv6) ? self.ipv6 : "") == (has(oldSelf.ipv6) ? oldSelf.ipv6 : "")`,fieldPath=".ipv6",message="ipv6 cannot be changed, added or removed: create another ClusterCIDR with the range you want, then delete this one"
// +kubebuilder:validation:XValidation:rule="self.?perNodeHostBits.orValue(0) == oldSelf.?perNodeHostBits.orValue(0)",fieldPath=".perNodeHostBits",message="perNodeHostBits cannot be changed: create another ClusterCIDR with the block size you want, then delete this one"
// +kubebuilder:validation:XValidation:rule="self.?ipv6PerNodeHostBits == oldSelf.?ipv6PerNodeHostBits",fieldPath=".ipv6PerNodeHostBits",message="ipv6PerNodeHostBits cannot be changed, added or removed: create another ClusterCIDR with the block size you want, then delete this one"
// +kubebuilder:validation:XValidation:rule="has(self.nodeSelector) == has(oldSelf.nodeSelector) && (!has(self.nodeSelector) || self.nodeSelector == oldSelf.nodeSelector)",fieldPath=".nodeSelector",message="nodeSelector cannot be changed, added or removed: create another ClusterCIDR with the nodeSelector you want, then delete this one"
// +kubebuilder:validation:XValidation:rule=`(self.?allocation.orValue("") == "None") == (oldSelf.?allocation.orValue("") == "None")`,fieldPath=".allocation",message="allocation cannot be changed to or from None: create another ClusterCIDR with the allocation you want, then delete this one"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule=`oldSelf.hasValue() || has(self.perNodeHostBits) || self.?allocation.orValue("") == "None"`,fieldPath=".perNodeHostBits",reason=FieldValueRequired,message="perNodeHostBits is required unless allocation is None: set it to the number of host bits of one Node's block, for example 8 for an IPv4 block of /24"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule=`oldSelf.hasValue() || (has(self.ipv4) && self.ipv4 != "") || (has(self.ipv6) && self.ipv6 != "") || self.?allocation.orValue("") == "None"`,message="at least one range is required: set ipv4 (for example 10.244.0.0/16), ipv6 (for example fd00:10:244::/48) or both"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule="oldSelf.hasValue() || !has(self.ipv4) || !isCIDR(self.ipv4) || cidr(self.ipv4).ip().family() != 4 || self.?perNodeHostBits.orValue(0) <= 32 - cidr(self.ipv4).prefixLength()",fieldPath=".perNodeHostBits",message="a block of this size does not fit into ipv4: use a value from 4 to 32 minus the prefix length of ipv4 (4 to 16 for a /16), or a wider ipv4. For larger IPv6 blocks set ipv6PerNodeHostBits"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule="oldSelf.hasValue() || has(self.ipv6PerNodeHostBits) || !has(self.ipv6) || !isCIDR(self.ipv6) || cidr(self.ipv6).ip().family() != 6 || self.?perNodeHostBits.orValue(0) <= 128 - cidr(self.ipv6).prefixLength()",fieldPath=".perNodeHostBits",message="a block of this size does not fit into ipv6: use a value from 4 to 128 minus the prefix length of ipv6 (4 to 16 for a /112), or a wider ipv6. For smaller IPv6 blocks set ipv6PerNodeHostBits"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule="oldSelf.hasValue() || !has(self.ipv6PerNodeHostBits) || !has(self.ipv6) || !isCIDR(self.ipv6) || cidr(self.ipv6).ip().family() != 6 || self.ipv6PerNodeHostBits <= 128 - cidr(self.ipv6).prefixLength()",fieldPath=".ipv6PerNodeHostBits",message="a block of this size does not fit into ipv6: use a value from 4 to 128 minus the prefix length of ipv6 (4 to 80 for a /48), or a wider ipv6"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule=`oldSelf.hasValue() || !has(self.ipv6PerNodeHostBits) || (has(self.ipv6) && self.ipv6 != "")`,fieldPath=".ipv6PerNodeHostBits",message="ipv6PerNodeHostBits needs ipv6: set ipv6, or remove ipv6PerNodeHostBits"
// +kubebuilder:validation:XValidation:rule="!has(self.excludedCIDRs) || self.excludedCIDRs.all(e, !isCIDR(e) || (has(self.ipv4) && isCIDR(self.ipv4) && cidr(self.ipv4).containsCIDR(cidr(e))) || (has(self.ipv6) && isCIDR(self.ipv6) && cidr(self.ipv6).containsCIDR(cidr(e))))",fieldPath=".excludedCIDRs",message="every excluded CIDR must be inside ipv4 or ipv6: remove the one that is not, or replace it by the part of it that is inside"
type ClusterCIDRSpec struct {
	// nodeSelector selects the Nodes whose podCIDRs can be allocated from this ClusterCIDR. It means what it means in
	// core/v1: terms are ORed, the requirements of a term are ANDed, an empty term matches no Node, and matchFields
	// accepts metadata.name only. A ClusterCIDR without a nodeSelector is a fall-back for every Node: it is tried after
	// all ClusterCIDRs of the same priority that have a nodeSelector. Immutable.
	// +optional
	// +kubebuilder:validation:XValidation:rule="size(self.nodeSelectorTerms) > 0",fieldPath=".nodeSelectorTerms",message="at least one term is required: add a term, or remove nodeSelector to select every Node"
	NodeSelector *corev1.NodeSelector `json:"nodeSelector,omitempty"`

	// perNodeHostBits is the size of one Node's block: 2^perNodeHostBits addresses. With 8, each Node gets a /24 of
	// ipv4 and, unless ipv6PerNodeHostBits is set, a /120 of ipv6. The minimum is 4 (16 addresses, KEP-2593), and 0 in
	// a ClusterCIDR named created-from-flags-..., because the flags of kube-controller-manager accept any size. The
	// maximum is 32 minus the prefix length of ipv4, and 128 minus the prefix length of ipv6 where ipv6 uses
	// perNodeHostBits. Required unless allocation is None. Immutable.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	PerNodeHostBits int32 `json:"perNodeHostBits"`

	// ipv6PerNodeHostBits is the size of one Node's IPv6 block, if it differs from perNodeHostBits. With 64, each Node
	// gets a /64 of ipv6, the default of kube-controller-manager, while perNodeHostBits of 8 still means a /24 of ipv4.
	// The minimum is that of perNodeHostBits, the maximum 128 minus the prefix length of ipv6. Can be set only together
	// with ipv6. Immutable.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	IPv6PerNodeHostBits *int32 `json:"ipv6PerNodeHostBits,omitempty"`

	// ipv4 is the IPv4 range in CIDR notation (RFC 4632), for example 10.244.0.0/16. Host bits are masked off:
	// 10.244.7.9/16 means 10.244.0.0/16. Octets must not have leading zeros. An empty value means that there is no
	// IPv4 range. At least one of ipv4 and ipv6 is required unless allocation is None. Immutable.
	// +optional
	// +kubebuilder:validation:MaxLength=18
	// +kubebuilder:validation:XValidation:rule=`self == "" || (isCIDR(self) && cidr(self).ip().family() == 4)`,message="must be an IPv4 range in CIDR notation without leading zeros, for example 10.244.0.0/16"
	IPv4 string `json:"ipv4,omitempty"`

	// ipv6 is the IPv6 range in CIDR notation (RFC 4291 section 2.3), for example fd00:10:244::/48. Host bits are masked
	// off. The range must not contain IPv4-mapped addresses (::ffff:0:0/96), because no Node can have a block of them.
	// An empty value means that there is no IPv6 range. At least one of ipv4 and ipv6 is required unless allocation is
	// None. Immutable.
	// +optional
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule=`self == "" || (isCIDR(self) && cidr(self).ip().family() == 6)`,message="must be an IPv6 range in CIDR notation, for example fd00:10:244::/48, and not an IPv4-mapped range"
	// +kubebuilder:validation:XValidation:rule=`!isCIDR(self) || cidr(self).ip().family() != 6 || cidr(self).prefixLength() > 95 || !cidr(self).containsIP("::fffe:0:0")`,message="must not contain IPv4-mapped addresses (::ffff:0:0/96), because no Node can have a block of them: use a range without them, for example fd00:10:244::/48"
	IPv6 string `json:"ipv6,omitempty"`

	// priority is the first rule of the order in which ClusterCIDRs are tried for a Node: higher is tried first. It can
	// be negative. The default is 0. Mutable: a change affects new allocations only.
	// +optional
	Priority int32 `json:"priority,omitempty"`

	// excludedCIDRs are CIDRs inside ipv4 or ipv6 from which this ClusterCIDR allocates no more blocks. A block with at
	// least one excluded address is not allocated. Blocks that Nodes already hold stay with them. Other ClusterCIDRs
	// with the same addresses are not affected. Mutable.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="must be a CIDR without leading zeros, for example 10.244.0.0/28 or fd00:10:244::/64, and not an IPv4-mapped CIDR"
	ExcludedCIDRs []string `json:"excludedCIDRs,omitempty"`

	// allocation is Enabled (the default), Disabled or None. No new blocks are allocated from a disabled ClusterCIDR, and
	// Nodes keep the blocks that they have. None means that the Nodes that this ClusterCIDR selects need no podCIDRs, for
	// example virtual Nodes: if it is the first one in the order, a Node gets none, and the controller does not report the
	// Node as pending. Mutable between Enabled and Disabled; None is immutable.
	// +optional
	// +default="Enabled"
	Allocation AllocationMode `json:"allocation,omitempty"`
}

// AllocationMode says whether new blocks may be allocated from a ClusterCIDR. The empty value means Enabled.
// +kubebuilder:validation:Enum=Enabled;Disabled;None
type AllocationMode string

const (
	// AllocationEnabled allows new allocations from a ClusterCIDR.
	AllocationEnabled AllocationMode = "Enabled"
	// AllocationDisabled stops new allocations from a ClusterCIDR. Nodes keep their blocks.
	AllocationDisabled AllocationMode = "Disabled"
	// AllocationNone ends the search for the Nodes that a ClusterCIDR selects: they need no podCIDRs.
	AllocationNone AllocationMode = "None"
)

// ClusterCIDRStatus is the observed state of a ClusterCIDR. Only the controller writes it.
type ClusterCIDRStatus struct {
	// conditions are Ready, Overlapping and Conflicted.
	// Ready is True if podCIDRs can be allocated from this ClusterCIDR now. Otherwise its reason is Exhausted, Disabled,
	// Superseded, None, Terminating or Invalid.
	// Overlapping is True if the ranges, without excludedCIDRs, share addresses with a service range, with the address of
	// a Node, with another ClusterCIDR, or with special addresses such as loopback or multicast.
	// Conflicted is True if two Nodes, or a Node and a service range, have the same addresses inside the ranges.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`

	// ipv4 counts the blocks of the IPv4 range. It is absent if spec.ipv4 is.
	// +optional
	IPv4 *RangeStatus `json:"ipv4,omitempty"`

	// ipv6 counts the blocks of the IPv6 range. It is absent if spec.ipv6 is.
	// +optional
	IPv6 *RangeStatus `json:"ipv6,omitempty"`
}

// RangeStatus counts the blocks of one range. Invariant: total = allocated + unavailable + free, unless one of them is
// capped. A number that does not fit into an int64 (in a range of 2^63 blocks or more) is shown as 9223372036854775807.
type RangeStatus struct {
	// cidr is the range with its host bits masked off.
	// +required
	CIDR string `json:"cidr"`

	// blockPrefixLength is the prefix length of every block, for example 24 for an IPv4 range with 8 host bits.
	// +required
	BlockPrefixLength int32 `json:"blockPrefixLength"`

	// total is the number of blocks in the range.
	// +required
	Total int64 `json:"total"`

	// allocated is the number of blocks that Nodes hold, no matter who allocated them.
	// +required
	Allocated int64 `json:"allocated"`

	// unavailable is the number of blocks that no Node holds and that cannot be allocated, because this ClusterCIDR
	// excludes them, or because they overlap a service range or podCIDRs that are not blocks of this range.
	// +required
	Unavailable int64 `json:"unavailable"`

	// free is the number of blocks that share no address with a Node's podCIDRs, a service range or excludedCIDRs. A
	// ClusterCIDR that is disabled or terminating can have free blocks too, but none of them is allocated.
	// +required
	Free int64 `json:"free"`

	// cursor was the address at which the search for the next block starts. The controller neither reads nor writes it.
	// It is accepted, because stored objects can have it.
	//
	// Deprecated: it means nothing.
	// +optional
	Cursor string `json:"cursor,omitempty"`
}

// ClusterCIDRList is a list of ClusterCIDRs.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type ClusterCIDRList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the ClusterCIDRs.
	Items []ClusterCIDR `json:"items"`
}
