#!/usr/bin/env bash
# usage: setup.sh   installs the clients (Python packages from PyPI, Node packages from npm, every one with its hash)
# into the user's cache, once, and prints that folder. About 2.7 GB on disk, most of it the agents.
# Qwen Code names packages for its clipboard that do not exist, without which `npm ci` refuses a lock file: package.json puts a
# small one in their place. They are optional, and not loaded in a session without a terminal.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${LLMGW_CLIENTS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/llmgw-clients}
stamp=$(cat "$here/requirements.txt" "$here/aider.txt" "$here/package-lock.json" "$0" | sha256sum)

say() { echo "setup: $*" >&2; }
need() { command -v "$1" >/dev/null || { say "$1 is needed: $2"; exit 1; }; }

if [ -f "$dir/stamp" ] && [ "$(cat "$dir/stamp")" = "$stamp" ]; then
    echo "$dir"
    exit 0
fi

need python3 "Python 3.11 or newer"
need npm "Node.js 20 or newer"

mkdir -p "$dir"
say "installing the clients into $dir"
[ -x "$dir/python/bin/python" ] || python3 -m venv "$dir/python"
python=$dir/python/bin/python
"$python" -m pip install -q --disable-pip-version-check uv
"$python" -m uv pip install -q --python "$python" --require-hashes -r "$here/requirements.txt" >&2
"$python" -m uv venv -q --clear --python "$python" "$dir/aider"
"$python" -m uv pip install -q --compile-bytecode --python "$dir/aider/bin/python" --require-hashes -r "$here/aider.txt" >&2

# Without install scripts: the agents' programs are packages that need none.
mkdir -p "$dir/node"
cp "$here/package.json" "$here/package-lock.json" "$dir/node/"
(cd "$dir/node" && npm ci --silent --ignore-scripts --no-audit --no-fund >&2)

echo "$stamp" >"$dir/stamp"
echo "$dir"
