package preflight

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/multicidr/controller-manager/cmd/internal/program"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
)

// inTree is the name of kube-controller-manager's own controller that allocates podCIDRs.
const inTree = names.NodeIpamController

// aliases are the alternative names of allocators in --controllers. They are copied here, and a test compares them, because importing them
// would mean importing all of kube-controller-manager.
var aliases = map[string]string{nodeipam.Alias: nodeipam.Name, "nodeipam": inTree}

// flags are the flags of a kube-controller-manager that determine its ranges.
type flags struct{ fromflags.Flags }

func (f *flags) add(fs *pflag.FlagSet) {
	fs.BoolVar(&f.Allocate, "allocate-node-cidrs", false, "as of kube-controller-manager, where it runs in no Pod, and with --before=rollback as of the stock manager")
	fs.StringVar(&f.ClusterCIDR, "cluster-cidr", "", "the same")
	fs.StringVar(&f.ServiceRange, "service-cluster-ip-range", "", "the same")
	fs.Int32Var(&f.NodeMaskSize, "node-cidr-mask-size", 0, "the same")
	fs.Int32Var(&f.NodeMaskSizeIPv4, "node-cidr-mask-size-ipv4", 0, "the same")
	fs.Int32Var(&f.NodeMaskSizeIPv6, "node-cidr-mask-size-ipv6", 0, "the same")
}

// commandLine is the command line of a program with kube-controller-manager's flags.
type commandLine struct {
	flags
	accounts    bool                   // --use-service-account-credentials
	controllers []string               // --controllers, with aliases of allocators replaced by full names
	elects      bool                   // --leader-elect
	migrates    bool                   // --enable-leader-migration
	config      string                 // --config: a file with flags, which those of the command line win over
	provider    string                 // --cloud-provider
	unread      func(flag string) bool // it may be there, and cannot be read
	said        func(flag string) bool
}

// hides reports whether a flag may be where it is not read.
func (l commandLine) hides(flag string) bool {
	return l.unread(flag) || l.config != "" && !l.said(flag)
}

// hiding says where a flag may be that is not read.
func (l commandLine) hiding() string {
	if l.config != "" {
		return "--config=" + l.config + ", and the flags in that file cannot be read"
	}
	return "flags from variables or a script, which cannot be read"
}

// hidesRanges reports whether flags for ranges may be where they are not read.
func (l commandLine) hidesRanges() bool {
	return l.hides("allocate-node-cidrs") || l.Allocate && l.hides("cluster-cidr")
}

// hidesAllocator reports whether an allocator may be turned on where it is not read.
func (l commandLine) hidesAllocator() bool {
	return l.hides("controllers") || l.enables(inTree, true) && l.hides("allocate-node-cidrs")
}

// namesBoth reports whether --controllers enables both allocators by name, with which our kube-controller-manager does not start.
func (l commandLine) namesBoth() bool {
	return l.runsOurs() && l.enables(inTree, false)
}

// commandLineOf parses the command line of a program as the program does. It ignores unknown flags.
func commandLineOf(p program.Program) (commandLine, error) {
	var l commandLine
	fs := pflag.NewFlagSet(p.Name, pflag.ContinueOnError)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	fs.SetOutput(io.Discard)
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc) // accepts --allocate_node_cidrs, too
	l.add(fs)
	fs.BoolVar(&l.accounts, "use-service-account-credentials", false, "")
	fs.StringSliceVar(&l.controllers, "controllers", []string{"*"}, "")
	fs.BoolVar(&l.elects, "leader-elect", true, "")
	fs.BoolVar(&l.migrates, "enable-leader-migration", false, "")
	fs.StringVar(&l.config, "config", "", "")
	fs.StringVar(&l.provider, "cloud-provider", "", "")
	l.said = fs.Changed
	l.unread = func(flag string) bool { return !l.said(flag) && (p.Unread || slices.Contains(p.Hidden, flag)) }
	err := fs.Parse(p.Args)
	if l.hides("use-service-account-credentials") {
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
