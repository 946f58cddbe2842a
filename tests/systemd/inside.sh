#!/usr/bin/env bash
# Installs and uses the gateway inside the container of run.sh, in the folder of an unpacked archive.
set -euo pipefail
cd "$(dirname "$0")"
url=http://127.0.0.1:8787
state=/var/lib/llmgw

fail() { echo "systemd: $*" >&2; exit 1; }
say() { echo "systemd: $*" >&2; }
until_true() {
    local deadline=$((SECONDS + 20))
    until "$@"; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.1
    done
}
property() { systemctl show --property "$1" --value llmgw; }
has_journal() { journalctl --boot --no-pager --unit llmgw | grep -q -- "$1"; }
api() { curl -sS --fail-with-body -H "x-api-key: $LLMGW_API_KEY" -H 'Content-Type: application/json' "$@"; }
is_healthy() { llmgw healthcheck >/dev/null 2>&1; }
# chat MODEL   prints the stream of an answer
chat() {
    api --no-buffer -d '{"model": "'"$1"'", "stream": true, "messages": [{"role": "user", "content": "one two three"}]}' \
        "$url/v1/chat/completions"
}

# The commands of the unit's first lines, as a reader would paste them. Without secrets the gateway must not start, and
# systemd must not try again.
sed -n '/^\[Unit\]/q; s/^#   //p' llmgw.service >install
[ "$(wc -l <install)" -ge 4 ] || fail "the unit has no commands that install it"
bash -euo pipefail install 2>/dev/null
until_true has_journal 'LLMGW_API_KEY: is not set' || fail "the log does not name the missing secret"
until_true [ "$(property ActiveState)" = failed ] || fail "without secrets it is $(property ActiveState)"
[ "$(property NRestarts)" = 0 ] || fail "it is started again with a configuration that cannot work"

for name in LLMGW_API_KEY LLMGW_CREDENTIAL_ENCRYPTION_KEY; do
    sed -i "s#^$name=.*#$name=$(openssl rand -base64 32)#" /etc/llmgw/llmgw.env
done
sed -n 's/^LLMGW_API_KEY=/ITSELF_KEY=/p' /etc/llmgw/llmgw.env >key
cat key - >>/etc/llmgw/llmgw.env <<'VARIABLES'
LLMGW_CONFIG=/etc/llmgw/config.yaml
LLMGW_LOG_FILE=true
VARIABLES
# The second provider is the gateway itself, by name, so that a request leaves the process over TCP.
cat >/etc/llmgw/config.yaml <<'CONFIGURATION'
providers:
  slow:
    type: echo
    echo: {chunk_delay_ms: 700}
    models: [echo]
  itself:
    type: compatible
    base_url: http://localhost:8787/v1
    api_key: ${ENV:ITSELF_KEY}
    models: [voice/pico, slow/echo]
  voice:
    type: builtin_speech
    models: [pico]
CONFIGURATION
set -a
. /etc/llmgw/llmgw.env
set +a
systemctl start llmgw
until_true is_healthy || fail "it does not become healthy"

pid=$(property MainPID)
grep -q '^CapBnd:\s*0*$' "/proc/$pid/status" || fail "the process has capabilities"
grep -q '^NoNewPrivs:\s*1$' "/proc/$pid/status" || fail "the process may gain privileges"
grep -q '^Seccomp:\s*2$' "/proc/$pid/status" || fail "the process has no filter of system calls"
user=$(stat -c %u "/proc/$pid")
[ "$user" != 0 ] || fail "the process runs as root"
[ "$(stat -Lc '%u %a' $state)" = "$user 700" ] || fail "the state directory is $(stat -Lc '%u %a' $state)"
systemd-analyze security --threshold=15 --no-pager llmgw >exposure || fail "the exposure is $(tail -n 1 exposure)"

# Threads, sockets, name lookup and the engine of the voice work under the hardening.
chat slow/echo | grep -q 'DONE' || fail "a stream has no end"
chat itself/slow/echo | grep -q 'DONE' || fail "a stream through an upstream has no end"
api -d '{"model": "voice/pico", "input": "Good evening."}' "$url/v1/audio/speech" -o speech.mp3
[ "$(stat -c %s speech.mp3)" -gt 1000 ] || fail "there is no speech"
grep -q listening $state/logs/*.log || fail "there is no log file"
api -d '{"name": "before the kill"}' "$url/admin/api/principals" >/dev/null

sed -i 's/  voice:/  second:\n    type: echo\n    models: [echo]\n&/' /etc/llmgw/config.yaml
systemctl reload llmgw
until_true has_journal SIGHUP || fail "a reload does not signal"
until_true grep -q second/echo <(api "$url/v1/models") || fail "a reload does not read the configuration"

# What root does beside the gateway, and while it is stopped, leaves nothing that the gateway cannot use.
llmgw doctor >doctor || { cat doctor >&2; fail "the doctor finds faults"; }
llmgw backup create >/dev/null
[ "$(api -X POST "$url/admin/api/backups" -o backup -w '%{http_code}')" -lt 300 ] || fail "$(cat backup)"
has_two_backups() { [ "$(ls $state/backups/*.tar.zst 2>/dev/null | wc -l)" = 2 ]; }
until_true has_two_backups || { api "$url/admin/api/state" >&2; fail "the gateway makes no backup after one of root"; }

# A stop lets a stream finish.
chat slow/echo >stream &
client=$!
until_true grep -q one stream || fail "the stream does not begin"
stopping=$SECONDS
systemctl stop llmgw
[ $((SECONDS - stopping)) -lt 30 ] || fail "the stop took $((SECONDS - stopping)) s"
wait "$client" || fail "the stop broke a stream"
grep -q DONE stream || fail "the stop cut a stream"
[ "$(property Result)" = success ] || fail "the stop ended with $(property Result)"

export LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY
LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY=$(openssl rand -base64 32)
llmgw credentials rekey >/dev/null
sed -i "s#^LLMGW_CREDENTIAL_ENCRYPTION_KEY=.*#LLMGW_CREDENTIAL_ENCRYPTION_KEY=$LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY#" \
    /etc/llmgw/llmgw.env
systemctl start llmgw
until_true is_healthy || fail "it does not start after root has changed the key"
strangers=$(find $state/ ! -uid "$(stat -c %u "/proc/$(property MainPID)")")
[ -z "$strangers" ] || fail "files that do not belong to the gateway: $strangers"

pid=$(property MainPID)
kill -KILL "$pid"
is_another() { [ "$(property MainPID)" != "$pid" ] && is_healthy; }
until_true is_another || fail "it is not started again after a kill"
[ "$(property NRestarts)" = 1 ] || fail "it was started $(property NRestarts) times after a kill"
api "$url/admin/api/principals" | grep -q 'before the kill' || fail "the state did not survive a kill"
[ "$(systemctl is-enabled llmgw)" = enabled ] || fail "it does not start with the machine"
