#!/usr/bin/env bash
# usage: setup.sh   installs what the real-model test needs (Python packages from PyPI, the Node SDK from npm) into
# the user's cache, once, and prints that folder. About 300 MB on disk, half a minute on a fresh machine.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
sdk=$here/../sdk
dir=${LLMGW_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/llmgw-real-model}
stamp=$(cat "$here/requirements.txt" "$here/model.txt" "$here/requirements-older-sdk.txt" "$sdk/package.json" "$0" | sha256sum)

if [ -f "$dir/stamp" ] && [ "$(cat "$dir/stamp")" = "$stamp" ]; then
    echo "$dir"
    exit 0
fi

say() { echo "setup: $*" >&2; }
need() { command -v "$1" >/dev/null || { say "$1 is needed: $2"; exit 1; }; }
need python3 "Python 3.10 or newer"
need npm "Node.js 20 or newer"

mkdir -p "$dir"
say "installing the model server and the SDKs into $dir"
[ -x "$dir/python/bin/python" ] || python3 -m venv "$dir/python"
python=$dir/python/bin/python
# uv resolves the packages in seconds; an older pip may not finish.
"$python" -m pip install -q --disable-pip-version-check uv
uv() { "$python" -m uv pip install -q --python "$python" "$@" >&2; }
uv -r "$here/requirements.txt"
uv --no-deps -r "$here/model.txt"
uv --target "$dir/older-sdk" -r "$here/requirements-older-sdk.txt"

mkdir -p "$dir/node"
cp "$sdk/package.json" "$sdk/package-lock.json" "$dir/node/"
(cd "$dir/node" && npm ci --silent --no-audit --no-fund >&2)

echo "$stamp" >"$dir/stamp"
echo "$dir"
