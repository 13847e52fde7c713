// Command preflight tells whether a cluster is ready for the controller, and for more than one Pod range. It changes nothing.
//
//	preflight [--form=FORM] [--kubeconfig=FILE] [-f FILE-OR-DIRECTORY]... [--cluster-cidr=...] [--service-cluster-ip-range=...]
//
// FORM is kube-controller-manager or node-ipam-controller: where the controller runs, or is going to run. The two need different versions
// of the API server and different permissions, and each is a second writer beside the other. Without the flag it is node-ipam-controller
// if a Deployment runs that, else kube-controller-manager.
//
// Ranges are the ClusterCIDRs of the cluster, those in the files, and --cluster-cidr: of the running kube-controller-manager's static Pods,
// or of the flag here where the manager is no Pod. It exits with 0 if all is well, 1 if there are warnings, 2 if there is a problem,
// 3 if it could not read the cluster or a file, or a file has a mistake, and 64 if a flag is wrong.
//
// read.go asks the cluster and files.go reads files; check.go judges and knows no client. commandline.go understands the flags of Pods.
package main
