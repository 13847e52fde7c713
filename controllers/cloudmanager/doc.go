// Package cloudmanager adds the multi-CIDR node IPAM controller to a cloud-controller-manager: any program made with k8s.io/cloud-provider/app.
// One line in its main function does it, see [Register].
//
//	register.go  the controller's name, flags and constructor, and what is wrong with the flags
//	campaign.go  the Lease, and the controller under it
//	outer.go     the Lease around it: the program's, or the one of a leader migration
//	health.go    what health checks say, and the port with the debug page
//
// Those programs elect a leader with client-go alone. A former leader may go on writing for a moment, and nothing outside of the election can
// know when its lease was last renewed. So this controller has a Lease of its own, with the fence of package lease. It is nested: the
// controller leads only while the program does. The elector starts with the program, though, and follows the Lease, so that after the death of
// a leader both leases expire at the same time and not one after the other.
//
// The program ends when it loses its own lease. When it loses only that of this controller, it goes on, and the controller starts anew as if
// the process had: with another identity, another fence and another allocation state.
package cloudmanager
