package v1alpha1

import "k8s.io/apimachinery/pkg/runtime/schema"

// GroupName is the API group of this package.
const GroupName = "ipam.cluster.x-k8s.io"

// GroupVersion is the group and version of every type in this package.
var GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

// Kinds of this package.
const (
	KindInfobloxInstance = "InfobloxInstance"
	KindInfobloxIPPool   = "InfobloxIPPool"
)

// Keys of the Secret with the credentials of an InfobloxInstance: a name with a password, or a certificate with its key.
const (
	SecretUsername          = "username"
	SecretPassword          = "password"
	SecretClientCertificate = "clientCert"
	SecretClientKey         = "clientKey"
)

// AnnotationHostname on an IPAddressClaim is the name of its host record in Infoblox. Who sets none gets one from the controller.
const AnnotationHostname = "ipam.cluster.x-k8s.io/hostname"

// ConditionReady is True while the InfobloxInstance answers, or while addresses can be allocated from the InfobloxIPPool.
const ConditionReady = "Ready"

// Reasons of ConditionReady.
const (
	// ReasonConfigurationValid (True): the InfobloxInstance answers, and its views exist.
	ReasonConfigurationValid = "ConfigurationValid"
	// ReasonReady (True): the networks of the InfobloxIPPool exist.
	ReasonReady = "Ready"
	// ReasonAuthenticationFailed (False): Infoblox cannot be reached, or refuses the credentials.
	ReasonAuthenticationFailed = "AuthenticationFailed"
	// ReasonNetworkViewNotFound (False): there is no such network view.
	ReasonNetworkViewNotFound = "NetworkViewNotFound"
	// ReasonDNSViewNotFound (False): there is no such DNS view.
	ReasonDNSViewNotFound = "DNSViewNotFound"
	// ReasonNetworkNotFound (False): a subnet of the InfobloxIPPool is no network in the network view.
	ReasonNetworkNotFound = "NetworkNotFound"
)
