package parity

// The additions are everything that our kube-controller-manager has and Kubernetes' own has not. This file is the only place for
// them: what is in neither place fails the comparison, and so does what is listed here and not there.

const ours = "multi-cidr-node-ipam-controller"

// inHelp is what --help says more.
var inHelp = surface{
	controllers: {
		ours: "", "cluster-ipam-controller": "", "cluster-deployment-ipam-controller": "", "in-cluster-ip-pool-controller": "", "infoblox-ip-pool-controller": "",
	},
	offByDefault: {
		ours: "", "cluster-ipam-controller": "", "cluster-deployment-ipam-controller": "", "in-cluster-ip-pool-controller": "", "infoblox-ip-pool-controller": "",
	},
	flagSections: {"Multi-cidr-node-ipam-controller": "", "Cluster-ipam-controller": ""},
	flags: {
		"Cluster-ipam-controller --cluster-ipam-concurrent-syncs": "int32 The number of objects that each controller of Cluster IPAM works on " +
			"concurrently. Larger number = faster start of many machines, but more network load (default 10)",
		"Cluster-ipam-controller --cluster-ipam-kube-api-qps": "float32 QPS to use while talking with kubernetes apiserver for each controller of " +
			"Cluster IPAM. 0 means no limit here: the priority and fairness rules of the server decide.",
		"Cluster-ipam-controller --cluster-ipam-kube-api-burst": "int Burst to use while talking with kubernetes apiserver for each controller of " +
			"Cluster IPAM. Only used with --cluster-ipam-kube-api-qps. (default 100)",
		"Cluster-ipam-controller --cluster-ipam-infoblox-instance": "string Name of the InfobloxInstance of ClusterIPAMClaims without the annotation " +
			"networking.x-k8s.io/infoblox-instance. Empty: the only one that exists.",
		"Cluster-ipam-controller --cluster-ipam-infoblox-namespace": "string Namespace of the Secrets with the credentials of InfobloxInstances. " +
			`(default "kube-system")`,
		"Cluster-ipam-controller --cluster-ipam-k0rdent-namespace": "string Namespace in which k0rdent's own manager has its Lease. While that is " +
			"renewed, the cluster-ipam-controller and the cluster-deployment-ipam-controller stand by. Empty: they never do. " + `(default "kcm-system")`,
		"Cluster-ipam-controller --cluster-ipam-namespace": "string The only namespace whose claims, pools and ClusterDeployments are worked on, " +
			"without the Global pools. Empty: all namespaces.",
		"Cluster-ipam-controller --cluster-ipam-watch-filter": "string Value of the label cluster.x-k8s.io/watch-filter of the IPAddressClaims that are " +
			"worked on. Empty: all of them.",
		"Cluster-ipam-controller --cluster-ipam-force-allocation": "Allocate addresses although another provider has installed the " +
			"CustomResourceDefinitions of the pools. Only right if that provider does not run: two allocators give one address twice.",
		"Generic --config": "string A YAML file with values of flags. A key is the name of a flag in camel case, such as clusterCIDR. Flags on the command line win over the file.",
		"Multi-cidr-node-ipam-controller --concurrent-node-cidr-syncs": "int32 The number of Nodes that the multi-cidr-node-ipam-controller " +
			"serves concurrently. Larger number = faster start of large clusters, but more network load (default 30)",
		"Multi-cidr-node-ipam-controller --node-ipam-kube-api-qps": "float32 QPS to use while talking with kubernetes apiserver for the " +
			"multi-cidr-node-ipam-controller. 0 means no limit here: the priority and fairness rules of the server decide.",
		"Multi-cidr-node-ipam-controller --node-ipam-kube-api-burst": "int Burst to use while talking with kubernetes apiserver for the " +
			"multi-cidr-node-ipam-controller. Only used with --node-ipam-kube-api-qps. (default 100)",
		"Multi-cidr-node-ipam-controller --node-ipam-takeover-delay": "duration How long the multi-cidr-node-ipam-controller waits after it became the leader, " +
			"before it allocates, if another allocator may have led before. Until then the API server may carry out the last request of that allocator, so this " +
			"must not be less than the --request-timeout of kube-apiserver. 0 means no wait. (default 1m0s)",
	},
}

// always is what a running process has more, whether our controller is on or not.
var always = surface{
	flagz: {
		".flags.cluster-ipam-concurrent-syncs":   `"10"`,
		".flags.cluster-ipam-kube-api-qps":       `"0"`,
		".flags.cluster-ipam-kube-api-burst":     `"100"`,
		".flags.cluster-ipam-infoblox-instance":  `""`,
		".flags.cluster-ipam-infoblox-namespace": `"kube-system"`,
		".flags.cluster-ipam-k0rdent-namespace":  `"kcm-system"`,
		".flags.cluster-ipam-namespace":          `""`,
		".flags.cluster-ipam-watch-filter":       `""`,
		".flags.cluster-ipam-force-allocation":   `"false"`,

		".flags.config": `""`,

		".flags.concurrent-node-cidr-syncs": `"30"`,
		".flags.node-ipam-kube-api-qps":     `"0"`,
		".flags.node-ipam-kube-api-burst":   `"100"`,
		".flags.node-ipam-takeover-delay":   `"1m0s"`,
	},
	metrics: {"/metrics multicidr_build_info": "gauge{compiler,git_commit,git_tree_state,git_version,go_version,platform}"},
}

// whenOn is what a running process has more when started with --controllers=*,multi-cidr-node-ipam-controller, compared with
// upstream's started with --controllers=*.
var whenOn = surface{
	flagz:   {".flags.controllers": `"[*,multi-cidr-node-ipam-controller]"`},
	configz: {".kubecontrollermanager.config.k8s.io.Generic.Controllers": `["*","multi-cidr-node-ipam-controller","-node-ipam-controller"]`},
	healthChecks: {
		ours: "ok",
	},
	statusCodes: {
		// Upstream's answers at /healthz only.
		"/healthz/multi-cidr-node-ipam-controller":           "administrator 200, stranger 403",
		"/debug/controllers/multi-cidr-node-ipam-controller": "administrator 200, stranger 403",
	},
	// Beside these, node_ipam_controller_terminating_clustercidr_nodes, which is only there while a ClusterCIDR is being deleted.
	metrics: {
		"/metrics node_ipam_controller_assignment_duration_seconds":               "histogram{}",
		"/metrics node_ipam_controller_assignments_by_others_total":               "counter{}",
		"/metrics node_ipam_controller_blocks":                                    "gauge{clusterCIDRName,family,state}",
		"/metrics node_ipam_controller_clustercidr_state":                         "gauge{clusterCIDRName,state}",
		"/metrics node_ipam_controller_conflicting_nodes":                         "gauge{}",
		"/metrics node_ipam_controller_multicidrset_allocation_tries_per_request": "histogram{clusterCIDR,clusterCIDRName}",
		"/metrics node_ipam_controller_multicidrset_cidrs_allocations_total":      "counter{clusterCIDR,clusterCIDRName}",
		"/metrics node_ipam_controller_multicidrset_cidrs_releases_total":         "counter{clusterCIDR,clusterCIDRName}",
		"/metrics node_ipam_controller_multicidrset_max_cidrs":                    "gauge{clusterCIDR,clusterCIDRName}",
		"/metrics node_ipam_controller_multicidrset_usage_cidrs":                  "gauge{clusterCIDR,clusterCIDRName}",
		"/metrics node_ipam_controller_node_patches_total":                        "counter{result}",
		"/metrics node_ipam_controller_nodes_holding_blocks":                      "gauge{}",
		"/metrics node_ipam_controller_failing_writes":                            "gauge{kind}",
		"/metrics node_ipam_controller_nodes_outside_ranges":                      "gauge{}",
		"/metrics node_ipam_controller_nodes_with_podcidrs":                       "gauge{}",
		"/metrics node_ipam_controller_ready":                                     "gauge{}",
		"/metrics node_ipam_controller_waiting_nodes":                             "gauge{reason}",
	},
	serviceAccounts: {ours: ""},
	clients: {
		"system:serviceaccount:kube-system:" + ours + " kube-controller-manager/system:serviceaccount:kube-system:" + ours: "",
	},
}

// whenMigrating is what leader migration shows, compared with upstream's without it: upstream's own does not start with it.
var whenMigrating = surface{
	flagz: {".flags.enable-leader-migration": `"true"`},
	configz: {
		".kubecontrollermanager.config.k8s.io.Generic.LeaderMigrationEnabled":                                                                                "true",
		".kubecontrollermanager.config.k8s.io.Generic.LeaderMigration.leaderName":                                                                            `"cloud-provider-extraction-migration"`,
		".kubecontrollermanager.config.k8s.io.Generic.LeaderMigration.resourceLock":                                                                          `"leases"`,
		".kubecontrollermanager.config.k8s.io.Generic.LeaderMigration.controllerLeaders has " + `{"component":"*","name":"cloud-node-lifecycle-controller"}`: "",
		".kubecontrollermanager.config.k8s.io.Generic.LeaderMigration.controllerLeaders has " + `{"component":"*","name":"route-controller"}`:                "",
		".kubecontrollermanager.config.k8s.io.Generic.LeaderMigration.controllerLeaders has " + `{"component":"*","name":"service-controller"}`:              "",
	},
	leases: {"cloud-provider-extraction-migration": "held true, strategy false"},
}
