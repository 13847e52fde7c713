#!/usr/bin/env bash
# Looks for known vulnerabilities in the code that our programs can reach, with govulncheck. What was not checked is never called good: it
# ends with 2 if the database of vulnerabilities cannot be reached, and with 3 if there are vulnerabilities.
#
# usage: [VULNDB=https://vuln.go.dev] hack/vulncheck.sh PACKAGE...
# VULNDB can be a mirror, or file:///DIRECTORY.
set -euo pipefail

cd "$(dirname "$0")/.."
export CGO_ENABLED=0
database=${VULNDB:-https://vuln.go.dev}
govulncheck() { go tool -modfile="$PWD/hack/tools/go.mod" govulncheck "-db=$database" "$@"; }

# It asks the database for its age. The analysis would ask only after minutes, and takes an empty directory for a database without entries.
if ! age=$(govulncheck -version | grep '^DB updated: [^0]'); then
	echo "vulncheck: NOT CHECKED: the database of vulnerabilities, $database, cannot be reached from here." >&2
	echo "Run it where it can be reached, or name a mirror: make vulncheck VULNDB=..." >&2
	exit 2
fi
echo "vulncheck: $database, ${age#DB }"
code=0
govulncheck "$@" || code=$?
case $code in
0) echo "vulncheck: no known vulnerability in what the programs can reach" ;;
3) echo "vulncheck: there are vulnerabilities in what the programs can reach: take the versions that repair them" >&2 ;;
*)
	echo "vulncheck: NOT CHECKED: govulncheck ended with $code" >&2
	code=2
	;;
esac
exit "$code"
