"""Starts a receiver and the gateway, has events sent before and after a rotation of the secret, and verifies every message with
both libraries."""

import argparse
import http.server
import json
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "sdk"))

from checks import Checks  # noqa: E402
from process import ended_well, start_gateway  # noqa: E402
from standardwebhooks.webhooks import Webhook  # noqa: E402

KEY = "administrator-key-of-the-webhooks-suite"


class Receiver(http.server.BaseHTTPRequestHandler):
    """Accepts every message and stores it."""

    messages = queue.Queue()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.messages.put(({name.lower(): value for name, value in self.headers.items()}, body.decode()))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


class Node:
    """The library of Node, in a process that verifies messages."""

    def __init__(self, script):
        self.child = subprocess.Popen(["node", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def verify(self, secret, headers, body):
        self.child.stdin.write(json.dumps({"secret": secret, "headers": headers, "body": body}) + "\n")
        self.child.stdin.flush()
        return json.loads(self.child.stdout.readline())


def verify_in_python(secret, headers, body):
    try:
        Webhook(secret).verify(body, headers)
        return "ok"
    except Exception as error:  # the library raises its own and json's
        return str(error) or type(error).__name__


def admin(origin, method, path, body=None):
    data = json.dumps(body).encode() if body is not None else None
    headers = {"x-api-key": KEY, "content-type": "application/json"}
    request = urllib.request.Request(f"{origin}/admin/api/{path}", data, headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def judge(checks, libraries, secrets, message, what):
    """Verifies a message with the secrets that must accept it and those that must not, and altered messages with none."""
    headers, body = message
    for name, verify in libraries.items():
        for secret, good in secrets:
            answer = verify(secret, headers, body)
            checks.check(f"{what}, {name}: {answer}", (answer == "ok") == good)
        secret = next(secret for secret, good in secrets if good)
        altered = [
            ("the body", headers, body.replace("Test", "Rest")),
            ("the ID", headers | {"webhook-id": "evt_other"}, body),
            ("the time", headers | {"webhook-timestamp": str(int(headers["webhook-timestamp"]) - 1)}, body),
            ("an old time", headers | {"webhook-timestamp": "1600000000"}, body),
        ]
        for part, its_headers, its_body in altered:
            answer = verify(secret, its_headers, its_body)
            checks.check(f"{what}, {name}: {part} was altered: {answer}", answer != "ok")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gateway", required=True)
    parser.add_argument("--node", required=True)
    options = parser.parse_args()
    receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    libraries = {"Python": verify_in_python, "Node": Node(options.node).verify}
    checks = Checks()
    with tempfile.TemporaryDirectory() as directory:
        gateway, origin = start_gateway(options.gateway, "{}\n", KEY, directory)
        url = f"http://127.0.0.1:{receiver.server_address[1]}/hook"
        for form in ["json", "slack"]:
            made = admin(origin, "POST", "webhooks", {"name": form, "url": url, "format": form})
            path = f"webhooks/{made['id']}"

            def receive(what, secrets):
                admin(origin, "POST", "alert-rules/rule_disk_low/test", {})
                judge(checks, libraries, secrets, Receiver.messages.get(timeout=30), f"{form}, {what}")

            first = made["secret"]
            receive("one secret", [(first, True)])
            second = admin(origin, "POST", f"{path}/rotate", {})["secret"]
            receive("during the overlap", [(first, True), (second, True)])
            third = admin(origin, "POST", f"{path}/rotate", {"overlap_seconds": 0})["secret"]
            receive("after a rotation without overlap", [(first, False), (second, False), (third, True)])
            tested = admin(origin, "POST", f"{path}/test", {})
            checks.check(f"{form}: a test is accepted: {tested}", tested["ok"])
            judge(checks, libraries, [(third, True)], Receiver.messages.get(timeout=30), f"{form}, a test")
            admin(origin, "PATCH", path, {"disabled": True})
        well = ended_well(gateway, checks.failed)
    print(f"webhooks: {checks.passed} passed, {checks.failed} failed")
    return 0 if well and checks.failed == 0 and checks.passed > 0 else 1


sys.exit(main())
