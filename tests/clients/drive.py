"""Starts the scripted upstream and the gateway on free loopback ports, runs the suites, and adds up their counts."""

import argparse
import fcntl
import os
import pathlib
import secrets
import socket
import struct
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "sdk"))

from process import Process, ended_well, run_all, start_gateway  # noqa: E402

CONFIG = """\
cors:
  origins: ["{upstream}"]
providers:
  openai:
    type: openai
    base_url: {upstream}/openai/v1
    api_key: sk-scripted-openai
    models: [m, overloaded, embed, tts, stt, gpt-image-1]
  anthropic:
    type: anthropic
    base_url: {upstream}/anthropic
    api_key: sk-scripted-anthropic
    models: [m, claude-sonnet-4-5]
  google:
    type: gemini
    base_url: {upstream}/google
    api_key: AIza-scripted-google
    models: [m, gemini-embedding-001, gemini-2.5-flash-image, imagen-4.0-generate-001]
  chat:
    type: compatible
    base_url: {upstream}/chat/v1
    api_key: sk-scripted-chat
    models: [m]
  bedrock:
    type: bedrock
    region: eu-west-1
    base_url: {upstream}/bedrock
    api_key: bedrock-scripted
    models: [m, "anthropic.claude-sonnet-4-5-v1:0"]
  # One provider of each protocol for the sessions of agents.
  on-chat:
    type: compatible
    base_url: {upstream}/chat/v1
    api_key: sk-scripted-chat
    responses_fallback: agents
    models: [{{id: m, rules: {{reasoning_back: all}}}}]
  on-messages:
    type: anthropic
    base_url: {upstream}/anthropic
    api_key: sk-scripted-anthropic
    responses_fallback: agents
    models: [claude-sonnet-5]
  on-responses:
    type: openai
    base_url: {upstream}/openai/v1
    api_key: sk-scripted-openai
    force_api_support: true
    models: [{{id: gpt-5.5, protocols: [responses]}}]
  on-gemini:
    type: gemini
    base_url: {upstream}/google
    api_key: AIza-scripted-google
    responses_fallback: agents
    models: [gemini-3-pro-preview]
  on-bedrock:
    type: bedrock
    region: eu-west-1
    base_url: {upstream}/bedrock
    api_key: bedrock-scripted
    responses_fallback: agents
    models: ["anthropic.claude-sonnet-4-5-v1:0"]
endpoints:
  either:
    failover:
      - {{provider: openai, model: overloaded}}
      - {{provider: anthropic, model: m}}
  gpt-5.5-strict:
    failover: [{{provider: chat, model: m}}]
{agents}
policies:
  defaults:
    retry_max_attempts: 1           # so that it is the clients who retry
    circuit_failure_threshold: 0    # and scenes that fail do not close the way for others
"""

# The targets of the sessions of agents. Some agents derive their requests from the name of the model, so each family of targets
# has endpoints of several names.
FAMILIES = {
    "on-chat": "m", "on-messages": "claude-sonnet-5", "on-responses": "gpt-5.5", "on-gemini": "gemini-3-pro-preview",
    "on-bedrock": '"anthropic.claude-sonnet-4-5-v1:0"',
}  # fmt: skip
AGENTS = "\n".join(
    f"  {name}-{family}:\n    failover: [{{provider: {family}, model: {model}}}]"
    for name in ("claude-sonnet-5", "gpt-5.5", "smart")
    for family, model in FAMILIES.items()
)

# The origin to which vendors send browsers back; no name is resolved.
SETTINGS = {"LLMGW_OAUTH_PUBLIC_BASE_URL": "https://llm.example.com"}


def raise_loopback():
    """Brings the loopback device up, which is down in a new network namespace."""
    with socket.socket() as any_socket:
        request = struct.pack("16sh", b"lo", 0x1 | 0x40)  # IFF_UP | IFF_RUNNING
        fcntl.ioctl(any_socket, 0x8914, request)  # SIOCSIFFLAGS


def suites(only, direct, chromium):
    python, node = [sys.executable, "-u"], ["node"]
    every = [
        python + [str(HERE / "openai_chat.py")],
        python + [str(HERE / "openai_responses.py")],
        python + [str(HERE / "anthropic_messages.py")],
        python + [str(HERE / "google_genai.py")],
        python + [str(HERE / "langchain_smoke.py")],
        python + [str(HERE / "extension.py")],
        node + [str(HERE / "openai.mjs")],
        node + [str(HERE / "anthropic.mjs")],
        node + [str(HERE / "vercel.mjs")],
        python + [str(HERE / "langchain_google.py")],
        node + [str(HERE / "google_genai.mjs")],
        node + [str(HERE / "vercel_google.mjs")],
        python + [str(HERE / "agents.py")],
    ]
    if not direct:
        every.append(python + [str(HERE / "snippets.py")])
        every.append(python + [str(HERE / "claude_sign_in.py")])
        every.append(python + [str(HERE / "wrong_key.py")])
    browser = node + [str(HERE / "browser.mjs")]
    chosen = [command for command in [*every, browser] if only in command[-1]]
    if browser in chosen and not chromium:
        print("clients: SKIPPED the suite of the browser: there is no chromium here, and apt-get could not install it", flush=True)
        chosen.remove(browser)
    return chosen


def drive(arguments, directory):
    key = f"test-{secrets.token_hex(16)}"
    paths = os.pathsep.join([str(HERE), str(HERE.parent / "corpus")])
    command = [str(arguments.judges / "python" / "bin" / "python"), "-u", "-m", "upstream"]
    server = Process("the scripted upstream", command, os.environ | {"PYTHONPATH": paths})
    gateway = None
    try:
        upstream = server.wait_for(r"listening on (\S+)", 30)
        origin = f"{upstream}/direct"
        if not arguments.direct:
            config = CONFIG.format(upstream=upstream, agents=AGENTS)
            gateway, origin = start_gateway(arguments.gateway, config, key, directory, SETTINGS)
        env = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        env |= {
            "LLMGW_TEST_ORIGIN": origin,
            "LLMGW_TEST_STATE": f"{upstream}/-/state",
            "LLMGW_TEST_KEY": key,
            "LLMGW_TEST_GATEWAY": arguments.gateway or "",
            "LLMGW_TEST_DIRECT": "1" if arguments.direct else "0",
            "LLMGW_TEST_NODE": str(arguments.cache / "node"),
            "LLMGW_TEST_BROWSER": arguments.chromium,
            "LLMGW_TEST_SESSIONS": arguments.sessions,
            "LLMGW_TEST_AIDER": str(arguments.cache / "aider" / "bin" / "aider"),
        }
        passed, failed = run_all([(command, env) for command in suites(arguments.only, arguments.direct, arguments.chromium)])
        if gateway and not ended_well(gateway, failed):
            failed += 1
        if failed:
            print(server.complaint("was driven"))
    finally:
        for process in filter(None, [gateway, server]):
            process.child.kill()
    return passed, failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--judges", type=pathlib.Path, required=True)
    parser.add_argument("--chromium", default="")
    parser.add_argument("--gateway")
    parser.add_argument("--direct", action="store_true")
    parser.add_argument("--isolated", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--sessions", default="today")
    arguments = parser.parse_args()
    if arguments.isolated:
        raise_loopback()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="llmgw-clients-") as directory:
        passed, failed = drive(arguments, directory)
    print(f"clients: {passed} passed, {failed} failed, in {time.monotonic() - started:.0f} s")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
