package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, release) // A second Ctrl-C ends us at once.
	err := command().ExecuteContext(ctx)
	// The exit code of exec's command is ours, and it has said itself what was wrong.
	if exit := (ended{}); errors.As(err, &exit) && exit.Exited() {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// ended is how the command of exec has ended. Other commands of ours that fail are errors.
type ended struct{ *exec.ExitError }

func command() *cobra.Command {
	var dir string
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "A real kubeadm cluster in namespaces of this host",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	bin := "bin"
	if executable, err := os.Executable(); err == nil {
		bin = filepath.Dir(executable)
	}
	root.PersistentFlags().StringVar(&dir, "dir", filepath.Join(bin, "cluster-state"), "where the cluster's disks, logs and kubeconfig are")
	root.PersistentFlags().StringVar(&bin, "bin", bin, "the directory in which make cluster-tools has built everything")

	// with opens the cluster for a command.
	with := func(run func(ctx context.Context, c *cluster, args []string) error) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, args []string) error {
			c, err := openCluster(dir, bin)
			if err != nil {
				return err
			}
			return run(cmd.Context(), c, args)
		}
	}

	var up upOptions
	upCommand := &cobra.Command{
		Use: "up", Short: "Start control planes and workers, and wait until all Nodes are ready", Args: cobra.NoArgs,
		RunE: with(func(ctx context.Context, c *cluster, _ []string) error { return c.up(ctx, up) }),
	}
	upCommand.Flags().IntVar(&up.controlPlanes, "control-planes", 1, "how many control planes, each with a member of etcd; 3 survive the loss of one")
	upCommand.Flags().IntVar(&up.workers, "workers", 2, "how many workers to join")
	upCommand.Flags().StringVar(&up.config, "config", "", "kubeadm's configuration; what this host needs is added (default: a dual-stack cluster with the stock kube-controller-manager)")
	upCommand.Flags().StringVar(&up.patches, "patches", "", "directory with kubeadm's patches for the static Pods")
	upCommand.Flags().StringToStringVar(&up.files, "file", nil, "one more file for each control plane before kubeadm runs, as PATH-THERE=FILE")
	upCommand.Flags().StringSliceVar(&up.apply, "apply", nil, "objects to apply as soon as the API server answers: files or directories")
	upCommand.Flags().StringSliceVar(&up.images, "image", nil, "one more image for every machine: an archive, or NAME=PROGRAM for an image of one static program")

	upCommand.Flags().BoolVar(&up.podNetwork, "pod-network", true, "give machines a CNI configuration and routes to each other's podCIDRs; without, it takes a network plugin among --apply until Nodes are ready")

	var join joinOptions
	joinCommand := &cobra.Command{
		Use: "join NAME", Short: "Add a worker or a control plane; returns when kubeadm join has", Args: cobra.ExactArgs(1),
		RunE: with(func(ctx context.Context, c *cluster, args []string) error { return c.join(ctx, args[0], join) }),
	}
	joinCommand.Flags().StringVar(&join.labels, "labels", "", "labels that the kubelet registers the Node with, as key=value,...")

	joinCommand.Flags().BoolVar(&join.controlPlane, "control-plane", false, "add a control plane, with a member of etcd; only one at a time")

	installCommand := &cobra.Command{
		Use: "install MACHINE PROGRAM...", Short: "Replace programs of a machine, kubeadm, kubectl or kubelet, by those of --bin", Args: cobra.MinimumNArgs(2),
		Long: `Replace programs of a machine by those of --bin, as its package manager would do for an upgrade.

Pods run on. With kubelet, the new one is started. With kubeadm, a control plane also gets the images that this kubeadm names, since there is
nowhere to pull them from.`,
		RunE: with(func(ctx context.Context, c *cluster, args []string) error { return c.install(ctx, args[0], args[1:]) }),
	}

	execCommand := &cobra.Command{
		Use: "exec MACHINE -- COMMAND...", Short: "Run a command on a machine", Args: cobra.MinimumNArgs(2),
		RunE: with(func(ctx context.Context, c *cluster, args []string) error {
			cmd, err := c.machine(args[0]).command(ctx, args[1:]...)
			if err != nil {
				return err
			}
			cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
			err = cmd.Run()
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				return ended{exit}
			}
			return err
		}),
	}
	one := func(use, short string, run func(*cluster, context.Context, string) error) *cobra.Command {
		return &cobra.Command{
			Use: use, Short: short, Args: cobra.ExactArgs(1),
			RunE: with(func(ctx context.Context, c *cluster, args []string) error { return run(c, ctx, args[0]) }),
		}
	}
	var routes bool
	routeCommand := &cobra.Command{
		Use: routerCommand, Hidden: true, Args: cobra.NoArgs, // What up starts in the router's namespace.
		RunE: with(func(ctx context.Context, c *cluster, _ []string) error { return c.route(ctx, routes) }),
	}
	routeCommand.Flags().BoolVar(&routes, "pod-network", true, "")
	root.AddCommand(
		upCommand, joinCommand, installCommand, execCommand,
		one("kill MACHINE", "Pull a machine's plug; its disk stays, and reboot boots it again", (*cluster).kill),
		one("cut MACHINE", "Take a machine off the network; it runs on", (*cluster).cut),
		one("mend MACHINE", "Undo cut", (*cluster).mend),
		one("reboot MACHINE", "Boot a machine from its disk; pull its plug before, if it runs", (*cluster).reboot),
		one("remove MACHINE", "End a machine and remove its disk; its Node object is left to you", (*cluster).remove),
		&cobra.Command{
			Use: "down", Short: "End the cluster, in whatever state it is, and remove --dir", Args: cobra.NoArgs,
			Long: `End the cluster, in whatever state it is, and remove --dir, if up has made it.

Three things stay, since others on this host may use them by now: kernel modules that the kernel has loaded by itself (bridge, veth,
overlay, those of iptables), with cgroup v2 the controllers that up has enabled in /sys/fs/cgroup/cgroup.subtree_control, and Debian
packages that make has installed, which it names when it does.`,
			RunE: with(func(ctx context.Context, c *cluster, _ []string) error { return c.down(ctx) }),
		},
		routeCommand,
	)
	return root
}
