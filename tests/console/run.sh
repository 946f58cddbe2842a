#!/usr/bin/env bash
# usage: run.sh PATH-OF-LLMGW [PART-OF-A-NAME...]   drives the console in Chromium against the built gateway: sign-in, a key's mint, lists,
# an ended session, lost races, strangers' texts, secrets, hidden tabs, axe-core on each page, and what the browser logs.
# With parts of names only those checks run. Chromium is Debian's package: root installs it where it is missing. A PostgreSQL for the page of nodes is
# found or unpacked as tests/sdk/postgres.py does. The last line counts the checks.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$(realpath "$1")
shift
ui=$here/../../console/ui

say() { echo "console: $*" >&2; }
command -v npm >/dev/null || { say "npm is needed: Node.js 20 or newer"; exit 1; }
chromium=$("$here/../sdk/chromium.sh")
# The step `console` has installed them already, as a rule.
[ -d "$ui/node_modules/playwright-core" ] && [ -d "$ui/node_modules/axe-core" ] && [ -d "$ui/node_modules/openai" ] ||
    (cd "$ui" && npm ci --silent --ignore-scripts --no-audit --no-fund)

# It writes the records for the check of large amounts.
root=$here/../..
cargo build --locked --quiet --manifest-path "$root/Cargo.toml" --example fill_journal
export FILL_JOURNAL=${CARGO_TARGET_DIR:-$root/target}/debug/examples/fill_journal

home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
timeout --kill-after=5 2400 node "$here/drive.mjs" "$binary" "$home" "$chromium" "$@"
