#!/usr/bin/env bash
# Starts and ends, in the background, a control plane with the CRDs and nothing that allocates, on which one runs the
# controller by hand. Its files are in bin/test-env, or in $TEST_ENV_DIR.
#
# usage: hack/test-env.sh up|down
set -euo pipefail

cd "$(dirname "$0")/.."
dir=${TEST_ENV_DIR:-bin/test-env}

# A number that was our process may be somebody else's by now.
running() { [[ -e $dir/pid && $(ps -o comm= -p "$(<"$dir/pid")") == local-cluster ]]; }

up() {
	if ! running; then
		rm -rf "$dir"
		mkdir -p "$dir"
		# A session of its own, so that it survives this terminal.
		setsid bin/local-cluster env --dir="$dir/cluster" </dev/null >"$dir/log" 2>&1 &
		echo $! >"$dir/pid"
	fi
	until grep -q '^ready:' "$dir/log"; do
		running || { cat "$dir/log" >&2; return 1; }
		sleep 0.1
	done
	sed -n '/^ready:/,$p' "$dir/log"
}

down() {
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
