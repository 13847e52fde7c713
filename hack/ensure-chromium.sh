#!/usr/bin/env bash
# Makes sure there is a browser, which the test of the debug page needs: installs one as root on Debian, unless
# INSTALL=no, and elsewhere says what to do.
set -euo pipefail

found() { command -v chromium || command -v chromium-browser || command -v google-chrome; }

if found >/dev/null; then exit 0; fi
if [[ ${INSTALL:-yes} != no && $EUID -eq 0 ]] && command -v apt-get >/dev/null; then
	echo "installing the Debian package chromium, since the test of the debug page needs a browser; INSTALL=no prevents that"
	apt-get update --quiet=2
	DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends chromium
	if found >/dev/null; then exit 0; fi
fi
echo "The test of the debug page needs a browser. Install Chromium (Debian: sudo apt-get install chromium) or Chrome." >&2
exit 1
