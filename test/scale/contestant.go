package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// contestant is somebody who allocates podCIDRs, or addresses: one of our programs, another one that is started in the same way, or with loop this
// program as the least that can do the work.
type contestant struct {
	name, binary string
	args         []string
	loop         string // the command of this program
	alone        bool   // the binary is no kube-controller-manager
	foreign      bool   // nor does it have the flags of our programs
}

const (
	bare            = "bare"
	ours            = "ours"
	before          = "before" // ours of an earlier commit: build it there, and copy it to bin/before/kube-controller-manager
	upstream        = "upstream"
	upstreamLimited = "upstream-limited"
	original        = "original"
)

var (
	// ourNodes: the Nodes that have podCIDRs before the first manager starts were made by this program, and nobody else allocates.
	ourNodes = []string{"--controllers=" + nodeipam.Name, "--node-ipam-takeover-delay=0s"}
	// inTree is upstream's allocator and no other controller. Its own limit is 20 requests a second.
	inTree = []string{"--controllers=node-ipam-controller", "--allocate-node-cidrs", "--cluster-cidr=" + rangeCIDR, fmt.Sprintf("--node-cidr-mask-size=%d", maskLength)}

	nodeAllocators = []contestant{
		{name: bare, loop: nodeLoop},
		{name: ours, binary: "kube-controller-manager", args: ourNodes},
		{name: before, binary: "before/kube-controller-manager", args: ourNodes},
		{name: upstream, binary: "upstream/kube-controller-manager", args: slices.Concat(inTree, []string{"--kube-api-qps=10000", "--kube-api-burst=10000"})},
		{name: upstreamLimited, binary: "upstream/kube-controller-manager", args: inTree},
	}
	addressAllocators = []contestant{
		{name: bare, loop: addressLoop},
		{name: ours, binary: "cluster-ipam-controller", alone: true, args: []string{"--controllers=in-cluster-ip-pool-controller"}},
		{name: original, binary: "original/cluster-api-ipam-provider-in-cluster", foreign: true,
			args: []string{"--webhook-port=0", "--health-probe-bind-address=0", "--insecure-diagnostics", "--diagnostics-address=0"}},
	}
	binders = []contestant{
		{name: ours, binary: "cluster-ipam-controller", alone: true, args: []string{"--controllers=cluster-ipam-controller,cluster-deployment-ipam-controller,in-cluster-ip-pool-controller"}},
	}
)

// addressUser is who allocates addresses, with all permissions.
const addressUser = "scale-allocator"

// start starts a contestant's process. A manager leads when it returns; others may still be starting.
func (c *cluster) start(ctx context.Context, who contestant) (*controlplane.Process, error) {
	user, groups := "", []string{"system:masters"}
	switch {
	case who.loop == nodeLoop:
		user, groups = controlplane.AloneUser, nil
	case who.alone, who.foreign, who.loop != "":
		user = addressUser
	}
	kubeconfig := ""
	if user != "" {
		var err error
		if kubeconfig, err = c.Kubeconfig(user, groups...); err != nil {
			return nil, err
		}
	}
	if who.loop != "" || who.foreign {
		return c.startOther(ctx, who, kubeconfig)
	}
	manager, err := c.StartManager(ctx, controlplane.ManagerOptions{Alone: who.alone, Name: who.name, Binary: who.binary, Kubeconfig: kubeconfig, Args: who.args})
	if err != nil {
		return nil, err
	}
	return manager.Process, manager.WaitLeading(ctx)
}

// startOther starts what the control plane does not know and stop.
func (c *cluster) startOther(ctx context.Context, who contestant, kubeconfig string) (*controlplane.Process, error) {
	binary, args := controlplane.Program(who.binary), append([]string{"--kubeconfig=" + kubeconfig}, who.args...)
	if who.loop != "" {
		token, err := c.token(ctx, who)
		if err != nil {
			return nil, err
		}
		if binary, err = os.Executable(); err != nil {
			return nil, err
		}
		args = []string{who.loop, kubeconfig, token}
	}
	process, err := controlplane.StartProcess(who.name, filepath.Join(c.LogDir(), who.name+".log"), binary, args...)
	if err == nil {
		c.others = append(c.others, process)
	}
	return process, err
}

// token is a file with a token of the service account that our controller has, for the bare loop of Nodes: the API server verifies a
// client certificate at every request, which costs more. It is empty for others.
func (c *cluster) token(ctx context.Context, who contestant) (path string, err error) {
	if who.loop != nodeLoop {
		return "", nil
	}
	accounts := c.kube.CoreV1().ServiceAccounts(metav1.NamespaceSystem)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: nodeipam.Name}}
	if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", err
	}
	request, err := accounts.CreateToken(ctx, nodeipam.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	path = filepath.Join(c.Dir(), "loop.token")
	return path, os.WriteFile(path, []byte(request.Status.Token), 0o600)
}
