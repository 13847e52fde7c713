#!/usr/bin/env bash
# Builds what test/consumer runs, at the versions of test/consumer/programs/go.mod: Cluster API's core manager and its vSphere provider, into
# bin/consumer. Their CRDs and webhook configurations come from the same modules, into bin/consumer/manifests.
#
# usage: hack/consumer.sh
set -euo pipefail

cd "$(dirname "$0")/.."
export CGO_ENABLED=0
output=$PWD/bin/consumer

cd test/consumer/programs
echo "build bin/consumer (the first time it takes minutes)"
mkdir -p "$output"
go build -o "$output/" tool

# copy PROGRAM MODULE PATH... copies directories and files of a module to where the test looks for them.
copy() {
	local program=$1 module path
	module=$(go list -m -f '{{.Dir}}' "$2")
	mkdir -p "$output/manifests/$program"
	for path in "${@:3}"; do
		cp "$module"/$path "$output/manifests/$program/"
	done
}
rm -rf "$output/manifests"
copy cluster-api sigs.k8s.io/cluster-api config/crd/bases/*.yaml config/webhook/manifests.yaml
copy cluster-api-provider-vsphere sigs.k8s.io/cluster-api-provider-vsphere config/default/crd/bases/*.yaml config/govmomi/webhook/manifests.yaml
