#!/usr/bin/env bash
# Which addresses of machines were allocated since the backup, by the logs in LOGS. It changes nothing: docs/cluster-ipam/restore-etcd.md.
set -euo pipefail
export LC_ALL=C
: "${WORK:=/root/restore-etcd}" "${LOGS:?names the saved files}"   # WORK takes all files of these commands
mkdir -p "$WORK"
said='Allocating an address'
strange=$(zgrep --text --with-filename --count -e "$said" -e '\.go:[0-9]' $LOGS | grep ':0$' || true)
if [ -n "$strange" ]; then
  echo "These files cannot be read, or do not look like logs: $strange. Are they damaged, or compressed with another program than gzip?" >&2; exit 1
fi
if ! zgrep --text --no-filename "$said" $LOGS > "$WORK/lines"; then
  echo "LOGS has no allocation, or a file that cannot be read. Are these all logs since the backup?" >&2; exit 1
fi
# After a crash, a line may have NUL bytes and the next line in it. Docker writes \" for each quote.
tr '\000' '\n' < "$WORK/lines" | sed -e 's/\\"/"/g' -e 's/ logger="[a-z-]*"//' -e "s/$said/\n&/g" | grep "^$said" > "$WORK/allocations"
name='([a-z0-9.-]+)'
line="^$said\" claim=\"$name/$name\" address=\"([0-9a-f.:]+)\" kind=\"([A-Za-z]+)\" pool=\"$name\".*"
if grep --invert-match --extended-regexp "$line" "$WORK/allocations" >&2; then
  echo "These lines are of another format or an earlier version, or they are torn. Write them into a file as the others are, with kind and pool, and save the logs without them." >&2; exit 1
fi
list() { kubectl get "$1" --all-namespaces --output=jsonpath="{range .items[*]}${1%%.*}|$2{\"\n\"}{end}"; }
{ list namespaces '{.metadata.name}'
  for pools in inclusterippools globalinclusterippools; do list "$pools.ipam.cluster.x-k8s.io" '{.metadata.namespace}|{.kind}|{.metadata.name}|{.spec.prefix}|{.spec.gateway}'; done
  # Not every cluster has the kinds of prefix pools.
  for pools in $(kubectl api-resources --api-group=ipam.cluster.x-k8s.io --output=name | grep clusterprefixpools); do
    list "$pools" '{.metadata.namespace}|{.kind}|{.metadata.name}|{.spec.allocationPrefixLength}|{.spec.gateway}'
  done
  list ipaddressclaims.ipam.cluster.x-k8s.io '{.metadata.namespace}|{.metadata.name}|{.metadata.deletionTimestamp}|{.spec.poolRef.kind}|{.spec.poolRef.name}'
  list ipaddresses.ipam.cluster.x-k8s.io \
    '{.metadata.namespace}|{.metadata.name}|{.metadata.deletionTimestamp}|{.spec.poolRef.kind}|{.spec.poolRef.name}|{.spec.address}|{.spec.claimRef.name}'
  sed -E "s#$line#allocated|\1|\2||\4|\5|\3|\2#" "$WORK/allocations" | sort --unique; } > "$WORK/known"
awk -F'|' '
  function stop(what) { print what > "/dev/stderr"; stopped = 1 }
  {name = $2 "/" $3; pool = ($5 ~ /^InCluster/ ? $2 : "") "|" $5 "|" $6; address = pool "|" $7; user = $2 "/" $8}
  # The first time through the file: what there is, which claims use an address, and how many addresses a claim uses.
  NR == FNR && $1 == "namespaces" {there[$2]}
  NR == FNR && $1 ~ /pools$/ {of[$2 "|" $3 "|" $4] = ($5 + 0) "|" $6}
  NR == FNR && $1 == "ipaddressclaims" {asks[name] = pool; if ($4 != "") leaves[name]}
  NR == FNR && $1 == "ipaddresses" {taken[name]}
  NR == FNR && $1 == "ipaddresses" && $4 == "" && !(name in leaves) {has[address, user]; if (name in asks) holder[address] = name}
  NR == FNR && $1 ~ /^(ipaddresses|allocated)$/ && !known[address, user]++ {users[address]++; uses[user]++}
  # The second time: what the logs say. Infoblox has the addresses that it gave.
  NR == FNR || $1 != "allocated" || $5 == "InfobloxIPPool" {next}
  (address in holder) && holder[address] != name {
    print "The IPAddressClaim " holder[address] " has " $7 ", and " name " had it, too. Delete " holder[address] " before step 5 if its machine is gone." > "/dev/stderr"
  }
  (address, name) in has {next}
  !($2 in there) {stop("The namespace " $2 " is missing. Create it."); next}
  !(pool in of) {stop("The " $5 " " $6 " of " name " is missing. Restore it as it was last. If it was deleted, save the logs without its lines."); next}
  {new = name}
  users[address] > 1 || uses[name] > 1 || (name in taken) || (name in leaves) || (name in asks) && asks[name] != pool {
    for (n = 1; new == name || (new in taken) || (new in asks) || (new in uses); n++) {new = name "-restored-" n}
  }
  {taken[new]; missing = missing $2 "|" substr(new, length($2) + 2) "|" $3 "|" $5 "|" $6 "|" $7 "|" of[pool] "\n"}
  END {if (stopped) {exit 1}; printf "%s", missing}' "$WORK/known" "$WORK/known" | tee "$WORK/missing"
