#!/usr/bin/env bash
# Step 7: the API server for everybody, and the controller manager.
. "$(dirname "$0")/settings.sh"

cp "$WORK/held/kube-apiserver.yaml" "$MANIFESTS/"
until kubectl get --raw=/readyz > /dev/null 2>&1; do sleep 1; done
if [ -e "$WORK/held/kube-controller-manager.yaml" ]; then
  mv "$WORK/held/kube-controller-manager.yaml" "$MANIFESTS/"
  until listening "$MANAGER_PORT"; do sleep 1; done
fi
