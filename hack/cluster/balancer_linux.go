package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

//go:embed haproxy.cfg
var haproxyConfig []byte

// behindBalancer is how many machines, of the lowest numbers, can be control planes. haproxy knows all of them from the start, and finds out which are.
const behindBalancer = 16

// balance runs haproxy, which hands connections to the API servers in turn. All machines use it, so that none depends on one control plane. The socket is
// the one on the host's loopback address.
func (c *cluster) balance(ctx context.Context, socket *os.File) error {
	config := fmt.Appendf(haproxyConfig, "\tbind %s\n", c.endpoint())
	for number := routerNumber + 1; number <= routerNumber+behindBalancer; number++ {
		config = fmt.Appendf(config, "\tserver machine%d %s\n", number, net.JoinHostPort(address4(number), strconv.Itoa(apiPort)))
	}
	path := filepath.Join(c.dir, routerCommand, "haproxy.cfg")
	if err := os.WriteFile(path, config, 0o644); err != nil {
		return err
	}
	haproxy := exec.CommandContext(ctx, "haproxy", "-db", "-f", path)
	haproxy.Stdout, haproxy.Stderr = os.Stdout, os.Stderr
	haproxy.ExtraFiles = []*os.File{socket} // which is its descriptor 3, as the configuration says
	return haproxy.Run()
}

// adminConfig is kubeadm's, which names the balancer.
func (c *cluster) adminConfig() (*rest.Config, error) {
	files, err := filepath.Glob(c.machine("*").disk("etc/kubernetes/admin.conf"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("no control plane has an admin.conf yet")
	}
	return clientcmd.BuildConfigFromFlags("", files[0])
}
