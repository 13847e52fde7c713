// Package controlplane runs a real control plane on loopback: etcd, kube-apiserver and any number of
// kube-controller-managers, as child processes with RBAC, their own CA and free ports.
//
// Nothing is left behind: Stop ends every process and removes the directory, and on Linux the children
// die with the process that started them, however that one ends. When something fails the directory
// with the logs stays, and the error names it.
package controlplane
