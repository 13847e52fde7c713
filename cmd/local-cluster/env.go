package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// env is a control plane with the CRDs and nothing else, until ctx is done. Its files go to dir.
func env(ctx context.Context, dir string) (err error) {
	root, err := controlplane.ModuleRoot()
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	// A directory of somebody else may have files of the same names in it, an etcd's for instance.
	if found, err := os.ReadDir(dir); len(found) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--dir=%s must be a directory that does not exist or is empty: %w", dir, cmp.Or(err, fs.ErrExist))
	}
	fmt.Println("starting etcd and kube-apiserver")
	cp, err := controlplane.Start(ctx, controlplane.Options{Dir: dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cp.Stop()) }()
	if err := cp.Apply(ctx, filepath.Join(root, "manifests/crds")); err != nil {
		return err
	}
	kubeconfig, err := cp.Kubeconfig("admin", "system:masters")
	if err != nil {
		return err
	}
	fmt.Printf(`ready: a control plane with the CRDs and nothing that allocates

Use it:
  export KUBECONFIG=%[1]s
  %[2]s/kubectl apply -f examples/
  %[2]s/kubectl get clustercidrs.networking.x-k8s.io

Run the controller by hand, as an administrator and without leader election:
  %[2]s/node-ipam-controller --kubeconfig=%[1]s --enable-leader-election=false

End it:
  make teardown-test-env
`, kubeconfig, binDir())

	running, stop := untilEnded(ctx, map[string]*controlplane.Process{"etcd": cp.Etcd(), "kube-apiserver": cp.APIServer()})
	defer stop()
	<-running.Done()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(running)
}
