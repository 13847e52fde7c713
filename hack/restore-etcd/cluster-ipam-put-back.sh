#!/usr/bin/env bash
# Creates the IPAddresses that cluster-ipam-find.sh found: docs/cluster-ipam/restore-etcd.md.
set -euo pipefail
: "${WORK:=/root/restore-etcd}"
version=$(kubectl api-resources --api-group=ipam.cluster.x-k8s.io --no-headers | awk '$NF == "IPAddress" {print $(NF - 2)}')
while IFS='|' read -r namespace name claim kind pool address prefix gateway; do
  echo '{"apiVersion": "'"$version"'", "kind": "IPAddress",
    "metadata": {"namespace": "'"$namespace"'", "name": "'"$name"'", "finalizers": ["ipam.cluster.x-k8s.io/ProtectAddress"]},
    "spec": {"claimRef": {"name": "'"$claim"'"}, "poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "'"$kind"'", "name": "'"$pool"'"},
      "address": "'"$address"'", "prefix": '"$prefix${gateway:+, \"gateway\": \"$gateway\"}"'}}'
done < "$WORK/missing" > "$WORK/ipaddresses"
if [ -s "$WORK/ipaddresses" ]; then kubectl create --filename="$WORK/ipaddresses"; fi
