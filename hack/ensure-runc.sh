#!/usr/bin/env bash
# Makes sure there is runc, which containerd starts containers with on a cluster's machines: installs it where that is
# possible without a question, else says what to do.
set -euo pipefail

found() { command -v runc >/dev/null; }

if found; then exit 0; fi
if [[ $EUID -eq 0 ]] && command -v apt-get >/dev/null; then
	echo "installing runc: the machines of a cluster need it"
	apt-get update --quiet=2
	DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends runc iproute2
	if found; then exit 0; fi
fi
echo "The machines of a cluster need runc. Install it (Debian: sudo apt-get install runc)." >&2
exit 1
