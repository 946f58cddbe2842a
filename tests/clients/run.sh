#!/usr/bin/env bash
# usage: run.sh [--direct] [--only PART-OF-A-SUITE'S-NAME] [--sessions all|today|PART-OF-A-NAME] [PATH-OF-LLMGW]
#
# Drives the gateway with real clients: the official Python and Node SDKs of OpenAI and Anthropic, the Node ones also on
# pages in Chromium, Google's Gen AI SDK for both, the Vercel AI SDK, LangChain, and sessions of Claude Code, Codex, Gemini
# CLI and aider, and on Linux on x86-64 of opencode, Copilot CLI, Qwen Code and pi, against a scripted upstream; the set-ups
# that the console and docs/clients.md show, at a gateway of quickstart; and the sign-in of Claude Code, in a terminal. Everything runs in a separate network namespace with
# only loopback, if the system permits that. Without a path the gateway is built here (debug). With --direct the clients talk
# to the scripted upstream itself, which proves the checks.
#
# An agent's sessions on targets of all protocols take minutes: by default each agent runs one on a target of its own protocol
# and one on another, which changes from day to day. `--sessions all` runs them all, `--sessions codex` or `--sessions bedrock`
# those of an agent or a family of targets.
# The last line is `clients: N passed, N failed`; the exit code is not 0 if a check failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
options=()
while [[ ${1:-} == --* ]]; do
    options+=("$1")
    if [ "$1" = --only ] || [ "$1" = --sessions ]; then options+=("$2"); shift; fi
    shift
done
binary=${1:-}

# If no browser can be installed, its suite is skipped, and the run reports that.
chromium=$("$here/../sdk/chromium.sh") || true
cache=$("$here/setup.sh")
# The vendors' packages, by which the upstream judges what the gateway sends for an agent.
judges=$("$here/../corpus/setup.sh")
if [ -z "$binary" ] && [[ " ${options[*]-} " != *" --direct "* ]]; then
    root=$here/../..
    cargo build --locked --manifest-path "$root/Cargo.toml" --bin llmgw
    binary=${CARGO_TARGET_DIR:-$root/target}/debug/llmgw
fi
isolate=()
if unshare --map-root-user --net true 2>/dev/null; then
    isolate=(unshare --map-root-user --net)
    options+=(--isolated)
else
    echo "clients: this system does not permit a network namespace; the clients can reach the network"
fi
export PYTHONDONTWRITEBYTECODE=1
exec "${isolate[@]}" "$cache/python/bin/python" "$here/drive.py" --cache "$cache" --judges "$judges" --chromium "$chromium" ${binary:+--gateway "$(realpath "$binary")"} "${options[@]}"
