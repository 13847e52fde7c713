// Package manager is kube-controller-manager with more named controllers in it.
//
// Kubernetes has no way to add a controller to its own kube-controller-manager: app.ControllerDescriptor has unexported
// fields only, and app.Run takes no descriptors. It does export nearly everything Run is made of, so this package puts the
// exported pieces together again, adds the controllers given as Descriptor, and writes only what is not exported:
//
//	command.go     the command line: upstream's flags and checks, and those of the added controllers
//	roster.go      which controllers exist, and what --controllers makes of them
//	run.go         one process: serving, clients, and running a set of controllers
//	election.go    which set runs under which leader lease
//	token.go       the service account token controller, whose upstream descriptor only works inside upstream's Run
//	descriptor.go  what an added controller is
//	guard.go       how an added controller is kept from hurting the others, and is built anew when it has ended by itself
//	health.go      how its health is shown without restarting the control plane
//	nodeipam.go    the multi-CIDR node IPAM controller as a Descriptor
//
// With no added controller enabled the process behaves as upstream's. The parity test compares the two on real processes;
// staging-patches holds the change to Kubernetes that would make run.go, election.go and token.go unnecessary.
package manager
