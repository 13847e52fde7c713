#!/usr/bin/env bash
# Makes all files of a release from a clean clone of HEAD: docs/engineering/releasing.md lists them. The same commit and the same Go make the same bytes
# on every machine and in every directory.
#
# PROGRAMS, PLATFORMS, COMMANDS and COMMAND_PLATFORMS make less of it, to try something.
#
# usage: VERSION=v0.2.0 [REGISTRY=...] hack/release.sh OUTPUT
set -euo pipefail

cd "$(dirname "$0")/.."
output=${1:?the directory for the files}
mkdir -p "$(dirname "$output")"
output=$(cd "$(dirname "$output")" && pwd)/$(basename "$output")
: "${VERSION:?the version, for example v0.2.0}"
registry=${REGISTRY:-localhost/multicidr}
platforms=${PLATFORMS:-linux/amd64,linux/arm64}
read -ra programs <<<"${PROGRAMS:-kube-controller-manager node-ipam-controller cluster-ipam-controller}"
read -ra commands <<<"${COMMANDS:-kubectl-node_ipam preflight}"
IFS=, read -ra command_platforms <<<"${COMMAND_PLATFORMS:-linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64}"

fail() {
	echo "release: $1" >&2
	exit 1
}
[[ $VERSION == "$(<controllers/build/VERSION)" ]] || fail "the sources are $(<controllers/build/VERSION), not $VERSION: run hack/set-version.sh $VERSION and commit"
[[ -z $(git status --porcelain) ]] || fail "there are changes that are not committed, and a release is made of a commit: commit or remove them"
[[ ! -e $output ]] || fail "$output exists: remove it, or name another directory"

# shellcheck source=hack/release-sources.sh
source hack/release-sources.sh
sources=$(clone_sources "$(git rev-parse HEAD)" "$VERSION")
trap 'rm -rf "$sources"' EXIT
cd "$sources"
tag=$(hack/image-tag.sh)
REGISTRY=$registry TAG=$tag PLATFORMS=$platforms hack/image.sh "${programs[@]}"
for platform in "${command_platforms[@]}"; do
	for command in "${commands[@]}"; do build_command "$platform" "$command" >/dev/null; done
done
GOFLAGS='' go -C hack/release run . make -root="$sources" -version="$VERSION" -tag="$tag" -registry="$registry" -output="$output.part"
mv "$output.part" "$output"
echo "release: $output"
