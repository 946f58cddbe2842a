#!/usr/bin/env bash
# usage: run.sh [PATH-OF-LLMGW]
#
# Sends requests of the gateway through a real proxy, Debian's tinyproxy, with and without credentials: by the proxy of a provider and
# by the variables, with TLS and without, and around it by NO_PROXY. The log of the proxy tells what went through it. Debian's tinyproxy
# is installed if it is missing, which needs root. Without a path the gateway is built here (debug). The last line is
# `way-out: N passed, N failed`; the exit code is not 0 if a check failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=${1:-}

missing=()
for tool in tinyproxy openssl; do
    command -v "$tool" >/dev/null || missing+=("$tool")
done
if [ ${#missing[@]} -gt 0 ]; then
    echo "way-out: installing ${missing[*]} with apt-get" >&2
    { apt-get install -y -qq --no-install-recommends "${missing[@]}" ||
        { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; }; } >&2 ||
        { echo "way-out: needed: ${missing[*]}" >&2; exit 1; }
fi
if [ -z "$binary" ]; then
    root=$here/../..
    cargo build --locked --manifest-path "$root/Cargo.toml" --bin llmgw
    binary=${CARGO_TARGET_DIR:-$root/target}/debug/llmgw
fi
export PYTHONDONTWRITEBYTECODE=1
timeout --kill-after=5 300 python3 "$here/drive.py" --gateway "$(realpath "$binary")"
