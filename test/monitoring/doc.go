// Package monitoring tests the alerts and the dashboard of manifests/monitoring with Prometheus' own parser, engine and alert
// rules. They may use what docs/reference/metrics.md lists and nothing else; the integration tests compare that page with a real
// kube-controller-manager.
//
// It is a module of its own, so that what Prometheus needs stays out of the go.mod of the controller manager.
package monitoring
