package cloudmanager

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	cliflag "k8s.io/component-base/cli/flag"
	genericcontrollermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"
	"k8s.io/klog/v2"

	_ "github.com/multicidr/controller-manager/controllers/build" // multicidr_build_info
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	"github.com/multicidr/controller-manager/controllers/nodeipam/options"
)

// Name is the controller's name in --controllers.
const Name = nodeipam.Name

const (
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
	r := newRegistered(flags)
	app.ControllersDisabledByDefault.Insert(Name)
	if aliases != nil {
		aliases[nodeipam.Alias] = Name
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
	// ranges are the flags of the in-tree allocator that cloud-controller-managers do not have, and their values are in flags. theirs are
	// those of the same names that the program has.
	ranges *pflag.FlagSet
	flags  fromflags.Flags
	theirs []*pflag.Flag
}

func newRegistered(sections *cliflag.NamedFlagSets) *registered {
	r := &registered{options: options.New(), ranges: pflag.NewFlagSet(Name, pflag.ContinueOnError)}
	options.AddRangeFlags(r.ranges, &r.flags)
	fs := sections.FlagSet(Name)
	r.ranges.VisitAll(func(f *pflag.Flag) {
		for _, section := range sections.FlagSets {
			if existing := section.Lookup(f.Name); existing != nil {
				r.theirs = append(r.theirs, existing)
				return
			}
		}
		fs.AddFlag(f)
	})
	fs.StringVar(&r.lease, "node-ipam-leader-elect-resource-name", defaultLease,
		"The name of the Lease that the "+Name+" leads by, in the namespace of --leader-elect-resource-namespace. Every program with this controller in a cluster must have the same.")
	fs.IntVar(&r.port, "node-ipam-secure-port", defaultPort,
		"The port with /healthz/"+Name+" and /debug/controllers/"+Name+", with the certificate, authentication and authorization of --secure-port. 0: there is none.")
	r.options.AddFlags(fs)
	return r
}

// fromFlags returns what stands for a ClusterCIDR. A flag may be the program's own, of any type of number or list, or text that is empty by
// default.
func (r *registered) fromFlags(c *config.CompletedConfig) (fromflags.Flags, error) {
	var errs []error
	for _, f := range r.theirs {
		if text := strings.Trim(f.Value.String(), "[]"); text != "" {
			errs = append(errs, r.ranges.Set(f.Name, text))
		}
	}
	f := r.flags
	f.Allocate, f.ClusterCIDR = c.ComponentConfig.KubeCloudShared.AllocateNodeCIDRs, c.ComponentConfig.KubeCloudShared.ClusterCIDR
	return f, utilerrors.NewAggregate(append(append(errs, f.Validate()...), r.options.Validate()...))
}

// validate returns everything that is wrong with the flags.
func (r *registered) validate(c *config.CompletedConfig) error {
	_, err := r.fromFlags(c)
	errs := []error{err}
	election := c.ComponentConfig.Generic.LeaderElection
	if taken := []string{"", election.ResourceName, c.ComponentConfig.Generic.LeaderMigration.LeaderName, "kube-controller-manager"}; slices.Contains(taken, r.lease) {
		errs = append(errs, fmt.Errorf("--node-ipam-leader-elect-resource-name=%s is empty, or the Lease of this program, of a leader migration or of kube-controller-manager: choose another one", r.lease))
	}
	// Checked even with --leader-elect=false: this controller leads by its Lease all the same.
	errs = append(errs, lease.ValidateTimes(election.LeaseDuration.Duration, election.RenewDeadline.Duration, election.RetryPeriod.Duration)...)
	if slices.Contains(c.ComponentConfig.Generic.Controllers, inTree) {
		errs = append(errs, fmt.Errorf("--controllers enables %s and %s, which write the same fields of the same Nodes: remove one of them", inTree, Name))
	}
	return utilerrors.Flatten(utilerrors.NewAggregate(errs))
}

func enabled(c *config.CompletedConfig) bool {
	return genericcontrollermanager.IsControllerEnabled(Name, app.ControllersDisabledByDefault, c.ComponentConfig.Generic.Controllers)
}

// off is a controller that does not run.
func off(context.Context, genericcontrollermanager.ControllerContext) (controller.Interface, bool, error) {
	return nil, false, nil
}

// construct is called once, before the program asks the API server anything. It cannot return an error, and the flags cannot be validated
// earlier, so what is wrong with them ends the process here, as a wrong flag does in kube-controller-manager.
func (r *registered) construct(init app.ControllerInitContext, c *config.CompletedConfig, _ cloudprovider.Interface) app.InitFunc {
	if !enabled(c) { // Its flags may be right for the program's own controllers.
		return off
	}
	if err := r.validate(c); err != nil {
		end(err, "The flags are wrong")
	}
	p := &participant{registered: r, clientName: init.ClientName, program: c}
	p.shown.Lease = p.leaseName()
	p.serve()
	return func(ctx context.Context, _ genericcontrollermanager.ControllerContext) (controller.Interface, bool, error) {
		go p.run(ctx) // The program starts its controllers one after the other: nothing here can fail or wait.
		return p, true, nil
	}
}

// end ends the process.
func end(err error, why string) {
	klog.ErrorS(err, why, "controller", Name)
	klog.FlushAndExit(klog.ExitFlushTimeout, 1)
}

// replaced leaves the program's own controller for Nodes out if this one is enabled.
func replaced(constructor app.InitFuncConstructor) app.InitFuncConstructor {
	return func(init app.ControllerInitContext, c *config.CompletedConfig, cloud cloudprovider.Interface) app.InitFunc {
		if !enabled(c) {
			return constructor(init, c, cloud)
		}
		klog.InfoS("A controller does not run, because another one replaces it", "controller", inTree, "replacedBy", Name)
		return off
	}
}
