// local-cluster is the command behind `make run`, `make demo`, `make demo-cluster-ipam` and `make setup-test-env`: a control plane on loopback
// with our kube-controller-manager, the objects of examples/, and Nodes or machines that they serve; or with nothing but the CRDs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/multicidr/controller-manager/test/controlplane"
)

const usage = `usage: bin/local-cluster run|demo|cluster-ipam|env [flags]

  run   show Nodes and ClusterCIDRs until Ctrl-C
  demo  end as soon as every Node has podCIDRs or is pending
  cluster-ipam
        give clusters and their machines addresses, and end when every claim is answered
  env   a control plane with the CRDs only, until it is told to end; hack/test-env.sh runs it in the background

`

// binDir is what users type in front of a program: they are in the root of the module.
func binDir() string {
	root, _ := controlplane.ModuleRoot() // of which BinDir tells, too
	bin, err := controlplane.BinDir()
	if err == nil {
		bin, err = filepath.Rel(root, bin)
	}
	if err != nil {
		return "bin"
	}
	return bin
}

func main() {
	flags := flag.NewFlagSet("local-cluster", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	nodes := flags.Int("nodes", 12, "how many Nodes to register")
	timeout := flags.Duration("timeout", 2*time.Minute, "how long demo and cluster-ipam wait")
	dir := flags.String("dir", "", "where env keeps its files")
	if len(os.Args) < 2 || !slices.Contains([]string{"run", "demo", "cluster-ipam", "env"}, os.Args[1]) {
		flags.Usage()
		os.Exit(2)
	}
	_ = flags.Parse(os.Args[2:]) // ExitOnError
	if *nodes < 0 || flags.NArg() > 0 || (os.Args[1] == "env") != (*dir != "") {
		flags.Usage()
		os.Exit(2)
	}

	restore := takeTerminal()
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, release) // A second Ctrl-C ends us at once; the kernel then ends our children.
	var err error
	switch os.Args[1] {
	case "env":
		err = env(ctx, *dir)
	case "cluster-ipam":
		err = clusterIPAM(ctx, *timeout)
	default:
		err = cluster{nodes: *nodes, demo: os.Args[1] == "demo", timeout: *timeout}.run(ctx)
	}
	restore()
	if err != nil {
		fmt.Fprintln(os.Stderr, "local-cluster:", err)
		os.Exit(1)
	}
}

type cluster struct {
	nodes   int
	demo    bool
	timeout time.Duration
}

// run returns nil when it did what was asked: for run that is until ctx is done.
func (c cluster) run(ctx context.Context) (err error) {
	defer func() {
		if ctx.Err() != nil && !c.demo {
			err = nil // It was told to end, at whatever it was.
		}
	}()
	fmt.Println("starting etcd and kube-apiserver")
	cp, err := controlplane.Start(ctx, controlplane.Options{})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "logs are kept in %s\n", cp.LogDir())
			err = errors.Join(err, cp.StopKeepingLogs())
			return
		}
		fmt.Println("stopping")
		err = errors.Join(err, cp.Stop())
	}()

	fmt.Println("applying manifests/ and examples/")
	root, err := controlplane.ModuleRoot()
	if err != nil {
		return err
	}
	if err := cp.Apply(ctx, filepath.Join(root, "manifests/crds"), filepath.Join(root, "manifests/rbac"), filepath.Join(root, "examples")); err != nil {
		return err
	}
	fmt.Println("starting kube-controller-manager")
	manager, err := cp.StartManager(ctx, controlplane.ManagerOptions{Args: []string{
		"--leader-elect=true",
		"--controllers=*,multi-cidr-node-ipam-controller",
	}})
	if err != nil {
		return err
	}
	hints, err := waysIn(cp, manager)
	if err != nil {
		return err
	}
	fmt.Printf("registering %d Nodes\n", c.nodes)
	if err := registerNodes(ctx, cp.AdminConfig(), c.nodes); err != nil {
		return err
	}

	running, stop := untilEnded(ctx, map[string]*controlplane.Process{"etcd": cp.Etcd(), "kube-apiserver": cp.APIServer(), "kube-controller-manager": manager.Process})
	defer stop()
	if c.demo {
		return showUntilAllocated(running, cp.AdminConfig(), c.nodes, c.timeout)
	}
	return show(running, cp.AdminConfig(), hints)
}

// untilEnded returns a context that is also done, with an error as its cause, when one of the processes ends by itself.
func untilEnded(ctx context.Context, processes map[string]*controlplane.Process) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	for name, process := range processes {
		go func() {
			if _, err := process.Wait(ctx); err == nil {
				cancel(fmt.Errorf("%s ended by itself; its log is %s", name, process.LogPath()))
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}

// waysIn writes the credentials of an administrator to files and returns what to type to use them.
func waysIn(cp *controlplane.ControlPlane, manager *controlplane.Manager) (hints []string, err error) {
	config, err := cp.Config("admin", "system:masters")
	if err != nil {
		return nil, err
	}
	kubeconfig, err := cp.WriteKubeconfig("admin", config)
	if err != nil {
		return nil, err
	}
	// curl takes the certificate and its key from one file.
	if err := os.WriteFile(strings.TrimSuffix(kubeconfig, ".yaml")+".pem", slices.Concat(config.CertData, config.KeyData), 0o600); err != nil {
		return nil, err
	}
	bin := binDir()
	return []string{
		"export KUBECONFIG=" + kubeconfig,
		bin + "/kubectl get clustercidrs.networking.x-k8s.io",
		bin + "/kubectl-node_ipam status    # how full; map: where",
		bin + "/kubectl-node_ipam explain worker-01    # why these podCIDRs; who 10.245.0.17: whose address",
		bin + "/kubectl-node_ipam plan --nodes 300 --labels example.com/pool=edge    # what would happen",
		bin + "/kubectl-node_ipam debug --address=" + strings.TrimPrefix(manager.URL(), "https://") + "    # what the leader knows",
		`curl -kE ${KUBECONFIG%.yaml}.pem "` + manager.URL() + `/debug/controllers/multi-cidr-node-ipam-controller?format=json"`,
		"Ctrl-C stops everything.",
	}, nil
}
