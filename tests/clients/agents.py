"""Claude Code and Codex, each through a scripted session over the gateway: they write a file, look at it, and are done.

Each gets a home and a working folder of its own. Telemetry, updates and the like are switched off, and nothing but
loopback can be reached where run.sh could arrange that.
"""

import json
import os
import pathlib
import subprocess
import tempfile

from common import DIRECT, KEY, ODD, ORIGIN, Suite, equal, finish, holds, last, raises

PACKAGES = pathlib.Path(os.environ["LLMGW_TEST_NODE"], "node_modules")
LIMIT_S = 120


def version(name):
    return json.loads((PACKAGES / name / "package.json").read_text())["version"]


SUITE = Suite(f"claude-code-{version('@anthropic-ai/claude-code')} codex-{version('@openai/codex')}")


def program(scope, pattern):
    """The agent's own program, which is in a package of its system and processor."""
    found = sorted(path for path in (PACKAGES / scope).glob(pattern) if path.is_file())
    holds(found, f"no {pattern} in {PACKAGES / scope}")
    return str(found[0])


def events(command, folder, env):
    """The lines of JSON that an agent prints."""
    clean = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "LANG": "C.UTF-8", "NO_COLOR": "1", **env}
    (folder / "home").mkdir(exist_ok=True)
    (folder / "work").mkdir()
    done = subprocess.run(
        command, cwd=folder / "work", env=clean, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S
    )
    if done.returncode != 0:
        raise AssertionError(f"it ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def claude_code(model):
    with tempfile.TemporaryDirectory(prefix="llmgw-claude-code-") as name:
        folder = pathlib.Path(name)
        note = folder / "work" / "note.txt"
        command = [
            program("@anthropic-ai", "claude-code-*/claude*"), "-p", f"Write the note. scene:claude_code={note}",
            "--output-format", "stream-json", "--verbose", "--model", model, "--allowedTools", "Write,Read",
        ]  # fmt: skip
        env = {
            "ANTHROPIC_BASE_URL": ORIGIN,
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": model,
            "ANTHROPIC_SMALL_FAST_MODEL": model,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_TELEMETRY": "1",
        }
        lines = events(command, folder, env)
        equal(note.read_text(), f"written by a script: {ODD}\n", "the note")
        result = lines[-1]
        equal((result["type"], result["subtype"], result["is_error"]), ("result", "success", False), f"the end: {result}")
        equal(result["result"], "The note is written.", "the last answer")
        calls = [
            block["name"]
            for line in lines
            if line["type"] == "assistant"
            for block in line["message"]["content"]
            if block["type"] == "tool_use"
        ]
        equal(calls, ["Write", "Read", "Read"], "the tools that it ran")
        return lines


@SUITE.check()
def claude_code_on_a_native_target():
    claude_code("claude-sonnet-5")
    asked = last()
    holds("claude-code" in asked["headers"]["anthropic-beta"], "its betas go upstream")
    kinds = [block["type"] for turn in asked["body"]["messages"] if turn["role"] == "assistant" for block in turn["content"]]
    holds("thinking" in kinds, f"its thoughts come back, signed: {kinds}")


@SUITE.check(gateway_only=True)
def claude_code_on_a_chat_only_target():
    claude_code("claude-sonnet-5-on-chat")
    asked = last()
    equal(asked["path"], "/chat/v1/chat/completions", "what was asked")
    holds("x-anthropic-billing-header" not in json.dumps(asked["body"]), "what would defeat caches is left out")


CODEX = """\
model = "{model}"
model_provider = "gateway"
check_for_update_on_startup = false

[model_providers.gateway]
name = "gateway"
base_url = "{origin}/v1"
env_key = "GATEWAY_KEY"
wire_api = "responses"

[analytics]
enabled = false
"""


def codex(folder, model, task):
    """The command, in a home that says where the gateway is."""
    config = folder / "home" / ".codex" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(CODEX.format(origin=ORIGIN, model=model))
    return [
        program("@openai", "codex-*/vendor/*/bin/codex*"), "exec", "--json", "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox", task,
    ]  # fmt: skip


@SUITE.check()
def codex_on_a_native_target():
    with tempfile.TemporaryDirectory(prefix="llmgw-codex-") as name:
        folder = pathlib.Path(name)
        note = folder / "work" / "note.txt"
        command = codex(folder, "gpt-5.5", f"Write the note. scene:codex={note}")
        lines = events(command, folder, {"GATEWAY_KEY": KEY})
        equal(note.read_text(), "written by a script\n", "the note")
        items = [line["item"] for line in lines if line["type"] == "item.completed"]
        equal([item["type"] for item in items].count("command_execution"), 2, "the commands that it ran")
        equal(items[-1].get("text"), "The note is written.", "the last answer")
        equal(lines[-1]["type"], "turn.completed", "the end")
        # Usage of its three requests, as the script gave it.
        equal((lines[-1]["usage"]["input_tokens"], lines[-1]["usage"]["output_tokens"]), (60, 27), "usage")
        asked = last()["body"]
        sealed = [item.get("encrypted_content") for item in asked["input"] if item.get("type") == "reasoning"]
        holds(sealed and all(sealed), f"its reasoning comes back, sealed: {sealed}")
        holds(DIRECT or asked["model"] == "m", "the target's own model")


@SUITE.check(gateway_only=True)
def codex_on_a_chat_only_target_is_told_why_not():
    with tempfile.TemporaryDirectory(prefix="llmgw-codex-") as name:
        folder = pathlib.Path(name)
        command = codex(folder, "gpt-5.5-on-chat", "scene:hello")
        said = str(raises(AssertionError, lambda: events(command, folder, {"GATEWAY_KEY": KEY})))
        holds("it ended with 1" in said and "'include' asks for" in said, f"the field that cannot be said: {said}")


if __name__ == "__main__":
    finish(SUITE)
