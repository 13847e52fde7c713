#!/usr/bin/env bash
# Prints the tag of the images of this tree: the Kubernetes version that they are made of, and the version of this project.
set -euo pipefail

cd "$(dirname "$0")/.."
version=$(<controllers/build/VERSION)
echo "$(go list -m -f '{{.Version}}' k8s.io/kubernetes)-mc${version#v}"
