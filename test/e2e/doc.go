// Package e2e runs our programs where users run them: the kube-controller-manager in a static Pod that kubeadm has written, the
// node-ipam-controller in the Deployment of its chart, with real kubelets and Pods. `make e2e` builds what it needs; the clusters are
// those of hack/cluster.
//
// One cluster is born with our manager, one with the stock one, which ours takes over from and gives back to; on a third the stock one
// allocates nothing, and the chart is installed. One more ends halfway. `make e2e-ha` has one with three control planes, `make e2e-networks`
// some with other network plugins and one whose Nodes are all replaced, and `make e2e-upgrade` two that go from one minor of Kubernetes to the next: they take too long for every change.
//
// On failure the machines' logs are kept in bin/e2e-logs.
package e2e
