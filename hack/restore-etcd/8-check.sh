#!/usr/bin/env bash
# Step 8: restarts the kubelets, and shows the result.
. "$(dirname "$0")/settings.sh"

while read -r node; do
  ssh -n "$node" systemctl restart kubelet || echo "$node does not answer: restart its kubelet, or reboot it, when it does" >&2
done < <(names "$MACHINES")
nodes
kubectl get clustercidrs.networking.x-k8s.io
kubectl --namespace=default get events --field-selector=reason=CIDRConflict
