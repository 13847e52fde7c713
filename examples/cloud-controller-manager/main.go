// cloud-controller-manager is an example for authors of cloud providers: a provider without a cloud, whose Nodes get their podCIDRs from
// ClusterCIDRs.
package main

import (
	"os"

	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // rest_client_* and leader_election_* metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/cloudmanager"
)

func main() {
	opts, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		klog.Fatal(err)
	}
	controllers, aliases, flags := app.DefaultInitFuncConstructors, names.CCMControllerAliases(), cliflag.NamedFlagSets{}
	cloudmanager.Register(controllers, aliases, &flags) // the line that a provider needs
	initialize := func(*config.CompletedConfig) cloudprovider.Interface { return cloud{} }
	// Signals end the process at once: a standby in a leader migration does not look at a stop channel before it leads.
	os.Exit(cli.Run(app.NewCloudControllerManagerCommand(opts, initialize, controllers, aliases, flags, wait.NeverStop)))
}

// cloud has no machines, load balancers, zones or routes, so none of the controllers that need them do anything.
type cloud struct{}

func (cloud) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}
func (cloud) ProviderName() string                                              { return "example" }
func (cloud) HasClusterID() bool                                                { return true }
func (cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool)                  { return nil, false }
func (cloud) Instances() (cloudprovider.Instances, bool)                        { return nil, false }
func (cloud) InstancesV2() (cloudprovider.InstancesV2, bool)                    { return nil, false }
func (cloud) Zones() (cloudprovider.Zones, bool)                                { return nil, false }
func (cloud) Clusters() (cloudprovider.Clusters, bool)                          { return nil, false }
func (cloud) Routes() (cloudprovider.Routes, bool)                              { return nil, false }
