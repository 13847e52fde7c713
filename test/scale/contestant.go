package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// contestant is somebody who allocates podCIDRs, or addresses.
type contestant struct {
	name string
	qps  float64 // its own limit of requests per second; 0 is none
	// binary and args are of a kube-controller-manager; with workers it is the bare loop, which has so many.
	binary  string
	args    []string
	workers int
	alone   bool // node-ipam-controller
}

const (
	bare           = "bare"
	ours           = "ours"
	before         = "before"
	oursLimited    = "ours-limited"
	upstream       = "upstream"
	upstreamRaised = "upstream-raised"
)

// contestants in the order in which they run.
var contestants = []contestant{
	{name: bare, workers: loopWorkers},
	{name: ours, binary: "kube-controller-manager", args: []string{"--controllers=" + nodeipam.Name, noTakeoverDelay}},
	{name: before, binary: "before/kube-controller-manager", args: []string{"--controllers=" + nodeipam.Name}},
	{name: upstreamRaised, binary: "upstream/kube-controller-manager", args: slices.Concat(inTree, []string{"--kube-api-qps=10000", "--kube-api-burst=10000"})},
	{name: oursLimited, qps: 20, binary: "kube-controller-manager", args: []string{"--controllers=" + nodeipam.Name, noTakeoverDelay, "--node-ipam-kube-api-qps=20", "--node-ipam-kube-api-burst=30"}},
	{name: upstream, qps: 20, binary: "upstream/kube-controller-manager", args: inTree},
}

// noTakeoverDelay: the Nodes that have podCIDRs before the first manager starts were made by this program, and nobody else allocates.
const noTakeoverDelay = "--node-ipam-takeover-delay=0s"

// inTree is upstream's allocator and no other controller.
var inTree = []string{"--controllers=node-ipam-controller", "--allocate-node-cidrs", "--cluster-cidr=" + rangeCIDR, fmt.Sprintf("--node-cidr-mask-size=%d", maskLength)}

// pick returns those of these names, in the order of all: those of a scenario, or contestants.
func pick(names []string, all []contestant) ([]contestant, error) {
	if all == nil {
		all = contestants
	}
	var picked []contestant
	for _, c := range all {
		if slices.Contains(names, c.name) {
			picked = append(picked, c)
		}
	}
	if len(picked) != len(names) {
		var known []string
		for _, c := range all {
			known = append(known, c.name)
		}
		return nil, fmt.Errorf("there is an unknown contestant in %s: there are %s", strings.Join(names, ","), strings.Join(known, ", "))
	}
	return picked, nil
}

// contestantOf returns the contestant of this name.
func contestantOf(name string) contestant {
	return contestants[slices.IndexFunc(contestants, func(c contestant) bool { return c.name == name })]
}

// runner is a contestant's process.
type runner struct {
	*controlplane.Process
	manager *controlplane.Manager // nil for the bare loop
}

// start starts a contestant's process. A manager leads when it returns; a bare loop may still be starting.
func (c *cluster) start(ctx context.Context, who contestant) (*runner, error) {
	if who.workers > 0 {
		return c.startLoop(ctx, who.workers)
	}
	if who.alone {
		root, err := controlplane.ModuleRoot()
		if err != nil {
			return nil, err
		}
		if err := c.Apply(ctx, filepath.Join(root, "test/integration/standalone-rbac.yaml")); err != nil {
			return nil, err
		}
	}
	if who.name == before {
		if err := who.asItWas(ctx); err != nil {
			return nil, err
		}
	}
	manager, err := c.StartManager(ctx, controlplane.ManagerOptions{Alone: who.alone, Binary: who.binary, Name: who.name, Args: who.args})
	if err != nil {
		return nil, err
	}
	return &runner{manager.Process, manager}, manager.WaitLeading(ctx)
}

// asItWas adds the argument that ours has if that binary of an earlier commit knows it.
func (who *contestant) asItWas(ctx context.Context) error {
	help, err := exec.CommandContext(ctx, controlplane.Program(who.binary), "--help").Output()
	if err != nil {
		return fmt.Errorf("%w: %q is the kube-controller-manager of an earlier commit: build it there, and copy it to bin/%s", err, before, who.binary)
	}
	if flag, _, _ := strings.Cut(noTakeoverDelay, "="); strings.Contains(string(help), flag) {
		who.args = slices.Concat(who.args, []string{noTakeoverDelay})
	}
	return nil
}

// startLoop starts this program as the bare loop: a process of its own, like a manager, with a token of the service account that our
// controller has. A client certificate would cost the API server more: it verifies that anew for every request.
func (c *cluster) startLoop(ctx context.Context, workers int) (*runner, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	kubeconfig, err := c.Kubeconfig(controlplane.AloneUser)
	if err != nil {
		return nil, err
	}
	accounts := c.kube.CoreV1().ServiceAccounts(metav1.NamespaceSystem)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: nodeipam.Name}}
	if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	request, err := accounts.CreateToken(ctx, nodeipam.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	token := filepath.Join(c.Dir(), bare+".token")
	if err := os.WriteFile(token, []byte(request.Status.Token), 0o600); err != nil {
		return nil, err
	}
	process, err := controlplane.StartProcess(bare, filepath.Join(c.LogDir(), bare+".log"), self, loopCommand, kubeconfig, token, strconv.Itoa(workers))
	c.loop = process
	return &runner{Process: process}, err
}
