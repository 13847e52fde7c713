// Package standalone has programs with controllers of this project alone, for clusters whose kube-controller-manager cannot be replaced:
//
//	nodeipam.go     node-ipam-controller, with the multi-CIDR node IPAM controller. It has the flags, the environment variables and the
//	                lease of kubernetes-sigs/node-ipam-controller, so that it can replace that program.
//	clusteripam.go  cluster-ipam-controller, with the controllers of Cluster IPAM
//	program.go      what makes one program differ from another
//
// What they have in common:
//
//	command.go  the command line
//	options.go  flags, their environment variables, and the check of both
//	run.go      one process: serving, the leader lease, and the controllers under it
//	health.go   the checks behind /healthz and /readyz
//	serve.go    the HTTP server, and the HTTPS server with authentication and authorization
package standalone
