// cluster-ipam-controller has the controllers of Cluster IPAM alone, beside a kube-controller-manager that does not run them.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // rest_client_* and leader_election_* metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info

	"github.com/multicidr/controller-manager/controllers/standalone"
)

func main() {
	os.Exit(cli.Run(standalone.NewClusterIPAMCommand()))
}
