"""How many requests each coding agent sends within a minute when its key is wrong: the gateway tells it not to try again.

Each agent has a gateway of its own, whose metric counts the requests.
"""

import os
import pathlib
import re
import subprocess
import tempfile
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from agent_programs import PROGRAMS, VERSIONS
from common import Suite, finish, holds
from process import start_gateway

SUITE = Suite("agents with a wrong key")
ADMIN_KEY = "admin-key-of-the-agents-with-a-wrong-key"
CONFIG = """\
providers:
  trial: {type: echo}
endpoints:
  smart: {also: ["*"], failover: [{provider: trial, model: echo}]}
"""
WATCHED_S = 60
# Codex repeats its request five times whatever the answer is; an agent may look at models before it asks.
REQUESTS_MAX = 8


def watched(agent):
    """Runs an agent with a wrong key; returns the requests within a minute, and what it printed."""
    with tempfile.TemporaryDirectory(prefix="llmgw-wrong-key-") as name:
        folder = pathlib.Path(name)
        gateway, origin = start_gateway(os.environ["LLMGW_TEST_GATEWAY"], CONFIG, ADMIN_KEY, folder)
        try:
            (folder / "home").mkdir()
            (folder / "work").mkdir()
            (folder / "work" / "note.txt").write_text("draft\n")
            command, env = PROGRAMS[agent](folder, "smart", "Say hello.", origin, "sk-wrong")
            env = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "LANG": "C.UTF-8", "NO_COLOR": "1", **env}
            running = subprocess.Popen(
                command, cwd=folder / "work", env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            try:
                output, _ = running.communicate(timeout=WATCHED_S)
            except subprocess.TimeoutExpired:
                running.kill()
                output, _ = running.communicate()
            return requests(origin), output
        finally:
            gateway.stop()


def requests(origin):
    request = urllib.request.Request(f"{origin}/metrics", headers={"authorization": f"Bearer {ADMIN_KEY}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        counts = re.findall(r"^llmgw_requests_refused_total(?:\{[^}]*\})? (\d+)", answer.read().decode(), re.M)
    return sum(map(int, counts))


def check_of(agent):
    def check():
        count, output = STARTED[agent].result()
        print(f"figure {agent} {VERSIONS[agent]}: {count} requests with a wrong key", flush=True)
        holds(1 <= count <= REQUESTS_MAX, f"{count} requests within {WATCHED_S} s: {output[-2000:]}")

    check.__name__ = f"{agent} {VERSIONS[agent]} gives up"
    SUITE.check(gateway_only=True)(check)


for one in PROGRAMS:
    check_of(one)


if __name__ == "__main__":
    workers = ThreadPoolExecutor(3)
    STARTED = {agent: workers.submit(watched, agent) for agent in PROGRAMS}
    finish(SUITE)
