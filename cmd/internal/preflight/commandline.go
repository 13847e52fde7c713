package preflight

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
	// inTree is the name of kube-controller-manager's own controller that allocates podCIDRs.
	inTree = names.NodeIpamController
	// alias is this controller's other name in --controllers.
	alias = "multicidrnodeipam"
)

// aliases are the alternative names of allocators in --controllers. They are copied here, and a test compares them, because importing them
// would mean importing all of kube-controller-manager.
var aliases = map[string]string{alias: nodeipam.Name, "nodeipam": inTree}

// flags are the flags of a kube-controller-manager that determine its ranges.
type flags struct{ fromflags.Flags }

func (f *flags) add(fs *pflag.FlagSet) {
	fs.BoolVar(&f.Allocate, "allocate-node-cidrs", false, "as of kube-controller-manager, where it is no Pod of kube-system")
	fs.StringVar(&f.ClusterCIDR, "cluster-cidr", "", "the same")
	fs.StringVar(&f.ServiceRange, "service-cluster-ip-range", "", "the same")
	fs.Int32Var(&f.NodeMaskSize, "node-cidr-mask-size", 0, "the same")
	fs.Int32Var(&f.NodeMaskSizeIPv4, "node-cidr-mask-size-ipv4", 0, "the same")
	fs.Int32Var(&f.NodeMaskSizeIPv6, "node-cidr-mask-size-ipv6", 0, "the same")
}

// commandLine is the command line of a program with kube-controller-manager's flags.
type commandLine struct {
	flags
	accounts    bool     // --use-service-account-credentials
	controllers []string // --controllers, with aliases of allocators replaced by full names
	elects      bool     // --leader-elect
	migrates    bool     // --enable-leader-migration
	config      string   // --config: a file with flags, which those of the command line win over
	said        func(flag string) bool
}

// hides reports whether a flag may be in a file, which is not read.
func (l commandLine) hides(flag string) bool { return l.config != "" && !l.said(flag) }

// hidesRanges reports whether flags for ranges may be in a file.
func (l commandLine) hidesRanges() bool {
	return l.hides("allocate-node-cidrs") || l.Allocate && l.hides("cluster-cidr")
}

// hidesAllocator reports whether a file may say that an allocator is on.
func (l commandLine) hidesAllocator() bool {
	return l.hides("controllers") || l.enables(inTree, true) && l.hides("allocate-node-cidrs")
}

// namesBoth reports whether --controllers enables both allocators by name, with which our kube-controller-manager does not start.
func (l commandLine) namesBoth() bool {
	return l.runsOurs() && l.enables(inTree, false)
}

// commandLineOf parses the command line of a container as the program does. It ignores unknown flags.
func commandLineOf(c corev1.Container) (commandLine, error) {
	var l commandLine
	fs := pflag.NewFlagSet(c.Name, pflag.ContinueOnError)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	fs.SetOutput(io.Discard)
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc) // accepts --allocate_node_cidrs, too
	l.add(fs)
	fs.BoolVar(&l.accounts, "use-service-account-credentials", false, "")
	fs.StringSliceVar(&l.controllers, "controllers", []string{"*"}, "")
	fs.BoolVar(&l.elects, "leader-elect", true, "")
	fs.BoolVar(&l.migrates, "enable-leader-migration", false, "")
	fs.StringVar(&l.config, "config", "", "")
	l.said = fs.Changed
	err := fs.Parse(slices.Concat(c.Command, c.Args))
	if l.config != "" && !fs.Changed("use-service-account-credentials") {
		l.accounts = true // As far as is known: kubeadm sets it.
	}
	for i, entry := range l.controllers {
		// The program does not start if an entry contains a space. The entry counts once the space is removed.
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

// commandLinesOf are the command lines of a Pod's containers that can be parsed. managerFlags reports the others.
func commandLinesOf(pod corev1.PodSpec) (all []commandLine) {
	for _, c := range pod.Containers {
		if l, err := commandLineOf(c); err == nil {
			all = append(all, l)
		}
	}
	return all
}

// enables reports whether --controllers enables a controller; "*" does if byDefault is true. The first mention wins, as in
// kube-controller-manager.
func (l commandLine) enables(controller string, byDefault bool) bool {
	for _, entry := range l.controllers {
		if entry == controller || entry == "-"+controller {
			return entry == controller
		}
	}
	return byDefault && slices.Contains(l.controllers, "*")
}

// runsOurs reports whether this controller is enabled.
func (l commandLine) runsOurs() bool { return l.enables(nodeipam.Name, false) }
