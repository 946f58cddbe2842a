#!/usr/bin/env bash
# usage: run.sh [PATH-OF-LLMGW]
#
# Counts the instructions and the allocations that a native request and a piece of a native stream cost the gateway, under valgrind,
# and compares them with bounds.json: a gross loss fails. Times are not measured, so a busy machine gives the same figures. The binary is
# the debug build of the tests, whose instructions are many times those of a release; only their change matters. After a change that
# is worth its cost, write the printed figures into bounds.json. Debian's valgrind is installed if it is missing, which needs root.
# Without a path the gateway is built here (debug). The last line is `instructions: N passed, N failed`; the exit code is not 0 if a
# check failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=${1:-}

if ! command -v valgrind >/dev/null; then
    echo "instructions: installing valgrind with apt-get" >&2
    { apt-get install -y -qq --no-install-recommends valgrind ||
        { apt-get update -qq && apt-get install -y -qq --no-install-recommends valgrind; }; } >&2 ||
        { echo "instructions: needed: valgrind" >&2; exit 1; }
fi
if [ -z "$binary" ]; then
    root=$here/../..
    cargo build --locked --manifest-path "$root/Cargo.toml" --bin llmgw
    binary=${CARGO_TARGET_DIR:-$root/target}/debug/llmgw
fi
export PYTHONDONTWRITEBYTECODE=1
timeout --kill-after=5 600 python3 "$here/drive.py" --gateway "$(realpath "$binary")"
