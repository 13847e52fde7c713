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
generated() { hack/generate.sh "$copy" >/dev/null && unchanged apis manifests; }
pinned() {
	"$copy/hack/pin-kubernetes.sh" "$(go list -m -f '{{.Version}}' k8s.io/kubernetes)" >/dev/null &&
		unchanged go.mod go.sum hack/tools/go.mod hack/tools/go.sum \
			test/chart/go.mod test/chart/go.sum test/consumer/go.mod test/consumer/go.sum
}
versioned() { "$copy/hack/set-version.sh" && unchanged controllers/build README.md docs manifests test/e2e test/chart/testdata; }
formatted() {
	local files
	files=$(gofmt -l .)
	[[ -z $files ]] || { echo "$files"; return 1; }
}

check "generated files" "run make generate and commit the result" generated
check "versions" "run hack/set-version.sh with the version in controllers/build/VERSION" versioned
check "formatting" "run gofmt -w on these files" formatted
check "lint" "repair what it says" hack/lint.sh
check "go.mod" "run go mod tidy" go mod tidy -diff
check "hack/tools/go.mod" "run go mod tidy in hack/tools" go -C hack/tools mod tidy -diff
check "hack/cluster/tools/go.mod" "run go mod tidy in hack/cluster/tools" go -C hack/cluster/tools mod tidy -diff
check "hack/lint/go.mod" "run go mod tidy in hack/lint" go -C hack/lint mod tidy -diff
check "hack/image/go.mod" "run go mod tidy in hack/image" go -C hack/image mod tidy -diff
check "hack/plot/go.mod" "run go mod tidy in hack/plot" go -C hack/plot mod tidy -diff
check "test/monitoring/go.mod" "run go mod tidy in test/monitoring" go -C test/monitoring mod tidy -diff
check "test/chart/go.mod" "run go mod tidy in test/chart" go -C test/chart mod tidy -diff
check "test/conformance/original/go.mod" "run go mod tidy in test/conformance/original" go -C test/conformance/original mod tidy -diff
check "test/consumer/go.mod" "run go mod tidy in test/consumer" go -C test/consumer mod tidy -diff
check "test/consumer/programs/go.mod" "run go mod tidy in test/consumer/programs" go -C test/consumer/programs mod tidy -diff
check "Kubernetes pins" "run hack/pin-kubernetes.sh with the version of k8s.io/kubernetes in go.mod" pinned

if [[ ${#failed[@]} -gt 0 ]]; then
	printf 'verify: FAILED %s\n' "${failed[@]}" >&2
	exit 1
fi
echo "verify: all good"
