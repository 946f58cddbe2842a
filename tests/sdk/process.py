"""Child processes of a test run, whose output is stored and printed on failure, and a gateway."""

import base64
import os
import pathlib
import queue
import re
import secrets
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Process:
    """A child process whose output is stored, and printed on failure."""

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
        """Returns the first group of `pattern` in the output."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self.lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise SystemExit(self.complaint(f"printed no {pattern!r} within {seconds} s"))
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


def wait_until_answers(request, process, seconds):
    """Waits until a request, or a GET of this URL, succeeds, and ends the test run if the process ends before."""
    url = getattr(request, "full_url", request)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.child.poll() is not None:
            raise SystemExit(process.complaint(f"ended with code {process.child.returncode}"))
        try:
            with urllib.request.urlopen(request, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise SystemExit(process.complaint(f"gave no answer at {url} within {seconds} s"))


def start_gateway(binary, config, key, directory, settings=None):
    """Starts the gateway with this configuration and these further variables; returns it and its address."""
    path = pathlib.Path(directory, "gateway.yaml")
    path.write_text(config)
    env = {name: value for name, value in os.environ.items() if not name.startswith("LLMGW_")}
    env |= {
        "LLMGW_API_KEY": key,
        "LLMGW_CREDENTIAL_ENCRYPTION_KEY": base64.b64encode(secrets.token_bytes(32)).decode(),
        "LLMGW_STATE_DIR": str(pathlib.Path(directory, "state")),
        "LLMGW_CONFIG": str(path),
        "LLMGW_PORT": "0",
        # So that a stop at the end of a test is quick.
        "LLMGW_DRAIN_DELAY_SECONDS": "0",
        **(settings or {}),
    }
    gateway = Process("the gateway", [binary, "serve"], env)
    origin = gateway.wait_for(r"listening on (http://127\.0\.0\.1:\d+)", 30)
    wait_until_answers(f"{origin}/ready", gateway, 30)
    return gateway, origin


def run_all(suites):
    """Returns (passed, failed) of all suites together, each a command and its environment; their output goes through."""
    passed = failed = 0
    for command, environment in suites:
        suite = Process("a suite", command, environment)
        for line in iter(suite.lines.get, None):
            print(line, end="", flush=True)
        code = suite.child.wait()
        totals = re.search(r": (\d+) passed, (\d+) failed", suite.seen[-1]) if suite.seen else None
        passed += int(totals.group(1)) if totals else 0
        # A suite that ends without its totals, or with an error but no failed check, has failed as a whole.
        failed += int(totals.group(2)) if totals else 1
        failed += 1 if totals and code != 0 and totals.group(2) == "0" else 0
    return passed, failed


def ended_well(gateway, failed):
    """Stops the gateway; returns False if it did not stop cleanly. Prints its output in that case, and if checks
    failed."""
    code = gateway.stop()
    if code != 0:
        print(gateway.complaint(f"ended with code {code} on SIGTERM"))
    elif failed:
        print(gateway.complaint("was asked to end"))
    return code == 0
