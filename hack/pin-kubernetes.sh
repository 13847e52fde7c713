#!/usr/bin/env bash
# Pins Kubernetes: k8s.io/kubernetes at the given version and each module it stages (k8s.io/api, k8s.io/client-go, ...) at the matching v0.y.z.
#
# A version of the minor that go.mod has, or of a newer one, goes into every go.mod of the project. A version of an older minor goes into
# hack/kubernetes/MINOR/go.mod, which the go command uses in place of go.mod to build the same sources for that minor (go build -modfile), and
# which also builds that minor's own programs: `make build tools KUBERNETES=v1.36`.
#
# k8s.io/kubernetes requires its staged modules at v0.0.0 and replaces them with directories of its own
# tree. Replacements of a dependency are ignored, so a program that imports k8s.io/kubernetes has to
# repeat each of them; this script reads the list from the module itself instead of keeping a copy. A program that imports only
# staged modules, like test/chart, requires them and replaces nothing. The tag of the images follows the pin.
#
# usage: hack/pin-kubernetes.sh vMAJOR.MINOR.PATCH
set -euo pipefail

version=${1:?"usage: $0 vMAJOR.MINOR.PATCH, for example $0 v1.37.1"}
[[ $version =~ ^v1\.([0-9]+)\.[0-9]+$ ]] || { echo "$0: '$version' is no Kubernetes release; write it as v1.37.1" >&2; exit 2; }
minor=${BASH_REMATCH[1]}
staged_version=v0.${version#v1.}

cd "$(dirname "$0")/.."
# Outside of every module.
outside=$(mktemp -d)
trap 'rmdir "$outside"' EXIT
upstream_gomod=$(cd "$outside" && go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/.*"GoMod": "\(.*\)",.*/\1/p')
staged=$(go mod edit -print "$upstream_gomod" | sed -n 's#^\t\(k8s\.io/[^ ]*\) => \./staging/.*#\1#p')
[[ -n $staged ]] || { echo "$0: no staged modules found in $upstream_gomod" >&2; exit 1; }

# pin_older writes the module file of an older minor from nothing but what Kubernetes requires, and what go.mod has beside it. So nothing
# newer than in that release of Kubernetes gets into its packages, and what our manager and Kubernetes' own programs both have is the same.
pin_older() {
	local dir=hack/kubernetes/v1.$minor upstream module wanted have program args
	upstream=$(requirements "$upstream_gomod")
	mkdir -p "$dir"
	rm -f "$dir/go.sum"
	go mod edit -print | grep -E '^(module|go) ' >"$dir/go.mod"
	args=(-require="k8s.io/kubernetes@$version")
	for module in $staged; do args+=(-replace="$module=$module@$staged_version"); done
	for program in kube-apiserver kube-controller-manager kube-scheduler kubeadm kubectl kubelet; do args+=(-tool="k8s.io/kubernetes/cmd/$program"); done
	for program in applyconfiguration client deepcopy informer lister; do args+=(-tool="k8s.io/code-generator/cmd/$program-gen"); done
	while read -r module wanted; do
		if [[ $module != k8s.io/* && $'\n'$upstream != *$'\n'"$module "* ]]; then args+=(-require="$module@$wanted"); fi
	done < <(go mod edit -print | grep -v '// indirect$' | requirements)
	go mod edit "${args[@]}" "$dir/go.mod"
	go mod tidy -modfile="$dir/go.mod"
	# What our other dependencies want newer is held back.
	args=()
	while read -r module have; do
		wanted=$(sed -n "s#^$module ##p" <<<"$upstream")
		if [[ -n $wanted && $wanted != v0.0.0 && $wanted != "$have" ]]; then args+=(-replace="$module=$module@$wanted"); fi
	done < <(requirements "$dir/go.mod")
	if [[ ${#args[@]} -gt 0 ]]; then
		go mod edit "${args[@]}" "$dir/go.mod"
		go mod tidy -modfile="$dir/go.mod"
	fi
	echo "$dir/go.mod: Kubernetes $version, staged modules $staged_version"
}

# requirements prints what a module file requires: module and version. Without an argument it reads lines of one.
requirements() {
	if [[ $# -gt 0 ]]; then go mod edit -print "$1"; else cat; fi | sed -nE 's#^\t([^ ]+) (v[^ ]+)( // indirect)?$#\1 \2#p'
}

current=$(requirements go.mod | sed -n 's/^k8s\.io\/kubernetes v1\.\([0-9]*\)\..*/\1/p')
if ((minor < current)); then
	pin_older
	hack/set-version.sh
	echo "images: tag $(KUBERNETES=v1.$minor hack/image-tag.sh)"
	exit
fi

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
for dir in hack/tools test/chart test/consumer test/distributions test/move; do
	(cd "$dir" && require)
	echo "$dir/go.mod: staged modules $staged_version"
done
hack/set-version.sh
echo "images: tag $(hack/image-tag.sh)"
