package nodeipam

// What the controller may do. `make generate` writes these lines to manifests/rbac/role.yaml. create and delete are for the
// ClusterCIDR that stands for --cluster-cidr.
//
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=networking.x-k8s.io,resources=clustercidrs,verbs=create;delete;get;list;watch;patch
// +kubebuilder:rbac:groups=networking.x-k8s.io,resources=clustercidrs/status,verbs=patch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=servicecidrs,verbs=get;list;watch
