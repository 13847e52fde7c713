package gate

// The controller's permissions. `make generate` writes them to manifests/clusteripam/rbac. The Lease is that of k0rdent's own manager.
//
// +kubebuilder:rbac:groups=k0rdent.mirantis.com,resources=clusterdeployments,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=k0rdent.mirantis.com,resources=clusterdeployments/status,verbs=patch
// +kubebuilder:rbac:groups=k0rdent.mirantis.com,resources=clusteripamclaims,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=k0rdent.mirantis.com,resources=clusteripams,verbs=get;list;watch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=31c555b4.k0rdent.mirantis.com,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
