#!/usr/bin/env bash
# usage: run.sh [PATH-OF-LLMGW]
#
# A real Prometheus scrapes the gateway while requests of many kinds run. The page of metrics passes `promtool check metrics`, the
# example rules load, and each query of the Grafana dashboard returns data. Debian's package of Prometheus is unpacked into the user's
# cache, not installed: no service starts. Without a path the gateway is built here (debug). The last line is `prometheus: N passed,
# N failed`; the exit code is not 0 if a check failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=${1:-}

dir=${LLMGW_PROMETHEUS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/llmgw-prometheus}
if ! [ -x "$dir/usr/bin/promtool" ]; then
    echo "setup: unpacking Debian's prometheus into $dir" >&2
    mkdir -p "$dir"
    package=$(mktemp -d)
    trap 'rm -rf "$package"' EXIT
    chmod 755 "$package"
    (cd "$package" && { apt-get download -qq prometheus || { apt-get update -qq && apt-get download -qq prometheus; }; }) >&2 ||
        { echo "prometheus: Debian's package prometheus is needed" >&2; exit 1; }
    dpkg-deb --extract "$package"/prometheus_*.deb "$package/root"
    rm -rf "$dir"
    mv "$package/root" "$dir"
fi
if [ -z "$binary" ]; then
    root=$here/../..
    cargo build --locked --manifest-path "$root/Cargo.toml" --bin llmgw
    binary=${CARGO_TARGET_DIR:-$root/target}/debug/llmgw
fi
export PYTHONDONTWRITEBYTECODE=1
timeout --kill-after=5 120 python3 "$here/drive.py" --gateway "$(realpath "$binary")" --tools "$dir/usr/bin"
