"""Claude Code signs in at the gateway with `/login`, as a person does: its program runs in a terminal, and a session of the
console approves the code that it shows. Then it gets the managed settings, an answer, a refusal over the budget, and signs out.

Each gateway is of this suite: one on the loopback address, and one with TLS below a path, whose certificate the client trusts
by NODE_EXTRA_CA_CERTS.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import ssl
import struct
import subprocess
import tempfile
import termios
import time
import urllib.error
import urllib.request

from agent_programs import VERSIONS, program
from common import Suite, equal, eventually, finish, holds
from process import Process

SUITE = Suite(f"claude-code-{VERSIONS['claude_code']} sign-in")
ADMIN_KEY = "admin-key-of-the-sign-in-of-claude-code"
CONFIG = """\
claude_code:
  sign_in: true
  login_notice: For staff of Example.
  settings: {model: smart, env: {FROM_THE_GATEWAY: "yes"}}
providers:
  trial: {type: echo, models: [{id: echo, prices: {input: 1000, output: 1000}}]}
endpoints:
  smart: {failover: [{provider: trial, model: echo}]}
"""
LIMIT_S = 90
QUIET = {"DISABLE_AUTOUPDATER": "1", "DISABLE_ERROR_REPORTING": "1", "DISABLE_TELEMETRY": "1"}
UP, DOWN, ENTER = "\x1b[A", "\x1b[B", "\r"
# Commands of the terminal: colours, places of the cursor, titles.
COMMANDS = re.compile(r"\x1b\[[0-9;?<>=]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[=>()][0-9A-Z]?")


class Gateway:
    """A gateway, and a session of its console that an administrator has opened."""

    def __init__(self, folder, base_path="", certificate=None):
        config = folder / "gateway.yaml"
        config.write_text(CONFIG)
        env = {name: value for name, value in os.environ.items() if not name.startswith("LLMGW_")}
        env |= {"LLMGW_API_KEY": ADMIN_KEY, "LLMGW_STATE_DIR": str(folder / "state"), "LLMGW_CONFIG": str(config), "LLMGW_PORT": "0"}
        env |= {"LLMGW_CREDENTIAL_ENCRYPTION_KEY": "A" * 43 + "=", "LLMGW_DRAIN_DELAY_SECONDS": "0"}
        self.trust = None
        if certificate:
            env |= {"LLMGW_TLS_CERT_FILE": str(certificate[0]), "LLMGW_TLS_KEY_FILE": str(certificate[1])}
            self.trust = ssl.create_default_context(cafile=str(certificate[0]))
        if base_path:
            env["LLMGW_BASE_PATH"] = base_path
        self.process = Process("the gateway", [os.environ["LLMGW_TEST_GATEWAY"], "serve"], env)
        port = self.process.wait_for(r"listening on https?://127\.0\.0\.1:(\d+)", 30)
        self.origin = f"{'https' if certificate else 'http'}://127.0.0.1:{port}"
        self.base = self.origin + base_path
        self.headers = {"x-api-key": ADMIN_KEY}
        eventually("the gateway is ready", lambda: self.call("GET", "/ready", admin=False) is not None, 30)

    def call(self, method, path, body=None, admin=True, headers=None):
        """Returns the body of an answer, and None if the request failed before an answer."""
        url = f"{self.base}/admin/api/{path}" if admin else self.base + path
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"content-type": "application/json", **self.headers, **(headers or {})}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10, context=self.trust) as answer:
                self.cookie = (answer.headers["set-cookie"] or "").split(";")[0]
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read().decode()}") from error
        except OSError:
            return None
        return json.loads(text) if text.startswith((b"{", b"[")) else {}

    def approve(self, code, project):
        """Approves a code as its person does on the console's page."""
        browser = {"origin": self.origin, "sec-fetch-site": "same-origin"}
        session = self.call("POST", "session", {"key": ADMIN_KEY}, headers=browser)
        browser |= {"cookie": self.cookie, "x-csrf-token": session["csrf_token"], "x-api-key": ""}
        shown = self.call("GET", f"device-sign-ins/{code}", headers=browser)
        equal((shown["state"], shown["address"]), ("pending", "127.0.0.1"), "what the page shows")
        self.call("POST", f"device-sign-ins/{code}/approve", {"project": project}, headers=browser)

    def signed_in_keys(self):
        return [key for key in self.call("GET", "keys")["data"] if key["name"] == "Claude Code"]


class Terminal:
    """A program in a terminal. What it shows is read without white space, most of which is places of the cursor."""

    def __init__(self, command, folder, env):
        self.shown = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execve(command[0], command, env)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 150, 0, 0))

    def read(self, seconds):
        """Reads what is shown within this time. Returns False at the end."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            piece = os.read(self.fd, 65536)
        except OSError:
            return False
        self.shown += piece.decode(errors="replace")
        return bool(piece)

    def plain(self):
        return re.sub(r"\s", "", COMMANDS.sub("", self.shown))

    def until(self, *words):
        """Waits until one of the texts is shown, forgets what was shown, and returns the position of the text."""
        deadline = time.monotonic() + LIMIT_S
        wanted = [text.replace(" ", "") for text in words]
        while True:
            plain = self.plain()
            found = [at for at, text in enumerate(wanted) if text in plain]
            if found:
                self.seen, self.shown = plain, ""
                return found[0]
            holds(self.read(0.2) and time.monotonic() < deadline, f"no {words} in what was shown: {plain[-1500:]}")

    def settle(self):
        """Waits until the screen has not changed for a moment, so that a key is not lost."""
        while True:
            before = len(self.shown)
            self.read(1.0)
            if len(self.shown) == before:
                return

    def press(self, *keys):
        for key in keys:
            os.write(self.fd, key.encode())
            time.sleep(0.5)

    def choose(self, key, words):
        """Moves to the choice with these words by a key, and confirms it."""
        self.settle()
        self.shown = ""
        self.press(key)
        self.until(f"❯{words}")
        self.press(ENTER)

    def stop(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


class Person:
    """A person with a home, whose settings name the gateway."""

    def __init__(self, folder, gateway, more_env):
        self.home, self.work = folder / "home", folder / "work"
        (self.home / ".claude").mkdir(parents=True)
        self.work.mkdir()
        settings = {"forceLoginMethod": "gateway", "forceLoginGatewayUrl": gateway.base}
        (self.home / ".claude" / "settings.json").write_text(json.dumps(settings))
        (self.home / ".claude.json").write_text(json.dumps({"hasCompletedOnboarding": True, "theme": "dark"}))
        self.env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8", "TERM": "xterm-256color", "BROWSER": "/bin/true"}
        self.env |= QUIET | more_env
        self.program = program("@anthropic-ai", "claude-code-*/claude*")

    def sign_in(self, gateway, project):
        terminal = Terminal([self.program], self.work, self.env)
        try:
            terminal.until("Yes, I trust this folder")
            terminal.choose(DOWN, "Yes, I trust this folder")
            terminal.until("/effort")
            terminal.settle()
            terminal.press("/login")
            terminal.until("Sign in with your")
            terminal.press(ENTER)
            terminal.until("Enter to connect")
            terminal.press(ENTER)
            terminal.until("No, cancel login")
            terminal.choose(UP, "Yes, trust this gateway")
            terminal.until("Waiting for")
            holds("Forstaff" in terminal.seen, f"the notice: {terminal.seen}")
            code = re.search(r"Code:([A-Z0-9]{4}-[A-Z0-9]{4})", terminal.seen)
            holds(code and f"{gateway.base}/device" in terminal.seen, f"the code and the page: {terminal.seen}")
            gateway.approve(code[1], project)
            terminal.until("Press Enter to continue")
            terminal.press(ENTER)
            terminal.until("Settings requiring approval")
            holds("FROM_THE_GATEWAY" in terminal.seen, f"the managed settings: {terminal.seen}")
            terminal.choose(DOWN, "Yes, I trust these settings")
            terminal.settle()
        finally:
            terminal.stop()

    def ask(self, *more):
        done = subprocess.run(
            [self.program, "-p", "Say hello.", *more], cwd=self.work, env=self.env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        return done.returncode, f"{done.stdout}\n{done.stderr}"

    def sign_out(self):
        done = subprocess.run(
            [self.program, "auth", "logout"], cwd=self.work, env=self.env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        equal(done.returncode, 0, f"the exit code of the logout: {done.stdout} {done.stderr}")


def self_signed(folder):
    """Makes a certificate for the loopback address; returns its file and that of its key."""
    files = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=IP:127.0.0.1,DNS:localhost", "-out", str(files[0]), "-keyout", str(files[1])],
        check=True, capture_output=True,
    )  # fmt: skip
    return files


def a_day_with(base_path, with_tls):
    with tempfile.TemporaryDirectory(prefix="llmgw-sign-in-", ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        certificate = self_signed(folder) if with_tls else None
        gateway = Gateway(folder, base_path, certificate)
        try:
            project = gateway.call("POST", "projects", {"name": "staff"})["id"]
            person = Person(folder, gateway, {"NODE_EXTRA_CA_CERTS": str(certificate[0])} if certificate else {})
            person.sign_in(gateway, project)
            (key,) = gateway.signed_in_keys()
            equal(key["project"], project, "the project of the key")

            code, output = person.ask()
            equal(code, 0, f"the exit code; the output was: {output}")
            holds(re.search("hello", output, re.I), f"the echo answers with the question's words: {output}")
            # Nothing but the managed settings names this endpoint.
            latest = eventually("a record", lambda: gateway.call("GET", "requests?limit=1")["data"], 10)[0]
            equal((latest["selector"], latest["key"]), ("smart", key["id"]), "the endpoint and the key of the record")

            limit = {"subject": {"kind": "key", "id": key["id"]}, "metric": "cost_micro_usd", "window": "month", "limit": 1}
            gateway.call("POST", "quotas", limit)
            code, output = person.ask()
            holds(code != 0 and "Ask an administrator of the gateway to raise it." in output, f"the refusal, {code}: {output}")

            person.sign_out()
            eventually("the key is revoked", lambda: all(key["state"] == "revoked" for key in gateway.signed_in_keys()), 10)
            code, output = person.ask()
            holds(code != 0 and "login" in output.lower(), f"it asks to sign in again: {output}")
        except AssertionError:
            print(gateway.process.complaint("was asked by Claude Code"))
            raise
        finally:
            gateway.process.stop()


@SUITE.check(gateway_only=True)
def at_the_loopback_address():
    a_day_with("", with_tls=False)


@SUITE.check(gateway_only=True)
def with_tls_below_a_path():
    a_day_with("/llm", with_tls=True)


if __name__ == "__main__":
    finish(SUITE)
