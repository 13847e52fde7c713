#!/usr/bin/env bash
# Pins Kubernetes in every go.mod of the project: k8s.io/kubernetes at the given version and each
# module it stages (k8s.io/api, k8s.io/client-go, ...) at the matching v0.y.z.
#
# k8s.io/kubernetes requires its staged modules at v0.0.0 and replaces them with directories of its own
# tree. Replacements of a dependency are ignored, so a program that imports k8s.io/kubernetes has to
# repeat each of them; this script reads the list from the module itself instead of keeping a copy. A program that imports only
# staged modules, like test/chart, requires them and replaces nothing. The tag of the images follows the pin.
#
# usage: hack/pin-kubernetes.sh v1.37.1
set -euo pipefail

version=${1:?"usage: $0 vMAJOR.MINOR.PATCH, for example $0 v1.37.1"}
[[ $version =~ ^v1\.[0-9]+\.[0-9]+$ ]] || { echo "$0: '$version' is no Kubernetes release; write it as v1.37.1" >&2; exit 2; }
staged_version=v0.${version#v1.}

cd "$(dirname "$0")/.."
# Outside of every module.
outside=$(mktemp -d)
trap 'rmdir "$outside"' EXIT
upstream_gomod=$(cd "$outside" && go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/.*"GoMod": "\(.*\)",.*/\1/p')
staged=$(go mod edit -print "$upstream_gomod" | sed -n 's#^\t\(k8s\.io/[^ ]*\) => \./staging/.*#\1#p')
[[ -n $staged ]] || { echo "$0: no staged modules found in $upstream_gomod" >&2; exit 1; }

# require pins what the go.mod here lists of the staged modules.
require() {
	local module args=()
	for module in $staged; do
		if go mod edit -print | grep -q "^[[:space:]]*$module v"; then args+=(-require="$module@$staged_version"); fi
	done
	go mod edit "${args[@]}"
	go mod tidy
}

for dir in . hack/tools/kubernetes; do
	(
		cd "$dir"
		# Drop replacements of modules that upstream no longer stages.
		for module in $(go mod edit -print | sed -n 's#^\t\(k8s\.io/[^ ]*\) => .*#\1#p'); do
			go mod edit -dropreplace="$module"
		done
		args=(-require="k8s.io/kubernetes@$version")
		for module in $staged; do
			args+=(-replace="$module=$module@$staged_version")
		done
		go mod edit "${args[@]}"
		go mod tidy
		require # now that staged ones are listed which only Kubernetes requires, at v0.0.0
	)
	echo "$dir/go.mod: Kubernetes $version, staged modules $staged_version"
done
for dir in hack/release hack/tools test/chart test/consumer; do
	(cd "$dir" && require)
	echo "$dir/go.mod: staged modules $staged_version"
done
hack/set-version.sh
echo "images: tag $(hack/image-tag.sh)"
