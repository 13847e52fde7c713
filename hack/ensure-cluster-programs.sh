#!/usr/bin/env bash
# Makes sure there is what the machines of a cluster use of their host: runc, with which containerd starts containers, ip for
# their network, iptables, which kubelets look for, and haproxy, behind which the API servers are. As root on Debian it says which
# packages it is going to install, and installs them; elsewhere, or with INSTALL=no, it says what to do.
#
# usage: [INSTALL=no] hack/ensure-cluster-programs.sh [nft] [ipset] [clang-19]
# With names it makes sure of those, too: network plugins and kube-proxy use them.
set -euo pipefail

programs=(runc ip iptables haproxy "$@")
packages=()
for program in "${programs[@]}"; do
	case $program in
	ip) packages+=(iproute2) ;;
	nft) packages+=(nftables) ;;
	*) packages+=("$program") ;;
	esac
done

missing() {
	local program
	for program in "${programs[@]}"; do command -v "$program" >/dev/null || echo "$program"; done
}

if [[ -z $(missing) ]]; then exit 0; fi
if [[ ${INSTALL:-yes} != no && $EUID -eq 0 ]] && command -v apt-get >/dev/null; then
	echo "installing the Debian packages ${packages[*]}, since the machines of a cluster need" $(missing)"; INSTALL=no prevents that"
	apt-get update --quiet=2
	DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends "${packages[@]}"
	if [[ -z $(missing) ]]; then exit 0; fi
fi
echo "The machines of a cluster need" $(missing)". Install it (Debian: sudo apt-get install ${packages[*]})." >&2
exit 1
