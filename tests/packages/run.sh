#!/usr/bin/env bash
# usage: run.sh PATH-OF-LLMGW   packs the binary as a wheel and as npm packages, installs each from its file into an empty home
# with pip, uvx, npm, npx and pnpm, and follows quickstart to the first streamed answer. Two runs pack the same bytes.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
binary=$(realpath "$1")
fail() { echo "packages: $*" >&2; exit 1; }
say() { echo "packages: $*"; }

tools=${CARGO_TARGET_DIR:-$root/target}/packages-tools
if [ ! -x "$tools/node_modules/.bin/pnpm" ]; then
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check uv==0.13.9
    npm install --silent --no-audit --no-fund --prefix "$tools" pnpm@10
fi
case $(uname -m) in
    x86_64) platform=linux_amd64 ;;
    aarch64) platform=linux_arm64 ;;
    *) fail "there are no packages for $(uname -m)" ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A debug build is mostly debug information.
strip -o "$work/llmgw" "$binary"
export SOURCE_DATE_EPOCH=1700000000
for folder in first second; do
    mkdir "$work/$folder"
    "$root/scripts/wheel" "$work/llmgw" "$platform" "$work/$folder" 2>/dev/null
    "$root/scripts/npm-packages" "$work/$folder" "$platform=$work/llmgw"
done
diff -r "$work/first" "$work/second" || fail "two runs packed different bytes"
wheel=$(ls "$work"/first/*.whl)
packages=("$work"/first/*.tgz)

# in_home NAME COMMAND...   runs a command with an empty home and nothing from the registries
in_home() {
    home=$work/$1
    mkdir -p "$home"
    (cd "$home" && env -i HOME="$home" PATH="$PATH" npm_config_offline=true npm_config_audit=false npm_config_fund=false \
        PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1 UV_OFFLINE=1 UV_PYTHON_DOWNLOADS=never "${@:2}" >"$home/log" 2>&1) ||
        { cat "$home/log" >&2; fail "$1: '${*:2}' failed"; }
}
# answers NAME COMMAND...   follows the quickstart of a command
answers() {
    [ "$("${@:2}" version | awk '{ print $1 }')" = llmgw ] || fail "$1: the command is not llmgw"
    "$root/scripts/check-quickstart" "${@:2}" >/dev/null || fail "$1: quickstart does not lead to an answer"
    say "$1: installed from its file, and its quickstart leads to a streamed answer"
}

in_home pip sh -c "python3 -m venv venv && venv/bin/pip install --quiet '$wheel'"
answers pip "$work/pip/venv/bin/llmgw"
in_home uvx "$tools/bin/uvx" --from "$wheel" llmgw version
answers uvx "$(find "$work/uvx/.cache/uv" -path '*/bin/llmgw' | head -n 1)"
in_home npm npm install --global --prefix "$work/npm/global" "${packages[@]}"
answers npm "$work/npm/global/bin/llmgw"
in_home npx npm install "${packages[@]}"
in_home npx npx llmgw version
answers npx "$work/npx/node_modules/.bin/llmgw"
in_home pnpm "$tools/node_modules/.bin/pnpm" add --offline "${packages[@]}"
answers pnpm "$work/pnpm/node_modules/.bin/llmgw"

# Without the package of its platform the command says what is missing.
rm -rf "$work/npx/node_modules/@llmgw"
code=0
"$work/npx/node_modules/.bin/llmgw" version 2>"$work/missing" || code=$?
[ "$code" = 69 ] && grep -q 'is missing: install llmgw again' "$work/missing" ||
    fail "without @llmgw the exit code is $code: $(cat "$work/missing")"
say "passed: pip, uvx, npm, npx, pnpm"
