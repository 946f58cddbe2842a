#!/usr/bin/env bash
# usage: clone.sh PATH-OF-LLMGW   runs every step of the repository's Dockerfile but the compilation, and compares the image
# with that of docker/Dockerfile
#
# The base image of Rust is replaced by one without a compiler, whose `cargo` delivers the binary: registries of images need
# not be reachable, and a release build would take too long.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
binary=$(realpath "$1")
fail() { echo "image: $*" >&2; exit 1; }

work=$(mktemp -d)
export BUILDAH="buildah --storage-driver vfs --root $work/root --runroot $work/run"
trap 'rm -rf "$work"' EXIT
base=$(sed -n 's/^FROM \(rust:.*\) AS build$/\1/p' "$root/Dockerfile")
[ -n "$base" ] || fail "Dockerfile has no stage that builds"

# The base image: a shell, the tools that the Dockerfile calls, and their libraries.
files=$work/base
install -D "$binary" "$files/prebuilt/llmgw"
mkdir -p "$files/bin" "$files/tmp"
for tool in sh install touch cat mkdir cp; do
    cp -L "$(command -v "$tool")" "$files/bin/"
    { ldd "$(command -v "$tool")" | grep -o '/[^ ]*' || true; } | while IFS= read -r library; do
        install -D "$library" "$files$library"
    done
done
printf '#!/bin/sh\nexit 0\n' >"$files/bin/apk"
# shellcheck disable=SC2016
printf '#!/bin/sh\n[ -f Cargo.lock ] && [ ! -e target ] && [ ! -e .git ] && mkdir -p target/release && cp /prebuilt/llmgw target/release/\n' \
    >"$files/bin/cargo"
chmod 755 "$files/bin/apk" "$files/bin/cargo"
printf 'FROM scratch\nCOPY . /\n' >"$work/base.Dockerfile"
$BUILDAH bud --isolation chroot --format docker --quiet -t "localhost/$base" -f "$work/base.Dockerfile" "$files" >/dev/null

$BUILDAH bud --isolation chroot --format docker --pull-never --quiet -t clone:test "$root" >/dev/null ||
    fail "the Dockerfile of the clone does not build"
"$root/scripts/image" "$binary" packed:test >/dev/null
shape() {
    local container mount
    container=$($BUILDAH from --pull-never "$1")
    mount=$($BUILDAH mount "$container")
    # The libraries of a binary that is not static are added by scripts/image alone.
    (cd "$mount" && find . ! -path './lib*' ! -path './usr*' -printf '%P %y %m %U:%G\n' | sort | grep -v '^ ')
    $BUILDAH inspect --type image "$1" | python3 -c '
import json, sys
config = json.load(sys.stdin)["Docker"]["config"]
print(json.dumps({name: config.get(name) for name in config if name not in ("Hostname", "Labels")}, sort_keys=True))'
}
shape clone:test >"$work/clone"
shape packed:test >"$work/packed"
diff "$work/clone" "$work/packed" >&2 || fail "the image of the clone differs from that of docker/Dockerfile"
echo "image: the Dockerfile of the clone makes the same image, with a stand-in for the compiler"
