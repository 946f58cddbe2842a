"""Counts instructions and allocations of the native path under callgrind, and compares them with bounds.json.

With --orders it prints the same figures of whole requests through an endpoint of each order, and by a further name of one, exact and
by a pattern, instead, and compares nothing. With --only it prints those of some selectors. With --postgres it compares whole requests
of a key with a hard limit, with the state in files and in a PostgreSQL.
"""

import argparse
import base64
import collections
import http.client
import http.server
import json
import os
import pathlib
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "sdk"), str(HERE)]

from checks import Checks  # noqa: E402
from postgres import Postgres  # noqa: E402

KEY = "administrator-key-of-the-instruction-counts"
CONFIG = 'providers:\n  up: {{type: compatible, base_url: "{url}", api_key: k, models: [m]}}\n'
# Two targets behind an endpoint of each order: with prices for `cheapest`, which compares nothing without them.
ORDERS = ["listed", "weighted", "least_busy", "fastest", "cheapest"]
TARGETS = {order: ["up", "other"] for order in ORDERS} | {"cheapest": ["dear", "cheap"]}
CONFIG += '  other: {{type: compatible, base_url: "{url}", api_key: k, models: [m]}}\n'
for provider, price in [("dear", 2), ("cheap", 1)]:
    models = f"[{{{{id: m, prices: {{{{input: {price}, cached_input: 0.1, output: 8}}}}}}}}]"
    CONFIG += f'  {provider}: {{{{type: compatible, base_url: "{{url}}", api_key: k, models: {models}}}}}\n'
CONFIG += "endpoints:\n"
# Two names that are as long, one of which a pattern finds.
NAMES = ["known-a", "known-b"]
for order, (first, second) in TARGETS.items():
    targets = f"[{{{{provider: {first}, model: m}}}}, {{{{provider: {second}, model: m}}}}]"
    also = f"[{NAMES[0]}, 'known-*']" if order == "listed" else "[]"
    CONFIG += f"  {order}: {{{{order: {order}, also: {also}, failover: {targets}}}}}\n"
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
WHOLE = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "word " * 150}, "finish_reason": "stop"}],
    "usage": USAGE,
}
# Requests of a shorter and a longer run; their difference is what the requests cost, without the start and the first ones.
FEW, MANY = 8, 40
# Pieces of the streams of two runs; their difference is what the pieces cost.
SHORT, LONG = 4, 36
STREAMS = 16
# The most that a request may cost with the state in a PostgreSQL, relative to one with the state in files.
POSTGRES_MAX = 1.01


class Upstream(http.server.BaseHTTPRequestHandler):
    """Answers with a whole answer, or with as many pieces as the request's `max_tokens`, one after the other."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not request.get("stream"):
            return self.answer("application/json", [json.dumps(WHOLE).encode()])
        delta = lambda content: {"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": None}]}
        pieces = [delta(f"word {number} ") for number in range(request["max_tokens"])]
        pieces.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": USAGE})
        events = [f"data: {json.dumps(piece)}\n\n".encode() for piece in pieces]
        return self.answer("text/event-stream", [*events, b"data: [DONE]\n\n"], pause=0.02)

    def answer(self, kind, pieces, pause=0.0):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            # So that each piece is a read of its own.
            time.sleep(pause)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


class Gateway:
    """The gateway under a tool that watches it from its start to its end."""

    def __init__(self, binary, folder, url, tool, settings=None):
        self.folder = pathlib.Path(folder)
        (self.folder / "config.yaml").write_text(CONFIG.format(url=url))
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "LLMGW_API_KEY": KEY,
            "LLMGW_CREDENTIAL_ENCRYPTION_KEY": base64.b64encode(secrets.token_bytes(32)).decode(),
            "LLMGW_STATE_DIR": f"{folder}/state",
            "LLMGW_CONFIG": f"{folder}/config.yaml",
            "LLMGW_PORT": "0",
            "LLMGW_WORKERS": "1",
            "LLMGW_DRAIN_DELAY_SECONDS": "0",
            **(settings or {}),
        }
        with open(self.folder / "log", "w") as log:
            self.child = subprocess.Popen([*tool, binary, "serve"], env=environment, stderr=log)
        deadline = time.monotonic() + 120
        while not (found := re.search(r"listening on http://127\.0\.0\.1:(\d+)", self.log())):
            if self.child.poll() is not None or time.monotonic() > deadline:
                self.child.kill()
                raise SystemExit(f"the gateway does not listen:\n{self.log()}")
            time.sleep(0.1)
        self.address = ("127.0.0.1", int(found.group(1)))
        self.connection = http.client.HTTPConnection(*self.address, timeout=120)
        self.key = KEY

    def log(self):
        return (self.folder / "log").read_text()

    def request(self, pieces, model="up/m", session=None):
        more = {"stream": True, "max_tokens": pieces} if pieces else {}
        if session:
            more["affinity_key"] = session
        body = {"model": model, "messages": [{"role": "user", "content": "Tell me something. " * 20}], **more}
        self._call("POST", "/v1/chat/completions", body)

    def wait_until_served(self):
        """Sends a request again until it is served: the first ones may come before the node's first share of a limit."""
        for _ in range(50):
            try:
                return self.request(0)
            except OSError:
                time.sleep(0.2)
        raise SystemExit(f"no request is served; the log of the gateway:\n{self.log()}")

    def api(self, method, path, body):
        """Returns the answer of the admin API."""
        return json.loads(self._call(method, f"/admin/api/{path}", body))

    def limited_key(self):
        """Returns a new key of a project with a hard limit."""
        project = self.api("POST", "projects", {"name": "blue"})["id"]
        subject = {"kind": "project", "id": project}
        self.api("POST", "quotas", {"subject": subject, "metric": "requests", "window": "day", "limit": 1_000_000})
        return self.api("POST", "keys", {"name": "k", "project": project})["key"]

    def _call(self, method, path, body):
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        self.connection.request(method, path, json.dumps(body), headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise OSError(f"status {answer.status}: {text[:300]!r}")
        return text

    def stop(self):
        self.connection.close()
        self.child.send_signal(signal.SIGTERM)
        try:
            return self.child.wait(60)
        except subprocess.TimeoutExpired:
            self.child.kill()
            return self.child.wait()


def profile(binary, url, requests, pieces, settings=None, is_limited=False, **members):
    """Returns what the thread of the data plane did in a run with so many requests, for streams of so many pieces."""
    with tempfile.TemporaryDirectory() as folder:
        tool = ["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={folder}/out"]
        gateway = Gateway(binary, folder, url, tool, settings)
        try:
            if is_limited:
                gateway.key = gateway.limited_key()
                gateway.wait_until_served()
            for _ in range(requests):
                gateway.request(pieces, **members)
        except OSError as error:
            raise SystemExit(f"{error}; the log of the gateway:\n{gateway.log()}") from error
        finally:
            code = gateway.stop()
        if code != 0:
            raise SystemExit(f"the gateway ended with code {code}:\n{gateway.log()}")
        served = max((Profile(path) for path in gateway.folder.glob("out-*")), key=lambda one: one.serves)
        if not served.serves:
            raise SystemExit("no thread has served requests")
        return served


class Profile:
    """What one dump of a thread says: its instructions, and the calls of the allocator."""

    # The functions by which Rust's code allocates, of the gateway's allocator.
    ALLOCATES = re.compile(r"<mimalloc::MiMalloc as core::alloc::global::GlobalAlloc>::(alloc|alloc_zeroed|realloc)")

    def __init__(self, path):
        self.instructions, self.allocations, self.serves = 0, 0, 0
        names, callee = {}, None
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith(("summary:", "totals:")):
                self.instructions = max(self.instructions, int(line.split()[1]))
            elif found := re.match(r"c?fn=\((\d+)\)(?: (.*))?", line):
                number, name = found.groups()
                if name:
                    names[number] = name
                callee = names.get(number, "")
            elif line.startswith("calls="):
                calls = int(line[6:].split()[0])
                self.allocations += calls if self.ALLOCATES.search(callee) else 0
                self.serves += calls if "dataplane::exchange" in callee else 0


def print_orders(binary, url, only):
    """Prints what whole requests through an endpoint of each order cost, without and with a session."""
    targets = [(name, None) for name in ["up/m", "cheap/m", *NAMES]]
    for model, session in targets + [(order, session) for order in ORDERS for session in [None, "conversation-7"]]:
        if only and model not in only:
            continue
        few, many = (profile(binary, url, requests, 0, model=model, session=session) for requests in [FEW, MANY])
        of = lambda name: round((getattr(many, name) - getattr(few, name)) / (MANY - FEW), 1)
        print(f"figure {model}, session {session}: {of('instructions')} instructions, {of('allocations')} allocations", flush=True)


def compare_postgres(binary, url):
    """Returns whether a request costs the same with the state in files and in a PostgreSQL."""

    def on_postgres(requests):
        postgres = Postgres()
        try:
            return profile(binary, url, requests, 0, {"LLMGW_DATABASE_URL": postgres.url}, is_limited=True)
        finally:
            postgres.stop()

    places = {"files": lambda requests: profile(binary, url, requests, 0, is_limited=True), "PostgreSQL": on_postgres}
    figures = {}
    for where, run in places.items():
        figures[where] = (run(MANY).instructions - run(FEW).instructions) / (MANY - FEW)
        print(f"figure instructions of a limited request with its state in {where}: {figures[where]:.0f}", flush=True)
    return figures["PostgreSQL"] <= POSTGRES_MAX * figures["files"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gateway", required=True)
    parser.add_argument("--orders", action="store_true")
    parser.add_argument("--only", nargs="*", metavar="SELECTOR")
    parser.add_argument("--postgres", action="store_true")
    options = parser.parse_args()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    if options.orders:
        return print_orders(options.gateway, url, options.only)
    if options.postgres:
        sys.exit(0 if compare_postgres(options.gateway, url) else 1)
    bounds, checks, figures = json.loads((HERE / "bounds.json").read_text()), Checks(), collections.OrderedDict()
    run = lambda requests, pieces: profile(options.gateway, url, requests, pieces)
    few, many, short, long = run(FEW, 0), run(MANY, 0), run(STREAMS, SHORT), run(STREAMS, LONG)
    for name in ["instructions", "allocations"]:
        of = lambda more, less: getattr(more, name) - getattr(less, name)
        figures[f"{name} of a whole request"] = round(of(many, few) / (MANY - FEW), 1)
        figures[f"{name} of a piece of a stream"] = round(of(long, short) / STREAMS / (LONG - SHORT), 1)
    for name, figure in figures.items():
        bound = bounds[name]
        print(f"figure {name}: {figure} (expected {bound['expected']})", flush=True)
        limit = bound["expected"] * bound["factor_max"]
        checks.check(f"{name}: {figure} is more than {limit:.1f}, {bound['factor_max']} times what is expected", 0 < figure <= limit)
    print(f"instructions: {checks.passed} passed, {checks.failed} failed", flush=True)
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
