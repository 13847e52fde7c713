// Package e2e runs our kube-controller-manager where users run it: in a static Pod that kubeadm has written, with real
// kubelets and Pods. `make e2e` builds what it needs; the clusters are those of hack/cluster.
//
// There are two clusters. One is born with our manager, one with the stock one, which ours takes over from and gives back to.
// On failure the machines' logs are kept in bin/e2e-logs.
package e2e
