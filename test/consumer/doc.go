// Package consumer tests our pools of addresses with a consumer that others have written: Cluster API's core manager and its vSphere provider,
// both released programs, on a real kube-apiserver, with govmomi's simulator as the vCenter. Machines ask for addresses, our controller
// allocates them, and they arrive in the network configuration of the virtual machines.
//
// `make consumer` builds the programs and runs the test. It is a module of its own, so that what it needs stays out of the go.mod of the
// controller manager; the programs have another one, in the directory programs, because they are built with another Kubernetes.
package consumer
