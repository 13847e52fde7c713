#!/usr/bin/env bash
# Reads a release back, by its files alone: checksums, the programs of its images and commands, the text of a licence for each component; installs its charts
# and manifests into a local etcd and kube-apiserver, and runs node-ipam-controller there as the chart says; and builds one program again from a clean clone of
# the release's commit, in another directory, which must make the same bytes.
#
# usage: [REBUILD=node-ipam-controller] hack/verify-release.sh DIRECTORY
set -euo pipefail
export LC_ALL=C # for the order of names

cd "$(dirname "$0")/.."
release=$(cd "${1:?the directory of the release}" && pwd)
programs=$(mktemp -d)
sources=
trap 'rm -rf "$programs" ${sources:+"$sources"}' EXIT
platform=$(go env GOHOSTOS)-$(go env GOHOSTARCH)

fail() {
	echo "verify-release: $1" >&2
	exit 1
}

(cd "$release" && sha256sum --check --strict --quiet SHA256SUMS) || fail "not the files of SHA256SUMS"
diff <(cut -c67- "$release/SHA256SUMS") <(cd "$release" && ls --ignore=SHA256SUMS) || fail "SHA256SUMS names other files than there are"
echo "verify-release: SHA256SUMS: $(wc -l <"$release/SHA256SUMS") files"

# program_of ARCHIVE PROGRAM unpacks the program for this platform from an image.
program_of() {
	local dir digest
	dir=$(mktemp -d)
	tar --extract --file="$1" --directory="$dir"
	blob() { echo "$dir/blobs/${1/://}"; }
	digest=$(jq --raw-output '.manifests[0].digest' "$dir/index.json")
	if jq --exit-status .manifests "$(blob "$digest")" >/dev/null; then
		digest=$(jq --raw-output --arg platform "$platform" '.manifests[] | select("\(.platform.os)-\(.platform.architecture)" == $platform).digest' "$(blob "$digest")")
	fi
	if [[ -n $digest ]]; then tar --extract --gzip --file="$(blob "$(jq --raw-output '.layers[0].digest' "$(blob "$digest")")")" --directory="$programs" --strip-components=3 "usr/local/bin/$2"; fi
	rm -rf "$dir"
}

for archive in "$release"/*-mc*.tar; do
	if [[ -e $archive ]]; then name=${archive##*/} && program_of "$archive" "${name%-v*-mc*}"; fi
done
for archive in "$release"/*-"$platform".tar.gz; do
	if [[ -e $archive ]]; then tar --extract --gzip --file="$archive" --directory="$programs" --exclude=LICENSE; fi
done
version=$(cd "$release" && echo third-party-licenses-*.tar.gz) version=${version#third-party-licenses-} version=${version%.tar.gz}
commit=
for program in "$programs"/*; do
	[[ $("$program" --version) == *" (multicidr $version)" ]] || fail "$program --version says $("$program" --version)"
	built=$(go version -m "$program")
	commit=$(sed -n 's/.*vcs.revision=//p' <<<"$built")
	grep --quiet 'vcs.modified=false' <<<"$built" || fail "$program is of changed sources"
	grep --quiet --text --fixed-strings -e "$(go env GOMODCACHE)" -e "${TMPDIR:-/tmp}/multicidr-release" "$program" && fail "$program names directories of the machine"
	echo "verify-release: ${program##*/}: $("$program" --version), commit $commit"
done
[[ -n $commit ]] || fail "there is no program for $platform"

texts=$(tar --list --gzip --file="$release/third-party-licenses-$version.tar.gz")
for list in "$release"/*.cdx.json; do
	while read -r component; do
		grep --quiet --fixed-strings "./$component/" <<<"$texts" || fail "there is no licence of $component, which is in ${list##*/}"
	done < <(jq --raw-output '.components[] | if .name == "std" then "std" else "\(.name)@\(.version)" end' "$list")
done

echo "verify-release: charts and manifests, in an API server"
program=$programs/node-ipam-controller
if [[ -x $program ]]; then
	go -C test/chart test -count=1 ./... -charts="$release" -program="$program"
else
	echo "verify-release: node-ipam-controller of this platform is not in the release: the charts are not tried with it" >&2
	go -C test/chart test -count=1 -skip='^(TestProgramRunsAsRendered|TestAppVersion)$' ./... -charts="$release"
fi

rebuild=${REBUILD:-kubectl-node_ipam}
echo "verify-release: build $rebuild again, of commit $commit"
# shellcheck source=hack/release-sources.sh
source hack/release-sources.sh
sources=$(clone_sources "$commit" "$version")
cd "$sources"
built=$(build_command "${platform/-//}" "$rebuild")
cmp "$built" "$programs/$rebuild"
echo "verify-release: $rebuild has the same bytes"
