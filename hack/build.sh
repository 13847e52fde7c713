#!/usr/bin/env bash
# Builds programs, stamped with the Kubernetes version they are made of, and shows how far it is: a first build of
# Kubernetes compiles more than a thousand packages and takes minutes, later ones take seconds.
#
# usage: [GO_LDFLAGS=...] [KUBERNETES=v1.36] hack/build.sh OUTPUT PACKAGE [MODULE_DIR] [-- OUTPUT PACKAGE [MODULE_DIR]]...
#
# With an older minor the programs are made of that one: its module file has ours and those of Kubernetes.
# Of several programs, those of other modules are not looked at if they are newer than the files of their module: nothing else
# changes them.
set -euo pipefail

cd "$(dirname "$0")/.."
. hack/minor.sh
export CGO_ENABLED=0

outputs=() packages=() modules=()
several=false
while (($# > 0)); do
	outputs+=("$1") packages+=("$2")
	shift 2
	module=.
	if (($# > 0)) && [[ $1 != -- ]]; then module=$1; shift; fi
	if [[ -n $modfile && $module == hack/tools/kubernetes ]]; then module=.; fi
	modules+=("$module")
	if (($# > 0)); then several=true; shift; fi
done

# Where upstream's release scripts put the version of a git checkout. A module is no checkout: its commit is unknown,
# and its date is the release's, which also keeps the build reproducible.
version_flags() {
	local version date major minor package
	read -r version date < <(go list ${modfile:+-modfile="$modfile"} -m -f '{{.Version}} {{with .Time}}{{.Format "2006-01-02T15:04:05Z07:00"}}{{end}}' k8s.io/kubernetes)
	IFS=. read -r major minor _ <<<"${version#v}"
	for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		printf -- '-X %s.%s ' "$package" "gitVersion=$version" "$package" "gitMajor=$major" "$package" "gitMinor=$minor" \
			"$package" "gitCommit=" "$package" "gitTreeState=archive" "$package" "buildDate=${date:-1970-01-01T00:00:00Z}"
	done
}

# in_module N COMMAND ARGUMENT... runs a command of go in the module of this number.
in_module() {
	local module=${modules[$1]} command=$2 flags=()
	shift 2
	if [[ -n $modfile && $module == . ]]; then flags=(-modfile="$modfile"); fi
	go -C "$module" "$command" "${flags[@]}" "$@"
}

# fresh N is whether nothing can have changed the program of this number.
fresh() {
	local output=${outputs[$1]} module=${modules[$1]}
	$several && [[ $module != . && $output -nt $module/go.mod && $output -nt $module/go.sum && $output -nt hack/build.sh ]]
}

# missing lists the packages that have to be compiled for programs that do not exist yet, with the versions of their modules, because
# modules of the project can have different ones.
missing() {
	local i
	for i in "${!outputs[@]}"; do
		if [[ ! -e ${outputs[i]} ]]; then
			in_module "$i" list -deps -f '{{if .Stale}}{{.ImportPath}} {{with .Module}}{{.Version}}{{end}}{{end}}' "${packages[i]}"
		fi
	done | sed '/^$/d' | sort -u
}

begin=$SECONDS compiled=0 total=0
exec 3>&1 # for people; standard output of progress is for this script

# Reads the output of go build -v: the name of each package that it compiles, and everything that went wrong. It prints how many packages
# have been compiled in all.
progress() {
	local line now share=
	while IFS= read -r line; do
		if [[ $line == *[[:space:]]* ]]; then
			echo "$line" >&2
			continue
		fi
		compiled=$((compiled + 1)) now=$((SECONDS - begin))
		if ((total > 0)); then share=" of $((total > compiled ? total : compiled)) ($((total > compiled ? compiled * 100 / total : 100)) %)"; fi
		if [[ -t 3 ]]; then
			printf '\r\033[K  %d%s packages, %ds: %.60s' "$compiled" "$share" "$now" "$line" >&3
		elif ((compiled % 200 == 0)); then
			echo "  $compiled$share packages, ${now}s" >&3
		fi
	done
	if [[ -t 3 ]]; then printf '\r\033[K' >&3; fi
	echo "$compiled"
}

for i in "${!outputs[@]}"; do
	case ${packages[i]} in
	k8s.io/kubernetes/* | ./cmd/*-controller*) if [[ ! -e ${outputs[i]} ]]; then total=$(missing | wc -l); fi ;;
	esac
	if ((total > 0)); then break; fi
done
note=
if ((total > 500)); then note=" (a first build of Kubernetes takes minutes)"; fi
for i in "${!outputs[@]}"; do
	if fresh "$i"; then continue; fi
	output=${outputs[i]} before=$compiled
	echo "build $output$note"
	note=
	mkdir -p "$(dirname "$output")"
	compiled=$(in_module "$i" build -v -ldflags "${GO_LDFLAGS:-} $(version_flags)" -o "$PWD/$output" "${packages[i]}" 2>&1 | progress)
	if ((compiled > before)); then echo "  $((compiled - before)) packages compiled, $((SECONDS - begin))s"; fi
done
