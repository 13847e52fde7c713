#!/usr/bin/env bash
# Builds the programs for the platforms and puts each into an image, bin/images/PROGRAM-OS-ARCH.tar.
#
# The linker leaves out what only a debugger needs (-s -w), as for upstream's releases. Paths of this machine stay in the program, so
# that it shares Go's build cache with all other builds: the same commit makes the same bytes in the same directory. With GOFLAGS=-trimpath
# in the environment the paths go, for one more full compilation, and directory and machine make no difference.
#
# usage: REGISTRY=... TAG=... PLATFORMS=linux/amd64,linux/arm64 hack/image.sh [PROGRAM...]
set -euo pipefail

cd "$(dirname "$0")/.."
: "${REGISTRY:?the first part of the name of an image, for example registry.example.com/kubernetes}" "${TAG:?}" "${PLATFORMS:?}"
[[ $# -gt 0 ]] || set -- kube-controller-manager node-ipam-controller cluster-ipam-controller

# -trimpath is for the programs; this one is never shipped.
GOFLAGS='' go -C hack/image build -o ../../bin/image .
for platform in ${PLATFORMS//,/ }; do
	for program in "$@"; do
		os=${platform%/*} arch=${platform#*/}
		# The commit is in the program, whatever this machine's settings say: it is what the image and the log call the build.
		GOOS=$os GOARCH=$arch GOFLAGS="${GOFLAGS:-} -buildvcs=auto" GO_LDFLAGS="-s -w" hack/build.sh "bin/images/$os-$arch/$program" "./cmd/$program"
		bin/image "$REGISTRY/$program:$TAG" "bin/images/$os-$arch/$program" "bin/images/$program-$os-$arch.tar"
		echo "image $REGISTRY/$program:$TAG for $platform: bin/images/$program-$os-$arch.tar"
	done
done
