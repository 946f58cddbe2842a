"""Claude Code, Codex, aider and opencode, each through a scripted session over the gateway: they write a file, usually
read it, and end.

Each has a separate home and working folder. Telemetry and updates are disabled, and only loopback is reachable if
run.sh could set up a network namespace.
"""

import json
import os
import pathlib
import platform
import sys
import tempfile

from common import DIRECT, HERE, KEY, ODD, ORIGIN, Suite, equal, finish, holds, last, printed, raises

PACKAGES = pathlib.Path(os.environ["LLMGW_TEST_NODE"], "node_modules")


def version(name):
    return json.loads((PACKAGES / name / "package.json").read_text())["version"]


AIDER = os.environ["LLMGW_TEST_AIDER"]
AIDER_VERSION = (HERE / "aider.in").read_text().rpartition("==")[2].strip()
# The program for this system, which the package opencode-ai would install; the lock file has only this one.
OPENCODE = "opencode-linux-x64-baseline"
AGENTS = {"claude-code": "@anthropic-ai/claude-code", "codex": "@openai/codex"}
if (sys.platform, platform.machine()) == ("linux", "x86_64"):
    AGENTS["opencode"] = OPENCODE
SUITE = Suite(" ".join([f"{name}-{version(package)}" for name, package in AGENTS.items()] + [f"aider-{AIDER_VERSION}"]))


def program(scope, pattern):
    """Returns the agent's program from the package for this system and processor."""
    found = sorted(path for path in (PACKAGES / scope).glob(pattern) if path.is_file())
    holds(found, f"no {pattern} in {PACKAGES / scope}")
    return str(found[0])


def events(command, folder, env):
    """Returns the JSON lines that an agent prints."""
    return [json.loads(line) for line in printed(command, folder, env).split("\n") if line.startswith("{")]


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
    """Returns the command, with a home that configures the gateway's address."""
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
        # Usage of its three requests, as scripted.
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
        output = str(raises(AssertionError, lambda: events(command, folder, {"GATEWAY_KEY": KEY})))
        holds("it ended with 1" in output and "'include' requests" in output, f"the unsupported field: {output}")


@SUITE.check(gateway_only=True)
def codex_on_a_chat_only_target_that_serves_agents():
    with tempfile.TemporaryDirectory(prefix="llmgw-codex-") as name:
        folder = pathlib.Path(name)
        note = folder / "work" / "note.txt"
        note.parent.mkdir()
        note.write_text("a draft\n")
        command = codex(folder, "gpt-5.5-for-agents", "Finish the note. scene:codex_patch=note.txt")
        lines = events(command, folder, {"GATEWAY_KEY": KEY})
        equal(note.read_text(), "written by a script\n", "the note")
        items = [line["item"] for line in lines if line["type"] == "item.completed"]
        kinds = [item["type"] for item in items]
        equal((kinds.count("file_change"), kinds.count("command_execution")), (1, 1), f"what it did: {kinds}")
        equal(items[-1].get("text"), "The note is finished.", "the last answer")
        equal((lines[-1]["usage"]["input_tokens"], lines[-1]["usage"]["output_tokens"]), (60, 27), "usage")
        asked = last()
        equal(asked["path"], "/chat/v1/chat/completions", "what was asked")
        thoughts = [message.get("reasoning_content") for message in asked["body"]["messages"] if message["role"] == "assistant"]
        equal(thoughts, ["A draft.", "Now look at it."], "its reasoning comes back, opened")


@SUITE.check()
def aider_on_a_native_target():
    with tempfile.TemporaryDirectory(prefix="llmgw-aider-") as name:
        folder = pathlib.Path(name)
        note = folder / "work" / "note.txt"
        note.parent.mkdir()
        note.touch()
        # Its list of models; without it, it asks GitHub at start-up.
        known = folder / "home" / ".aider" / "caches" / "model_prices_and_context_window.json"
        known.parent.mkdir(parents=True)
        known.write_text(json.dumps({"openai/m": {"max_input_tokens": 100_000, "litellm_provider": "openai"}}))
        model = "m" if DIRECT else "openai/m"
        command = [
            AIDER, "--model", f"openai/{model}", "--edit-format", "whole", "--map-tokens", "0",
            "--yes-always", "--no-git", "--no-auto-lint", "--no-detect-urls", "--disable-playwright", "--no-pretty",
            "--analytics-disable", "--no-check-update", "--no-show-release-notes", "--no-show-model-warnings",
            "--message", "Write the note. scene:aider=note.txt", "note.txt",
        ]  # fmt: skip
        env = {"OPENAI_API_BASE": f"{ORIGIN}/v1", "OPENAI_API_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        output = printed(command, folder, env)
        equal(note.read_text(), f"written by a script: {ODD}\n", "the note")
        holds("Applied edit to note.txt" in output, f"that it is done: {output}")
        asked = last()["body"]
        equal((asked["stream"], asked["model"]), (True, "m"), "what was asked")


OPENCODE_CONFIG = {
    "$schema": "https://opencode.ai/config.json",
    "autoupdate": False,
    "share": "disabled",
    "enabled_providers": ["gateway"],
    "lsp": False,
    "formatter": False,
    "permission": {"edit": "allow", "bash": "deny", "webfetch": "deny"},
    "provider": {
        "gateway": {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{ORIGIN}/v1", "apiKey": "{env:GATEWAY_KEY}"},
            "models": {"openai/m": {"tool_call": True}, "m": {"tool_call": True}},
        }
    },
}


def opencode_on_a_native_target():
    with tempfile.TemporaryDirectory(prefix="llmgw-opencode-") as name:
        folder = pathlib.Path(name)
        note = folder / "work" / "note.txt"
        model = "gateway/m" if DIRECT else "gateway/openai/m"
        config = folder / "home" / ".config" / "opencode" / "opencode.json"
        config.parent.mkdir(parents=True)
        config.write_text(json.dumps(OPENCODE_CONFIG | {"model": model, "small_model": model}))
        env = {
            "GATEWAY_KEY": KEY,
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
        }
        command = [program(OPENCODE, "bin/opencode"), "run", "--format", "json", "-m", model]
        lines = events([*command, f"Write the note. scene:opencode={note}"], folder, env)
        equal(note.read_text(), f"written by a script: {ODD}\n", "the note")
        parts = [line["part"] for line in lines]
        equal([part["tool"] for part in parts if part["type"] == "tool"], ["write", "read"], "the tools that it ran")
        equal([part["text"] for part in parts if part["type"] == "text"][-1], "The note is written.", "the last answer")
        used = [part["tokens"] for part in parts if part["type"] == "step-finish"]
        equal([tokens["total"] for tokens in used], [29, 29, 29], "usage, as the script gave it")


if "opencode" in AGENTS:
    SUITE.check()(opencode_on_a_native_target)


if __name__ == "__main__":
    finish(SUITE)
