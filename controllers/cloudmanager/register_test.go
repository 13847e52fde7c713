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

	"github.com/multicidr/controller-manager/controllers/nodeipam"
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
	if err := opts.Generic.ApplyTo(&c.ComponentConfig.Generic, []string{Name, inTree}, nil, map[string]string{nodeipam.Alias: Name}); err != nil {
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
	r := newRegistered(&sections)
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, fs := range sections.FlagSets {
		all.AddFlagSet(fs)
	}
	if err := all.Parse(strings.Fields("--node-cidr-mask-size=27 --node-cidr-mask-size-ipv6=80 --service-cluster-ip-range=10.96.0.0/16,fd00::/112")); err != nil {
		t.Fatal(err)
	}
	got, err := r.fromFlags(completed(t, func(c *config.Config) {
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
			err := newRegistered(&cliflag.NamedFlagSets{}).validate(c)
			if mistake := enabled(c) && err != nil && strings.Contains(err.Error(), "remove one of them"); mistake != want.mistake {
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

// TestElectionTimes: the controller leads by its Lease with the program's times, even if the program does not elect. Times that the elector refuses
// are wrong flags, and not a panic.
func TestElectionTimes(t *testing.T) {
	for change, want := range map[string]string{
		"":                                  "",
		"--leader-elect-lease-duration=5s":  "--leader-elect-lease-duration=5s must be longer than --leader-elect-renew-deadline=10s",
		"--leader-elect-lease-duration=1ms": "--leader-elect-lease-duration=1ms must be 1s or more",
		"--leader-elect-renew-deadline=2s":  "--leader-elect-renew-deadline=2s must be longer than 1.2 times --leader-elect-retry-period=2s",
		"--leader-elect-retry-period=0s":    "--leader-elect-retry-period=0s must be longer than 0",
	} {
		t.Run(change, func(t *testing.T) {
			opts, err := options.NewCloudControllerManagerOptions()
			if err != nil {
				t.Fatal(err)
			}
			all := pflag.NewFlagSet("", pflag.ContinueOnError)
			sections := opts.Flags(nil, nil, nil, nil, nil)
			all.AddFlagSet(sections.FlagSet("generic"))
			if err := all.Parse(append(strings.Fields(change), "--leader-elect=false")); err != nil {
				t.Fatal(err)
			}
			err = newRegistered(&cliflag.NamedFlagSets{}).validate(completed(t, func(c *config.Config) { c.ComponentConfig.Generic.LeaderElection = opts.Generic.LeaderElection }))
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

// TestDisabled: who does not enable the controller need not have flags that suit it. A wrong flag would end this process.
func TestDisabled(t *testing.T) {
	r := newRegistered(&cliflag.NamedFlagSets{})
	app.ControllersDisabledByDefault.Insert(Name)
	c := completed(t, func(c *config.Config) {
		c.ComponentConfig.Generic.Controllers = []string{"*"}
		c.ComponentConfig.KubeCloudShared.AllocateNodeCIDRs = true
		c.ComponentConfig.KubeCloudShared.ClusterCIDR = "10.0.0.0/16,10.1.0.0/16"
	})
	if err := r.validate(c); err == nil {
		t.Fatal("these flags suit the controller")
	}
	if _, runs, err := r.construct(app.ControllerInitContext{}, c, nil)(t.Context(), genericcontrollermanager.ControllerContext{}); runs || err != nil {
		t.Errorf("it runs: %t, %v", runs, err)
	}
}
