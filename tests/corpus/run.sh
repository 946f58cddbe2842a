#!/usr/bin/env bash
# usage: run.sh [--only PART] [PATH-OF-LLMGW]
#
# Sends two hundred conversations through every adaptation. The gateway's request to each vendor is checked with that
# vendor's own package (openai, anthropic, google-genai, botocore's service model, mistralai), and the answers with the
# client's. --only takes a part of `CLIENT over TARGET: CONVERSATION`. Without a path the gateway is built here (debug).
# The last line is `conversations: N accepted, ...`; the exit code is not 0 if a vendor would reject a request.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
options=()
if [ "${1:-}" = --only ]; then
    options=("$1" "$2")
    shift 2
fi
binary=${1:-}

cache=$("$here/setup.sh")
if [ -z "$binary" ]; then
    root=$here/../..
    cargo build --locked --manifest-path "$root/Cargo.toml" --bin llmgw
    binary=${CARGO_TARGET_DIR:-$root/target}/debug/llmgw
fi
export PYTHONDONTWRITEBYTECODE=1
exec "$cache/python/bin/python" "$here/drive.py" --gateway "$binary" "${options[@]}"
