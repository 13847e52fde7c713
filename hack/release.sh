#!/usr/bin/env bash
# Makes all files of a release from a clean clone of HEAD: docs/engineering/releasing.md lists them. The same commit and the same Go make the same bytes
# on every machine and in every directory: no file has a time but that of the commit, and archives have their files in the order of names, without owners.
#
# The work is that of kept tools: go, Helm, cyclonedx-gomod, tar, zip, sha256sum. goreleaser makes the archives, checksums and the manifest for Krew, too,
# but for these forty lines it brings 370 modules; its images want a container engine or a registry, and of charts, manifests and clusterctl it knows nothing.
#
# PROGRAMS, PLATFORMS, COMMANDS and COMMAND_PLATFORMS make less of it, to try something.
#
# usage: VERSION=v0.2.0 [REGISTRY=...] hack/release.sh OUTPUT
set -euo pipefail
export LC_ALL=C # for the order of names

cd "$(dirname "$0")/.."
output=${1:?the directory for the files}
mkdir -p "$(dirname "$output")"
output=$(cd "$(dirname "$output")" && pwd)/$(basename "$output")
: "${VERSION:?the version, for example v0.2.0}"
registry=${REGISTRY:-localhost/multicidr}
platforms=${PLATFORMS:-linux/amd64,linux/arm64}
read -ra programs <<<"${PROGRAMS:-kube-controller-manager node-ipam-controller cluster-ipam-controller}"
read -ra commands <<<"${COMMANDS:-kubectl-node_ipam}"
IFS=, read -ra command_platforms <<<"${COMMAND_PLATFORMS:-linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64}"
repository=https://github.com/multicidr/controller-manager

fail() {
	echo "release: $1" >&2
	exit 1
}
[[ $VERSION == "$(<controllers/build/VERSION)" ]] || fail "the sources are $(<controllers/build/VERSION), not $VERSION: run hack/set-version.sh $VERSION and commit"
[[ -z $(git status --porcelain) ]] || fail "there are changes that are not committed, and a release is made of a commit: commit or remove them"
[[ ! -e $output ]] || fail "$output exists: remove it, or name another directory"
for tool in jq zip; do command -v $tool >/dev/null || fail "there is no $tool: install it"; done

# shellcheck source=hack/release-sources.sh
source hack/release-sources.sh
sources=$(clone_sources "$(git rev-parse HEAD)" "$VERSION")
trap 'rm -rf "$sources" "$output.part"' EXIT
cd "$sources"
files=$output.part
mkdir "$files"
tag=$(hack/image-tag.sh)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

# Tools are no part of the release, and how they are built is the machine's matter.
helm() { GOFLAGS='' go -C "$sources/test/chart" tool helm "$@"; }
archive() { tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=ustar --create "$@" | gzip --no-name; }

images() {
	local program archive
	REGISTRY=$registry TAG=$tag PLATFORMS=$platforms hack/image.sh "${programs[@]}"
	for program in "${programs[@]}"; do
		for archive in bin/images/"$program".tar bin/images/"$program"-*.tar; do
			if [[ -e $archive ]]; then mv "$archive" "$files/$program-$tag.tar"; fi
		done
	done
}

# command_archives packs each command line tool with its licence: as a zip for Windows, which can open that, and else as a tar.gz.
command_archives() {
	local platform command built dir name
	for platform in "${command_platforms[@]}"; do
		for command in "${commands[@]}"; do
			built=$(build_command "$platform" "$command")
			dir=$(dirname "$built") name=$command-$VERSION-${platform/\//-}
			cp LICENSE "$dir"
			TZ=UTC touch --date="@$SOURCE_DATE_EPOCH" "$dir"/*
			chmod 755 "$built" && chmod 644 "$dir/LICENSE"
			if [[ $platform == windows/* ]]; then
				(cd "$dir" && TZ=UTC zip --quiet -X "$files/$name.zip" LICENSE "${built##*/}")
			else
				archive --directory="$dir" LICENSE "${built##*/}" >"$files/$name.tar.gz"
			fi
		done
	done
}

# krew_manifest is what Krew installs the plugin by: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest.
krew_manifest() {
	local path name os arch suffix
	cat <<-EOF
		apiVersion: krew.googlecontainertools.github.com/v1alpha2
		kind: Plugin
		metadata:
		  name: node-ipam
		spec:
		  version: $VERSION
		  homepage: $repository
		  shortDescription: Ask who has which podCIDRs, and why
		  description: |
		    Shows how full ClusterCIDRs are, explains what podCIDRs a Node has or would get,
		    says who has an address, plans changes, and checks a cluster before them.
		  platforms:
	EOF
	for path in "$files"/kubectl-node_ipam-"$VERSION"-*.{tar.gz,zip}; do
		[[ -e $path ]] || continue
		name=${path##*/} suffix=
		IFS=- read -r os arch <<<"${name#kubectl-node_ipam-"$VERSION"-}"
		if [[ $os == windows ]]; then suffix=.exe; fi
		cat <<-EOF
			  - selector:
			      matchLabels: {os: $os, arch: ${arch%%.*}}
			    uri: $repository/releases/download/$VERSION/$name
			    sha256: $(sha256sum "$path" | cut -d' ' -f1)
			    bin: kubectl-node_ipam$suffix
		EOF
	done
}

# charts packages the charts: with the name of the release's image, and of that image for catalogues.
charts() {
	local name chart
	for name in cluster-ipam-controller node-ipam-controller; do
		chart=manifests/charts/$name
		sed -i "s#^\(  repository: \)\"\"#\1$registry/$name#" "$chart/values.yaml"
		sed -i "s#^\(| .image.repository. | \)\`\"\"\`#\1\`$registry/$name\`#" "$chart/README.md"
		grep --quiet "$registry/$name" "$chart/values.yaml" || fail "$chart/values.yaml has no repository to name"
		# The annotations are the last part of the file.
		printf '  artifacthub.io/images: |\n    - name: %s\n      image: %s\n      platforms: [%s]\n' "$name" "$registry/$name:$tag" "$platforms" >>"$chart/Chart.yaml"
		helm package --destination "$files" "$sources/$chart" >/dev/null
	done
}

# joined writes files of the sources one after the other.
joined() {
	local path
	echo "# $1 of $VERSION"
	for path in "${@:2}"; do
		echo "---"
		sed '1{/^---$/d}' "$path"
	done
}

# rendered writes what the chart of this release makes of its defaults and some values. There will be no Helm that manages it.
rendered() {
	local name=$1 namespace=$2
	echo "# install-$name.yaml of $VERSION: what the chart makes of its defaults, in the namespace $namespace"
	if [[ $namespace != kube-system ]]; then
		printf -- '---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n  labels: {pod-security.kubernetes.io/enforce: restricted}\n' "$namespace"
	fi
	helm template "$name" "$files/$name-${VERSION#v}.tgz" --namespace="$namespace" --kube-version="${tag%%-mc*}" "${@:3}" |
		sed 's#app.kubernetes.io/managed-by: Helm#app.kubernetes.io/managed-by: kubectl#'
}

manifests() {
	local patch=manifests/kubeadm/patches/kube-controller-manager+strategic.yaml ours=localhost/multicidr/kube-controller-manager:$tag
	joined install-kube-controller-manager.yaml manifests/crds/*.yaml manifests/rbac/*.yaml >"$files/install-kube-controller-manager.yaml"
	joined fencing-kube-controller-manager.yaml manifests/fencing/{keep-leases,policy,kube-controller-manager,created-nodes}.yaml >"$files/fencing-kube-controller-manager.yaml"
	grep --quiet "$ours" "$patch" || fail "the patch for kubeadm does not name the tag $tag: run hack/set-version.sh"
	sed "s#$ours#$registry/kube-controller-manager:$tag#" "$patch" >"$files/kubeadm-patch-kube-controller-manager.yaml"
	rendered node-ipam-controller kube-system --set=fencing.enabled=true >"$files/install-node-ipam-controller.yaml"
	rendered cluster-ipam-controller cluster-ipam >"$files/install-cluster-ipam-controller.yaml"
	GOFLAGS='' go run ./hack/release -version="$VERSION" -tag="$tag" -registry="$registry" -output="$files"
}

# components lists the modules of each program, once for each system, with their licences, and packs the texts of these. A module whose licence nobody can
# tell ends it: somebody has to read that first.
components() {
	local program system name modules=$sources/bin/modules certificates
	certificates=$(cd hack/image && go list -m -f '{{.Path}}@{{.Version}}' golang.org/x/crypto/x509roots/fallback)
	echo "$certificates" >"$modules" # which each image has
	for program in "${programs[@]}" "${commands[@]}"; do
		for system in $([[ " ${programs[*]} " == *" $program "* ]] && echo linux || printf '%s\n' "${command_platforms[@]%/*}" | sort -u); do
			name=$program-$VERSION-$system.cdx.json
			GOOS=$system GOARCH=amd64 "$sources/bin/cyclonedx-gomod" app -json -licenses -assert-licenses -std -noserial -notimestamp -main "cmd/$program" "$sources" |
				# The tool has other bytes on each machine, and does not know the licence of Go.
				jq 'del(.metadata.tools) | (.components[] | select(.name == "std")).licenses = [{license: {id: "BSD-3-Clause"}}]' >"$files/$name"
			jq --raw-output '.components[] | select(.licenses | not) | "no licence is known of \(.name) \(.version)"' "$files/$name" | grep . >&2 && fail "read what is missing in $name"
			jq --raw-output '.components[] | select(.name != "std") | "\(.name)@\(.version)"' "$files/$name" >>"$modules"
		done
	done
	mkdir -p bin/licenses/std
	cp "$(go env GOROOT)/LICENSE" bin/licenses/std
	sort -u "$modules" | xargs go mod download -json | jq --raw-output '"\(.Path)@\(.Version) \(.Dir)"' | while read -r name dir; do
		(cd "$dir" && find . -type f -not -name '*.go' -not -path '*/testdata/*' | grep -iE '/(licen[cs]es?|copying|notice|patents|copyright)([-.][^/]*)?$' || true) | while read -r file; do
			install -D --mode=644 "$dir/$file" "bin/licenses/$name/$file"
		done
		[[ -d bin/licenses/$name ]] || fail "$name has no text of a licence"
	done
	archive --directory=bin/licenses . >"$files/third-party-licenses-$VERSION.tar.gz"
}

GOFLAGS='' GOOS='' GOARCH='' go -C hack/tools build -o "$sources/bin/cyclonedx-gomod" github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod
for step in images command_archives components charts manifests; do
	echo "release: ${step/_/ }"
	$step
done
if [[ " ${commands[*]} " == *" kubectl-node_ipam "* ]]; then krew_manifest >"$files/krew-node-ipam-$VERSION.yaml"; fi
(cd "$files" && sha256sum -- * >"$sources/bin/SHA256SUMS")
mv bin/SHA256SUMS "$files"
mv "$files" "$output"
echo "release: $output"
