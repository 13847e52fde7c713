#!/usr/bin/env bash
# Runs targets of make one after the other, goes on after one that fails, and says at the end how each of them ended and how long it
# took. Ends with 1 if one failed. What a target printed is in bin/nightly/TARGET.log.
#
# usage: hack/nightly.sh TARGET...
set -euo pipefail

cd "$(dirname "$0")/.."
logs=bin/nightly
mkdir -p "$logs"
failed=false summary=

took() { printf '%dh%02dm%02ds' $(($1 / 3600)) $(($1 / 60 % 60)) $(($1 % 60)); }
end() {
	printf '\n%-24s %-8s %s\n%s%-24s %-8s %s\n' LANE RESULT TIME "$summary" all "$($failed && echo FAILED || echo passed)" "$(took $SECONDS)"
	if $failed; then exit 1; fi
}
# Ctrl-C ends the lane that runs, and then this.
trap 'failed=true; end' INT TERM

for lane; do
	begin=$SECONDS result=passed
	echo "nightly: $lane ($logs/$lane.log)"
	if ! "${MAKE:-make}" --no-print-directory "$lane" >"$logs/$lane.log" 2>&1; then
		result=FAILED failed=true
		tail -n 30 "$logs/$lane.log"
	elif grep -q '^[a-z0-9-]*: skipped:' "$logs/$lane.log"; then
		result=skipped
	fi
	summary+=$(printf '%-24s %-8s %s' "$lane" "$result" "$(took $((SECONDS - begin)))")$'\n'
done
end
