// Package kubeadm compares manifests/kubeadm and manifests/static-pod with what the pinned kubeadm makes of them.
package kubeadm
