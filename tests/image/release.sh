#!/usr/bin/env bash
# usage: release.sh PATH-OF-LLMGW [PATH-OF-LLMGW-FOR-ARM64]   packs the binaries as scripts/release does, twice, and checks names,
# content, checksums, bill of materials and images of the files (M-023, M-024, M-218 to M-221). Two runs make the same archives
# and layers.
#
# With the second binary, the image for arm64 is taken from the image of both architectures and run by run.sh, under qemu.
# Without it, the first stands for it. The first stands for the binaries of macOS, too: build-binary links the real ones. The binaries of a release take `scripts/release --twice`, by hand.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
binary=$(realpath "$1")
arm64=${2:+$(realpath "$2")}
fail() { echo "release: $*" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$("$root/scripts/version")
# A debug build is mostly debug information.
strip -o "$work/llmgw" "$binary"
pack() {
    "$root/scripts/release" --with "$work/llmgw" ${arm64:+--with "linux_arm64=$arm64"} --to "$work/$1" "${@:2}" >/dev/null 2>"$work/log" ||
        { cat "$work/log" >&2; fail "scripts/release failed"; }
}
pack first --url https://downloads.example/v$version
pack second linux_amd64
# The configuration of an image contains a random name of the container that built it; its layers are compared below.
# The npm package llmgw names the platforms of its run.
different=$(grep -v "_image\|  llmgw-$version\.tgz\$" "$work/second/SHA256SUMS" | grep -vxFf "$work/first/SHA256SUMS" || true)
[ -z "$different" ] || fail "two runs made different files: $different"

cd "$work/first"
sha256sum --quiet -c SHA256SUMS || fail "SHA256SUMS does not match"
listed=$(awk '{ print $2 }' SHA256SUMS | grep -v / | sort | tr '\n' ' ')
want="llmgw_${version}_image_amd64.tar llmgw_${version}_image_arm64.tar llmgw.rb llmgw-$version.tgz"
want+=" llmgw-linux-x64-$version.tgz llmgw-linux-arm64-$version.tgz"
for machine in x86_64 aarch64; do
    want+=" llmgw-$version-py3-none-manylinux2014_$machine.manylinux_2_17_$machine.musllinux_1_1_$machine.whl"
done
for platform in linux_amd64 linux_arm64 darwin_amd64 darwin_arm64; do
    want+=" llmgw_v${version}_$platform.cdx.json llmgw_v${version}_$platform.tar.gz"
done
[ "$listed" = "$(tr ' ' '\n' <<<"$want" | sort | tr '\n' ' ')" ] || fail "the files are $listed"

# The archive that the formula of Homebrew downloads has the hash that it names.
for platform in linux_amd64 linux_arm64 darwin_amd64 darwin_arm64; do
    grep -A 1 "v$version/llmgw_v${version}_$platform.tar.gz\"" llmgw.rb |
        grep -q "sha256 \"$(sha256sum <"llmgw_v${version}_$platform.tar.gz" | cut -c 1-64)\"" ||
        fail "llmgw.rb does not name the hash of the archive for $platform"
done

folder=llmgw_v${version}_linux_amd64
tar xzf "$folder.tar.gz"
"$folder/llmgw" version >/dev/null || fail "the binary of the archive does not run"
for file in LICENSE NOTICE README.md CHANGELOG.md llmgw.service llmgw.env man/llmgw.1 man/llmgw-doctor.1 \
    completions/llmgw.bash completions/llmgw.zsh completions/llmgw.fish; do
    [ -s "$folder/$file" ] || fail "$file is missing in the archive"
done

python3 - "$version" <<'CHECK'
import glob, json, sys, tarfile
version = sys.argv[1]
bill = json.load(open(f"llmgw_v{version}_linux_amd64.cdx.json"))
names = {component["name"] for component in bill["components"]}
assert bill["bomFormat"] == "CycloneDX" and {"rusqlite", "rustls", "control"} <= names, names
assert not names & {"tempfile", "proptest", "cc"}, "crates that are not in the binary"
references = {entry["ref"] for entry in bill["dependencies"]}
assert all(set(entry["dependsOn"]) <= references for entry in bill["dependencies"])
for arch in ("amd64", "arm64"):
    with tarfile.open(f"llmgw_{version}_image_{arch}.tar") as archive:
        manifest = json.load(archive.extractfile("manifest.json"))[0]
        config = json.load(archive.extractfile(manifest["Config"]))
    if arch == "amd64":
        with tarfile.open(f"../second/llmgw_{version}_image_{arch}.tar") as archive:
            again = json.load(archive.extractfile("manifest.json"))[0]
        assert again["Layers"] == manifest["Layers"], "the layers of two images differ"
    assert any(tag.endswith(f"llmgw:{version}") for tag in manifest["RepoTags"]), manifest["RepoTags"]
    assert config["architecture"] == arch and config["config"]["Healthcheck"]["Test"][1:] == ["/llmgw", "healthcheck"]
listed = json.load(open(f"llmgw_{version}_image/manifest.json"))
assert listed["mediaType"] == "application/vnd.docker.distribution.manifest.list.v2+json", listed["mediaType"]
assert {entry["platform"]["architecture"] for entry in listed["manifests"]} == {"amd64", "arm64"}
print(f"release: {len(names)} crates in the bill of materials; names, sums and images of {version} are right")
CHECK

if [ -n "$arm64" ]; then
    export BUILDAH="buildah --storage-driver vfs --root $work/store --runroot $work/run"
    image=$($BUILDAH pull --quiet --arch arm64 "dir:$work/first/llmgw_${version}_image")
    "$root/tests/image/run.sh" --image "$image" arm64
fi
