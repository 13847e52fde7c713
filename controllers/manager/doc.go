// Package manager is kube-controller-manager with more controllers in it.
//
// Kubernetes has no way to add a controller to its kube-controller-manager: all fields of app.ControllerDescriptor are unexported, and
// app.Run takes no descriptors. But Kubernetes exports nearly all parts of Run. So this package puts the exported parts together again,
// adds the controllers given as Descriptor, and contains only what is not exported:
//
//	command.go     the command line: upstream's flags and checks, and those of the added controllers
//	config.go      --config, a file with values of flags
//	roster.go      which controllers exist, and which of them --controllers enables
//	run.go         one process: serving, clients, and running a set of controllers
//	election.go    which set runs under which leader lease
//	token.go       the service account token controller, whose upstream descriptor works only inside upstream's Run
//	descriptor.go  the definition of an added controller
//	guard.go       isolates the other controllers from an added one that cannot be built
//	health.go      shows the health of an added controller without a restart of the control plane
//	nodeipam.go    the multi-CIDR node IPAM controller as a Descriptor
//
// If no added controller is enabled, the process behaves as upstream's. The parity test compares the two as real processes. staging-patches
// has the change to Kubernetes that would make run.go, election.go and token.go unnecessary.
package manager
