#!/usr/bin/env bash
# Step 5: which blocks are in use, into $WORK/in-use. It changes nothing, and can be repeated.
. "$(dirname "$0")/settings.sh"

quiet
# blocks prints the blocks of a machine, one on a line, the primary family first, without host bits.
case $PLUGIN in
bridge) blocks() { ssh -n "$1" 'cat /etc/cni/net.d/*.conflist' | grep --only-matching '"subnet": *"[^"]*"' | cut -d'"' -f4; } ;;
flannel) # It writes the first address of the block, and IPv4 first: if the primary family is IPv6, add | tac after awk.
blocks() { ssh -n "$1" 'cat /run/flannel/subnet.env' | sed -nE 's/^FLANNEL_(IPV6_)?SUBNET=//p' |
  awk -F'[./]' '/:/ {sub("::1/", "::/"); print; next} {printf "%d.%d.%d.%d/%d\n", $1, $2, $3, $4 - 1, $5}'; } ;;
*) echo "PLUGIN=$PLUGIN: write a function blocks for it in $0" >&2; exit 1 ;;
esac
while read -r node; do
  found=$(blocks "$node" | sed 's/.*/"&"/' | paste --serial --delimiters=,) || echo "$node does not answer, or shows no block" >&2
  if [ -n "$found" ]; then echo "$node [$found]"; fi
done < <(names "$MACHINES") > "$WORK/from-machines"
sed -nE -e 's/.* node="([^"]+)" podCIDRs=(\[[^]]*\]).*/\1 \2/p' -e 's/.*"node":\{"name":"([^"]+)"\},"podCIDRs":(\[[^]]*\]).*/\1 \2/p' \
  <(sort "$WORK/manager.log") | tac > "$WORK/from-log"
awk 'FILENAME == ARGV[1] {gone[$1]; next} NF == 2 && !($1 in gone) && !node[$1]++ && !block[$2]++' \
  "$GONE" "$ADDED" "$WORK/from-machines" "$WORK/from-api" "$WORK/from-log" | tee "$WORK/in-use"
