// Package parity compares our kube-controller-manager with Kubernetes' own, built from the same module: what they print, and what
// they serve and do as real processes against a real control plane. Every difference has to be in additions_test.go.
//
// It also holds the tests of what the process as a whole promises: failover, shutdown, and that a controller of ours cannot
// take the others down.
package parity
