#!/usr/bin/env bash
# usage: run.sh [PATH-OF-LLMGW]
#
# Validates the OpenAPI document that the gateway serves with openapi-spec-validator, and compares real requests and answers of the
# admin API with it. Installs the validator (from PyPI, each file with its hash) into the user's cache, once. Without a path the
# gateway is built here (debug). The last line is `openapi: N passed, N failed`; the exit code is not 0 if a check failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=${1:-}

dir=${LLMGW_OPENAPI_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/llmgw-openapi}
stamp=$(cat "$here/requirements.txt" "$0" | sha256sum)
if ! [ -f "$dir/stamp" ] || [ "$(cat "$dir/stamp")" != "$stamp" ]; then
    echo "setup: installing the validator into $dir" >&2
    [ -x "$dir/python/bin/python" ] || python3 -m venv "$dir/python"
    "$dir/python/bin/python" -m pip install -q --disable-pip-version-check --require-hashes --no-deps -r "$here/requirements.txt"
    echo "$stamp" >"$dir/stamp"
fi
if [ -z "$binary" ]; then
    root=$here/../..
    cargo build --locked --manifest-path "$root/Cargo.toml" --bin llmgw
    binary=${CARGO_TARGET_DIR:-$root/target}/debug/llmgw
fi
export PYTHONDONTWRITEBYTECODE=1
exec "$dir/python/bin/python" "$here/drive.py" --gateway "$(realpath "$binary")"
