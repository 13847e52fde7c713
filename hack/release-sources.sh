# Sourced by hack/release.sh and hack/verify-release.sh: the sources of a release, and how its programs are built.

# clone_sources COMMIT VERSION prints the directory of a clean clone at the commit. The only tag that it has is the version: the Go linker names a
# program after the tag of its commit, and what other tags a checkout has would change the bytes.
clone_sources() {
	local dir
	dir=$(mktemp -d "${TMPDIR:-/tmp}/multicidr-release.XXXXXX")
	git clone --quiet --no-tags --no-checkout . "$dir"
	git -C "$dir" checkout --quiet --detach "$1"
	git -C "$dir" tag "$2"
	echo "$dir"
}

# Without -trimpath the programs would name directories of this machine; and what a machine sets for its own builds stays out of them.
export CGO_ENABLED=0 GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT='' GOFIPS140=off GOWORK=off GOENV=off GOFLAGS=-trimpath
# GOENV=off hides where the machine gets modules from, too.
for name in GOPROXY GOSUMDB GONOSUMDB GOPRIVATE GONOPROXY GOMODCACHE GOCACHE; do
	value=$(GOENV='' go env "$name")
	if [[ -n $value ]]; then export "$name=$value"; fi
done

# build_command PLATFORM COMMAND builds one command line tool in the current directory of sources, and prints where it is.
build_command() {
	local output=bin/commands/${1/\//-}/$2
	if [[ $1 == windows/* ]]; then output+=.exe; fi
	GOOS=${1%/*} GOARCH=${1#*/} GOFLAGS="$GOFLAGS -buildvcs=auto" GO_LDFLAGS="-s -w" hack/build.sh "$output" "./cmd/$2" >&2
	echo "$output"
}
