package main

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	corev1 "k8s.io/api/core/v1"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
)

const (
	// inTree is the controller of kube-controller-manager that allocates podCIDRs.
	inTree = names.NodeIpamController
	// alias is the other name of our controller in --controllers.
	alias = "multicidrnodeipam"
)

// aliases are the names in --controllers that mean an allocator, beside its full name. They are written here, and compared in a test, because
// the packages that have them are the whole kube-controller-manager.
var aliases = map[string]string{alias: nodeipam.Name, "nodeipam": inTree}

// flags are those of a kube-controller-manager that say which ranges there are.
type flags struct{ fromflags.Flags }

func (f *flags) add(fs *pflag.FlagSet) {
	fs.BoolVar(&f.Allocate, "allocate-node-cidrs", false, "as of kube-controller-manager, where it is no Pod of kube-system")
	fs.StringVar(&f.ClusterCIDR, "cluster-cidr", "", "the same")
	fs.StringVar(&f.ServiceRange, "service-cluster-ip-range", "", "the same")
	fs.Int32Var(&f.NodeMaskSize, "node-cidr-mask-size", 0, "the same")
	fs.Int32Var(&f.NodeMaskSizeIPv4, "node-cidr-mask-size-ipv4", 0, "the same")
	fs.Int32Var(&f.NodeMaskSizeIPv6, "node-cidr-mask-size-ipv6", 0, "the same")
}

// commandLine is what a program with the flags of kube-controller-manager is started with.
type commandLine struct {
	flags
	accounts    bool     // --use-service-account-credentials
	controllers []string // --controllers, with full names for aliases of allocators
}

// commandLineOf reads the command line of a container as the program does. It cannot know the flags that it does not ask for, so it passes them
// over.
func commandLineOf(c corev1.Container) (commandLine, error) {
	var l commandLine
	fs := pflag.NewFlagSet(c.Name, pflag.ContinueOnError)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	fs.SetOutput(io.Discard)
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc) // --allocate_node_cidrs, too
	l.add(fs)
	fs.BoolVar(&l.accounts, "use-service-account-credentials", false, "")
	fs.StringSliceVar(&l.controllers, "controllers", []string{"*"}, "")
	err := fs.Parse(slices.Concat(c.Command, c.Args))
	for i, entry := range l.controllers {
		// With a space the program does not start. When somebody has taken the space out, the entry counts.
		name, off := strings.CutPrefix(strings.TrimSpace(entry), "-")
		if full, ok := aliases[name]; ok {
			name = full
		}
		if off {
			name = "-" + name
		}
		l.controllers[i] = name
	}
	return l, err
}

// commandLinesOf are those of a Pod's containers that can be read. managerFlags reports the others.
func commandLinesOf(pod corev1.PodSpec) (all []commandLine) {
	for _, c := range pod.Containers {
		if l, err := commandLineOf(c); err == nil {
			all = append(all, l)
		}
	}
	return all
}

// enables reports whether --controllers turns a controller on, which "*" does if byDefault is true. The first mention decides, as in
// kube-controller-manager.
func (l commandLine) enables(controller string, byDefault bool) bool {
	for _, entry := range l.controllers {
		if entry == controller || entry == "-"+controller {
			return entry == controller
		}
	}
	return byDefault && slices.Contains(l.controllers, "*")
}

// runsOurs reports whether our controller is on.
func (l commandLine) runsOurs() bool { return l.enables(nodeipam.Name, false) }
