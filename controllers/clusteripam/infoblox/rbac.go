package infoblox

// The controller's permissions. `make generate` writes them to manifests/clusteripam/rbac. Where the admission plugin
// OwnerReferencesPermissionEnforcement is on, an owner reference that blocks deletion takes update of the owner's finalizers. The credentials
// of InfobloxInstances are in Secrets of one namespace: see manifests/clusteripam/rbac/infoblox-secrets.yaml. What lies between a claim and its
// Machine is read for the host name in a dnsZone; of other infrastructure providers the claim says what to permit.
//
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=infobloxinstances,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=infobloxippools;ipaddressclaims,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=infobloxinstances/status;infobloxippools/status;ipaddressclaims/status,verbs=patch
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=infobloxippools/finalizers;ipaddressclaims/finalizers,verbs=update
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddresses,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3datas;metal3machines;vspheremachines;vspherevms,verbs=get
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
