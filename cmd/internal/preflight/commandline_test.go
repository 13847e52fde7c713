package preflight

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"k8s.io/apimachinery/pkg/util/sets"
	cliflag "k8s.io/component-base/cli/flag"
	controllermanager "k8s.io/controller-manager/app"
	cmconfig "k8s.io/controller-manager/config"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"

	"github.com/multicidr/controller-manager/cmd/internal/program"
	controllers "github.com/multicidr/controller-manager/controllers/manager"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
)

// A command line means here what it means in kube-controller-manager: its own options are the judge.
func TestCommandLine(t *testing.T) {
	ours := controllers.NodeIPAM()
	names := append(app.KnownControllers(), ours.Name)
	disabled := append(app.ControllersDisabledByDefault(), ours.Name)
	upstreamsAliases := app.ControllerAliases()
	upstreamsAliases[ours.Alias] = ours.Name
	for a, name := range upstreamsAliases {
		if (name == inTree || name == nodeipam.Name) && aliases[a] != name {
			t.Errorf("%s is an alias of %s, and is not in aliases", a, name)
		}
	}

	for description, args := range map[string]string{
		"nothing":                              "",
		"one argument":                         "--controllers=*,multi-cidr-node-ipam-controller",
		"two arguments":                        "--controllers *,multi-cidr-node-ipam-controller",
		"our alias":                            "--controllers=*,multicidrnodeipam",
		"our alias, in two arguments":          "--controllers *,multicidrnodeipam",
		"our alias, off":                       "--controllers=*,-multicidrnodeipam",
		"the flag twice":                       "--controllers=* --controllers=multicidrnodeipam",
		"the flag twice, one in two arguments": "--controllers multicidrnodeipam --v=2 --controllers=*",
		"the first mention decides: off":       "--controllers=*,-multicidrnodeipam,multi-cidr-node-ipam-controller",
		"the first mention decides: on":        "--controllers=multi-cidr-node-ipam-controller,-multicidrnodeipam,*",
		"quoted":                               `--controllers="*","multicidrnodeipam"`,
		"the in-tree allocator off":            "--allocate-node-cidrs --controllers=*,-node-ipam-controller",
		"the in-tree allocator off by alias":   "--allocate-node-cidrs --controllers=*,-nodeipam",
		"the in-tree allocator by its alias":   "--allocate-node-cidrs --controllers nodeipam",
		"neither, since * is left out":         "--allocate-node-cidrs --controllers=deployment",
		"underscores":                          "--allocate_node_cidrs --use_service_account_credentials=true --cluster_cidr 10.244.0.0/16",
		"values of flags that are passed over": "--kubeconfig /etc/k --leader-elect --controllers multicidrnodeipam --v 2 --cluster-cidr 10.244.0.0/16",
		"no election":                          "--leader-elect=false --controllers=*",
		"a value that looks like a flag":       "--controllers -nodeipam,* --allocate-node-cidrs=true",
	} {
		t.Run(description, func(t *testing.T) {
			split := strings.Fields(args)
			upstreams, err := options.NewKubeControllerManagerOptions()
			if err != nil {
				t.Fatal(err)
			}
			all := pflag.NewFlagSet("upstream's", pflag.ContinueOnError)
			all.SetNormalizeFunc(cliflag.WordSepNormalizeFunc) // as main does
			for _, section := range upstreams.Flags(names, disabled, upstreamsAliases).FlagSets {
				all.AddFlagSet(section)
			}
			if err := all.Parse(split); err != nil {
				t.Fatal(err)
			}
			var generic cmconfig.GenericControllerManagerConfiguration
			if err := upstreams.Generic.ApplyTo(&generic, names, disabled, upstreamsAliases); err != nil {
				t.Fatal(err)
			}
			enabled := func(name string) bool {
				return controllermanager.IsControllerEnabled(name, sets.NewString(disabled...), generic.Controllers)
			}

			got, err := commandLineOf(program.Program{Name: manager, Args: split})
			if err != nil {
				t.Fatal(err)
			}
			if want := enabled(nodeipam.Name); got.enables(nodeipam.Name, false) != want {
				t.Errorf("it is %v that %s is on, of %q", want, nodeipam.Name, got.controllers)
			}
			if want := enabled(inTree); got.enables(inTree, true) != want {
				t.Errorf("it is %v that %s is on, of %q", want, inTree, got.controllers)
			}
			if want := upstreams.KubeCloudShared.AllocateNodeCIDRs; got.Allocate != want {
				t.Errorf("--allocate-node-cidrs=%v, want %v", got.Allocate, want)
			}
			if want := upstreams.KubeCloudShared.ClusterCIDR; got.ClusterCIDR != want {
				t.Errorf("--cluster-cidr=%s, want %s", got.ClusterCIDR, want)
			}
			if want := upstreams.Generic.LeaderElection.LeaderElect; got.elects != want {
				t.Errorf("--leader-elect=%v, want %v", got.elects, want)
			}
			if want := upstreams.KubeCloudShared.UseServiceAccountCredentials; got.accounts != want {
				t.Errorf("--use-service-account-credentials=%v, want %v", got.accounts, want)
			}
		})
	}
}
