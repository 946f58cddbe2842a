#!/usr/bin/env bash
# usage: screenshots.sh PATH-OF-LLMGW [FOLDER [FOLDER-OF-ALL]]   takes the pictures of docs/images: a gateway with a week of scripted traffic, in
# Chromium. Into a second folder it takes every page, empty and full, light and dark, 1440, 1024 and 390 pixels wide, to be looked at.
# Root installs chromium and faketime (Debian's packages) where they are missing. It takes about two minutes and is no part of CI.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$(realpath "$1")
folder=$(realpath -m "${2:-$here/../../docs/images}")
ui=$here/../../console/ui

faketime() { compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1'; }
chromium=$("$here/../sdk/chromium.sh")
faketime >/dev/null || apt-get install -y -qq --no-install-recommends faketime >&2
[ -d "$ui/node_modules/playwright-core" ] || (cd "$ui" && npm ci --silent --ignore-scripts --no-audit --no-fund)

home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
all=${3:+$(realpath -m "$3")}
mkdir -p "$folder" ${all:+"$all"}
timeout --kill-after=5 1200 node "$here/screenshots.mjs" "$binary" "$home" "$chromium" "$(faketime | head -n 1)" "$folder" "$all"
