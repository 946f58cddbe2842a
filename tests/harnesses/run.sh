#!/usr/bin/env bash
# usage: run.sh [PATH-OF-LLMGW]
#
# Runs lm-evaluation-harness and inspect-ai directly and through the gateway, against a scripted upstream, a rate-limited one and a
# real model: scores, outputs and token counts must be the same. Without a path the gateway is built here (debug). The last line is
# `harnesses: N passed, N failed`; the exit code is not 0 if a check failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=${1:-}

cache=$("$here/setup.sh")
model=$("$here/../real_model/setup.sh")
if [ -z "$binary" ]; then
    root=$here/../..
    cargo build --locked --manifest-path "$root/Cargo.toml" --bin llmgw
    binary=${CARGO_TARGET_DIR:-$root/target}/debug/llmgw
fi
export PYTHONDONTWRITEBYTECODE=1
exec "$cache/python/bin/python" "$here/drive.py" --model-python "$model/python/bin/python" --gateway "$(realpath "$binary")"
