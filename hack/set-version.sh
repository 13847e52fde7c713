#!/usr/bin/env bash
# Writes the version of this project, and the tag of its images, wherever they are named: controllers/build/VERSION, the charts and what they
# render in tests, links in them, manifests, documentation and the end-to-end test. hack/image-tag.sh says what the tag is.
#
# usage: hack/set-version.sh [v0.2.0]
# Without an argument the version stays, and only the tag follows go.mod: so hack/pin-kubernetes.sh uses it.
set -euo pipefail

cd "$(dirname "$0")/.."
before=$(<controllers/build/VERSION)
version=${1:-$before}
[[ $version =~ ^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.]+)?$ ]] || {
	echo "$0: '$version' is no version; write it as v0.2.0 or v0.2.0-rc.1" >&2
	exit 2
}
echo "$version" >controllers/build/VERSION
tag=$(hack/image-tag.sh)

any='[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]*[0-9A-Za-z])?'
sed -i -E "s/^version: .*/version: ${version#v}/; s/^appVersion: .*/appVersion: $tag/" manifests/charts/*/Chart.yaml
# Who has a packaged chart has no checkout, so its links name one.
sed -i -E "s#(/multicidr/controller-manager/(blob/)?)v$any/#\1$version/#g" manifests/charts/*/{Chart.yaml,README.md}
sed -i -E "s/-$any\.tgz/-${version#v}.tgz/" manifests/charts/*/README.md
# The pages about releases take it as their example.
old=${before#v}
sed -i "s/${old//./\\.}/${version#v}/g" docs/operators/{release,versions}.md docs/engineering/release.md
sed -i -E "s/\(multicidr v$any\)/(multicidr $version)/" docs/operators/kubeadm.md
grep -rlE 'v[0-9.]+-mc[0-9]|helm.sh/chart: ' README.md docs manifests test/e2e test/chart/testdata |
	xargs sed -i -E "s/v[0-9]+\.[0-9]+\.[0-9]+-mc$any/$tag/g; s/(helm\.sh\/chart: [a-z-]+)-$any/\1-${version#v}/"
