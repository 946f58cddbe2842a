#!/usr/bin/env bash
# usage: run.sh PATH-OF-LLMGW   signs in with OAuth at the certified authorization server oidc-provider, in Chromium: consent, denial, a stolen
# state, a replayed code, renewal, kill -9, revocation, a device code, a provider of an extension. The last line counts the checks.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$(realpath "$1")
ui=$here/../../console/ui

say() { echo "identity: $*" >&2; }
command -v npm >/dev/null || { say "npm is needed: Node.js 20 or newer"; exit 1; }
chromium=$("$here/../sdk/chromium.sh")
[ -d "$ui/node_modules/playwright-core" ] || (cd "$ui" && npm ci --silent --ignore-scripts --no-audit --no-fund)
[ -d "$here/node_modules/oidc-provider" ] || (cd "$here" && npm ci --silent --ignore-scripts --no-audit --no-fund)

home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
timeout --kill-after=5 300 node "$here/oauth.mjs" "$binary" "$home" "$chromium"
