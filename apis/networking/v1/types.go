package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// How the rules below behave on an update (tested in test/integration/admission_test.go):
//
//   - A rule about one field is not applied while that field is unchanged (CRD ratcheting), so an object that was
//     stored under an older CRD keeps accepting status, finalizer and label updates, and can be deleted.
//   - A rule across immutable fields would be applied as soon as anything in the spec changes. It starts with
//     oldSelf.hasValue() and so holds at creation only; immutability keeps it true from then on. An old object that
//     breaks such a rule can still be disabled.
//   - spec is required by a rule instead of the schema: a missing required field is never ratcheted, and would
//     keep the finalizer on an old object without a spec for ever.
//   - The rules for a requirement of the nodeSelector are in hack/crd-node-selector.patch.yaml: its Go type is not ours.

// ClusterCIDR is one source of Pod addresses for Nodes: an IPv4 range, an IPv6 range, or one of each, cut into blocks
// of equal size. Every Node that it serves gets one block of each family as its spec.podCIDRs. A cluster may have any
// number of ClusterCIDRs, and their ranges may overlap: no address is ever given twice.
//
// Of the ClusterCIDRs whose nodeSelector matches a Node, the first that has a free block in every family it
// has serves it, in this order: higher priority; with a nodeSelector before without; more requirements in the matching
// term; fewer blocks in total; fewer host bits; then selector text, address and name.
//
// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=cc
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="IPv4",type=string,JSONPath=`.spec.ipv4`,description="IPv4 range"
// +kubebuilder:printcolumn:name="Block4",type=integer,JSONPath=`.status.ipv4.blockPrefixLength`,description="Prefix length of one Node's IPv4 block"
// +kubebuilder:printcolumn:name="Used4",type=integer,JSONPath=`.status.ipv4.allocated`,description="Number of IPv4 blocks that Nodes hold"
// +kubebuilder:printcolumn:name="Free4",type=integer,JSONPath=`.status.ipv4.free`,description="Number of free IPv4 blocks"
// +kubebuilder:printcolumn:name="IPv6",type=string,JSONPath=`.spec.ipv6`,description="IPv6 range"
// +kubebuilder:printcolumn:name="Block6",type=integer,JSONPath=`.status.ipv6.blockPrefixLength`,description="Prefix length of one Node's IPv6 block"
// +kubebuilder:printcolumn:name="Used6",type=integer,JSONPath=`.status.ipv6.allocated`,description="Number of IPv6 blocks that Nodes hold"
// +kubebuilder:printcolumn:name="Free6",type=integer,JSONPath=`.status.ipv6.free`,description="Number of free IPv6 blocks"
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Available: new blocks can be allocated. Any other state, such as Exhausted or Disabled, is why none can be: the reason of the condition Ready. Empty: the controller has written no status yet"
// +kubebuilder:printcolumn:name="Priority",type=integer,priority=1,JSONPath=`.spec.priority`,description="Higher is tried first"
// +kubebuilder:printcolumn:name="Allocation",type=string,priority=1,JSONPath=`.spec.allocation`,description="Enabled, or Disabled: no new blocks are allocated"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule="has(self.spec) || (oldSelf.hasValue() && !has(oldSelf.value().spec))",message="spec is required and cannot be removed: set at least spec.perNodeHostBits and one of spec.ipv4 and spec.ipv6",reason=FieldValueRequired
type ClusterCIDR struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what addresses there are, how they are cut, and for which Nodes. Required.
	// +optional
	Spec ClusterCIDRSpec `json:"spec,omitzero"`

	// status is what the controller has observed. Nothing is decided from it but where the search for a free
	// block goes on.
	// +optional
	Status ClusterCIDRStatus `json:"status,omitzero"`
}

// ClusterCIDRSpec is the desired state of a ClusterCIDR. The ranges, the block sizes and the nodeSelector are
// immutable (KEP-2593): Nodes hold blocks that were cut by them. To change one, create a second ClusterCIDR and
// delete the first, which then goes as soon as its last Node is gone.
//
// +kubebuilder:validation:XValidation:rule=`(has(self.ipv4) ? self.ipv4 : "") == (has(oldSelf.ipv4) ? oldSelf.ipv4 : "")`,fieldPath=".ipv4",message="ipv4 cannot be changed, added or removed: create another ClusterCIDR with the range you want, then delete this one"
// +kubebuilder:validation:XValidation:rule=`(has(self.ipv6) ? self.ipv6 : "") == (has(oldSelf.ipv6) ? oldSelf.ipv6 : "")`,fieldPath=".ipv6",message="ipv6 cannot be changed, added or removed: create another ClusterCIDR with the range you want, then delete this one"
// +kubebuilder:validation:XValidation:rule="self.perNodeHostBits == oldSelf.perNodeHostBits",fieldPath=".perNodeHostBits",message="perNodeHostBits cannot be changed: create another ClusterCIDR with the block size you want, then delete this one"
// +kubebuilder:validation:XValidation:rule="self.?ipv6PerNodeHostBits == oldSelf.?ipv6PerNodeHostBits",fieldPath=".ipv6PerNodeHostBits",message="ipv6PerNodeHostBits cannot be changed, added or removed: create another ClusterCIDR with the block size you want, then delete this one"
// +kubebuilder:validation:XValidation:rule="has(self.nodeSelector) == has(oldSelf.nodeSelector) && (!has(self.nodeSelector) || self.nodeSelector == oldSelf.nodeSelector)",fieldPath=".nodeSelector",message="nodeSelector cannot be changed, added or removed: create another ClusterCIDR with the nodeSelector you want, then delete this one"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule=`oldSelf.hasValue() || (has(self.ipv4) && self.ipv4 != "") || (has(self.ipv6) && self.ipv6 != "")`,message="at least one range is required: set ipv4 (for example 10.244.0.0/16), ipv6 (for example fd00:10:244::/48) or both"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule="oldSelf.hasValue() || !has(self.ipv4) || !isCIDR(self.ipv4) || cidr(self.ipv4).ip().family() != 4 || self.perNodeHostBits <= 32 - cidr(self.ipv4).prefixLength()",fieldPath=".perNodeHostBits",message="a block of that size does not fit into ipv4: use 4 to 32 minus the prefix length of ipv4 (4 to 16 for a /16) or a wider ipv4, and give IPv6 its own size with ipv6PerNodeHostBits"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule="oldSelf.hasValue() || has(self.ipv6PerNodeHostBits) || !has(self.ipv6) || !isCIDR(self.ipv6) || cidr(self.ipv6).ip().family() != 6 || self.perNodeHostBits <= 128 - cidr(self.ipv6).prefixLength()",fieldPath=".perNodeHostBits",message="a block of that size does not fit into ipv6: use 4 to 128 minus the prefix length of ipv6 (4 to 16 for a /112) or a wider ipv6, or give IPv6 its own size with ipv6PerNodeHostBits"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule="oldSelf.hasValue() || !has(self.ipv6PerNodeHostBits) || !has(self.ipv6) || !isCIDR(self.ipv6) || cidr(self.ipv6).ip().family() != 6 || self.ipv6PerNodeHostBits <= 128 - cidr(self.ipv6).prefixLength()",fieldPath=".ipv6PerNodeHostBits",message="a block of that size does not fit into ipv6: use 4 to 128 minus the prefix length of ipv6 (4 to 80 for a /48) or a wider ipv6"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule=`oldSelf.hasValue() || !has(self.ipv6PerNodeHostBits) || (has(self.ipv6) && self.ipv6 != "")`,fieldPath=".ipv6PerNodeHostBits",message="ipv6PerNodeHostBits has no meaning without ipv6: set ipv6 or remove ipv6PerNodeHostBits"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule="oldSelf.hasValue() || !has(self.ipv6) || !isCIDR(self.ipv6) || cidr(self.ipv6).ip().family() != 6 || cidr(self.ipv6).prefixLength() > 0 || (has(self.ipv6PerNodeHostBits) ? self.ipv6PerNodeHostBits : self.perNodeHostBits) >= 128",fieldPath=".ipv6",message="ipv6 must not contain IPv4-mapped addresses (::ffff:0:0/96), of which no Node can have a block: use a range without them, for example fd00:10:244::/48"
// +kubebuilder:validation:XValidation:rule="!has(self.excludedCIDRs) || self.excludedCIDRs.all(e, !isCIDR(e) || (has(self.ipv4) && isCIDR(self.ipv4) && cidr(self.ipv4).containsCIDR(cidr(e))) || (has(self.ipv6) && isCIDR(self.ipv6) && cidr(self.ipv6).containsCIDR(cidr(e))))",fieldPath=".excludedCIDRs",message="every excluded CIDR must lie inside ipv4 or ipv6: remove it, or write the part of it that lies inside the range"
type ClusterCIDRSpec struct {
	// nodeSelector says which Nodes this ClusterCIDR serves. Its meaning is that of core/v1: terms are ORed, the
	// requirements of a term are ANDed, an empty term matches no Node, and matchFields knows metadata.name only.
	// Absent: every Node, as a fall-back behind all ClusterCIDRs of the same priority that have a nodeSelector.
	// Immutable.
	// +optional
	// +kubebuilder:validation:XValidation:rule="size(self.nodeSelectorTerms) > 0",fieldPath=".nodeSelectorTerms",message="at least one term is required: add a term, or remove nodeSelector to serve every Node"
	NodeSelector *corev1.NodeSelector `json:"nodeSelector,omitempty"`

	// perNodeHostBits is the size of one Node's block: 2^perNodeHostBits addresses, so 8 gives each Node a /24 of
	// ipv4 and, unless ipv6PerNodeHostBits is set, a /120 of ipv6. From 4 (16 addresses, KEP-2593) to 32 minus the
	// prefix length of ipv4, and to 128 minus the prefix length of ipv6 where ipv6 uses it. Required, immutable.
	// +required
	// +kubebuilder:validation:Minimum=4
	// +kubebuilder:validation:Maximum=128
	PerNodeHostBits int32 `json:"perNodeHostBits"`

	// ipv6PerNodeHostBits is the size of one Node's IPv6 block where it differs from perNodeHostBits: 64 gives each
	// Node a /64, the default of kube-controller-manager, while perNodeHostBits of 8 keeps the IPv4 block a /24.
	// From 4 to 128 minus the prefix length of ipv6. Only together with ipv6. Immutable.
	// +optional
	// +kubebuilder:validation:Minimum=4
	// +kubebuilder:validation:Maximum=128
	IPv6PerNodeHostBits *int32 `json:"ipv6PerNodeHostBits,omitempty"`

	// ipv4 is the IPv4 range in CIDR notation (RFC 4632), for example 10.244.0.0/16. Host bits are masked off:
	// 10.244.7.9/16 means 10.244.0.0/16. Octets have no leading zeros. Empty means absent. At least one of ipv4 and
	// ipv6 is required. Immutable.
	// +optional
	// +kubebuilder:validation:MaxLength=18
	// +kubebuilder:validation:XValidation:rule=`self == "" || (isCIDR(self) && cidr(self).ip().family() == 4)`,message="must be an IPv4 range in CIDR notation, for example 10.244.0.0/16, octets without leading zeros"
	IPv4 string `json:"ipv4,omitempty"`

	// ipv6 is the IPv6 range in CIDR notation (RFC 4291 section 2.3), for example fd00:10:244::/48. Host bits are masked
	// off. A range with IPv4-mapped addresses (::ffff:0:0/96) is refused, save ::/0 as one block of
	// 128 host bits: no Node can have a block of them. Empty means absent. At least one of ipv4 and ipv6 is required. Immutable.
	// +optional
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule=`self == "" || (isCIDR(self) && cidr(self).ip().family() == 6)`,message="must be an IPv6 range in CIDR notation, for example fd00:10:244::/48, and not an IPv4-mapped one"
	// +kubebuilder:validation:XValidation:rule=`!isCIDR(self) || cidr(self).ip().family() != 6 || cidr(self).prefixLength() == 0 || cidr(self).prefixLength() > 95 || !cidr(self).containsIP("::fffe:0:0")`,message="must not contain IPv4-mapped addresses (::ffff:0:0/96), of which no Node can have a block: use a range without them, for example fd00:10:244::/48"
	IPv6 string `json:"ipv6,omitempty"`

	// priority orders the ClusterCIDRs that match a Node before every other rule: higher is tried first. May be negative.
	// Default 0. Mutable; Nodes keep what they have.
	// +optional
	Priority int32 `json:"priority,omitempty"`

	// excludedCIDRs are CIDRs inside ipv4 or ipv6 of which this ClusterCIDR allocates nothing from now on. Other ClusterCIDRs
	// with the same addresses are not affected, and what a Node already holds stays with it. A block with one excluded address
	// is not allocated. Mutable.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="must be a CIDR, for example 10.244.0.0/28 or fd00:10:244::/64, octets without leading zeros, and not an IPv4-mapped one"
	// +kubebuilder:validation:items:XValidation:rule=`!isCIDR(self) || cidr(self).ip().family() != 6 || cidr(self).prefixLength() > 95 || !cidr(self).containsIP("::fffe:0:0")`,message="must not contain IPv4-mapped addresses (::ffff:0:0/96): write the parts beside them"
	ExcludedCIDRs []string `json:"excludedCIDRs,omitempty"`

	// allocation is Enabled, the default, or Disabled: a disabled ClusterCIDR gives no new blocks, and Nodes keep what
	// they have. Mutable.
	// +optional
	// +default="Enabled"
	Allocation AllocationMode `json:"allocation,omitempty"`
}

// AllocationMode says whether a ClusterCIDR may give new blocks. The empty value means Enabled.
// +kubebuilder:validation:Enum=Enabled;Disabled
type AllocationMode string

const (
	// AllocationEnabled lets a ClusterCIDR give blocks to Nodes.
	AllocationEnabled AllocationMode = "Enabled"
	// AllocationDisabled stops a ClusterCIDR from giving new blocks.
	AllocationDisabled AllocationMode = "Disabled"
)

// ClusterCIDRStatus is the observed state of a ClusterCIDR, written by the controller only.
type ClusterCIDRStatus struct {
	// conditions are Ready (can it serve a Node now; if not, the reason is Exhausted, Disabled, Superseded, Terminating,
	// Invalid or Pending), Overlapping (do its ranges, without what it excludes, share addresses with a service range, a Node's address,
	// another ClusterCIDR, or with addresses that have a meaning of their own)
	// and Conflicted (do two holders have the same addresses inside the ranges).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`

	// ipv4 counts the blocks of the IPv4 range. Absent without spec.ipv4.
	// +optional
	IPv4 *RangeStatus `json:"ipv4,omitempty"`

	// ipv6 counts the blocks of the IPv6 range. Absent without spec.ipv6.
	// +optional
	IPv6 *RangeStatus `json:"ipv6,omitempty"`
}

// RangeStatus counts the blocks of one range. Invariant: total = allocated + unavailable + free, as long as none of
// them is capped: a number that does not fit into an int64 (a range of 2^63 blocks or more) is given as 9223372036854775807.
type RangeStatus struct {
	// cidr is the range with its host bits masked off.
	// +required
	CIDR string `json:"cidr"`

	// blockPrefixLength is the prefix length of every block: 24 for an IPv4 range with 8 host bits.
	// +required
	BlockPrefixLength int32 `json:"blockPrefixLength"`

	// total is the number of blocks in the range.
	// +required
	Total int64 `json:"total"`

	// allocated is the number of blocks that Nodes hold, whoever assigned them.
	// +required
	Allocated int64 `json:"allocated"`

	// unavailable is the number of blocks that no Node holds and that cannot be allocated: excluded by this ClusterCIDR, part
	// of a service range, or overlapped by podCIDRs that are not blocks of this range.
	// +required
	Unavailable int64 `json:"unavailable"`

	// free is the number of blocks of which no Node, no service range and no exclusion of this ClusterCIDR has an address. One that is
	// disabled or being deleted can have free blocks, too; it allocates none of them.
	// +required
	Free int64 `json:"free"`

	// cursor is the address at which the search for the next block starts. It keeps freed blocks at rest for as
	// long as the range allows, also across a restart of the controller.
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
