#!/usr/bin/env bash
# usage: run.sh PATH-OF-LLMGW   people sign in to the console through real parts: Debian's Apache with mod_auth_openidc, the
# OpenID Connect provider of npm's oidc-provider, and Chromium. Root installs Debian's packages where they are missing. The last line
# counts the checks.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$(realpath "$1")
ui=$here/../../console/ui

say() { echo "single sign-on: $*" >&2; }
command -v npm >/dev/null || { say "npm is needed: Node.js 20 or newer"; exit 1; }
chromium=$("$here/../sdk/chromium.sh")
if [ ! -e /usr/lib/apache2/modules/mod_auth_openidc.so ]; then
    say "installing apache2 and libapache2-mod-auth-openidc with apt-get"
    packages=(apache2 libapache2-mod-auth-openidc)
    { apt-get install -y -qq --no-install-recommends "${packages[@]}" ||
        { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${packages[@]}"; }; } >&2 ||
        { say "${packages[*]} are needed"; exit 1; }
fi
[ -d "$ui/node_modules/playwright-core" ] && [ -d "$ui/node_modules/axe-core" ] ||
    (cd "$ui" && npm ci --silent --ignore-scripts --no-audit --no-fund)
(cd "$here" && npm ci --silent --ignore-scripts --no-audit --no-fund)

home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
# Apache's workers have another user.
chmod 755 "$home"
timeout --kill-after=5 300 node "$here/drive.mjs" "$binary" "$home" "$chromium"
