#!/usr/bin/env bash
# usage: run.sh PATH-OF-LLMGW [ARCH]   builds the image around the binary and runs it (M-021, M-022, M-025 to M-027, M-030)
#        run.sh --image NAME [ARCH]     runs an image that exists in the storage of the command BUILDAH
#
# Checks the configuration of the image, the listener, the health check with and without a gateway, the owner of the state and
# of the process, a streamed answer, and a kill and a restart on the same volume. It needs root and Linux: buildah runs the
# image with chroot isolation, inside a network of its own, so that port 8787 is free. A binary of another architecture runs in
# qemu-user-static.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
native=$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')
if [ "$1" = --image ]; then
    image=$2 binary='' arch=${3:-$native}
else
    image=llmgw:test binary=$(realpath "$1") arch=${2:-$native}
fi

say() { echo "image: $*" >&2; }
fail() { say "$*"; exit 1; }

if [ "${IN_NAMESPACE:-}" != yes ]; then
    missing=()
    for tool in buildah:buildah ip:iproute2 curl:curl python3:python3; do
        command -v "${tool%%:*}" >/dev/null || missing+=("${tool##*:}")
    done
    if [ "$arch" != "$native" ] && ! command -v qemu-aarch64-static >/dev/null; then missing+=(qemu-user-static); fi
    if [ ${#missing[@]} -gt 0 ]; then
        say "installing ${missing[*]} with apt-get"
        { apt-get install -y -qq --no-install-recommends "${missing[@]}" ||
            { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; }; } >&2 ||
            fail "needed: ${missing[*]}"
    fi
    [ "$(id -u)" = 0 ] || fail "buildah with chroot isolation and a network namespace need root"
    exec env IN_NAMESPACE=yes unshare --net --mount "$0" "$@"
fi
ip link set lo up

work=$(mktemp -d)
[ -z "$binary" ] || export BUILDAH="buildah --storage-driver vfs --root $work/root --runroot $work/run"
gateway=
cleanup() {
    stop KILL
    $BUILDAH rm --all >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap cleanup EXIT

# stop SIGNAL   signals the process of the gateway, not buildah, and waits for its end
stop() {
    local pids
    [ -n "$gateway" ] || return 0
    pids=$(gateway_pids)
    # shellcheck disable=SC2086
    [ -z "$pids" ] || kill -"$1" $pids 2>/dev/null || true
    wait "$gateway" 2>/dev/null || true
    gateway=
}

# The processes that `serve` inside this network: those of the container.
gateway_pids() {
    local pid
    for pid in $(ls /proc | grep '^[0-9]*$'); do
        [ "$(readlink "/proc/$pid/ns/net" 2>/dev/null)" = "$(readlink /proc/self/ns/net)" ] || continue
        tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q '/llmgw serve $' || continue
        # Not buildah, nor the shell of chroot isolation, which have the command among their arguments.
        case $(tr '\0' '\n' <"/proc/$pid/cmdline" | head -n 1) in /llmgw | *qemu*) echo "$pid" ;; esac
    done
}

until_true() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.2
    done
}

[ -z "$binary" ] || "$root/scripts/image" "$binary" "$image" "$arch" >/dev/null
container=$($BUILDAH from --pull-never "$image")
mount=$($BUILDAH mount "$container")

# The configuration: what `docker run` would do.
$BUILDAH inspect --type image "$image" >"$work/image.json"
python3 - "$work/image.json" "$arch" <<'CHECK'
import json, sys
image = json.load(open(sys.argv[1]))["Docker"]
config = image["config"]
want = {
    "User": "65532:65532", "Entrypoint": ["/llmgw"], "Cmd": ["serve"], "Volumes": {"/state": {}},
    "ExposedPorts": {"8787/tcp": {}}, "StopSignal": "SIGTERM",
}
for name, value in want.items():
    assert config.get(name) == value, f"{name} is {config.get(name)}"
assert config["Healthcheck"]["Test"] == ["CMD", "/llmgw", "healthcheck"], config["Healthcheck"]
assert image["architecture"] == sys.argv[2], image["architecture"]
environment = dict(item.split("=", 1) for item in config["Env"])
for name, value in {"LLMGW_HOST": "0.0.0.0", "LLMGW_PORT": "8787", "LLMGW_STATE_DIR": "/state"}.items():
    assert environment.get(name) == value, environment
CHECK
[ "$(stat -c %u:%g "$mount/state")" = 65532:65532 ] || fail "/state belongs to $(stat -c %u:%g "$mount/state")"

# A new volume gets the content and the owner of the directory in the image, as with Docker.
volume=$work/volume
cp -a "$mount/state" "$volume"
run() {
    local emulator=() command=("$@")
    if [ "$arch" != "$native" ]; then
        [ -e "$mount/qemu" ] || install -m 755 "$(command -v qemu-aarch64-static)" "$mount/qemu"
        emulator=(/qemu)
    fi
    $BUILDAH run --isolation chroot --volume "$volume:/state" \
        --env LLMGW_API_KEY=an-administrator-key-of-the-test --env LLMGW_CORE_DUMPS=true \
        --env LLMGW_CREDENTIAL_ENCRYPTION_KEY=MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY= \
        "$container" -- "${emulator[@]}" "${command[@]}"
}
is_healthy() { run /llmgw healthcheck >"$work/health" 2>&1; }
api() { curl -sS --fail-with-body -H "x-api-key: an-administrator-key-of-the-test" -H "Content-Type: application/json" "$@"; }
start() {
    run /llmgw serve >>"$work/log" 2>&1 &
    gateway=$!
    until_true 60 is_healthy || { cat "$work/log" "$work/health" >&2; fail "it does not become healthy"; }
}

! is_healthy || fail "the health check succeeds without a gateway"
started=$(date +%s%N)
start
api -d '{"id": "echo", "type": "echo", "models": ["echo"]}' http://127.0.0.1:8787/admin/api/providers >/dev/null
api -d '{"model": "echo/echo", "stream": true, "messages": [{"role": "user", "content": "Hello, image!"}]}' \
    http://127.0.0.1:8787/v1/chat/completions >"$work/answer"
answered_ms=$((($(date +%s%N) - started) / 1000000))
[ "$(grep -c '^data: {' "$work/answer")" -ge 3 ] && grep -q '^data: \[DONE\]' "$work/answer" ||
    fail "the answer is not a whole stream: $(cat "$work/answer")"
grep -q 'listening on http://0.0.0.0:8787' "$work/log" || { cat "$work/log" >&2; fail "it does not listen on 0.0.0.0:8787"; }
pid=$(gateway_pids | head -n 1)
[ -n "$pid" ] || fail "the process of the gateway was not found"
user=$(awk '/^Uid:/ { print $2 ":" $3 }' "/proc/$pid/status")
[ "$user" = 65532:65532 ] || fail "it runs as user $user"
strangers=$(find "$volume" ! -user 65532 -o ! -group 65532)
[ -z "$strangers" ] || fail "not owned by 65532: $strangers"
api -d '{"name": "before the kill"}' http://127.0.0.1:8787/admin/api/principals >/dev/null
doctor=$(run /llmgw doctor) || { echo "$doctor" >&2; fail "the doctor finds faults"; }

stop KILL
! is_healthy || fail "the health check succeeds after a kill"
start
api http://127.0.0.1:8787/admin/api/principals | grep -q 'before the kill' || fail "the state did not survive a kill"
stop TERM
grep -q 'stopped' "$work/log" || { cat "$work/log" >&2; fail "SIGTERM did not stop it in order"; }
say "$arch: built, healthy and unhealthy, user 65532, streamed answer after $answered_ms ms, killed and started again on the same volume"
