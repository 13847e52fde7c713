// Package standalone is the multi-CIDR node IPAM controller as a program of its own, for clusters whose kube-controller-manager
// cannot be replaced. Flags, environment and lease are those of kubernetes-sigs/node-ipam-controller, so that it takes that
// program's place.
//
//	command.go      the command line
//	options.go      flags, their environment variables, and the check of both
//	run.go          one process: serving, the leader lease, and the controller under it
//	health.go       what /healthz and /readyz say
//	serve.go        the plain HTTP server, and the HTTPS server behind authentication and authorization
//	bounded.go      how many connections they have
//
// The controller is package nodeipam and the fence is package lease, as in kube-controller-manager.
package standalone
