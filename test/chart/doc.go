// Package chart tests manifests/charts/node-ipam-controller with Helm as a library: what it renders, what it refuses, its life as a
// release on a real API server, and that the program can do its work with exactly what was rendered.
//
// It is a module of its own, so that what Helm needs stays out of the go.mod of the controller manager.
package chart
