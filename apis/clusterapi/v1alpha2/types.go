package v1alpha2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// InClusterIPPool is a pool of addresses for IPAddressClaims in its namespace.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=cluster-api
// +kubebuilder:subresource:status
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
type InClusterIPPoolSpec struct {
	// addresses can be allocated. Each entry is one address, a range such as 10.0.0.10-10.0.0.20, or a CIDR. All are in one subnet.
	// +required
	Addresses []string `json:"addresses"`

	// prefix is the prefix length of the subnet. Machines get it together with their address.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	Prefix int `json:"prefix"`

	// gateway of the subnet. Machines get it together with their address. It is not allocated.
	// +optional
	Gateway string `json:"gateway,omitempty"`

	// allocateReservedIPAddresses allows to allocate the reserved addresses of the subnet: the first address, and the last one if it is IPv4.
	// +optional
	AllocateReservedIPAddresses bool `json:"allocateReservedIPAddresses,omitempty"`

	// excludedAddresses are not allocated. The entries are written like those of addresses.
	// +optional
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
