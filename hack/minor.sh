# To be sourced in the root of the project. Sets, for the minor of Kubernetes that KUBERNETES names (v1.36; that of go.mod if it is not set):
#   modfile  the module file of that minor; empty for that of go.mod
#   bin      the directory of its programs
# shellcheck shell=bash
modfile='' bin=bin
if [[ -n ${KUBERNETES-} ]] && ! grep -q "^[[:space:]]k8s\.io/kubernetes ${KUBERNETES//./\\.}\." go.mod; then
	modfile=$PWD/hack/kubernetes/$KUBERNETES/go.mod bin=bin/$KUBERNETES
	if [[ ! -e $modfile ]]; then
		echo "KUBERNETES=$KUBERNETES is no minor of Kubernetes that these sources are built for; write v1.36 or another one of hack/kubernetes" >&2
		exit 2
	fi
fi
