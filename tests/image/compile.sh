#!/usr/bin/env bash
# usage: compile.sh [FOLDER]   builds the repository's Dockerfile from a fresh clone, compilation included, and runs the image
#
# A registry of images is not needed: a local image takes the name of the base image. As on Alpine, it has musl, gcc and the
# tools of BusyBox, and no bash, perl, cmake, pkg-config or git; what the Dockerfile adds with apk is not in the PATH before.
# It differs in three ways: gcc and musl come from Debian; the compiler is the same release of Rust, from this machine, and runs
# on glibc; so cargo compiles for musl as for another system.
#
# It needs root, Linux, rustup and the network, 4 GB below FOLDER (default: the folder for temporary files), and ten minutes
# on two cores. The image is left in FOLDER if that is given.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
say() { echo "image: $*" >&2; }
fail() { say "$*"; exit 1; }

[ "$(id -u)" = 0 ] || fail "buildah with chroot isolation needs root"
missing=()
for tool in buildah mmdebstrap; do
    command -v "$tool" >/dev/null || missing+=("$tool")
done
if [ ${#missing[@]} -gt 0 ]; then
    say "installing ${missing[*]} with apt-get"
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >&2 || fail "needed: ${missing[*]}"
fi

if [ $# -gt 0 ]; then
    mkdir -p "$1"
    work=$(cd "$1" && pwd)
else
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
fi
export BUILDAH="buildah --storage-driver vfs --root $work/root --runroot $work/run"
base=$(sed -n 's/^FROM \(rust:.*\) AS build$/\1/p' Dockerfile)
release=$(sed 's/^rust:\(.*\)-alpine$/\1/' <<<"$base")
target=$(uname -m)-unknown-linux-musl
[ "$(rustc --version | cut -d ' ' -f 2)" = "$release" ] || fail "the Dockerfile takes Rust $release, and rustc is $(rustc --version)"
rustup target add "$target" || fail "rustup cannot install the target $target"

# add_tools ROOT   installs gcc, musl and BusyBox; make and the headers of musl wait for apk
add_tools() {
    local files=$1 name
    mmdebstrap --quiet --variant=extract --include=busybox,gcc,libc6-dev,make,musl-tools trixie "$files"
    for name in bin sbin lib lib64; do
        mkdir -p "$files/usr/$name"
        [ -e "$files/$name" ] || ln -s "usr/$name" "$files/$name"
    done
    # On Debian, the script of a package makes this link.
    ln -s gcc "$files/usr/bin/cc"
    mkdir -p "$files/proc" "$files/sys" "$files/etc/ssl/certs" "$files/packages"
    cp -L "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" "$files/etc/ssl/certs/ca-certificates.crt"
    for name in $(chroot "$files" /usr/bin/busybox --list); do
        [ -e "$files/usr/bin/$name" ] || [ -e "$files/usr/sbin/$name" ] || ln -s busybox "$files/usr/bin/$name"
    done
    mv "$files/usr/bin/make" "$files/packages/make"
    mv "$files/usr/include/$(uname -m)-linux-musl" "$files/packages/musl-dev"
    cat >"$files/sbin/apk" <<APK
#!/bin/sh
# Installs a package that this image contains; others do not exist.
for name in "\$@"; do
    case \$name in
        add | --no-cache) continue ;;
        make) into=/usr/bin/make ;;
        musl-dev) into=/usr/include/$(uname -m)-linux-musl ;;
        *) echo "apk: '\$name' is not among the packages of this stand-in: make, musl-dev" >&2; exit 1 ;;
    esac
    mv "/packages/\$name" "\$into" && echo "apk: installed \$name" || exit 1
done
APK
    chmod 755 "$files/sbin/apk"
}

# add_rust ROOT   installs the compiler of this machine, and a cargo that compiles for musl into target/release
add_rust() {
    local files=$1 toolchain part
    toolchain=$(rustc --print sysroot)
    mkdir -p "$files/rust/lib/rustlib" "$files/rust/bin" "$files/usr/local/bin"
    cp "$toolchain/bin/cargo" "$toolchain/bin/rustc" "$files/rust/bin/"
    cp -a "$toolchain"/lib/*.so* "$files/rust/lib/"
    for part in "$(rustc -vV | sed -n 's/^host: //p')" "$target"; do
        cp -a "$toolchain/lib/rustlib/$part" "$files/rust/lib/rustlib/"
    done
    ln -s /rust/bin/rustc "$files/usr/local/bin/rustc"
    cat >"$files/usr/local/bin/cargo" <<CARGO
#!/bin/sh
CARGO_BUILD_TARGET=$target /rust/bin/cargo "\$@" && cp target/$target/release/llmgw target/release/llmgw
CARGO
    chmod 755 "$files/usr/local/bin/cargo"
}

started=$SECONDS
container=$($BUILDAH from scratch)
mkdir "$work/base"
add_tools "$work/base"
add_rust "$work/base"
$BUILDAH copy --quiet "$container" "$work/base" / >/dev/null
rm -rf "$work/base"
$BUILDAH config --env CARGO_HOME=/usr/local/cargo --env SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    --env PATH=/usr/local/cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
$BUILDAH commit --quiet --rm --format docker "$container" "localhost/$base" >/dev/null
say "the stand-in for $base took $((SECONDS - started)) s"

started=$SECONDS
git clone --quiet "$root" "$work/clone"
commit=$(git -C "$work/clone" rev-parse --short=12 HEAD)
$BUILDAH bud --isolation chroot --format docker --pull-never --build-arg "BUILD_COMMIT=$commit" -t compiled:test "$work/clone" >&2 ||
    fail "the Dockerfile of the clone does not build"
rm -rf "$work/clone"
say "the Dockerfile of the clone took $((SECONDS - started)) s"
"$root/tests/image/run.sh" --image compiled:test
