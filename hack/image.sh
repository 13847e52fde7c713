#!/usr/bin/env bash
# Builds the programs for the platforms and puts each into an archive: bin/images/PROGRAM.tar, with an index of the platforms, or for a single
# platform bin/images/PROGRAM-OS-ARCH.tar, which older versions of Docker can load, too.
#
# The linker leaves out what only a debugger needs (-s -w), as for upstream's releases. Paths of this machine stay in the program, so
# that it shares Go's build cache with all other builds: the same commit makes the same bytes in the same directory. With GOFLAGS=-trimpath
# in the environment the paths go, for one more full compilation, and directory and machine make no difference: hack/release.sh does so.
#
# usage: REGISTRY=... TAG=... PLATFORMS=linux/amd64,linux/arm64 [KUBERNETES=v1.36] hack/image.sh [PROGRAM...]
# With an older minor the images are made of that one, and are in bin/MINOR/images.
set -euo pipefail

cd "$(dirname "$0")/.."
. hack/minor.sh
: "${REGISTRY:?the first part of the name of an image, for example registry.example.com/kubernetes}" "${TAG:?}" "${PLATFORMS:?}"
[[ $# -gt 0 ]] || set -- kube-controller-manager node-ipam-controller cluster-ipam-controller
IFS=, read -ra platforms <<<"$PLATFORMS"

# -trimpath is for the programs; this one is never shipped.
GOFLAGS='' go -C hack/image build -o ../../bin/image .
for program in "$@"; do
	built=()
	for platform in "${platforms[@]}"; do
		output=$bin/images/${platform/\//-}/$program
		# The commit is in the program, whatever this machine's settings say: it is what the image and the log call the build.
		GOOS=${platform%/*} GOARCH=${platform#*/} GOFLAGS="${GOFLAGS:-} -buildvcs=auto" GO_LDFLAGS="-s -w" hack/build.sh "$output" "./cmd/$program"
		built+=("$output")
		if [[ $program == kube-controller-manager ]]; then # Its image has the wrapper of upstream's image.
			GOOS=${platform%/*} GOARCH=${platform#*/} GO_LDFLAGS="-s -w" hack/build.sh "${output%/*}/go-runner" k8s.io/component-base/logs/kube-log-runner
		fi
	done
	archive=$bin/images/$program.tar
	if [[ ${#platforms[@]} -eq 1 ]]; then archive=$bin/images/$program-${platforms[0]/\//-}.tar; fi
	bin/image "$REGISTRY/$program:$TAG" "${built[@]}" "$archive"
	echo "image $REGISTRY/$program:$TAG for ${platforms[*]}: $archive"
done
