#!/usr/bin/env bash
# usage: run.sh [PATH-OF-LLMGW]
#
# Counts the instructions and the allocations that a native request and a piece of a native stream cost the gateway, under valgrind,
# and compares them with bounds.json: a gross loss fails. Times are not measured, so a busy machine gives the same figures. The binary is
# the debug build of the tests, whose instructions are many times those of a release; only their change matters. After a change that
# is worth its cost, write the printed figures into bounds.json. Debian's valgrind is installed if it is missing, which needs root.
# Then it compares the system calls of a request, with the state in files and in a PostgreSQL, by strace, which is installed likewise.
# Without a path the gateway is built here (debug). The last line of each part is `instructions: N passed, N failed`; the exit code is not 0 if a
# check failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=${1:-}

missing=()
for tool in valgrind strace; do
    command -v "$tool" >/dev/null || missing+=("$tool")
done
if [ ${#missing[@]} -gt 0 ]; then
    echo "instructions: installing ${missing[*]} with apt-get" >&2
    { apt-get install -y -qq --no-install-recommends "${missing[@]}" ||
        { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; }; } >&2 ||
        { echo "instructions: needed: ${missing[*]}" >&2; exit 1; }
fi
if [ -z "$binary" ]; then
    root=$here/../..
    cargo build --locked --manifest-path "$root/Cargo.toml" --bin llmgw
    binary=${CARGO_TARGET_DIR:-$root/target}/debug/llmgw
fi
export PYTHONDONTWRITEBYTECODE=1
timeout --kill-after=5 600 python3 "$here/drive.py" --gateway "$(realpath "$binary")"
timeout --kill-after=5 300 python3 "$here/system_calls.py" --gateway "$(realpath "$binary")"
