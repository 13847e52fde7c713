#!/usr/bin/env bash
# Regenerates everything that is derived from the Go sources: deepcopy, clients, CRDs, RBAC roles, their copies in the chart, and the reference in docs.
#
# usage: hack/generate.sh [ROOT]
# ROOT is the tree to generate in, by default this one; hack/verify.sh passes a copy. The generators are `tool`s, always of the tree this script is
# in: those of Kubernetes of the oldest minor in hack/kubernetes, because what they write compiles with newer ones, too, and all others
# of hack/tools/go.mod, with the kubectl of hack/tools/kubernetes/go.mod.
set -euo pipefail

tools=$(cd "$(dirname "$0")/tools" && pwd)
cd "${1:-$tools/../..}"

# One build of the generators for every machine, whether it has a C compiler or not.
export CGO_ENABLED=0
generator() { go tool -modfile="$tools/go.mod" "$@"; }
oldest=$tools/../kubernetes/$(ls "$tools/../kubernetes" | sort -t. -k2n | head -n1)
code_generator() { go tool -modfile="$oldest/go.mod" "$@"; }

module=$(go list -m)
# Below, generated files are deleted before they are written again.
[[ $module == "$(cd "$tools/../.." && go list -m)" && -f go.mod ]] || { echo "generate: $PWD is no tree of this module" >&2; exit 2; }
api=$module/apis/networking/v1
# The kinds of Cluster IPAM have no generated clients: their controllers read whichever version is served.
cluster_ipam=(apis/k0rdent/v1beta1 apis/clusterapi/{v1alpha1,v1alpha2,v1beta2})
generated=$module/apis/generated

rm -rf apis/generated
find apis -name 'zz_generated.*.go' -delete

echo "deepcopy"
code_generator deepcopy-gen --output-file zz_generated.deepcopy.go "$api" "${cluster_ipam[@]/#/$module/}"

echo "apply configurations, clientset, listers, informers"
code_generator applyconfiguration-gen --output-dir apis/generated/applyconfiguration --output-pkg "$generated/applyconfiguration" "$api"
code_generator client-gen --clientset-name versioned --input-base "$module/apis" --input networking/v1 \
	--apply-configuration-package "$generated/applyconfiguration" \
	--output-dir apis/generated/clientset --output-pkg "$generated/clientset"
code_generator lister-gen --output-dir apis/generated/listers --output-pkg "$generated/listers" "$api"
code_generator informer-gen --versioned-clientset-package "$generated/clientset/versioned" --listers-package "$generated/listers" \
	--output-dir apis/generated/informers --output-pkg "$generated/informers" "$api"

echo "CRDs"
generator controller-gen crd "${cluster_ipam[@]/#/paths=./}" output:crd:dir=manifests/clusteripam/crds
generator controller-gen crd paths=./apis/networking/v1 output:crd:dir=manifests/crds
crd=manifests/crds/networking.x-k8s.io_clustercidrs.yaml
terms=/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/nodeSelector/properties/nodeSelectorTerms
go tool -modfile="$tools/kubernetes/go.mod" kubectl patch --local --filename "$crd" --type json --output yaml \
	--patch "$(sed "s#path: /#path: $terms/#" hack/crd-node-selector.patch.yaml)" >"$crd.patched"
mv "$crd.patched" "$crd"

echo "RBAC roles"
generator controller-gen rbac:roleName=system:controller:multi-cidr-node-ipam-controller paths=./controllers/nodeipam output:rbac:dir=manifests/rbac
for controller in claims:cluster-ipam-controller gate:cluster-deployment-ipam-controller \
	incluster:in-cluster-ip-pool-controller infoblox:infoblox-ip-pool-controller; do
	generator controller-gen "rbac:roleName=system:controller:${controller#*:},fileName=${controller#*:}.yaml" \
		paths="./controllers/clusteripam/${controller%:*}" output:rbac:dir=manifests/clusteripam/rbac
done

# Helm takes no file from outside of a chart.
echo "charts"
chart=manifests/charts/node-ipam-controller/files
rm -rf "$chart"
for file in "$crd" manifests/rbac/{role,cluster-cidr-flag}.yaml manifests/fencing/{policy,keep-leases,node-ipam-controller,created-nodes}.yaml \
	manifests/monitoring/{prometheusrule.yaml,dashboard.json}; do
	install -D --mode=644 "$file" "$chart/${file#manifests/}"
done
chart=manifests/charts/cluster-ipam-controller/files
rm -rf "$chart"
for file in manifests/clusteripam/crds/*.yaml manifests/clusteripam/rbac/*-controller.yaml manifests/clusteripam/rbac/infoblox-secrets.yaml; do
	install -D --mode=644 "$file" "$chart/${file#manifests/clusteripam/}"
done
install -D --mode=644 manifests/monitoring/cluster-ipam-prometheusrule.yaml "$chart/monitoring/cluster-ipam-prometheusrule.yaml"

echo "reference"
go -C "$tools/../.." run ./hack/reference "$PWD"
