#!/usr/bin/env bash
# Builds the original of in-cluster-ip-pool-controller, and puts the CRDs that it needs beside it: its own, and those of the Cluster API that
# it was built with.
#
# usage: hack/original.sh DIRECTORY
set -euo pipefail

cd "$(dirname "$0")/.."
directory=$PWD/$1
cd test/conformance/original

echo "build $1 (the first time compiles Cluster API's libraries and takes minutes)"
mkdir -p "$directory/crds"
# Never without what the test needs: the program is the last one.
for crds in \
	"sigs.k8s.io/cluster-api-ipam-provider-in-cluster config/crd/bases/*.yaml" \
	"sigs.k8s.io/cluster-api config/crd/bases/ipam.cluster.x-k8s.io_*.yaml" \
	"sigs.k8s.io/cluster-api config/crd/bases/cluster.x-k8s.io_clusters.yaml"; do
	read -r module files <<<"$crds"
	source=$(go mod download -json "$module" | sed -n 's/.*"Dir": "\(.*\)",.*/\1/p')
	# shellcheck disable=SC2086 # files is a pattern.
	install -m 644 "$source"/$files "$directory/crds/"
done
go build -o "$directory/" tool
