package cloudmanager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"k8s.io/apimachinery/pkg/api/validation"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	cliflag "k8s.io/component-base/cli/flag"
	genericcontrollermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"
	"k8s.io/controller-manager/pkg/leadermigration"
	"k8s.io/klog/v2"

	_ "github.com/multicidr/controller-manager/controllers/build" // multicidr_build_info
	"github.com/multicidr/controller-manager/controllers/internal/migrationfile"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	nodehealth "github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/options"
)

// Name is the controller's name in --controllers.
const Name = nodeipam.Name

const (
	// alias is another name of the controller in --controllers, the same as in kube-controller-manager.
	alias = "multicidrnodeipam"
	// inTree is the name of the allocator that some providers have taken over from kube-controller-manager.
	inTree = "node-ipam-controller"
	// defaultLease is the name of node-ipam-controller's Lease: two programs with the controller must not both allocate.
	defaultLease = "node-ipam-controller"
	// defaultPort is where the health check and the debug page are. 10257 to 10260 are those of Kubernetes' own programs.
	defaultPort = 10262
)

// Register adds the controller to what [app.NewCloudControllerManagerCommand] gets: its constructor, its alias and its flags. As in
// kube-controller-manager, --controllers=*,multi-cidr-node-ipam-controller enables it.
//
// A flag that is already in flags, such as --service-cluster-ip-range, is used and not added again. A controller "node-ipam-controller" that
// is already in controllers does not run beside this one.
func Register(controllers map[string]app.ControllerInitFuncConstructor, aliases map[string]string, flags *cliflag.NamedFlagSets) {
	r := newRegistered()
	r.addFlags(flags)
	app.ControllersDisabledByDefault.Insert(Name)
	if aliases != nil {
		aliases[alias] = Name
	}
	if other, ok := controllers[inTree]; ok {
		controllers[inTree] = app.ControllerInitFuncConstructor{InitContext: other.InitContext, Constructor: replaced(other.Constructor)}
	}
	controllers[Name] = app.ControllerInitFuncConstructor{InitContext: app.ControllerInitContext{ClientName: Name}, Constructor: r.construct}
}

// registered is the controller in one program.
type registered struct {
	options *options.Options
	port    int
	lease   string
	// Flags of the in-tree allocator that cloud-controller-managers do not have.
	maskSize, maskSizeIPv4, maskSizeIPv6, serviceRange *pflag.Flag
}

func newRegistered() *registered {
	return &registered{options: options.New(), port: defaultPort, lease: defaultLease}
}

func (r *registered) addFlags(sections *cliflag.NamedFlagSets) {
	existing := func(name string) *pflag.Flag {
		for _, fs := range sections.FlagSets {
			if f := fs.Lookup(name); f != nil {
				return f
			}
		}
		return nil
	}
	fs := sections.FlagSet(Name)
	add := func(f **pflag.Flag, name string, value pflag.Value, usage string) {
		if *f = existing(name); *f == nil {
			*f = fs.VarPF(value, name, "", usage)
		}
	}
	add(&r.maskSize, "node-cidr-mask-size", new(maskSize), "Mask size of a Node's block of --cluster-cidr, if that has one family. 0: 24 for IPv4, 64 for IPv6.")
	add(&r.maskSizeIPv4, "node-cidr-mask-size-ipv4", new(maskSize), "Mask size of a Node's IPv4 block of --cluster-cidr. 0: 24.")
	add(&r.maskSizeIPv6, "node-cidr-mask-size-ipv6", new(maskSize), "Mask size of a Node's IPv6 block of --cluster-cidr. 0: 64.")
	add(&r.serviceRange, "service-cluster-ip-range", new(text),
		"CIDR, or one CIDR of each family, separated by a comma. The controller allocates nothing from it, nor from the CIDRs of ServiceCIDR objects. Needed if the API server has no ServiceCIDRs.")
	fs.StringVar(&r.lease, "node-ipam-leader-elect-resource-name", r.lease,
		"The name of the Lease that the "+Name+" leads by, in the namespace of --leader-elect-resource-namespace. "+
			"Every program with this controller in a cluster must have the same.")
	fs.IntVar(&r.port, "node-ipam-secure-port", r.port,
		"The port with /healthz/"+Name+" and /debug/controllers/"+Name+", with the certificate, authentication and authorization of --secure-port. 0: there is none.")
	r.options.AddFlags(fs)
}

// maskSize and text are values of flags.
type maskSize int32

func (v *maskSize) String() string { return strconv.Itoa(int(*v)) }
func (v *maskSize) Type() string   { return "int32" }
func (v *maskSize) Set(s string) error {
	n, err := strconv.ParseInt(s, 0, 32)
	*v = maskSize(n)
	return err
}

type text string

func (v *text) String() string     { return string(*v) }
func (v *text) Type() string       { return "string" }
func (v *text) Set(s string) error { *v = text(s); return nil }

// flags returns what stands for a ClusterCIDR.
func (r *registered) flags(c *config.CompletedConfig) (fromflags.Flags, error) {
	shared := c.ComponentConfig.KubeCloudShared
	f := fromflags.Flags{Allocate: shared.AllocateNodeCIDRs, ClusterCIDR: shared.ClusterCIDR, ServiceRange: strings.Trim(r.serviceRange.Value.String(), "[]")}
	var errs []error
	for _, size := range []struct {
		of *int32
		f  *pflag.Flag
	}{{&f.NodeMaskSize, r.maskSize}, {&f.NodeMaskSizeIPv4, r.maskSizeIPv4}, {&f.NodeMaskSizeIPv6, r.maskSizeIPv6}} {
		// The flag may be the program's own, of any type of number, or text that is empty by default.
		n, err := strconv.ParseInt(cmp.Or(strings.Trim(size.f.Value.String(), "[]"), "0"), 0, 32)
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", size.f.Name, err))
		}
		*size.of = int32(n)
	}
	return f, errors.Join(errs...)
}

// validate returns everything that is wrong with the flags.
func (r *registered) validate(c *config.CompletedConfig) error {
	flags, err := r.flags(c)
	errs := []error{err}
	errs = append(errs, flags.Validate()...)
	errs = append(errs, r.options.Validate()...)
	for _, wrong := range validation.NameIsDNSSubdomain(r.lease, false) {
		errs = append(errs, fmt.Errorf("--node-ipam-leader-elect-resource-name=%q is no name of a Lease: %s", r.lease, wrong))
	}
	election := c.ComponentConfig.Generic.LeaderElection
	if r.lease == election.ResourceName {
		errs = append(errs, fmt.Errorf("--node-ipam-leader-elect-resource-name=%s is the Lease of this program (--leader-elect-resource-name): choose another one", r.lease))
	}
	if r.lease == "kube-controller-manager" {
		errs = append(errs, fmt.Errorf("--node-ipam-leader-elect-resource-name=%s is the Lease of kube-controller-manager, which would not run while this controller leads: choose another one", r.lease))
	}
	if generic := c.ComponentConfig.Generic; enabled(c) {
		errs = append(errs, migrationfile.Validate(generic, Name, inTree))
		if leadermigration.Enabled(&generic) && r.lease == generic.LeaderMigration.LeaderName {
			errs = append(errs, fmt.Errorf("--node-ipam-leader-elect-resource-name=%s is the Lease of the leader migration (leaderName in --leader-migration-config), "+
				"which this program itself holds: choose another one for either", r.lease))
		}
	}
	// Checked even with --leader-elect=false: this controller leads by its Lease all the same.
	errs = append(errs, lease.ValidateTimes(election.LeaseDuration.Duration, election.RenewDeadline.Duration, election.RetryPeriod.Duration)...)
	if r.port < 0 || r.port > 65535 {
		errs = append(errs, fmt.Errorf("--node-ipam-secure-port=%d must be between 0 and 65535; 0 means no port", r.port))
	}
	if slices.Contains(c.ComponentConfig.Generic.Controllers, inTree) && enabled(c) {
		errs = append(errs, fmt.Errorf("--controllers enables %s and %s, which write the same fields of the same Nodes: remove one of them", inTree, Name))
	}
	return utilerrors.Flatten(utilerrors.NewAggregate(errs))
}

func enabled(c *config.CompletedConfig) bool {
	return genericcontrollermanager.IsControllerEnabled(Name, app.ControllersDisabledByDefault, c.ComponentConfig.Generic.Controllers)
}

// construct is called once, before the program asks the API server anything. It cannot return an error, and the flags cannot be validated
// earlier, so what is wrong with them ends the process here, as a wrong flag does in kube-controller-manager.
func (r *registered) construct(init app.ControllerInitContext, c *config.CompletedConfig, _ cloudprovider.Interface) app.InitFunc {
	if !enabled(c) { // Its flags may be right for the program's own controllers.
		return func(context.Context, genericcontrollermanager.ControllerContext) (controller.Interface, bool, error) {
			return nil, false, nil
		}
	}
	err := r.validate(c)
	watches := &nodehealth.Watches{}
	p := newParticipant(r, init.ClientName, c, watches)
	if err != nil {
		klog.ErrorS(err, "The flags are wrong", "controller", Name)
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
	p.sharesNodes = watches.Nodes(c.SharedInformers) // unless the provider has requested that informer before
	go p.campaign(context.Background())              // It ends with the process.
	p.serve()
	return func(ctx context.Context, _ genericcontrollermanager.ControllerContext) (controller.Interface, bool, error) {
		// Nothing here can fail or wait: the program starts its controllers one after the other, and ends if one fails.
		p.mayLead(ctx)
		return p, true, nil
	}
}

// replaced leaves the program's own controller for Nodes out if this one is enabled.
func replaced(constructor app.InitFuncConstructor) app.InitFuncConstructor {
	return func(init app.ControllerInitContext, c *config.CompletedConfig, cloud cloudprovider.Interface) app.InitFunc {
		if !enabled(c) {
			return constructor(init, c, cloud)
		}
		return func(context.Context, genericcontrollermanager.ControllerContext) (controller.Interface, bool, error) {
			klog.InfoS("A controller does not run, because another one replaces it", "controller", inTree, "replacedBy", Name)
			return nil, false, nil
		}
	}
}
