#!/usr/bin/env bash
# Checks what a forge reads: the workflows, with actionlint; that each make target in them exists; and that the settings of dependabot know each
# module. make verify runs it.
set -euo pipefail

cd "$(dirname "$0")/.."
failed=false
fail() {
	echo "$1" >&2
	failed=true
}

# It would use these if a machine has them, and find other things on each machine.
go tool -modfile="$PWD/hack/tools/go.mod" actionlint -shellcheck= -pyflakes= || failed=true

while read -r target; do
	grep -q "^$target:" Makefile || fail "a workflow runs make $target, which is no target of the Makefile"
done < <(sed -n 's/^.*[ :]make \([a-z0-9-]*\).*/\1/p' .github/workflows/*.yaml | sort -u)

# Those of older minors are written from scratch by hack/pin-kubernetes.sh: what dependabot changed there would be gone the next time.
modules=$(find . -name go.mod -not -path './bin/*' -not -path './hack/kubernetes/*' | sed 's#^\.##; s#/go.mod$##; s#^$#/#' | sort)
named=$(sed -n 's#^      - \(/.*\)$#\1#p' .github/dependabot.yaml | sort)
diff <(echo "$modules") <(echo "$named") >&2 || fail "the directories in .github/dependabot.yaml (>) are not those of the modules (<)"
! $failed
