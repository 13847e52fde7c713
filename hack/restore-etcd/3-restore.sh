#!/usr/bin/env bash
# Step 3: restores etcd, with a higher revision.
. "$(dirname "$0")/settings.sh"

flag() { sed -n "s/^ *- --$1=//p" "$WORK/held/etcd.yaml"; }
rm -rf "$WORK/etcd-restored"
etcdutl snapshot restore "$BACKUP" --data-dir="$WORK/etcd-restored" --bump-revision=1000000000 --mark-compacted \
  --name="$(flag name)" --initial-advertise-peer-urls="$(flag initial-advertise-peer-urls)" \
  --initial-cluster="$(flag name)=$(flag initial-advertise-peer-urls)"
if [ -e "$ETCD_DATA/member" ]; then mv "$ETCD_DATA/member" "$(mktemp --directory "$WORK/etcd-before.XXXXXX")/"; fi
mkdir --parents --mode=700 "$ETCD_DATA"
mv "$WORK/etcd-restored/member" "$ETCD_DATA/"
cp "$WORK/held/etcd.yaml" "$MANIFESTS/"
until listening "$ETCD_PORT"; do sleep 1; done
