// Package v1beta1 is the API with which a management cluster asks for the addresses of whole clusters: a ClusterIPAMClaim names networks, a
// ClusterIPAM says which pool serves it, and a ClusterDeployment waits until the claim is bound.
//
// Group, version, kinds and fields are k0rdent's, so a manifest written for k0rdent applies unchanged, and the API server accepts and refuses
// the same ClusterIPAMClaims and ClusterIPAMs as with k0rdent's own CRDs. A ClusterDeployment has many more fields there. This one has those that
// addresses depend on, and keeps all others as they are.
//
// +k8s:deepcopy-gen=package
// +groupName=k0rdent.mirantis.com
package v1beta1
