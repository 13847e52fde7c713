#!/usr/bin/env bash
# Step 6: the ClusterCIDRs as they were last, and every block in use in its Node.
. "$(dirname "$0")/settings.sh"

quiet
# They may be from kubectl get -o yaml: then they have the identity and the version of objects that do not exist in the backup.
if [ -n "$(ls "$CLUSTERCIDRS")" ]; then
  sed --separate --regexp-extended --expression='1i ---' --expression='/^ +(uid|resourceVersion|generation|creationTimestamp): /d' "$CLUSTERCIDRS"/* |
    kubectl apply --server-side --force-conflicts --filename=-
fi

# Before anything is changed, the API server says whether it would store the blocks.
object() { echo '{"apiVersion": "v1", "kind": "Node", "metadata": '"$1"', "spec": {"podCIDR": "'"$(cut -d'"' -f2 <<< "$2")"'", "podCIDRs": '"$2"'}}'; }
nodes > "$WORK/restored"
awk 'FILENAME == ARGV[1] {now[$1] = $2; next} NF && now[$1] != $2 {print $1, now[$1] ? now[$1] : "-", $2}' "$WORK/restored" "$WORK/in-use" > "$WORK/to-write"
while read -r node now cidrs; do
  if ! object '{"generateName": "check-"}' "$cidrs" | kubectl create --dry-run=server --filename=- > /dev/null; then
    echo "nothing is changed yet: correct the line of $node in $WORK/in-use: $cidrs" >&2; exit 1
  fi
done < "$WORK/to-write"
while read -r node now cidrs; do
  if [ "$now" != - ]; then kubectl delete node "$node"; fi
  object '{"name": "'"$node"'"}' "$cidrs" | kubectl apply --server-side --field-manager=restore-etcd --filename=-
done < "$WORK/to-write"

missing=$(comm -23 <(awk 'NF {print $1, $2}' "$WORK/in-use" | sort) <(nodes | sort))
if [ -n "$missing" ]; then echo "not put back: $missing" >&2; exit 1; fi

# Nodes of the backup whose machine is gone. The last command names those for which nothing says that their machine runs.
while read -r node; do kubectl delete node "$node" --ignore-not-found; done < <(names "$GONE")
comm -23 <(nodes | cut -d' ' -f1 | sort) <(names "$WORK/in-use" | sort)
