// Command preflight tells whether a cluster is ready for our kube-controller-manager, and for more than one Pod range. It changes nothing.
//
//	preflight [--kubeconfig=FILE] [-f FILE-OR-DIRECTORY]... [--cluster-cidr=...] [--service-cluster-ip-range=...]
//
// Ranges are the ClusterCIDRs of the cluster, those in the files, and --cluster-cidr: of the running kube-controller-manager's static Pods,
// or of the flag here where the manager is no Pod. It exits with 0 if all is well, 1 if there are warnings, 2 if there is a problem, and
// 3 if it could not find out.
//
// read.go asks the cluster, check.go judges and knows no client.
package main
