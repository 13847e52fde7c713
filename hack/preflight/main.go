package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"

	"k8s.io/client-go/tools/clientcmd"
)

// exitUnknown is for a cluster that could not be read.
const exitUnknown = 3

func main() {
	kubeconfig := clientcmd.NewDefaultClientConfigLoadingRules()
	fs := pflag.NewFlagSet("preflight", pflag.ExitOnError)
	var given flags
	var files []string
	fs.StringVar(&kubeconfig.ExplicitPath, "kubeconfig", "", "the cluster to look at; without it KUBECONFIG, or ~/.kube/config. It has to read all Nodes, Pods, ConfigMaps of the network, Leases and Deployments")
	fs.StringSliceVarP(&files, "filename", "f", nil, "files or directories with ClusterCIDRs that you are going to apply")
	given.add(fs)
	_ = fs.Parse(os.Args[1:]) // ExitOnError
	os.Exit(run(kubeconfig, files, given, os.Stdout, os.Stderr))
}

func run(kubeconfig *clientcmd.ClientConfigLoadingRules, files []string, given flags, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := read(ctx, kubeconfig, files, given)
	if err != nil {
		fmt.Fprintln(stderr, "preflight:", err)
		return exitUnknown
	}
	worst := ok
	for _, f := range check(s) {
		fmt.Fprintln(stdout, f)
		worst = max(worst, f.level)
	}
	return int(worst)
}
