// Package standalone is the multi-CIDR node IPAM controller as a separate program, for clusters whose kube-controller-manager
// cannot be replaced. It has the flags, the environment variables and the lease of kubernetes-sigs/node-ipam-controller, so that
// it can replace that program.
//
//	command.go      the command line
//	options.go      flags, their environment variables, and the check of both
//	run.go          one process: serving, the leader lease, and the controller under it
//	health.go       the checks behind /healthz and /readyz
//	serve.go        the HTTP server, and the HTTPS server with authentication and authorization
//	bounded.go      the limit on the connections of a server
//
// As in kube-controller-manager, the controller is package nodeipam and the fence is package lease.
package standalone
