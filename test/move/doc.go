// Package move moves management clusters with the code of `clusterctl move` itself: from one API server to another, and through a directory. Both
// have our controllers, and share one Infoblox. No claim gets another address, and no host record changes.
//
// `make test-move` runs it. It is a module of its own, so that Cluster API stays out of the go.mod of the controller manager.
package move
