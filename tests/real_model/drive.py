"""Starts the model server and the gateway on free loopback ports, runs the SDK suites, and adds up their counts."""

import argparse
import os
import pathlib
import secrets
import socket
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SDK = HERE.parent / "sdk"
sys.path.insert(0, str(SDK))

from process import Process, ended_well, free_port, run_all, start_gateway, wait_until_answers  # noqa: E402

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


def start_model_server():
    port = free_port()
    server = Process("the model server", [sys.executable, "-u", str(HERE / "chat_server.py"), str(port)])
    wait_until_answers(f"http://127.0.0.1:{port}/health", server, 60)
    return server, f"http://127.0.0.1:{port}"


def run_suites(cache, origin, upstream, key, direct):
    """Returns (passed, failed) of all suites together."""
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
    }
    python = [sys.executable, "-u", str(SDK / "suite.py")]
    suites = [
        (python, env),
        (python, env | {"PYTHONPATH": str(cache / "older-sdk")}),
        (["node", str(SDK / "suite.mjs")], env),
    ]
    return run_all(suites)


def drive(arguments, directory):
    key = f"test-{secrets.token_hex(16)}"
    server, upstream = start_model_server()
    gateway = None
    # Bound and not listening: connections are refused, and no other process can bind the port.
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        try:
            origin = upstream
            if not arguments.direct:
                config = CONFIG.format(dead_port=dead.getsockname()[1], upstream=upstream, model=MODEL)
                gateway, origin = start_gateway(arguments.gateway, config, key, directory)
            passed, failed = run_suites(arguments.cache, origin, upstream, key, arguments.direct)
            if gateway and not ended_well(gateway, failed):
                failed += 1
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
