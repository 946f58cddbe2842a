#!/usr/bin/env bash
# usage: run.sh [PATH-OF-LLMGW]
#
# Exports telemetry to a receiver on the official definitions of OTLP, directly and through a real collector, and verifies that
# it understands every byte of it. Installs the definitions and the collector (`opentelemetry-proto` and `rotel` from PyPI, each
# file with its hash) into the user's cache, once. Without a path the gateway is built here (debug). The last line is `otlp: N passed, N failed`; the exit code is not 0 if a check failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=${1:-}

dir=${LLMGW_OTLP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/llmgw-otlp}
stamp=$(cat "$here/requirements.txt" "$0" | sha256sum)
if ! [ -f "$dir/stamp" ] || [ "$(cat "$dir/stamp")" != "$stamp" ]; then
    echo "setup: installing the definitions and the collector into $dir" >&2
    mkdir -p "$dir"
    [ -x "$dir/python/bin/python" ] || python3 -m venv "$dir/python"
    "$dir/python/bin/python" -m pip install -q --disable-pip-version-check --require-hashes --no-deps -r "$here/requirements.txt"
    echo "$stamp" >"$dir/stamp"
fi
collector=$(echo "$dir"/python/lib/python3*/site-packages/rotel/rotel-agent)
# The collector links Python's library, which Debian packages apart from Python.
if ldd "$collector" | grep -q 'libpython.*not found'; then
    [ "$(id -u)" -eq 0 ] || { echo "otlp: the collector needs libpython3.11; run apt-get install libpython3.11" >&2; exit 1; }
    apt-get -qq update && apt-get -qq install -y --no-install-recommends libpython3.11 >/dev/null
fi
if [ -z "$binary" ]; then
    root=$here/../..
    cargo build --locked --manifest-path "$root/Cargo.toml" --bin llmgw
    binary=${CARGO_TARGET_DIR:-$root/target}/debug/llmgw
fi
export PYTHONDONTWRITEBYTECODE=1
exec "$dir/python/bin/python" "$here/drive.py" --gateway "$(realpath "$binary")" --collector "$collector"
