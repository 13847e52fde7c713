#!/usr/bin/env bash
# Fails when something that is checked in is not what our tools would write: generated files, formatting, module files,
# Kubernetes pins; and when linters, go vet among them, find something. make builds bin/golangci-lint before. Works on a copy;
# changes nothing in the tree.
#
# Every check runs, so that one run shows everything there is to repair.
set -euo pipefail

cd "$(dirname "$0")/.."
export CGO_ENABLED=0

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
tar --create --exclude=./.git --exclude=./bin . | tar --extract --directory="$copy"

failed=()
# check NAME REPAIR COMMAND... runs the command and remembers the name, and what to do about it, if it fails.
check() {
	local name=$1 repair=$2
	shift 2
	echo "verify: $name"
	"$@" || failed+=("$name: $repair")
}

# unchanged PATH... compares the paths with the copy.
unchanged() {
	local path same=true
	for path in "$@"; do
		diff --recursive --new-file --unified "$path" "$copy/$path" || same=false
	done
	$same
}
generated() { hack/generate.sh "$copy" >/dev/null && unchanged apis manifests docs/reference; }
pinned() {
	"$copy/hack/pin-kubernetes.sh" "$(go list -m -f '{{.Version}}' k8s.io/kubernetes)" >/dev/null &&
		unchanged go.mod go.sum hack/tools/kubernetes/go.mod hack/tools/kubernetes/go.sum hack/tools/go.mod hack/tools/go.sum \
			test/chart/go.mod test/chart/go.sum test/consumer/go.mod test/consumer/go.sum test/distributions/go.mod test/distributions/go.sum test/move/go.mod test/move/go.sum
}
# Everything in the module file of an older minor comes from the script.
pinned_older() {
	local file version
	for file in hack/kubernetes/*/go.mod; do
		version=$(go list -modfile="$file" -m -f '{{.Version}}' k8s.io/kubernetes) && "$copy/hack/pin-kubernetes.sh" "$version" >/dev/null &&
			unchanged "${file%/go.mod}" || return 1
	done
}
versioned() { "$copy/hack/set-version.sh" && unchanged controllers/build README.md docs examples/distributions manifests test/e2e test/chart/testdata; }
formatted() {
	local files
	files=$(gofmt -l .)
	[[ -z $files ]] || { echo "$files"; return 1; }
}

check "generated files" "run make generate and commit the result" generated
check "versions" "run hack/set-version.sh with the version in controllers/build/VERSION" versioned
check "formatting" "run gofmt -w on these files" formatted
check "lint" "repair what it says" hack/lint.sh
# What checks the pages comes from npm. A machine without it, or without that registry, can still check the rest.
if hack/docs.sh tools; then
	check "links in the pages" "correct the links, or what they lead to" hack/docs.sh links
	check "words and form of the pages" "change the lines as it says; hack/docs/words.mjs has the words" hack/docs.sh prose
else
	echo "verify: the pages were NOT checked, because their tools could not be installed" >&2
fi
check "workflows and settings of the forge" "repair what it says" hack/forge.sh
for module in $(find . -name go.mod -not -path './bin/*' -not -path './hack/kubernetes/*' | sed 's#/go.mod$##' | sort); do
	check "${module#./}/go.mod" "run go mod tidy in ${module#./}" go -C "$module" mod tidy -diff
done
check "Kubernetes pins" "run hack/pin-kubernetes.sh with the version of k8s.io/kubernetes in go.mod" pinned

check "Kubernetes pins of older minors" "run hack/pin-kubernetes.sh with the version of k8s.io/kubernetes in hack/kubernetes/*/go.mod" pinned_older

if [[ ${#failed[@]} -gt 0 ]]; then
	printf 'verify: FAILED %s\n' "${failed[@]}" >&2
	exit 1
fi
echo "verify: all good"
