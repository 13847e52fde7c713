#!/usr/bin/env bash
# Builds what the end-to-end test needs and runs it. Its clusters are made of namespaces and mounts, which only root on
# Linux can make; elsewhere this says so and is content.
#
# usage: [UPGRADE_FROM=v1.36] [NETWORKS=yes] hack/e2e.sh [flags of go test]
# With UPGRADE_FROM it builds also what a cluster of that minor needs, with NETWORKS network plugins and kube-proxy.
set -euo pipefail

cd "$(dirname "$0")/.."
# As make has it, also when this is not run by make: there is no C library in the images.
export CGO_ENABLED=0
if [[ $(uname -s) != Linux ]]; then
	echo "e2e: skipped: the machines of its clusters are Linux namespaces, and this is $(uname -s)"
	exit 0
fi
if [[ $EUID -ne 0 ]]; then
	echo "e2e: skipped: making namespaces, mounts and cgroups takes root; run it with sudo"
	exit 0
fi

# Root in a container has often less than it takes.
if ! probe=$(unshare --net --mount --uts --ipc --pid --fork mount -t tmpfs probe /mnt 2>&1); then
	echo "e2e: skipped: this root may not make namespaces and mounts (${probe:-unshare failed}); run it on a machine or in a privileged container"
	exit 0
fi

make --no-print-directory cluster-tools image PLATFORMS="linux/$(go env GOARCH)"
if [[ -n ${UPGRADE_FROM-} ]]; then
	make --no-print-directory KUBERNETES="$UPGRADE_FROM" tools upstream kubeadm-tools "bin/$UPGRADE_FROM/node" cluster-image
fi
if [[ -n ${NETWORKS-} ]]; then
	hack/ensure-c-compiler.sh # flannel has a backend in C.
	make --no-print-directory networks kubectl-node-ipam
	hack/ensure-cluster-programs.sh nft ipset clang-19 # Cilium's agent compiles what it loads into the kernel.
else
	hack/ensure-cluster-programs.sh
fi
# Helm renders the chart.
go -C test/chart build -o "$PWD/bin/helm" helm.sh/helm/v4/cmd/helm
go build -o bin/e2e-pod ./test/e2e/pod
# The build that the upgrade goes to: the same code, with another version in it.
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
go build -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version+next" -o bin/next/kube-controller-manager ./cmd/kube-controller-manager
go build -o bin/next/go-runner k8s.io/component-base/logs/kube-log-runner # as hack/image.sh does
bin/image localhost/multicidr/kube-controller-manager:next bin/next/kube-controller-manager bin/images/next.tar
go test -count=1 -timeout=20m "$@" ./test/e2e
