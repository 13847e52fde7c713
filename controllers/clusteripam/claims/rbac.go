package claims

// The controller's permissions. `make generate` writes them to manifests/clusteripam/rbac. Where the admission plugin
// OwnerReferencesPermissionEnforcement is on, an owner reference that blocks deletion takes update of the owner's finalizers, and to adopt an
// object takes the permission to delete it. The Lease is that of k0rdent's own manager.
//
// +kubebuilder:rbac:groups=k0rdent.mirantis.com,resources=clusteripamclaims,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=k0rdent.mirantis.com,resources=clusteripamclaims/status,verbs=patch
// +kubebuilder:rbac:groups=k0rdent.mirantis.com,resources=clusteripamclaims/finalizers,verbs=update
// +kubebuilder:rbac:groups=k0rdent.mirantis.com,resources=clusteripams,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=k0rdent.mirantis.com,resources=clusteripams/status,verbs=patch
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=inclusterippools;infobloxippools,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=infobloxinstances,verbs=get;list;watch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=31c555b4.k0rdent.mirantis.com,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
