#!/usr/bin/env bash
# Step 4: starts the API server on a port that no client knows, without admission policies.
. "$(dirname "$0")/settings.sh"

sed -e "s/\b$API_PORT\b/$QUIET_PORT/g" \
  -e 's/^\( *- \)kube-apiserver$/&\n\1--disable-admission-plugins=ValidatingAdmissionPolicy/' \
  "$WORK/held/kube-apiserver.yaml" > "$WORK/quiet.yaml"
cp "$WORK/quiet.yaml" "$MANIFESTS/kube-apiserver.yaml"
kubectl config view --raw --flatten --minify > "$WORK/quiet.conf"
quiet
kubectl config set-cluster "$(kubectl config view --output=jsonpath='{.clusters[0].name}')" \
  --server="https://127.0.0.1:$QUIET_PORT" --tls-server-name=kubernetes
until kubectl get --raw=/readyz > /dev/null 2>&1; do sleep 1; done
