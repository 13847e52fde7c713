package cloudmanager

import (
	"context"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/options"
	cliflag "k8s.io/component-base/cli/flag"
	genericcontrollermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"

	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
)

// completed returns the configuration of a program with these flags of its own.
func completed(t *testing.T, change func(*config.Config)) *config.CompletedConfig {
	t.Helper()
	opts, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		t.Fatal(err)
	}
	c := &config.Config{}
	if err := opts.Generic.ApplyTo(&c.ComponentConfig.Generic, []string{Name, inTree}, nil, map[string]string{alias: Name}); err != nil {
		t.Fatal(err)
	}
	if err := opts.KubeCloudShared.ApplyTo(&c.ComponentConfig.KubeCloudShared); err != nil {
		t.Fatal(err)
	}
	change(c)
	return c.Complete()
}

// TestFlagsOfTheProgram: a provider that took the in-tree allocator over has its flags, of other types than ours. They count, and ours are not
// added to them.
func TestFlagsOfTheProgram(t *testing.T) {
	var sections cliflag.NamedFlagSets
	own := sections.FlagSet("nodeipam controller")
	own.Int("node-cidr-mask-size", 26, "")
	own.StringSlice("service-cluster-ip-range", nil, "")
	r := newRegistered()
	r.addFlags(&sections)
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, fs := range sections.FlagSets {
		all.AddFlagSet(fs)
	}
	if err := all.Parse(strings.Fields("--node-cidr-mask-size=27 --node-cidr-mask-size-ipv6=80 --service-cluster-ip-range=10.96.0.0/16,fd00::/112")); err != nil {
		t.Fatal(err)
	}
	got, err := r.flags(completed(t, func(c *config.Config) {
		c.ComponentConfig.KubeCloudShared.AllocateNodeCIDRs, c.ComponentConfig.KubeCloudShared.ClusterCIDR = true, "10.0.0.0/8"
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := fromflags.Flags{Allocate: true, ClusterCIDR: "10.0.0.0/8", NodeMaskSize: 27, NodeMaskSizeIPv6: 80, ServiceRange: "10.96.0.0/16,fd00::/112"}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestReplaces: a provider's allocator does not run beside ours. Naming both is a mistake.
func TestReplaces(t *testing.T) {
	for controllers, want := range map[string]struct{ theirs, mistake bool }{
		"*":                         {theirs: true},
		"*," + Name:                 {},
		inTree:                      {theirs: true},
		"*," + inTree:               {theirs: true},
		Name + "," + inTree:         {mistake: true},
		"*," + Name + ",-" + inTree: {},
		"*,-" + Name + "," + inTree: {theirs: true},
	} {
		t.Run(controllers, func(t *testing.T) {
			theirs := false
			constructors := map[string]app.ControllerInitFuncConstructor{inTree: {
				Constructor: func(app.ControllerInitContext, *config.CompletedConfig, cloudprovider.Interface) app.InitFunc {
					return func(context.Context, genericcontrollermanager.ControllerContext) (controller.Interface, bool, error) {
						theirs = true
						return nil, true, nil
					}
				},
			}}
			var sections cliflag.NamedFlagSets
			aliases := map[string]string{}
			Register(constructors, aliases, &sections)
			c := completed(t, func(c *config.Config) { c.ComponentConfig.Generic.Controllers = strings.Split(controllers, ",") })
			r := newRegistered()
			r.addFlags(&cliflag.NamedFlagSets{})
			err := r.validate(c)
			if mistake := err != nil && strings.Contains(err.Error(), "remove one of them"); mistake != want.mistake {
				t.Fatalf("validate: %v, want a mistake: %t", err, want.mistake)
			}
			if want.mistake {
				return
			}
			if _, _, err := constructors[inTree].Constructor(app.ControllerInitContext{}, c, nil)(t.Context(), genericcontrollermanager.ControllerContext{}); err != nil {
				t.Fatal(err)
			}
			if theirs != want.theirs {
				t.Errorf("the provider's allocator runs: %t, want %t", theirs, want.theirs)
			}
		})
	}
}
