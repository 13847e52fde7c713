// Command preflight checks whether a cluster is ready for the controller, and for more than one Pod range. It changes nothing.
//
//	preflight [--form=FORM] [--kubeconfig=FILE] [-f FILE-OR-DIRECTORY]... [--cluster-cidr=...] [--service-cluster-ip-range=...]
//
// FORM is the program in which the controller runs or is going to run: kube-controller-manager or node-ipam-controller. The two need
// different versions of the API server and different permissions, and each is a second writer beside the other. The default is
// node-ipam-controller if a Deployment runs it, otherwise kube-controller-manager.
//
// The ranges are those of the cluster's ClusterCIDRs, of the ClusterCIDRs in the files, and of --cluster-cidr. That flag is read from the
// kube-controller-manager's static Pods; if it does not run as a Pod, set the flag here.
//
// Exit codes: 0 if all is well, 1 if there are warnings, 2 if there is a problem, 3 if the cluster or a file cannot be read or a file has
// an error, and 64 if a flag is wrong.
//
// `kubectl node-ipam check` is the same check in the plugin for kubectl.
package main

import (
	"context"
	"os"
	"time"

	"github.com/multicidr/controller-manager/cmd/internal/preflight"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	code := preflight.Command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	os.Exit(code)
}
