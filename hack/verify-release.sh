#!/usr/bin/env bash
# Reads a release back, by its files alone: checksums, provenance, components and licences; runs the programs of its images and commands; installs its charts and
# manifests into a local etcd and kube-apiserver, and runs node-ipam-controller there as the chart says; and builds one program anew from a clean clone of the
# release's commit, in another directory, which must make the same bytes.
#
# usage: [REBUILD=node-ipam-controller] hack/verify-release.sh DIRECTORY
set -euo pipefail

cd "$(dirname "$0")/.."
release=$(cd "${1:?the directory of the release}" && pwd)
programs=$(mktemp -d)
sources=
trap 'rm -rf "$programs" ${sources:+"$sources"}' EXIT

go -C hack/release run . verify -extract="$programs" "$release"

echo "verify-release: charts and manifests, in an API server"
program=$programs/node-ipam-controller
if [[ -x $program ]]; then
	go -C test/chart test -count=1 ./... -charts="$release" -program="$program"
else
	echo "verify-release: node-ipam-controller of this platform is not in the release: the charts are not tried with it" >&2
	go -C test/chart test -count=1 -skip='^(TestProgramRunsAsRendered|TestAppVersion)$' ./... -charts="$release"
fi

rebuild=${REBUILD:-preflight}
provenance=$(echo "$release"/provenance-*.intoto.json)
version=${provenance##*/provenance-} version=${version%.intoto.json}
commit=$(sed -n 's/.*"gitCommit": "\([0-9a-f]*\)".*/\1/p' "$provenance")
echo "verify-release: build $rebuild anew, of commit $commit"
# shellcheck source=hack/release-sources.sh
source hack/release-sources.sh
sources=$(clone_sources "$commit" "$version")
cd "$sources"
built=$(build_command "$(go env GOHOSTOS)/$(go env GOHOSTARCH)" "$rebuild")
cmp "$built" "$programs/$rebuild"
echo "verify-release: $rebuild has the same bytes"
