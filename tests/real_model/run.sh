#!/usr/bin/env bash
# usage: run.sh [--direct] [PATH-OF-LLMGW]
#
# Tests the gateway with a real model: installs and starts llama.cpp's server with a 135M-parameter model on loopback,
# starts the gateway in front of it, and drives it with the official Python and Node SDKs. Without a path the
# gateway is built here (debug). With --direct the SDKs talk to the model server itself, which proves the checks.
# The last line is `N passed, N failed`; the exit code is not 0 if a check failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
direct=
[ "${1:-}" != --direct ] || { direct=--direct; shift; }
binary=${1:-}

cache=$("$here/setup.sh")
if [ -z "$direct$binary" ]; then
    root=$here/../..
    cargo build --locked --manifest-path "$root/Cargo.toml" --bin llmgw
    binary=${CARGO_TARGET_DIR:-$root/target}/debug/llmgw
fi
export PYTHONDONTWRITEBYTECODE=1
exec "$cache/python/bin/python" "$here/drive.py" --cache "$cache" $direct ${binary:+--gateway "$binary"}
