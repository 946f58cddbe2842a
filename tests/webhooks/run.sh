#!/usr/bin/env bash
# usage: run.sh [PATH-OF-LLMGW]
#
# Verifies the signatures of the gateway's webhooks with the official libraries of Standard Webhooks for Python and Node, each as a
# receiver of its own. Installs both (from PyPI and npm, each file with its hash) into the user's cache, once. Without a path the
# gateway is built here (debug). The last line is `webhooks: N passed, N failed`; the exit code is not 0 if a check failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=${1:-}

dir=${LLMGW_WEBHOOKS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/llmgw-webhooks}
stamp=$(cat "$here/requirements.txt" "$here/package-lock.json" "$0" | sha256sum)
if ! [ -f "$dir/stamp" ] || [ "$(cat "$dir/stamp")" != "$stamp" ]; then
    echo "setup: installing the libraries into $dir" >&2
    mkdir -p "$dir/node"
    [ -x "$dir/python/bin/python" ] || python3 -m venv "$dir/python"
    "$dir/python/bin/python" -m pip install -q --disable-pip-version-check --require-hashes --no-deps -r "$here/requirements.txt"
    cp "$here/package.json" "$here/package-lock.json" "$dir/node/"
    (cd "$dir/node" && npm ci --silent --ignore-scripts --no-audit --no-fund)
    echo "$stamp" >"$dir/stamp"
fi
if [ -z "$binary" ]; then
    root=$here/../..
    cargo build --locked --manifest-path "$root/Cargo.toml" --bin llmgw
    binary=${CARGO_TARGET_DIR:-$root/target}/debug/llmgw
fi
cp "$here/verify.mjs" "$dir/node/"
export PYTHONDONTWRITEBYTECODE=1
exec "$dir/python/bin/python" "$here/drive.py" --gateway "$(realpath "$binary")" --node "$dir/node/verify.mjs"
