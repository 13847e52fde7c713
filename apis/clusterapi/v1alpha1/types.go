package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// InfobloxInstance is an Infoblox server and the way to log in.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=cluster-api
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="app.kubernetes.io/managed-by=cluster-ipam-controller"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move-hierarchy="
// +kubebuilder:validation:XValidation:rule="has(self.spec)",message="spec is required: set spec.host, spec.wapiVersion and spec.credentialsSecretRef",reason=FieldValueRequired
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.spec.host`,description="Host of the server"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True: the server answers"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is ready or not"
type InfobloxInstance struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the server.
	// +optional
	Spec InfobloxInstanceSpec `json:"spec,omitzero"`

	// status is what the controller has observed.
	// +optional
	Status InfobloxInstanceStatus `json:"status,omitzero"`
}

// InfobloxInstanceSpec is an Infoblox server and the way to log in.
type InfobloxInstanceSpec struct {
	// host is the name or the address of the server, without a port.
	// +required
	Host string `json:"host"`

	// port of the server.
	// +optional
	// +kubebuilder:default="443"
	Port string `json:"port,omitempty"`

	// wapiVersion is the version of the WAPI to use, for example 2.12.
	// +required
	WAPIVersion string `json:"wapiVersion"`

	// credentialsSecretRef names the Secret with the credentials, in the namespace that the controller reads Secrets from.
	// +required
	CredentialsSecretRef SecretReference `json:"credentialsSecretRef"`

	// defaultNetworkView is the network view of the pools that name none.
	// +optional
	DefaultNetworkView string `json:"defaultNetworkView,omitempty"`

	// defaultDNSView is the DNS view of the pools that name none.
	// +optional
	DefaultDNSView string `json:"defaultDNSView,omitempty"`

	// disableTLSVerification accepts every certificate of the server. Do not use it where somebody can pretend to be the server.
	// +optional
	DisableTLSVerification bool `json:"disableTLSVerification,omitempty"`

	// customCAPath is a file with the certificates that sign the server's, on the machine of the controller. If it cannot be read, there is no
	// connection.
	// +optional
	CustomCAPath string `json:"customCAPath,omitempty"`
}

// SecretReference names a Secret.
type SecretReference struct {
	// name of the Secret. It has the keys username and password, or clientCert and clientKey.
	// +required
	Name string `json:"name"`
}

// InfobloxInstanceStatus is the observed state of an InfobloxInstance.
type InfobloxInstanceStatus struct {
	// conditions: Ready is True while the server answers.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// InfobloxInstanceList is a list of InfobloxInstances.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type InfobloxInstanceList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the InfobloxInstances.
	Items []InfobloxInstance `json:"items"`
}

// InfobloxIPPool is a pool of addresses that an Infoblox server allocates.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=cluster-api
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="app.kubernetes.io/managed-by=cluster-ipam-controller"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move-hierarchy="
// +kubebuilder:validation:XValidation:rule="has(self.spec)",message="spec is required: set spec.instance and spec.subnets",reason=FieldValueRequired
// +kubebuilder:printcolumn:name="Instance",type=string,JSONPath=`.spec.instance.name`,description="InfobloxInstance"
// +kubebuilder:printcolumn:name="Subnets",type=string,JSONPath=`.spec.subnets[*].cidr`,description="Networks to allocate from"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True: addresses can be allocated"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is ready or not"
type InfobloxIPPool struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which networks of which server.
	// +optional
	Spec InfobloxIPPoolSpec `json:"spec,omitzero"`

	// status is what the controller has observed.
	// +optional
	Status InfobloxIPPoolStatus `json:"status,omitzero"`
}

// InfobloxIPPoolSpec says which networks of which server.
type InfobloxIPPoolSpec struct {
	// instance names the InfobloxInstance.
	// +required
	InstanceRef InstanceReference `json:"instance"`

	// subnets are the networks. They are tried in this order.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Subnets []Subnet `json:"subnets"`

	// networkView of the networks. Without it, that of the InfobloxInstance.
	// +optional
	NetworkView string `json:"networkView,omitempty"`

	// dnsView of the host records. Without it, that of the InfobloxInstance.
	// +optional
	DNSView string `json:"dnsView,omitempty"`

	// dnsZone of the host records. Without it, they are not in the DNS.
	// +optional
	DNSZone string `json:"dnsZone,omitempty"`
}

// InstanceReference names an InfobloxInstance.
type InstanceReference struct {
	// name of the InfobloxInstance.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// Subnet is one network of an Infoblox server.
//
// +kubebuilder:validation:XValidation:rule=`!has(self.gateway) || self.gateway == "" || !isIP(self.gateway) || !isCIDR(self.cidr) || ip(self.gateway).family() == cidr(self.cidr).ip().family()`,fieldPath=".gateway",message="gateway and cidr are of different families: set the gateway of this network"
type Subnet struct {
	// cidr of the network, as it is written in Infoblox.
	// +required
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self) == cidr(self).masked()",message="must be a CIDR whose address is the first of the network, for example 10.0.0.0/24 or fd00::/64"
	CIDR string `json:"cidr"`

	// gateway of the network. Machines get it together with their address.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule=`self == "" || isIP(self)`,message="must be an address without a prefix length, for example 10.0.0.1 or fd00::1"
	Gateway string `json:"gateway,omitempty"`
}

// InfobloxIPPoolStatus is the observed state of an InfobloxIPPool.
type InfobloxIPPoolStatus struct {
	// conditions: Ready is True while addresses can be allocated.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// InfobloxIPPoolList is a list of InfobloxIPPools.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type InfobloxIPPoolList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the InfobloxIPPools.
	Items []InfobloxIPPool `json:"items"`
}
