#!/usr/bin/env bash
# Step 2, on every control-plane node: stops what allocates, the API server and etcd.
. "$(dirname "$0")/settings.sh"

for pod in kube-controller-manager kube-apiserver; do
  if [ -e "$MANIFESTS/$pod.yaml" ]; then
    if [ "$pod" = kube-apiserver ]; then nodes --request-timeout=10s > "$WORK/from-api" || true; fi
    mv "$MANIFESTS/$pod.yaml" "$WORK/held/"
  fi
  port=$MANAGER_PORT; if [ "$pod" = kube-apiserver ]; then port=$API_PORT; fi
  while listening "$port"; do sleep 1; done
done
touch "$WORK/from-api"
if [ -e "$MANIFESTS/etcd.yaml" ]; then mv "$MANIFESTS/etcd.yaml" "$WORK/held/"; fi
while listening "$ETCD_PORT"; do sleep 1; done
