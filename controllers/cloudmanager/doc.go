// Package cloudmanager adds the multi-CIDR node IPAM controller to a cloud-controller-manager: any program made with k8s.io/cloud-provider/app.
// One line in its main function does it, see [Register].
//
//	register.go  the controller's name, flags and constructor
//	run.go       its Lease, the controller under it, and the port with health check and debug page
//
// Those programs elect a leader with client-go alone. A former leader may go on writing for a moment, and nothing outside of the election can
// know when its lease was last renewed. So the controller has a Lease of its own, with the fence of package lease. It takes part in that
// election once the program leads. A process that loses that Lease ends, as it does when it loses the program's.
package cloudmanager
