package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/multicidr/controller-manager/controllers/build"
)

// Exit codes besides the levels.
const (
	exitUnknown = 3  // the cluster could not be read
	exitUsage   = 64 // the command line is wrong; EX_USAGE of sysexits.h
)

func main() { os.Exit(command(os.Args[1:], os.Stdout, os.Stderr)) }

// command is the whole program.
func command(args []string, stdout, stderr io.Writer) int {
	kubeconfig := clientcmd.NewDefaultClientConfigLoadingRules()
	fs := pflag.NewFlagSet("preflight", pflag.ContinueOnError)
	fs.SetOutput(stderr)
	var given flags
	var files []string
	var form string
	var version bool
	fs.StringVar(&kubeconfig.ExplicitPath, "kubeconfig", "", "the cluster to look at; without it KUBECONFIG, or ~/.kube/config. It has to read all Nodes, Pods, ConfigMaps of the network, Leases, Deployments and ClusterRoleBindings")
	fs.StringSliceVarP(&files, "filename", "f", nil, "files or directories, with all in them, that have ClusterCIDRs which you are going to apply, in lists or not. Other objects in them are passed over")
	fs.StringVar(&form, "form", "", fmt.Sprintf("the form of the controller that you use or are going to use: %s or %s. Without it the second if a Deployment runs it, else the first", manager, peer))
	fs.BoolVar(&version, "version", false, "print the version and quit")
	given.add(fs)
	switch err := fs.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return int(ok)
	case err != nil:
		fmt.Fprintf(stderr, "preflight: %v. `preflight --help` shows all flags.\n", err)
		return exitUsage
	case version:
		build.Print(stdout, "true")
		return int(ok)
	case fs.NArg() > 0:
		fmt.Fprintf(stderr, "preflight: %q is no flag. Name files with -f.\n", fs.Arg(0))
		return exitUsage
	case !slices.Contains([]string{"", manager, peer}, form):
		fmt.Fprintf(stderr, "preflight: --form=%s: there is no such form. Use %s or %s.\n", form, manager, peer)
		return exitUsage
	}
	return run(kubeconfig, files, given, form, stdout, stderr)
}

func run(kubeconfig *clientcmd.ClientConfigLoadingRules, files []string, given flags, form string, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := read(ctx, kubeconfig, files, given)
	if err != nil {
		fmt.Fprintln(stderr, "preflight:", err)
		return exitUnknown
	}
	s.form = form
	worst := ok
	for _, f := range check(ctx, s) {
		fmt.Fprintln(stdout, f)
		worst = max(worst, f.level)
	}
	return int(worst)
}
