// kube-controller-manager is the kube-controller-manager of Kubernetes with the
// multi-cidr-node-ipam-controller and the controllers of Cluster IPAM added.
package main

import (
	"os"
	_ "time/tzdata" // time zones of CronJobs, on images without them

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // rest_client_* and leader_election_* metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info

	"github.com/multicidr/controller-manager/controllers/manager"
)

func main() {
	os.Exit(cli.Run(manager.NewCommand(append(manager.ClusterIPAM(), manager.NodeIPAM())...)))
}
