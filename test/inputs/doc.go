// Package inputs throws whatever a real API server accepts at the real controller: ClusterCIDRs, Nodes and ServiceCIDRs with extreme values, from a
// table of extremes per field, combined at random. The test is in round_test.go, the tables are in the files that are called after the kinds.
//
// What must be is worked out by test/chaos/checker, which reads etcd's history.
package inputs
