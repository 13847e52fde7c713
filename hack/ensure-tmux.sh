#!/usr/bin/env bash
# Makes sure there is tmux, a terminal for the test of `kubectl node-ipam top`: installs it as root on Debian, unless INSTALL=no, and elsewhere says
# what to do.
set -euo pipefail

found() { command -v tmux; }

if found >/dev/null; then exit 0; fi
if [[ ${INSTALL:-yes} != no && $EUID -eq 0 ]] && command -v apt-get >/dev/null; then
	echo "installing the Debian package tmux, since the test of kubectl node-ipam top needs a terminal; INSTALL=no prevents that"
	apt-get update --quiet=2
	DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends tmux
	if found >/dev/null; then exit 0; fi
fi
echo "The test of kubectl node-ipam top needs a terminal. Install tmux (Debian: sudo apt-get install tmux)." >&2
exit 1
