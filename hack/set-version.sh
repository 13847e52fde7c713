#!/usr/bin/env bash
# Writes the version of this project, and the tag of its images, wherever they are named: controllers/build/VERSION, the charts and what they
# render in tests, links in them, manifests, documentation and the end-to-end test. hack/image-tag.sh says what the tag is.
#
# usage: hack/set-version.sh [v0.2.0]
# Without an argument the version stays, and only the tag follows go.mod: so hack/pin-kubernetes.sh uses it. A tag of an older minor follows
# that minor's module file in hack/kubernetes.
set -euo pipefail

cd "$(dirname "$0")/.."
before=$(<controllers/build/VERSION)
version=${1:-$before}
[[ $version =~ ^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.]+)?$ ]] || {
	echo "$0: '$version' is no version; write it as v0.2.0 or v0.2.0-rc.1" >&2
	exit 2
}
echo "$version" >controllers/build/VERSION
tag=$(KUBERNETES="" hack/image-tag.sh)
plain=${version#v}

# edit SCRIPT FILE... edits the files. Every sed takes -i with a suffix, and only some without.
edit() {
	local file
	sed -i.before -E "$@"
	for file in "${@:2}"; do rm "$file.before"; done
}

any='[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]*[0-9A-Za-z])?'
edit "s/^version: .*/version: $plain/; s/^appVersion: .*/appVersion: $tag/" manifests/charts/*/Chart.yaml
# Who has a packaged chart or an alert has no checkout, so the links name one.
edit "s#(/multicidr/controller-manager/(blob/)?)v$any/#\1$version/#g; s/-$any\.tgz/-$plain.tgz/" manifests/charts/*/{Chart.yaml,README.md} \
	manifests/{monitoring,charts/*/files/monitoring}/*prometheusrule.yaml test/monitoring/*.yaml
# These pages take it as their example.
old=${before#v}
edit "s/${old//./\\.}/$plain/g" README.md docs/{overview,versions}.md docs/install/{files,upgrade}.md docs/cluster-ipam/clusterctl.md docs/engineering/releasing.md
named=()
while IFS= read -r file; do named+=("$file"); done < <(grep -rlE 'v[0-9.]+-mc[0-9]|helm.sh/chart: ' README.md docs examples/distributions manifests test/e2e test/chart/testdata)
# Tags of older minors stand aside while all others are written.
before_all='' after_all=''
for dir in hack/kubernetes/v*; do
	minor=${dir##*/}
	before_all+="s/${minor/./\\.}\.[0-9]+-mc$any/@$minor@/g; "
	after_all+="s/@${minor/./\\.}@/$(KUBERNETES=$minor hack/image-tag.sh)/g; "
done
edit "${before_all}s/v[0-9]+\.[0-9]+\.[0-9]+-mc$any/$tag/g; ${after_all}s/(helm\.sh\/chart: [a-z-]+)-$any/\1-$plain/" "${named[@]}"
