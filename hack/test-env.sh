#!/usr/bin/env bash
# Starts and ends, in the background, a control plane with the CRDs and nothing that allocates, on which one runs the
# controller by hand. Its files are in bin/test-env, with KUBERNETES=v1.36 in bin/v1.36/test-env, or in $TEST_ENV_DIR, a directory that up makes and down removes.
#
# usage: [KUBERNETES=v1.36] hack/test-env.sh up|down
set -euo pipefail

cd "$(dirname "$0")/.."
. hack/minor.sh
dir=$(realpath -ms -- "${TEST_ENV_DIR:-$bin/test-env}") # one name, however it is written
# Only a directory with this file in it, and this text in the file, is removed.
marker=$dir/.made-by
made_by=hack/test-env.sh

# A number that was our process may be somebody else's by now.
running() { [[ -e $dir/pid && $(ps -ww -o args= -p "$(<"$dir/pid")") == "$bin/local-cluster env --dir=$dir/cluster" ]]; }

# made succeeds if the directory is ours, and ends this script if it is somebody else's.
made() {
	[[ -e $dir || -L $dir ]] || return 1
	if [[ -L $dir || ! -f $marker || $(<"$marker") != "$made_by" ]]; then
		echo "test-env: $dir was not made by $made_by, so it is neither used nor removed. Set TEST_ENV_DIR to a directory that does not exist" >&2
		exit 1
	fi
}

up() {
	if ! made || ! running; then
		rm -rf "$dir"
		mkdir "$dir"
		echo "$made_by" >"$marker"
		: >"$dir/log"
		# A session of its own, so that it survives this terminal.
		setsid "$bin/local-cluster" env --dir="$dir/cluster" </dev/null >"$dir/log" 2>&1 &
		echo $! >"$dir/pid"
	fi
	until grep -q '^ready:' "$dir/log"; do
		sleep 0.1 # Long enough for the process to be the program and not this script any more.
		running || { cat "$dir/log" >&2; return 1; }
	done
	sed -n '/^ready:/,$p' "$dir/log"
}

down() {
	made || return 0
	if running; then
		kill "$(<"$dir/pid")"
		while running; do sleep 0.1; done
	fi
	rm -rf "$dir"
}

case ${1-} in
up | down) "$1" ;;
*) sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2 ;;
esac
