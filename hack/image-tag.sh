#!/usr/bin/env bash
# Prints the tag of the images of this tree: the Kubernetes version that they are made of, and the version of this project.
#
# usage: [KUBERNETES=v1.36] hack/image-tag.sh
set -euo pipefail

cd "$(dirname "$0")/.."
. hack/minor.sh
version=$(<controllers/build/VERSION)
echo "$(go list ${modfile:+-modfile="$modfile"} -m -f '{{.Version}}' k8s.io/kubernetes)-mc${version#v}"
