// Package clusteripam builds the controllers of Cluster IPAM, which gives the machines of whole clusters their addresses. It is the layer
// below the Pod ranges of package nodeipam, and runs in a management cluster:
//
//	cluster-ipam-controller             ClusterIPAMClaim -> ClusterIPAM -> pool of the provider, and their status (claims)
//	cluster-deployment-ipam-controller  a ClusterDeployment waits for its addresses (gate)
//	in-cluster-ip-pool-controller       InClusterIPPool, InClusterPrefixPool and the Global ones: IPAddressClaim -> IPAddress (incluster)
//	infoblox-ip-pool-controller         InfobloxIPPool: IPAddressClaim -> host record of an Infoblox -> IPAddress (infoblox)
//
// Package runner runs each of them, and package contract has what the last two have in common. They share no state:
// one sees what another has done through the API server. So each may run alone, and another program may do the work of any of them. Where
// the original programs run, the controllers stand by: see yield.go.
package clusteripam
