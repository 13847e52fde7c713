package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IPAddressClaim asks a pool for one address.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=cluster-api
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="app.kubernetes.io/managed-by=cluster-ipam-controller"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:printcolumn:name="Pool Name",type=string,JSONPath=`.spec.poolRef.name`,description="Name of the pool"
// +kubebuilder:printcolumn:name="Pool Kind",type=string,JSONPath=`.spec.poolRef.kind`,description="Kind of the pool"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the creation of the claim"
type IPAddressClaim struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec names the pool. It cannot be changed.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: create another IPAddressClaim"
	Spec IPAddressClaimSpec `json:"spec,omitzero"`

	// status names the address.
	// +optional
	Status IPAddressClaimStatus `json:"status,omitzero"`
}

// IPAddressClaimSpec names a pool.
type IPAddressClaimSpec struct {
	// clusterName is the Cluster of Cluster API that the address is for.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClusterName string `json:"clusterName,omitempty"`

	// poolRef names the pool to allocate an address from.
	// +required
	PoolRef IPPoolReference `json:"poolRef,omitzero"`
}

// IPPoolReference names a pool.
type IPPoolReference struct {
	// name of the pool. A pool with a namespace is in that of the claim.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name,omitempty"`

	// kind of the pool.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$`
	Kind string `json:"kind,omitempty"`

	// apiGroup of the pool, without a version.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	APIGroup string `json:"apiGroup,omitempty"`
}

// IPAddressClaimStatus is the observed state of an IPAddressClaim.
//
// +kubebuilder:validation:MinProperties=1
type IPAddressClaimStatus struct {
	// conditions: Ready is True once there is an address, and says otherwise why there is none.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// addressRef names the IPAddress.
	// +optional
	AddressRef IPAddressReference `json:"addressRef,omitzero"`
}

// IPAddressReference names an IPAddress in the namespace of its claim.
type IPAddressReference struct {
	// name of the IPAddress.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name,omitempty"`
}

// IPAddressClaimList is a list of IPAddressClaims.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type IPAddressClaimList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the IPAddressClaims.
	Items []IPAddressClaim `json:"items"`
}

// IPAddress is one allocated address. Its name and namespace are those of its claim.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ipaddresses,categories=cluster-api
// +kubebuilder:metadata:labels="app.kubernetes.io/managed-by=cluster-ipam-controller"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.address`,description="Address"
// +kubebuilder:printcolumn:name="Pool Name",type=string,JSONPath=`.spec.poolRef.name`,description="Name of the pool"
// +kubebuilder:printcolumn:name="Pool Kind",type=string,JSONPath=`.spec.poolRef.kind`,description="Kind of the pool"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the allocation"
type IPAddress struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the address. It cannot be changed.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed, because a machine may use the address: create another IPAddressClaim"
	Spec IPAddressSpec `json:"spec,omitzero"`
}

// IPAddressSpec is an address, and what a machine needs to use it.
type IPAddressSpec struct {
	// claimRef names the claim.
	// +required
	ClaimRef IPAddressClaimReference `json:"claimRef,omitzero"`

	// poolRef names the pool.
	// +required
	PoolRef IPPoolReference `json:"poolRef,omitzero"`

	// address is the address, without a prefix length.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self) || self.contains('%') || self.lowerAscii().contains('ffff:')",message="must be an address without a prefix length, for example 10.0.0.5 or fd00::5"
	Address string `json:"address,omitempty"`

	// prefix is the prefix length of the network.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	Prefix *int32 `json:"prefix,omitempty"`

	// gateway is the gateway of the network.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=39
	Gateway string `json:"gateway,omitempty"`
}

// IPAddressClaimReference names an IPAddressClaim in the namespace of its address.
type IPAddressClaimReference struct {
	// name of the IPAddressClaim.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name,omitempty"`
}

// IPAddressList is a list of IPAddresses.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type IPAddressList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the IPAddresses.
	Items []IPAddress `json:"items"`
}
