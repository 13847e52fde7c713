#!/usr/bin/env bash
# Builds what the upgrade test of Cluster IPAM begins with: cluster-ipam-controller of a commit of this repository, and the CRDs of that commit.
#
# usage: hack/earlier.sh COMMIT DIRECTORY
set -euo pipefail

cd "$(dirname "$0")/.."
export CGO_ENABLED=0
commit=$1 output=$PWD/$2

sources=$(mktemp -d)
trap 'git worktree remove --force "$sources"' EXIT
git worktree add --quiet --detach "$sources" "$commit"
echo "build $2/cluster-ipam-controller of $commit"
mkdir -p "$output"
go -C "$sources" build -o "$output/cluster-ipam-controller" ./cmd/cluster-ipam-controller
rm -rf "$output/crds"
cp -r "$sources/manifests/clusteripam/crds" "$output/crds"
