package v1alpha2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// InClusterPrefixPool is a pool of IPv6 prefixes for IPAddressClaims in its namespace. Each claim gets one prefix.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=cluster-api
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="app.kubernetes.io/managed-by=cluster-ipam-controller"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move-hierarchy="
// +kubebuilder:validation:XValidation:rule="has(self.spec)",message="spec is required: set spec.prefixes",reason=FieldValueRequired
// +kubebuilder:printcolumn:name="Prefixes",type=string,JSONPath=`.spec.prefixes`,description="Prefixes to allocate from"
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.ipAddresses.total`,description="Number of prefixes for claims in the pool"
// +kubebuilder:printcolumn:name="Free",type=integer,JSONPath=`.status.ipAddresses.free`,description="Number of free prefixes"
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.ipAddresses.used`,description="Number of allocated prefixes"
type InClusterPrefixPool struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which prefixes there are.
	// +optional
	Spec InClusterPrefixPoolSpec `json:"spec,omitzero"`

	// status is what the controller has observed.
	// +optional
	Status InClusterIPPoolStatus `json:"status,omitzero"`
}

// InClusterPrefixPoolList is a list of InClusterPrefixPools.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type InClusterPrefixPoolList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the InClusterPrefixPools.
	Items []InClusterPrefixPool `json:"items"`
}

// GlobalInClusterPrefixPool is a pool of IPv6 prefixes for IPAddressClaims in all namespaces. Each claim gets one prefix.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=cluster-api
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="app.kubernetes.io/managed-by=cluster-ipam-controller"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move-hierarchy="
// +kubebuilder:validation:XValidation:rule="has(self.spec)",message="spec is required: set spec.prefixes",reason=FieldValueRequired
// +kubebuilder:printcolumn:name="Prefixes",type=string,JSONPath=`.spec.prefixes`,description="Prefixes to allocate from"
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.ipAddresses.total`,description="Number of prefixes for claims in the pool"
// +kubebuilder:printcolumn:name="Free",type=integer,JSONPath=`.status.ipAddresses.free`,description="Number of free prefixes"
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.ipAddresses.used`,description="Number of allocated prefixes"
type GlobalInClusterPrefixPool struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which prefixes there are.
	// +optional
	Spec InClusterPrefixPoolSpec `json:"spec,omitzero"`

	// status is what the controller has observed.
	// +optional
	Status InClusterIPPoolStatus `json:"status,omitzero"`
}

// GlobalInClusterPrefixPoolList is a list of GlobalInClusterPrefixPools.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type GlobalInClusterPrefixPoolList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the GlobalInClusterPrefixPools.
	Items []GlobalInClusterPrefixPool `json:"items"`
}

// InClusterPrefixPoolSpec says which prefixes a pool has. The prefixes that can be allocated are those of allocationPrefixLength inside of prefixes that
// have no address of excludedPrefixes.
//
// +kubebuilder:validation:XValidation:rule="self.prefixes.all(p, !isCIDR(p) || cidr(p).prefixLength() <= self.allocationPrefixLength)",fieldPath=".prefixes",message="prefixes are smaller than what a claim gets: write larger ones, or raise allocationPrefixLength"
type InClusterPrefixPoolSpec struct {
	// prefixes are cut into the prefixes that claims get. Each is an IPv6 CIDR without host bits, such as fd00::/48.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self) && cidr(self).ip().family() == 6 && cidr(self).masked() == cidr(self)",message="must be an IPv6 CIDR without host bits, for example fd00::/48"
	Prefixes []string `json:"prefixes"`

	// allocationPrefixLength is the length of the prefix that a claim gets. It cannot be changed.
	// +optional
	// +kubebuilder:default:=64
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: create another pool"
	AllocationPrefixLength int `json:"allocationPrefixLength,omitempty"`

	// gateway is an IPv6 address. Machines get it together with their prefix. It may be inside of an allocated prefix.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule=`self == "" || isIP(self) && ip(self).family() == 6`,message="must be an IPv6 address without a prefix length, for example fd00::1"
	Gateway string `json:"gateway,omitempty"`

	// excludedPrefixes are not allocated. Each entry is an IPv6 address, a range such as fd00::10-fd00::20, or a CIDR.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=79
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) || isCIDR(self) || (self.matches('^[^-/]+-[^-/]+$') && isIP(self.find('^[^-/]+')) && isIP(self.find('[^-]+$')) && ip(self.find('^[^-/]+')).family() == ip(self.find('[^-]+$')).family())",message="must be an address, a range without blanks, or a CIDR: for example fd00::5, fd00::10-fd00::20 or fd00::/64"
	// +kubebuilder:validation:items:XValidation:rule=`!self.contains('-') || !isIP(self.find('^[^-/]+')) || !isIP(self.find('[^-]+$')) || ip(self.find('^[^-/]+')).family() != ip(self.find('[^-]+$')).family() || ip(self.find('^[^-/]+')) == ip(self.find('[^-]+$')) || [ip(self.find('[^-]+$'))].exists(last, [16 * size([0, 16, 32, 48, 64, 80, 96, 112].filter(n, (n < 32 || last.family() == 6) && cidr(self.find('^[^-/]+') + '/' + (n < 10 ? "" : n < 100 ? '0123456789'.substring(n / 10, n / 10 + 1) : '1' + '0123456789'.substring(n / 10 % 10, n / 10 % 10 + 1)) + '0123456789'.substring(n % 10, n % 10 + 1)).containsIP(last))) - 16].exists(group, [group - 1 + size([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15].filter(n, cidr(self.find('^[^-/]+') + '/' + ((group + n) < 10 ? "" : (group + n) < 100 ? '0123456789'.substring((group + n) / 10, (group + n) / 10 + 1) : '1' + '0123456789'.substring((group + n) / 10 % 10, (group + n) / 10 % 10 + 1)) + '0123456789'.substring((group + n) % 10, (group + n) % 10 + 1)).containsIP(last)))].exists(common, cidr(self.find('^[^-/]+') + '/' + (common < 10 ? "" : common < 100 ? '0123456789'.substring(common / 10, common / 10 + 1) : '1' + '0123456789'.substring(common / 10 % 10, common / 10 % 10 + 1)) + '0123456789'.substring(common % 10, common % 10 + 1)).masked().ip() == cidr(self.find('^[^-/]+') + '/' + ((common + 1) < 10 ? "" : (common + 1) < 100 ? '0123456789'.substring((common + 1) / 10, (common + 1) / 10 + 1) : '1' + '0123456789'.substring((common + 1) / 10 % 10, (common + 1) / 10 % 10 + 1)) + '0123456789'.substring((common + 1) % 10, (common + 1) % 10 + 1)).masked().ip())))`,message="the first address of a range must not be after its last one: swap them"
	// +kubebuilder:validation:items:XValidation:rule="!isIP(self.find('^[^-/]+')) || ip(self.find('^[^-/]+')).family() == 6",message="must be IPv6"
	ExcludedPrefixes []string `json:"excludedPrefixes,omitempty"`
}
