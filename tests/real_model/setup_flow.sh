#!/usr/bin/env bash
# usage: setup_flow.sh PATH-OF-LLMGW
#
# Runs the commands of the section "Set up a project by the admin API" of docs/getting-started.md against an empty gateway
# and a real model on loopback, checks their answers, restarts the gateway, and checks again. Then it sets up another empty gateway with the
# console in Chromium, by keyboard alone, until the official OpenAI SDK gets an answer; its time is printed as a figure. Root installs Chromium
# where it is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$(realpath "$1")
cache=$("$here/setup.sh")
ui=$here/../../console/ui
chromium=$("$here/../sdk/chromium.sh")
[ -d "$ui/node_modules/playwright-core" ] && [ -d "$ui/node_modules/openai" ] ||
    (cd "$ui" && npm ci --silent --ignore-scripts --no-audit --no-fund)
work=$(mktemp -d)
children=()
finish() {
    for child in "${children[@]}"; do kill "$child" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
fail() {
    echo "setup_flow: $*" >&2
    tail -n 40 "$work"/*.log "$work/answers" >&2 || true
    exit 1
}

# Waits until a log has a line that matches the pattern, and prints the pattern's group.
first_match() {
    touch "$work/$1.log" # The shell that starts it creates the file, possibly after the first read here.
    for _ in $(seq 600); do
        found=$(sed -nE "s#.*$2.*#\1#p" "$work/$1.log" | head -n 1)
        [ -z "$found" ] || { echo "$found"; return; }
        sleep 0.1
    done
    fail "$1 did not start"
}

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$cache/python/bin/python" -u "$here/chat_server.py" "$port" >"$work/model.log" 2>&1 &
children+=($!)
for _ in $(seq 600); do
    ! curl -sf "http://127.0.0.1:$port/health" >/dev/null || break
    sleep 0.1
done

export LLMGW_API_KEY=administrator-key-of-the-set-up-flow
LLMGW_CREDENTIAL_ENCRYPTION_KEY=$(head -c 32 /dev/urandom | base64)
export LLMGW_CREDENTIAL_ENCRYPTION_KEY LLMGW_STATE_DIR=$work/state LLMGW_PORT=0
serve() {
    "$binary" serve >"$work/$1.log" 2>&1 &
    gateway=$!
    children+=("$gateway")
    GATEWAY=$(first_match "$1" 'listening on (http://[0-9.:]+)')
    export GATEWAY
}

serve first
export MODEL_SERVER=http://127.0.0.1:$port/v1 MODEL=smollm2-135m
{
    echo 'set -euo pipefail'
    awk '/^## / { here = $0 == "## Set up a project by the admin API" }
        here && /^```sh$/ { code = 1; next } /^```$/ { code = 0 } here && code' "$here/../../docs/getting-started.md"
    # shellcheck disable=SC2016  # expanded when it runs
    echo 'echo "$project $key" > remembered'
} >"$work/commands.sh"
[ "$(wc -l <"$work/commands.sh")" -gt 20 ] || fail "docs/getting-started.md has no section 'Set up a project by the admin API' with commands"
(cd "$work" && bash commands.sh >answers 2>&1) || fail "a command of docs/getting-started.md failed"
read -r project key <"$work/remembered"
[ ! -e "$work/cookies.txt" ] || fail "still signed in"

expect() { grep -q -- "$1" "$work/answers" || fail "the answers do not contain $1"; }
expect '"content":"'                       # the stream
expect '^data: \[DONE\]'
grep -q -- "${project}" "$work/answers" || fail "the project's usage is missing"

api() { curl -sS --fail-with-body -H "x-api-key: $LLMGW_API_KEY" "$GATEWAY/admin/api/$1"; }
# Checks the expected state, before the restart and after it. A request counts shortly after its client has the last byte.
everything() {
    for _ in $(seq 100); do
        ! api "usage?project=$project" | grep -q "\"requests\":$1," || break
        sleep 0.1
    done
    python3 - "$(api "usage?project=$project")" "$(api "requests?project=$project")" "$(api keys)" "$(api endpoints/main)" \
        "$(api providers/local)" "$1" <<'PYTHON' || fail "something is missing ($1 requests expected)"
import json, sys

usage, requests, keys, endpoint, provider = (json.loads(text) for text in sys.argv[1:6])
count = int(sys.argv[6])
totals = usage["totals"]
assert totals["requests"] == count == len(requests["data"]), (totals, len(requests["data"]))
assert totals["tokens"]["input"] > 0 and totals["tokens"]["output"] > 0, totals
assert float(totals["cost_micro_usd"]) > 0 and totals["requests_unpriced"] == 0, totals
for record in requests["data"]:
    assert (record["provider"], record["endpoint"], record["outcome"]) == ("local", "main", "completed"), record
    assert record["provenance"] == "reported", record
assert [key["name"] for key in keys["data"]] == ["first"], keys
assert endpoint["failover"] == [{"provider": "local", "model": "smollm2-135m"}], endpoint
evidence = provider["evidence"]
assert evidence["catalog"]["synced_at_ms"] and evidence["inference"]["proven_at_ms"], evidence
PYTHON
}
everything 1

kill "$gateway"
wait "$gateway" || fail "the gateway did not stop cleanly"
serve second
curl -sSN --fail-with-body "$GATEWAY/v1/chat/completions" -H "x-api-key: $key" -H "Content-Type: application/json" \
    -d '{"model": "main", "stream": true, "messages": [{"role": "user", "content": "And again."}]}' >"$work/answers" ||
    fail "the key does not work after a restart"
expect '^data: \[DONE\]'
everything 2
echo "setup_flow: the setup of docs/getting-started.md works with a real model and survives a restart"

kill "$gateway"
wait "$gateway" || fail "the gateway did not stop cleanly after its restart"
export LLMGW_STATE_DIR=$work/state-of-the-console
serve third
timeout --kill-after=5 600 node "$here/setup_console.mjs" "$GATEWAY" "$LLMGW_API_KEY" "$MODEL_SERVER" "$chromium" ||
    fail "the set-up by keyboard failed"
echo "setup_flow: the set-up of the console works by keyboard alone with a real model, and the OpenAI SDK completes its check"
