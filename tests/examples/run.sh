#!/usr/bin/env bash
# usage: run.sh [PATH-OF-LLMGW]
#
# Runs the commands of each README below examples/ on free ports, with the stand-ins of rehearsal.yaml, and checks what they promise.
# nginx is installed with apt-get and PostgreSQL unpacked (tests/postgres/install) if they are missing; nginx needs root. Without a path the gateway is built here (debug). The last line
# is `examples: N passed, N failed`; the exit code is not 0 if a check failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=${1:-}
if [ ! -x /usr/sbin/nginx ]; then
    echo "examples: installing nginx-light with apt-get" >&2
    { apt-get install -y -qq --no-install-recommends nginx-light ||
        { apt-get update -qq && apt-get install -y -qq --no-install-recommends nginx-light; }; } >&2 ||
        { echo "examples: needed: nginx" >&2; exit 1; }
fi
if [ -z "$binary" ]; then
    root=$here/../..
    cargo build --locked --manifest-path "$root/Cargo.toml" --bin llmgw
    binary=${CARGO_TARGET_DIR:-$root/target}/debug/llmgw
fi
export PYTHONDONTWRITEBYTECODE=1
timeout --kill-after=5 600 python3 "$here/drive.py" "$(realpath "$binary")"
