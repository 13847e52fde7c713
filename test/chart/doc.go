// Package chart tests the charts with Helm as a library: what they render, what they refuse, and their life as a
// release on a real API server; and that node-ipam-controller can do its work with exactly what was rendered.
//
// It is a module of its own, so that what Helm needs stays out of the go.mod of the controller manager.
package chart
