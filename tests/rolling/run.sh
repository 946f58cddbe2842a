#!/usr/bin/env bash
# usage: run.sh [PATH-OF-LLMGW]
#
# Restarts two gateways one after the other behind nginx (with and without kept connections) and HAProxy, whose settings are their
# defaults, while clients send requests for streams and whole answers. No request may fail. The restarts go on until
# ROLLING_REQUESTS streams (2,000) and as many whole answers are complete. Then three nodes on one PostgreSQL restart behind nginx, and
# each request is recorded once. Debian's nginx and haproxy are installed if they are missing, which needs root, and the official
# SDK in the user's cache. Without a path the gateway is built here (debug). The last line of each part is `rolling: N passed, N failed`;
# the exit code is not 0 if a check failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=${1:-}

missing=()
for tool in nginx:nginx-light haproxy:haproxy; do
    [ -x "/usr/sbin/${tool%%:*}" ] || missing+=("${tool##*:}")
done
if [ ${#missing[@]} -gt 0 ]; then
    echo "rolling: installing ${missing[*]} with apt-get" >&2
    { apt-get install -y -qq --no-install-recommends "${missing[@]}" ||
        { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; }; } >&2 ||
        { echo "rolling: needed: ${missing[*]}" >&2; exit 1; }
fi
if [ -z "$binary" ]; then
    root=$here/../..
    cargo build --locked --manifest-path "$root/Cargo.toml" --bin llmgw
    binary=${CARGO_TARGET_DIR:-$root/target}/debug/llmgw
fi
export PYTHONDONTWRITEBYTECODE=1
sdk=$("$here/../corpus/setup.sh")
timeout --kill-after=5 1800 python3 "$here/drive.py" --gateway "$(realpath "$binary")" --requests "${ROLLING_REQUESTS:-2000}"
timeout --kill-after=5 300 "$sdk/python/bin/python" "$here/nodes.py" --gateway "$(realpath "$binary")"
