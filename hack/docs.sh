#!/usr/bin/env bash
# Builds the site of docs/, shows it, or checks the pages. What it runs are npm packages at the versions of hack/docs/package-lock.json, in bin/docs.
#
# usage: hack/docs.sh tools|build|serve|links|prose
#
# tools only installs what the others need.
# build writes bin/site: this tree at the root, and each release that has pages (a tag such as v0.2.0) in a folder of its name. DOCS_BASE=/name/ is for a host
# that serves it below a path.
# links fails if a link in any page leads nowhere. prose fails if a page of the folders in hack/docs/prose.markdownlint-cli2.mjs is not written as the
# style guide says.
set -euo pipefail

cd "$(dirname "$0")/.."
root=$PWD
tools=$root/bin/docs

command -v npm >/dev/null || {
	echo "The site and the checks of the pages need Node.js 20 or later with npm: https://nodejs.org (Debian 13: sudo apt-get install npm)" >&2
	exit 1
}
# The packages are installed beside a copy of what uses them, so that nothing but sources is in hack/docs.
mkdir -p "$tools"
if ! cmp --silent hack/docs/package-lock.json "$tools/installed"; then
	cp hack/docs/{package.json,package-lock.json,.npmrc} "$tools"
	npm --prefix "$tools" ci --silent
	cp hack/docs/package-lock.json "$tools/installed"
fi
cp -R hack/docs/. "$tools"
install -D --mode=644 docs/images/icon.svg "$tools/public/icon.svg"
bin=$tools/node_modules/.bin

base=${DOCS_BASE:-/}
version=$(<controllers/build/VERSION)
versions="$version=$base"
releases=()
while IFS= read -r tag; do
	[[ $tag == "$version" ]] || releases+=("$tag")
done < <(git tag --list 'v[0-9]*.[0-9]*.[0-9]*' --sort=-version:refname 2>/dev/null)
for tag in "${releases[@]}"; do versions+=" $tag=$base$tag/"; done

# site COMMAND VERSION BASE OUT ARGUMENT... runs VitePress. Pages are found only beside the packages, so they are copied there.
site() { DOCS_VERSION=$2 DOCS_BASE=$3 DOCS_OUT=$4 DOCS_VERSIONS=$versions "$bin/vitepress" "$1" "$tools" "${@:5}"; }
pages() { rm -rf "$tools/pages" && mkdir "$tools/pages"; }

case ${1:-} in
tools) ;;
build)
	rm -rf bin/site
	pages && cp -R docs/. "$tools/pages"
	site build "$version" "$base" "$root/bin/site"
	for tag in "${releases[@]}"; do
		pages && git archive "$tag:docs" | tar --extract --directory="$tools/pages"
		site build "$tag" "$base$tag/" "$root/bin/site/$tag"
	done
	echo "the site is in bin/site"
	;;
serve)
	pages
	while cp -Ru docs/. "$tools/pages"; do sleep 1; done &
	trap 'kill $!' EXIT
	site dev "$version" "$base" "$root/bin/site" --host=127.0.0.1
	;;
links | prose) "$bin/markdownlint-cli2" --config "bin/docs/$1.markdownlint-cli2.mjs" ;;
*)
	echo "usage: $0 build|serve|links|prose" >&2
	exit 2
	;;
esac
