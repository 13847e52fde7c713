package v1alpha2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// How the rules below are written:
//
//   - A rule lets pass what another one refuses, so that a mistake has one message.
//   - The API server limits the cost of a rule, which it estimates from the bounds of lists and texts. It has no bound for the parts of split()
//     nor for string(number). Hence find(), whose result is at most as long as the text, and numbers that are put together from digits.
//   - CEL cannot tell which of two addresses is the lower one. The rule about ranges counts the leading bits that both ends have in common: first
//     in steps of 16, then one by one. The first end is the lower one if its next bit is 0: its networks of that length and of one more bit begin
//     with the same address.

// InClusterIPPool is a pool of addresses for IPAddressClaims in its namespace.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=cluster-api
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="app.kubernetes.io/managed-by=cluster-ipam-controller"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move-hierarchy="
// +kubebuilder:validation:XValidation:rule="has(self.spec)",message="spec is required: set spec.addresses and spec.prefix",reason=FieldValueRequired
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.spec.addresses`,description="Addresses to allocate from"
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.ipAddresses.total`,description="Number of addresses in the pool"
// +kubebuilder:printcolumn:name="Free",type=integer,JSONPath=`.status.ipAddresses.free`,description="Number of free addresses"
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.ipAddresses.used`,description="Number of allocated addresses"
type InClusterIPPool struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which addresses there are.
	// +optional
	Spec InClusterIPPoolSpec `json:"spec,omitzero"`

	// status is what the controller has observed.
	// +optional
	Status InClusterIPPoolStatus `json:"status,omitzero"`
}

// GlobalInClusterIPPool is a pool of addresses for IPAddressClaims in all namespaces.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=cluster-api
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="app.kubernetes.io/managed-by=cluster-ipam-controller"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move-hierarchy="
// +kubebuilder:validation:XValidation:rule="has(self.spec)",message="spec is required: set spec.addresses and spec.prefix",reason=FieldValueRequired
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.spec.addresses`,description="Addresses to allocate from"
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.ipAddresses.total`,description="Number of addresses in the pool"
// +kubebuilder:printcolumn:name="Free",type=integer,JSONPath=`.status.ipAddresses.free`,description="Number of free addresses"
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.ipAddresses.used`,description="Number of allocated addresses"
type GlobalInClusterIPPool struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which addresses there are.
	// +optional
	Spec InClusterIPPoolSpec `json:"spec,omitzero"`

	// status is what the controller has observed.
	// +optional
	Status InClusterIPPoolStatus `json:"status,omitzero"`
}

// InClusterIPPoolSpec says which addresses a pool has. The addresses that can be allocated are: addresses, without excludedAddresses, without the
// gateway, and without the reserved addresses of the subnet.
//
// +kubebuilder:validation:XValidation:rule="size(self.addresses) == 0 || !isIP(self.addresses[0].find('^[^-/]+')) || ip(self.addresses[0].find('^[^-/]+')).family() == 6 || self.prefix <= 32",fieldPath=".prefix",message="an IPv4 address has at most 32 bits: set the prefix length of the subnet, for example 24"
// +kubebuilder:validation:XValidation:rule="size(self.addresses) == 0 || !isIP(self.addresses[0].find('^[^-/]+')) || self.addresses.all(e, !isIP(e.find('^[^-/]+')) || ip(e.find('^[^-/]+')).family() == ip(self.addresses[0].find('^[^-/]+')).family())",fieldPath=".addresses",message="addresses are of both families: put the IPv6 addresses into a pool of their own"
// +kubebuilder:validation:XValidation:rule=`size(self.addresses) == 0 || !isIP(self.addresses[0].find('^[^-/]+')) || (ip(self.addresses[0].find('^[^-/]+')).family() == 4 && self.prefix > 32) || [cidr(self.addresses[0].find('^[^-/]+') + '/' + (self.prefix < 10 ? "" : self.prefix < 100 ? '0123456789'.substring(self.prefix / 10, self.prefix / 10 + 1) : '1' + '0123456789'.substring(self.prefix / 10 % 10, self.prefix / 10 % 10 + 1)) + '0123456789'.substring(self.prefix % 10, self.prefix % 10 + 1))].all(subnet, self.addresses.all(e, isCIDR(e) ? cidr(e).ip().family() != ip(self.addresses[0].find('^[^-/]+')).family() || subnet.containsCIDR(cidr(e)) : [e.find('^[^-/]+'), e.find('[^-]+$')].all(a, !isIP(a) || ip(a).family() != ip(self.addresses[0].find('^[^-/]+')).family() || subnet.containsIP(ip(a)))))`,fieldPath=".addresses",message="addresses are not all in one subnet of this prefix length: lower prefix, or use one pool for each subnet"
// +kubebuilder:validation:XValidation:rule="!has(self.gateway) || !isIP(self.gateway) || size(self.addresses) == 0 || !isIP(self.addresses[0].find('^[^-/]+')) || ip(self.gateway).family() == ip(self.addresses[0].find('^[^-/]+')).family()",fieldPath=".gateway",message="gateway and addresses are of different families: set the gateway of the subnet that the addresses are in"
// +kubebuilder:validation:XValidation:rule="!has(self.excludedAddresses) || size(self.addresses) == 0 || !isIP(self.addresses[0].find('^[^-/]+')) || self.excludedAddresses.all(e, !isIP(e.find('^[^-/]+')) || ip(e.find('^[^-/]+')).family() == ip(self.addresses[0].find('^[^-/]+')).family())",fieldPath=".excludedAddresses",message="excludedAddresses and addresses are of different families: exclude only addresses that are in this pool"
type InClusterIPPoolSpec struct {
	// addresses can be allocated. Each entry is one address, a range such as 10.0.0.10-10.0.0.20, or a CIDR. All are in one subnet.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=79
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) || isCIDR(self) || (self.matches('^[^-/]+-[^-/]+$') && isIP(self.find('^[^-/]+')) && isIP(self.find('[^-]+$')) && ip(self.find('^[^-/]+')).family() == ip(self.find('[^-]+$')).family())",message="must be an address, a range without blanks, or a CIDR: for example 10.0.0.5, 10.0.0.10-10.0.0.20, 10.0.0.0/28 or fd00::/120"
	// +kubebuilder:validation:items:XValidation:rule=`!self.contains('-') || !isIP(self.find('^[^-/]+')) || !isIP(self.find('[^-]+$')) || ip(self.find('^[^-/]+')).family() != ip(self.find('[^-]+$')).family() || ip(self.find('^[^-/]+')) == ip(self.find('[^-]+$')) || [ip(self.find('[^-]+$'))].exists(last, [16 * size([0, 16, 32, 48, 64, 80, 96, 112].filter(n, (n < 32 || last.family() == 6) && cidr(self.find('^[^-/]+') + '/' + (n < 10 ? "" : n < 100 ? '0123456789'.substring(n / 10, n / 10 + 1) : '1' + '0123456789'.substring(n / 10 % 10, n / 10 % 10 + 1)) + '0123456789'.substring(n % 10, n % 10 + 1)).containsIP(last))) - 16].exists(group, [group - 1 + size([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15].filter(n, cidr(self.find('^[^-/]+') + '/' + ((group + n) < 10 ? "" : (group + n) < 100 ? '0123456789'.substring((group + n) / 10, (group + n) / 10 + 1) : '1' + '0123456789'.substring((group + n) / 10 % 10, (group + n) / 10 % 10 + 1)) + '0123456789'.substring((group + n) % 10, (group + n) % 10 + 1)).containsIP(last)))].exists(common, cidr(self.find('^[^-/]+') + '/' + (common < 10 ? "" : common < 100 ? '0123456789'.substring(common / 10, common / 10 + 1) : '1' + '0123456789'.substring(common / 10 % 10, common / 10 % 10 + 1)) + '0123456789'.substring(common % 10, common % 10 + 1)).masked().ip() == cidr(self.find('^[^-/]+') + '/' + ((common + 1) < 10 ? "" : (common + 1) < 100 ? '0123456789'.substring((common + 1) / 10, (common + 1) / 10 + 1) : '1' + '0123456789'.substring((common + 1) / 10 % 10, (common + 1) / 10 % 10 + 1)) + '0123456789'.substring((common + 1) % 10, (common + 1) % 10 + 1)).masked().ip())))`,message="the first address of a range must not be after its last one: swap them"
	Addresses []string `json:"addresses"`

	// prefix is the prefix length of the subnet. Machines get it together with their address.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	Prefix int `json:"prefix"`

	// gateway of the subnet. Machines get it together with their address. It is not allocated.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule=`self == "" || isIP(self)`,message="must be an address without a prefix length, for example 10.0.0.1 or fd00::1"
	Gateway string `json:"gateway,omitempty"`

	// allocateReservedIPAddresses allows to allocate the reserved addresses of the subnet: the first address, and the last one if it is IPv4.
	// +optional
	AllocateReservedIPAddresses bool `json:"allocateReservedIPAddresses,omitempty"`

	// excludedAddresses are not allocated. The entries are written like those of addresses.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=79
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) || isCIDR(self) || (self.matches('^[^-/]+-[^-/]+$') && isIP(self.find('^[^-/]+')) && isIP(self.find('[^-]+$')) && ip(self.find('^[^-/]+')).family() == ip(self.find('[^-]+$')).family())",message="must be an address, a range without blanks, or a CIDR: for example 10.0.0.5, 10.0.0.10-10.0.0.20, 10.0.0.0/28 or fd00::/120"
	// +kubebuilder:validation:items:XValidation:rule=`!self.contains('-') || !isIP(self.find('^[^-/]+')) || !isIP(self.find('[^-]+$')) || ip(self.find('^[^-/]+')).family() != ip(self.find('[^-]+$')).family() || ip(self.find('^[^-/]+')) == ip(self.find('[^-]+$')) || [ip(self.find('[^-]+$'))].exists(last, [16 * size([0, 16, 32, 48, 64, 80, 96, 112].filter(n, (n < 32 || last.family() == 6) && cidr(self.find('^[^-/]+') + '/' + (n < 10 ? "" : n < 100 ? '0123456789'.substring(n / 10, n / 10 + 1) : '1' + '0123456789'.substring(n / 10 % 10, n / 10 % 10 + 1)) + '0123456789'.substring(n % 10, n % 10 + 1)).containsIP(last))) - 16].exists(group, [group - 1 + size([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15].filter(n, cidr(self.find('^[^-/]+') + '/' + ((group + n) < 10 ? "" : (group + n) < 100 ? '0123456789'.substring((group + n) / 10, (group + n) / 10 + 1) : '1' + '0123456789'.substring((group + n) / 10 % 10, (group + n) / 10 % 10 + 1)) + '0123456789'.substring((group + n) % 10, (group + n) % 10 + 1)).containsIP(last)))].exists(common, cidr(self.find('^[^-/]+') + '/' + (common < 10 ? "" : common < 100 ? '0123456789'.substring(common / 10, common / 10 + 1) : '1' + '0123456789'.substring(common / 10 % 10, common / 10 % 10 + 1)) + '0123456789'.substring(common % 10, common % 10 + 1)).masked().ip() == cidr(self.find('^[^-/]+') + '/' + ((common + 1) < 10 ? "" : (common + 1) < 100 ? '0123456789'.substring((common + 1) / 10, (common + 1) / 10 + 1) : '1' + '0123456789'.substring((common + 1) / 10 % 10, (common + 1) / 10 % 10 + 1)) + '0123456789'.substring((common + 1) % 10, (common + 1) % 10 + 1)).masked().ip())))`,message="the first address of a range must not be after its last one: swap them"
	ExcludedAddresses []string `json:"excludedAddresses,omitempty"`

	// addressReuseGracePeriodSeconds is how long an address stays reserved after its claim was deleted. The claim and the IPAddress stay as
	// long.
	// +optional
	// +kubebuilder:validation:Minimum=0
	AddressReuseGracePeriodSeconds *int32 `json:"addressReuseGracePeriodSeconds,omitempty"`
}

// InClusterIPPoolStatus is the observed state of a pool.
type InClusterIPPoolStatus struct {
	// conditions: Ready is True while an address can be allocated. Conflicted is True while two IPAddresses have the same address.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ipAddresses counts the addresses.
	// +optional
	IPAddresses *PoolUsage `json:"ipAddresses,omitempty"`
}

// PoolUsage counts the addresses of a pool. A number that does not fit into an int64 is shown as 9223372036854775807.
type PoolUsage struct {
	// total is the number of addresses that can be allocated, free or used.
	// +required
	Total int `json:"total"`

	// free is the number of addresses that can be allocated now.
	// +required
	Free int `json:"free"`

	// used is the number of allocated addresses, in the pool or not.
	// +required
	Used int `json:"used"`

	// outOfRange is the number of allocated addresses that are not in the pool any more.
	// +required
	OutOfRange int `json:"outOfRange"`
}

// InClusterIPPoolList is a list of InClusterIPPools.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type InClusterIPPoolList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the InClusterIPPools.
	Items []InClusterIPPool `json:"items"`
}

// GlobalInClusterIPPoolList is a list of GlobalInClusterIPPools.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type GlobalInClusterIPPoolList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the GlobalInClusterIPPools.
	Items []GlobalInClusterIPPool `json:"items"`
}
