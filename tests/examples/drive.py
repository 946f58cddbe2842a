"""usage: drive.py PATH-OF-LLMGW [EXAMPLE...]

Runs the commands of the README of each example, in a copy of its folder, and checks what they promise.

The blocks fenced as `sh` run in their order in one shell, where `docker` is the stand-in beside this file. The ports 8787, 8788 and 8789 are replaced by free ones in every file of the
copy. After them runs what this file adds for the example, in the same shell; then everything that the shell started is ended.
"""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests/sdk")]

from checks import Checks  # noqa: E402

SECONDS_MAX = 120
ASK = """
status() {
  curl -sS -o status.json -w '%{http_code}' http://127.0.0.1:8787/v1/messages -H "x-api-key: $1" -H "Content-Type: application/json" \\
    -d '{"model": "'$2'", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}]}'
}
"""
# For each example: commands after those of the README, and (what it shows, a pattern of the output).
EXAMPLES = {
    "team": (
        ASK
        + """
linus=$(REQUESTS_A_DAY=2 ./add-person Linus linus@example.com)
echo "bound: $(status $linus smart) $(status $linus smart-codex) $(status $linus smart) $(cat status.json)"
echo "codex: $(curl -sS -o /dev/null -w '%{http_code}' http://127.0.0.1:8787/v1/responses -H "Authorization: Bearer $ada" \\
  -H "Content-Type: application/json" -d '{"model": "smart-codex", "input": "Hello"}')"
echo "elsewhere: $(status $grace anthropic/claude-sonnet-4-5)"
""",
        [
            ("Anthropic serves first", r"x-llmgw-provider: anthropic"),
            ("a person is refused at their quota", r"bound: 200 200 429 .*The quota of 2 requests a day"),
            ("Codex's protocol is served", r"codex: 200"),
            ("a key shows its limits", r'"metric":"cost_micro_usd"'),
            ("usage is shown by person", r"Grace"),
        ],
    ),
    "local-with-fallback": (
        "",
        [("the local server serves, and the hosted one when it is stopped", r"(?s)provider: local.*provider: hosted")],
    ),
    "application": (
        "",
        [
            ("a user is refused at the bound, and another is served", r"(?s)200\n200\n200\n429\n.*quota_exceeded[^\n]*}200\n"),
            ("usage is shown by user", r"user-17"),
            ("usage is shown by plan", r"paid"),
        ],
    ),
    "benchmark": (
        'echo "exported: $(wc -l <run-1.csv)"',
        [
            ("every request is answered", r"statuses \{200: 2000\}"),
            ("each has a line of the export", r"exported: 2001\b"),
            ("the run has a row", r"run-1"),
        ],
    ),
    "cluster": (
        """
status() {
  curl -sS -o /dev/null -w '%{http_code}' http://127.0.0.1:8787/v1/chat/completions -H "x-api-key: $1" -H "Content-Type: application/json" \\
    -d '{"model": "smart", "messages": [{"role": "user", "content": "Hello"}]}'
}
(failed=0 sent=0
until [ -e ended ]; do [ "$(status $LLMGW_API_KEY)" = 200 ] || failed=$((failed + 1)); sent=$((sent + 1)); sleep 0.05; done
echo "under load: $failed failed of $sent" >load.txt) & load=$!
docker compose stop node-3
docker compose start node-3
docker compose up --detach --wait
touch ended
wait $load
cat load.txt
# Each key has another hash, so the limit of the project is used at all nodes. Three requests of it were the README's.
keys=$(for name in a b c d e f; do api -d '{"name": "'$name'", "project": "'$project'"}' $admin/keys | field key; done)
served=3 turn=0
round() { for one in $keys; do [ "$(status $one)" != 200 ] || served=$((served + 1)); done; }
until [ $served -ge 40 ] || [ $turn = 20 ]; do round; turn=$((turn + 1)); done
round
echo "served of 40: $served"
api $admin/nodes
docker compose down --volumes
""",
        [
            ("a request is served by the others when a node stops, and when one dies", r'(?s)("content":"Hello".*){3}'),
            ("no request fails while a node restarts", r"under load: 0 failed of [1-9]\d+"),
            ("a limit of all nodes is used up and not exceeded", r"served of 40: 40\b"),
            ("all nodes are back", r'("standing":"live".*){3}'),
        ],
    ),
    "high-availability": (
        """
(failed=0 sent=0
until [ -e ended ]; do ask >/dev/null || failed=$((failed + 1)); sent=$((sent + 1)); done
echo "under load: $failed failed of $sent" >load.txt) & load=$!
kill $b; wait $b || true
./start b & b=$!
until curl -fs http://127.0.0.1:8789/ready; do sleep 0.2; done
touch ended
wait $load
cat load.txt
sleep 11  # nginx leaves a server that refused a connection out for 10 s
kill -KILL $a
for turn in 1 2 3; do ask >/dev/null; done
echo "served without the first"
curl -sS -o /dev/null -w 'administration: %{http_code}\\n' http://127.0.0.1:8787/admin/api/state
kill $proxy
""",
        [
            ("no request fails in a restart", r"under load: 0 failed of [1-9]\d+"),
            ("requests go on without a gateway that died", r"served without the first"),
            ("nginx does not expose the administration", r"administration: 403"),
        ],
    ),
}


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(listener.getsockname()[1]) for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


def commands_of(readme):
    return "".join(re.findall(r"^```sh\n(.*?)^```$", readme, flags=re.M | re.S))


def run(binary, name, further, folder):
    """Returns the exit code and the output of the commands of an example."""
    copy = folder / name
    # What a person has left behind in the folder is not part of the example.
    shutil.copytree(ROOT / "examples" / name, copy, ignore=shutil.ignore_patterns("state*", "secrets", "*.secrets", "*.id", "tmp", ".env"))
    ports = dict(zip(["8787", "8788", "8789"], free_ports(3)))
    for file in filter(pathlib.Path.is_file, copy.rglob("*")):
        file.write_text(re.sub(r"\b878[789]\b", lambda port: ports[port[0]], file.read_text()))
    further = re.sub(r"\b878[789]\b", lambda port: ports[port[0]], further)
    script = "set -euo pipefail\n" + commands_of((copy / "README.md").read_text()) + further
    (folder / "bin").mkdir(exist_ok=True)
    for program, path in (("llmgw", binary), ("docker", ROOT / "tests/examples/docker")):
        if not (folder / "bin" / program).exists():
            (folder / "bin" / program).symlink_to(path)
    environment = {
        "PATH": f"{folder / 'bin'}:/usr/sbin:{os.environ['PATH']}",
        "HOME": str(copy),
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")),
        "CONFIG": "rehearsal.yaml",
        "LLMGW_PORT": ports["8787"],
    }
    log = folder / f"{name}.log"
    with log.open("w") as out:
        shell = subprocess.Popen(
            ["bash", "-c", script], cwd=copy, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = shell.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            code = "too late"
        # The shell leads a session of its own: its gateways and proxy are in its group.
        try:
            os.killpg(shell.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        shell.wait()
    return code, log.read_text(errors="replace")


def main():
    binary, only = sys.argv[1], sys.argv[2:]
    checks = Checks()
    folders = {path.parent.name for path in (ROOT / "examples").glob("*/README.md")}
    checks.check(f"each example is driven: {sorted(folders ^ set(EXAMPLES))}", folders == set(EXAMPLES))
    with tempfile.TemporaryDirectory() as path:
        for name, (further, promises) in EXAMPLES.items():
            if only and name not in only:
                continue
            code, output = run(binary, name, further, pathlib.Path(path))
            before = checks.failed
            checks.check(f"{name}: the commands of the README end with 0: {code}", code == 0)
            for what, pattern in promises:
                checks.check(f"{name}: {what}", re.search(pattern, output, flags=re.I) is not None)
            if checks.failed > before:
                print("\n".join(output.splitlines()[-60:]), flush=True)
    print(f"examples: {checks.passed} passed, {checks.failed} failed", flush=True)
    sys.exit(1 if checks.failed else 0)


main()
