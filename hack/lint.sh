#!/usr/bin/env bash
# Looks for mistakes and needless words in the Go code of every module, as .golangci.yaml says. `make lint` builds what it runs.
#
# All modules are looked at, so that one run shows everything there is to repair.
set -euo pipefail

cd "$(dirname "$0")/.."
root=$PWD
export CGO_ENABLED=0

failed=false
for module in . hack/image test/chart test/consumer test/distributions test/monitoring test/move; do
	(cd "$module" && "$root/bin/golangci-lint" run --allow-parallel-runners) || failed=true
done
! $failed
