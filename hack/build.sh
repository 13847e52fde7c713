#!/usr/bin/env bash
# Builds one program, stamped with the Kubernetes version it is made of, and shows how far it is: a first build of
# Kubernetes compiles more than a thousand packages and takes minutes, later ones take seconds.
#
# usage: [GO_LDFLAGS=...] [KUBERNETES=v1.36] hack/build.sh OUTPUT PACKAGE [MODULE_DIR]
# With an older minor the program is made of that one. Its module file is for the programs of all directories.
set -euo pipefail

cd "$(dirname "$0")/.."
. hack/minor.sh
output=$PWD/$1 package=$2 module=${3:-.}
flags=()
if [[ -n $modfile ]]; then module=. flags=(-modfile="$modfile"); fi
export CGO_ENABLED=0

# Where upstream's release scripts put the version of a git checkout. A module is no checkout: its commit is unknown,
# and its date is the release's, which also keeps the build reproducible.
version_flags() {
	local version date major minor package
	read -r version date < <(go -C "$module" list "${flags[@]}" -m -f '{{.Version}} {{with .Time}}{{.Format "2006-01-02T15:04:05Z07:00"}}{{end}}' k8s.io/kubernetes)
	IFS=. read -r major minor _ <<<"${version#v}"
	for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		printf -- '-X %s.%s ' "$package" "gitVersion=$version" "$package" "gitMajor=$major" "$package" "gitMinor=$minor" \
			"$package" "gitCommit=" "$package" "gitTreeState=archive" "$package" "buildDate=${date:-1970-01-01T00:00:00Z}"
	done
}

# Reads the output of go build -v: the name of each package that it compiles, and everything that went wrong.
progress() {
	local line compiled=0 begin=$SECONDS
	while IFS= read -r line; do
		if [[ $line == *[[:space:]]* ]]; then
			echo "$line" >&2
			continue
		fi
		compiled=$((compiled + 1))
		if [[ -t 1 ]]; then
			printf '\r\033[K  %d packages, %ds: %.60s' "$compiled" $((SECONDS - begin)) "$line"
		elif ((compiled % 200 == 0)); then
			echo "  $compiled packages, $((SECONDS - begin))s"
		fi
	done
	if [[ -t 1 ]]; then printf '\r\033[K'; fi
	if ((compiled > 0)); then echo "  $compiled packages compiled in $((SECONDS - begin))s"; fi
}

note=
if [[ ! -e $output && ($package == k8s.io/kubernetes/* || $package == ./cmd/*-controller*) ]]; then note=" (a first build of Kubernetes takes minutes)"; fi
echo "build ${output#"$PWD"/}$note"
mkdir -p "$(dirname "$output")"
go -C "$module" build "${flags[@]}" -v -ldflags "${GO_LDFLAGS:-} $(version_flags)" -o "$output" "$package" 2>&1 | progress
