package v1beta1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterIPAMClaim asks for the addresses of one cluster. The controller creates a ClusterIPAM and a pool of the provider, both with the name
// of the claim and in its namespace, and reports in the status when the pool can give addresses.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="app.kubernetes.io/managed-by=cluster-ipam-controller"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move-hierarchy="
// +kubebuilder:printcolumn:name="bound",type=string,JSONPath=`.status.bound`,description="true: the pool can give addresses"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the creation of the claim"
type ClusterIPAMClaim struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which addresses, from which provider, for which cluster.
	// +optional
	Spec ClusterIPAMClaimSpec `json:"spec,omitzero"`

	// status is what the controller has observed.
	// +optional
	Status ClusterIPAMClaimStatus `json:"status,omitzero"`
}

// ClusterIPAMClaimSpec says which addresses, from which provider, for which cluster.
type ClusterIPAMClaimSpec struct {
	// provider gives the addresses: in-cluster (an InClusterIPPool) or ipam-infoblox (an InfobloxIPPool). Required.
	// +required
	// +kubebuilder:validation:Enum=in-cluster;ipam-infoblox
	Provider string `json:"provider"`

	// cluster is the name of the ClusterDeployment that the claim is for. Only that ClusterDeployment can refer to the claim. Once set it
	// cannot be changed.
	// +optional
	// +kubebuilder:validation:XValidation:rule="oldSelf == '' || self == oldSelf",message="Cluster reference is immutable once set"
	Cluster string `json:"cluster,omitempty"`

	// clusterIPAMRef is the name of the ClusterIPAM of this claim. The controller sets it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="oldSelf == '' || self == oldSelf",message="ClusterIPAM reference is immutable once set"
	ClusterIPAMRef string `json:"clusterIPAMRef,omitempty"`

	// nodeNetwork has the addresses of the machines.
	// +optional
	NodeNetwork AddressSpace `json:"nodeNetwork,omitzero"`

	// clusterNetwork is accepted and not used: nothing is allocated from it.
	// +optional
	ClusterNetwork AddressSpace `json:"clusterNetwork,omitzero"`

	// externalNetwork is accepted and not used: nothing is allocated from it.
	// +optional
	ExternalNetwork AddressSpace `json:"externalNetwork,omitzero"`
}

// AddressSpace is one network and the addresses in it that can be allocated. The API server accepts any text in its fields. The controller
// reports what is wrong in the condition InvalidClaimCondition.
type AddressSpace struct {
	// cidr is the network in CIDR notation, for example 192.168.1.0/24. All its addresses can be allocated, unless ipAddresses names some.
	// +optional
	CIDR string `json:"cidr,omitempty"`

	// gateway is the gateway of the network. It is not allocated.
	// +optional
	Gateway string `json:"gateway,omitempty"`

	// ipAddresses are single addresses. If there is at least one, only these are allocated, and cidr is not used.
	// +optional
	IPAddresses []string `json:"ipAddresses,omitempty"`

	// prefix is the prefix length that every machine configures with its address, for example 24. Without it, the prefix length of cidr is
	// used.
	// +optional
	Prefix int `json:"prefix,omitempty"`
}

// ClusterIPAMClaimStatus is the observed state of a ClusterIPAMClaim.
type ClusterIPAMClaimStatus struct {
	// conditions are InvalidClaimCondition, IPAMProviderConditionError, PoolWouldWiden and Warning, each only while there is such a problem.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// bound is true while the ClusterIPAM of the claim is Bound: its pool can give addresses.
	// +required
	// +default=false
	Bound bool `json:"bound"`
}

// ClusterIPAMClaimList is a list of ClusterIPAMClaims.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type ClusterIPAMClaimList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the ClusterIPAMClaims.
	Items []ClusterIPAMClaim `json:"items"`
}

// ClusterIPAM says which pool serves a ClusterIPAMClaim. The controller creates it, with the name of the claim.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="app.kubernetes.io/managed-by=cluster-ipam-controller"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move-hierarchy="
// +kubebuilder:printcolumn:name="phase",type=string,JSONPath=`.status.phase`,description="Pending, or Bound: the pool can give addresses"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the creation of the ClusterIPAM"
type ClusterIPAM struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec names the claim and its provider.
	// +optional
	Spec ClusterIPAMSpec `json:"spec,omitzero"`

	// status is what the controller has observed.
	// +optional
	Status ClusterIPAMStatus `json:"status,omitzero"`
}

// ClusterIPAMSpec names a claim and its provider.
type ClusterIPAMSpec struct {
	// provider is that of the claim.
	// +optional
	// +kubebuilder:validation:Enum=in-cluster;ipam-infoblox
	Provider string `json:"provider,omitempty"`

	// clusterIPAMClaimRef is the name of the claim. Once set it cannot be changed.
	// +optional
	// +kubebuilder:validation:XValidation:rule="oldSelf == '' || self == oldSelf",message="Claim reference is immutable once set"
	ClusterIPAMClaimRef string `json:"clusterIPAMClaimRef,omitempty"`
}

// ClusterIPAMStatus is the observed state of a ClusterIPAM.
type ClusterIPAMStatus struct {
	// phase is Pending, or Bound while the pool can give addresses.
	// +optional
	// +kubebuilder:validation:Enum=Pending;Bound
	Phase string `json:"phase,omitempty"`

	// providerData has one entry for each pool, which today is one.
	// +optional
	ProviderData []ProviderData `json:"providerData,omitempty"`
}

// ProviderData names one pool.
type ProviderData struct {
	// name is the key under which spec.config of the ClusterDeployment gets this entry: ipPool.
	// +optional
	Name string `json:"name,omitempty"`

	// config is what a machine template needs to ask the pool for an address: apiGroup, kind and name of the pool.
	// +optional
	Config *apiextensionsv1.JSON `json:"config,omitempty"`

	// ready is true while the pool can give addresses.
	// +optional
	Ready bool `json:"ready,omitempty"`
}

// ClusterIPAMList is a list of ClusterIPAMs.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type ClusterIPAMList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the ClusterIPAMs.
	Items []ClusterIPAM `json:"items"`
}

// ClusterDeployment is a cluster to create. Of k0rdent's ClusterDeployment this type has the fields that addresses depend on. Never write a whole
// one: the fields that it does not have would be lost.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=clusterd;cld
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="app.kubernetes.io/managed-by=cluster-ipam-controller"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move-hierarchy="
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the cluster is ready"
// +kubebuilder:printcolumn:name="Services",type=string,JSONPath=`.status.conditions[?(@.type=="ServicesInReadyState")].message`,description="Number of ready services"
// +kubebuilder:printcolumn:name="Template",type=string,JSONPath=`.spec.template`,description="Template of the cluster"
// +kubebuilder:printcolumn:name="Messages",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="Why the cluster is not ready"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the creation of the ClusterDeployment"
// +kubebuilder:printcolumn:name="DryRun",type=string,priority=1,JSONPath=`.spec.dryRun`,description="true: only checked, not created"
type ClusterDeployment struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the cluster to create.
	// +required
	Spec ClusterDeploymentSpec `json:"spec,omitzero"`

	// status is what controllers have observed.
	// +optional
	Status ClusterDeploymentStatus `json:"status,omitzero"`
}

// ClusterDeploymentSpec is the cluster to create. Fields that are not listed here are kept as they are.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ClusterDeploymentSpec struct {
	// template is the name of the ClusterTemplate. Required.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Template string `json:"template"`

	// credential is the name of the Credential with which the cluster is created.
	// +optional
	Credential string `json:"credential,omitempty"`

	// config has the values of the template. The controller adds ipamEnabled and ipPool once the claim is bound, and touches nothing else.
	// +optional
	Config *apiextensionsv1.JSON `json:"config,omitempty"`

	// dryRun is true if the cluster is only checked and not created. Its addresses are prepared all the same.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`

	// ipamClaim is the claim for the addresses of this cluster, by name or written out. Without it the controller leaves the object alone.
	// +optional
	IPAMClaim *ClusterDeploymentIPAMClaim `json:"ipamClaim,omitempty"`
}

// ClusterDeploymentIPAMClaim is a claim by name or written out. If both are set, spec wins.
type ClusterDeploymentIPAMClaim struct {
	// ref is the name of a ClusterIPAMClaim in the same namespace whose spec.cluster is the name of this ClusterDeployment. If spec is set, the
	// controller writes here the name of the claim that it has created.
	// +optional
	Ref string `json:"ref,omitempty"`

	// spec is a claim written out. The controller creates it, with the name of the ClusterDeployment and "-ipam".
	// +optional
	Spec *ClusterIPAMClaimSpec `json:"spec,omitempty"`
}

// ClusterDeploymentStatus is the observed state of a ClusterDeployment. Fields that are not listed here are kept as they are.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ClusterDeploymentStatus struct {
	// conditions describe the state of the cluster. The controller writes IPAMReady.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterDeploymentList is a list of ClusterDeployments.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type ClusterDeploymentList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the ClusterDeployments.
	Items []ClusterDeployment `json:"items"`
}
