"""usage: record_agent.py --gateway BINARY --cache FOLDER > control/src/serve/alert_watch/recorded_agent.json

Records the requests of two sessions of Claude Code that go through a gateway: one that reads a file eight times and ends, and
one that loops, because each answer asks it to read the file again. The gateway's usage records are printed as JSON, for
the month of alerts in `control/src/serve/alert_watch/tests.rs`. FOLDER is the cache of `setup.sh`.

The upstream is scripted: each answer takes two seconds, as that of a model might, and is billed a token for each four
characters of the request.
"""

import argparse
import json
import os
import pathlib
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "sdk"))

from process import start_gateway  # noqa: E402

ANSWER_S = 2
TURNS = {"ordinary": 8, "looping": 60}
OUTPUT_TOKENS = 120
MODEL = "claude-sonnet-5"

CONFIG = """\
providers:
  anthropic:
    type: anthropic
    base_url: {upstream}
    api_key: sk-scripted
    models: [{{id: m, prices: {{input: 3, output: 15}}}}]
endpoints:
  claude-sonnet-5:
    failover: [{{provider: anthropic, model: m}}]
"""


class Upstream(BaseHTTPRequestHandler):
    """Answers with a call of the tool Read until it was called often enough, then with a text."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        asked = json.loads(body)
        time.sleep(ANSWER_S)
        text = json.dumps(asked["messages"])
        session = "looping" if "session:looping" in text else "ordinary"
        calls = text.count('"tool_use_id"')
        usage = {"input_tokens": len(body) // 4, "output_tokens": OUTPUT_TOKENS}
        if calls < TURNS[session] and "session:" in text and asked.get("tools"):
            path = text.split("session:")[1].split("=")[1].split()[0].split('"')[0].rstrip("\\")
            block = {"type": "tool_use", "id": f"toolu_{calls}", "name": "Read", "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps({"file_path": path})}
            reason = "tool_use"
        else:
            block, delta, reason = {"type": "text", "text": ""}, {"type": "text_delta", "text": "Done."}, "end_turn"
        message = {
            "id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": [], "stop_reason": None,
            "stop_sequence": None, "usage": usage | {"output_tokens": 1},
        }  # fmt: skip
        events = [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None},
                "usage": {"output_tokens": OUTPUT_TOKENS},
            },
            {"type": "message_stop"},
        ]  # fmt: skip
        if asked.get("stream"):
            kind, answer = "text/event-stream", "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events)
        else:
            whole = message | {"content": [{"type": "text", "text": "Done."}], "stop_reason": "end_turn", "usage": usage}
            kind, answer = "application/json", json.dumps(whole)
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(answer.encode())))
        self.end_headers()
        self.wfile.write(answer.encode())

    def log_message(self, *_):
        pass


def run_claude_code(program, origin, key, session):
    with tempfile.TemporaryDirectory(prefix="llmgw-recording-") as name:
        folder = pathlib.Path(name)
        (folder / "home").mkdir()
        note = folder / "note.txt"
        note.write_text("A line of a note that the agent reads again and again.\n" * 40)
        command = [
            program, "-p", f"Read the note until it is done. session:{session}={note} ", "--model", MODEL, "--allowedTools", "Read",
        ]  # fmt: skip
        env = {
            "PATH": os.environ["PATH"], "HOME": str(folder / "home"), "LANG": "C.UTF-8", "ANTHROPIC_BASE_URL": origin,
            "ANTHROPIC_API_KEY": key, "ANTHROPIC_DEFAULT_HAIKU_MODEL": MODEL, "ANTHROPIC_SMALL_FAST_MODEL": MODEL,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_TELEMETRY": "1",
        }  # fmt: skip
        subprocess.run(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=True, timeout=600)


def records(origin, key):
    """Returns (milliseconds, micro-dollars) of each request so far, oldest first."""
    time.sleep(2)  # usage is stored on a timer
    request = urllib.request.Request(f"{origin}/admin/api/requests?limit=500", headers={"authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        rows = json.load(answer)["data"]
    return [(row["started_at_ms"], round(row["cost_micro_usd"])) for row in reversed(rows) if row["cost_micro_usd"]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gateway", required=True)
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    program = next(arguments.cache.glob("node/node_modules/@anthropic-ai/claude-code-*/claude"))
    package = json.loads((arguments.cache / "node/node_modules/@anthropic-ai/claude-code/package.json").read_text())
    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    key, recorded, before = f"test-{secrets.token_hex(16)}", {}, 0
    with tempfile.TemporaryDirectory(prefix="llmgw-recording-") as directory:
        config = CONFIG.format(upstream=f"http://127.0.0.1:{server.server_port}")
        gateway, origin = start_gateway(arguments.gateway, config, key, directory)
        try:
            for session in TURNS:
                run_claude_code(str(program), origin, key, session)
                rows = records(origin, key)[before:]
                before += len(rows)
                recorded[session] = [[at - rows[0][0], cost] for at, cost in rows]
        finally:
            gateway.stop()
    head = {"client": f"claude-code {package['version']}", "rows": "[milliseconds since the first request, micro-dollars]"}
    body = ",\n".join(f"  {json.dumps(name)}: {json.dumps(rows)}" for name, rows in recorded.items())
    print(json.dumps(head)[:-1].replace("{", "{\n  ", 1).replace('", "rows', '",\n  "rows') + ",\n" + body + "\n}")


if __name__ == "__main__":
    main()
