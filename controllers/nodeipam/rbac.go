package nodeipam

// What the controller may do. `make generate` writes these lines to manifests/rbac/role.yaml.
//
// The finalizers subresource is for clusters that enforce blockOwnerDeletion; create is for the ClusterCIDR that
// stands for --cluster-cidr.
//
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=networking.x-k8s.io,resources=clustercidrs,verbs=create;get;list;watch;patch;update
// +kubebuilder:rbac:groups=networking.x-k8s.io,resources=clustercidrs/status,verbs=patch
// +kubebuilder:rbac:groups=networking.x-k8s.io,resources=clustercidrs/finalizers,verbs=update
// +kubebuilder:rbac:groups=networking.k8s.io,resources=servicecidrs,verbs=get;list;watch
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch
