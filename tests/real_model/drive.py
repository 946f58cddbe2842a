"""Starts the model server and the gateway on free loopback ports, runs the SDK suites, and adds up their counts."""

import argparse
import base64
import os
import pathlib
import queue
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
SDK = HERE.parent / "sdk"
MODEL = "smollm2-135m"

CONFIG = """\
providers:
  dead:
    type: compatible
    base_url: http://127.0.0.1:{dead_port}/v1
    api_key: sk-nobody-listens
    models: [smollm2-135m-gone]
  llama:
    type: local_server
    base_url: {upstream}/v1
    timeout: 120                    # a machine busy with other things is slow, not broken
    models: [{model}]
endpoints:
  tiny:
    failover:
      - {{provider: llama, model: {model}}}
  dead-first:
    failover:
      - {{provider: dead, model: smollm2-135m-gone}}
      - {{provider: llama, model: {model}}}
policies:
  defaults:
    retry_max_attempts: 1           # so that each request makes two attempts: the dead target, the live one
    circuit_failure_threshold: 0    # and goes on making them, however often the dead one has failed
"""


class Process:
    """A child process whose output is kept, and shown when something goes wrong."""

    def __init__(self, name, command, env=None):
        self.name = name
        self.lines = queue.Queue()
        self.seen = []
        self.child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, errors="replace"
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.child.stdout:
            self.seen.append(line)
            self.lines.put(line)
        self.lines.put(None)

    def wait_for(self, pattern, seconds):
        """The first group of `pattern` in the output."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self.lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise SystemExit(self.complaint(f"said no {pattern!r} within {seconds} s"))
            if line is None:
                raise SystemExit(self.complaint(f"ended with code {self.child.wait()}"))
            found = re.search(pattern, line)
            if found:
                return found.group(1)

    def complaint(self, what):
        return f"{self.name} {what}; its output was:\n{''.join(self.seen[-60:])}"

    def stop(self):
        self.child.terminate()
        try:
            return self.child.wait(40)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
            return None


def wait_until_answers(url, process, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.child.poll() is not None:
            raise SystemExit(process.complaint(f"ended with code {process.child.returncode}"))
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise SystemExit(process.complaint(f"gave no answer at {url} within {seconds} s"))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start_model_server():
    port = free_port()
    server = Process("the model server", [sys.executable, "-u", str(HERE / "chat_server.py"), str(port)])
    wait_until_answers(f"http://127.0.0.1:{port}/health", server, 60)
    return server, f"http://127.0.0.1:{port}"


def start_gateway(binary, upstream, dead_port, key, directory):
    config = pathlib.Path(directory, "gateway.yaml")
    config.write_text(CONFIG.format(dead_port=dead_port, upstream=upstream, model=MODEL))
    env = {name: value for name, value in os.environ.items() if not name.startswith("LLMGW_")}
    env |= {
        "LLMGW_API_KEY": key,
        "LLMGW_CREDENTIAL_ENCRYPTION_KEY": base64.b64encode(secrets.token_bytes(32)).decode(),
        "LLMGW_STATE_DIR": str(pathlib.Path(directory, "state")),
        "LLMGW_CONFIG": str(config),
        "LLMGW_PORT": "0",
    }
    gateway = Process("the gateway", [binary, "serve"], env)
    origin = gateway.wait_for(r"listening on (http://127\.0\.0\.1:\d+)", 30)
    wait_until_answers(f"{origin}/ready", gateway, 30)
    return gateway, origin


def run_suites(cache, origin, upstream, key, direct):
    """(suites run, passed, failed) of all suites together."""
    env = os.environ | {
        "LLMGW_TEST_ORIGIN": origin,
        "LLMGW_TEST_UPSTREAM": upstream,
        "LLMGW_TEST_KEY": key,
        "LLMGW_TEST_MODEL": MODEL if direct else f"llama/{MODEL}",
        "LLMGW_TEST_ENDPOINT": MODEL if direct else "tiny",
        "LLMGW_TEST_DEAD_FIRST_ENDPOINT": "dead-first",
        "LLMGW_TEST_DIRECT": "1" if direct else "0",
        "LLMGW_TEST_NODE": str(cache / "node"),
        "NO_PROXY": "127.0.0.1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    python = [sys.executable, "-u", str(SDK / "suite.py")]
    suites = [
        (python, env),
        (python, env | {"PYTHONPATH": str(cache / "older-sdk")}),
        (["node", str(SDK / "suite.mjs")], env),
    ]
    passed = failed = 0
    for command, environment in suites:
        suite = Process("a suite", command, environment)
        for line in iter(suite.lines.get, None):
            print(line, end="", flush=True)
        code = suite.child.wait()
        totals = re.search(r": (\d+) passed, (\d+) failed", suite.seen[-1]) if suite.seen else None
        passed += int(totals.group(1)) if totals else 0
        # A suite that ends without its totals, or in error with none failed, has failed as a whole.
        failed += int(totals.group(2)) if totals else 1
        failed += 1 if totals and code != 0 and totals.group(2) == "0" else 0
    return passed, failed


def drive(arguments, directory):
    key = f"test-{secrets.token_hex(16)}"
    server, upstream = start_model_server()
    gateway = None
    # Bound and not listening: whoever connects is refused, and nobody else can get the port.
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        try:
            origin = upstream
            if not arguments.direct:
                gateway, origin = start_gateway(arguments.gateway, upstream, dead.getsockname()[1], key, directory)
            passed, failed = run_suites(arguments.cache, origin, upstream, key, arguments.direct)
            if gateway:
                code = gateway.stop()
                if code != 0:
                    failed += 1
                    print(gateway.complaint(f"ended with code {code} on SIGTERM"))
                elif failed:
                    print(gateway.complaint("was asked to end"))
        finally:
            for process in filter(None, [gateway, server]):
                process.child.kill()
    return passed, failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--gateway")
    parser.add_argument("--direct", action="store_true")
    arguments = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="llmgw-real-model-") as directory:
        passed, failed = drive(arguments, directory)
    print(f"real model: {passed} passed, {failed} failed, in {time.monotonic() - started:.0f} s")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
