#!/usr/bin/env bash
# usage: setup.sh   installs lm-evaluation-harness and inspect-ai (from PyPI, every package with its hash) into the user's
# cache, once, and prints that folder. About 900 MB on disk.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${LLMGW_HARNESSES_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/llmgw-harnesses}
stamp=$(cat "$here/requirements.txt" "$0" | sha256sum)

if [ -f "$dir/stamp" ] && [ "$(cat "$dir/stamp")" = "$stamp" ]; then
    echo "$dir"
    exit 0
fi

command -v python3 >/dev/null || { echo "setup: python3 is needed: Python 3.11 or newer" >&2; exit 1; }
mkdir -p "$dir"
echo "setup: installing the harnesses into $dir" >&2
[ -x "$dir/python/bin/python" ] || python3 -m venv "$dir/python"
python=$dir/python/bin/python
"$python" -m pip install -q --disable-pip-version-check uv
"$python" -m uv pip install -q --python "$python" --require-hashes -r "$here/requirements.txt" >&2

echo "$stamp" >"$dir/stamp"
echo "$dir"
