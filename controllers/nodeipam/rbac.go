package nodeipam

// The controller's permissions. `make generate` writes them to manifests/rbac/role.yaml. Events about Nodes and ClusterCIDRs, which have no
// namespace, are in the namespace default. --cluster-cidr needs more permissions: see manifests/rbac/cluster-cidr-flag.yaml.
//
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",namespace=default,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=networking.x-k8s.io,resources=clustercidrs,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=networking.x-k8s.io,resources=clustercidrs/status,verbs=patch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=servicecidrs,verbs=get;list;watch
