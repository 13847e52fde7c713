#!/usr/bin/env bash
# Draws docs/images/debug-page.png, which the README shows: the debug page of `make run`, with a pending Node and two Nodes that share
# addresses. The Makefile builds what it needs.
set -euo pipefail

cd "$(dirname "$0")/.."
hack/ensure-chromium.sh
dir=$(mktemp -d)
bin/local-cluster run --nodes=12 >"$dir/log" 2>&1 &
cluster=$!
trap 'kill -TERM $cluster; wait $cluster; rm -rf "$dir"' EXIT

until grep -q '^Node worker-04: ' "$dir/log"; do # the last one in the list, once all have podCIDRs
	kill -0 $cluster || { cat "$dir/log" >&2; exit 1; }
	sleep 1
done
KUBECONFIG=$(sed -n 's/^export KUBECONFIG=//p' "$dir/log")
export KUBECONFIG
url=$(grep -o 'https://[^"?]*' "$dir/log")

bin/kubectl delete clustercidrs.networking.x-k8s.io fallback --wait=false
bin/kubectl create -f - <<< '{apiVersion: v1, kind: Node, metadata: {name: worker-05}}'
bin/kubectl create -f - <<< '{apiVersion: v1, kind: Node, metadata: {name: twin}, spec: {podCIDR: 10.245.0.0/27, podCIDRs: [10.245.0.0/27]}}'
for node in worker-05 twin; do # the page says so before the event does
	until bin/kubectl --namespace=default get events --field-selector="type=Warning,involvedObject.name=$node" --output=name | grep -q .; do sleep 1; done
done

curl -fsSkE "${KUBECONFIG%.yaml}.pem" "$url" >"$dir/page.html"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
"$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1100,1180 \
	--screenshot="$PWD/docs/images/debug-page.png" "file://$dir/page.html" 2>"$dir/browser" || { cat "$dir/browser" >&2; exit 1; }
