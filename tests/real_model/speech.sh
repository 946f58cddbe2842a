#!/usr/bin/env bash
# usage: speech.sh PATH-OF-LLMGW
#
# Tests that the built-in voice is intelligible: it speaks a sentence through the gateway, in each format and with both
# English voices, and a real recognizer behind the same gateway transcribes it. Prints the transcribed words; the exit
# code is not 0 if too few of them are correct.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$(realpath "$1")
cache=${LLMGW_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/llmgw-real-model}/recognizer
work=$(mktemp -d)
children=()
finish() {
    for child in "${children[@]}"; do kill "$child" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
fail() {
    echo "speech: $*" >&2
    tail -n 20 "$work"/*.log >&2 || true
    exit 1
}

stamp=$(sha256sum <"$here/requirements-recognizer.txt")
if [ "$(cat "$cache/stamp" 2>/dev/null)" != "$stamp" ]; then
    echo "speech: installing the recognizer into $cache" >&2
    mkdir -p "$cache"
    [ -x "$cache/python/bin/python" ] || python3 -m venv "$cache/python"
    "$cache/python/bin/python" -m pip install -q --disable-pip-version-check uv
    "$cache/python/bin/python" -m uv pip install -q --python "$cache/python/bin/python" \
        -r "$here/requirements-recognizer.txt" >&2
    echo "$stamp" >"$cache/stamp"
fi

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$cache/python/bin/python" -u "$here/transcription_server.py" "$port" >"$work/recognizer.log" 2>&1 &
children+=($!)
cat >"$work/config.yaml" <<YAML
providers:
  voice: { type: builtin_speech, models: [pico] }
  ear: { type: compatible, base_url: "http://127.0.0.1:$port/v1", protocols: [transcription], models: [whisper-tiny.en] }
YAML
key=administrator-key-of-the-speech-test
LLMGW_API_KEY=$key LLMGW_CREDENTIAL_ENCRYPTION_KEY=$(head -c 32 /dev/urandom | base64) \
    LLMGW_STATE_DIR=$work/state LLMGW_CONFIG=$work/config.yaml LLMGW_PORT=0 \
    "$binary" serve >"$work/gateway.log" 2>&1 &
children+=($!)
gateway=
# The shell that starts it creates the file, possibly after the first read here.
touch "$work/gateway.log"
for _ in $(seq 600); do
    gateway=$(sed -nE 's#.*listening on (http://[0-9.:]+).*#\1#p' "$work/gateway.log" | head -n 1)
    if [ -n "$gateway" ] && curl -sf "http://127.0.0.1:$port/health" >/dev/null; then break; fi
    sleep 0.1
done
[ -n "$gateway" ] || fail "the gateway did not start"

sentence="The keeper of the lighthouse counted seven ships before the storm reached the harbour."
right=0
spoken=0
for case in alloy:mp3 alloy:wav fable:opus fable:mp3; do
    voice=${case%:*} format=${case#*:}
    curl -sf "$gateway/v1/audio/speech" -H "Authorization: Bearer $key" -H 'Content-Type: application/json' \
        -d "{\"model\":\"voice/pico\",\"input\":\"$sentence\",\"voice\":\"$voice\",\"response_format\":\"$format\"}" \
        -o "$work/spoken.$format" || fail "no speech was generated as $format"
    heard=$(curl -sf "$gateway/v1/audio/transcriptions" -H "Authorization: Bearer $key" \
        -F "file=@$work/spoken.$format" -F model=ear/whisper-tiny.en) || fail "the transcription of $format failed"
    counts=$(SENTENCE=$sentence HEARD=$heard python3 - <<'PY'
import json, os, re
words = lambda text: re.findall(r"[a-z0-9]+", text.lower().replace("harbor", "harbour").replace(" 7 ", " seven "))
want, heard = words(os.environ["SENTENCE"]), words(json.loads(os.environ["HEARD"])["text"])
print(sum(word in heard for word in want), len(want))
PY
    )
    echo "speech: $voice as $format: $counts words: $heard"
    right=$((right + ${counts% *})) spoken=$((spoken + ${counts#* }))
done
echo "speech: $right of $spoken words were recognized"
[ $((right * 100)) -ge $((spoken * 85)) ] || fail "too few words were recognized"
