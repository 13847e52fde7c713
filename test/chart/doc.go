// Package chart tests the charts with Helm as a library: what they render, what they refuse, and of node-ipam-controller its life as a
// release on a real API server, and that the program can do its work with exactly what was rendered.
//
// It is a module of its own, so that what Helm needs stays out of the go.mod of the controller manager.
package chart
