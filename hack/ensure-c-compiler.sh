#!/usr/bin/env bash
# Makes sure there is a C compiler, which the race detector needs: installs one as root on Debian, unless
# INSTALL=no, and elsewhere says what to do.
set -euo pipefail

compiler=$(go env CC)
compiler=${compiler%% *}
found() { command -v "$compiler" >/dev/null; }

if found; then exit 0; fi
if [[ ${INSTALL:-yes} != no && $EUID -eq 0 ]] && command -v apt-get >/dev/null; then
	echo "installing the Debian packages gcc and libc6-dev, since the race detector needs a C compiler; INSTALL=no prevents that"
	apt-get update --quiet=2
	DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends gcc libc6-dev
	if found; then exit 0; fi
fi
echo "The race detector needs a C compiler, and '$compiler' is not installed. Install gcc and the C library's headers" >&2
echo "(Debian: sudo apt-get install gcc libc6-dev), or set CC to another compiler." >&2
exit 1
