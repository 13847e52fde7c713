// Package conformance compares in-cluster-ip-pool-controller with the original, cluster-api-ipam-provider-in-cluster: each has an API server
// of its own with the same CRDs, gets the same objects, and has to make the same of them. Where ours is meant to differ, the case says
// how, and names the row of docs/reference/cluster-ipam-differences.md that says why.
//
// The original's webhooks are not installed: what they refuse is refused by our CRDs, and test/clusteripam compares those.
package conformance
