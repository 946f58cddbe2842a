"""Compares the system calls that a native request costs a worker, with the state in files and in a PostgreSQL.

Requests of a key with a hard limit go one after the other over one connection. What a worker does between the arrival of one and of
the next is a sequence of calls; the most frequent one counts, because timers fall into a few of them. Both gateways must have the same.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import signal
import socket
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "sdk"), str(HERE)]

from checks import Checks  # noqa: E402
from drive import KEY, WHOLE, Gateway  # noqa: E402
from postgres import Postgres  # noqa: E402

REQUESTS = 100
# The calls of a request; a change of them is one of its cost.
EXPECTED = "recvfrom pwrite64 sendto epoll_wait recvfrom pwrite64 pwrite64 sendto epoll_wait".split()


def message(stream):
    """Reads one request or answer, and returns its head; an empty one at the end of the connection."""
    head = b"".join(iter(stream.readline, b"\r\n")) if stream.peek(1) else b""
    if head:
        stream.read(int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE)[1]))
    return head


def upstream():
    """Starts an upstream that sends each answer in one write; returns its URL."""
    body = json.dumps(WHOLE).encode()
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)

    def serve(connection):
        requests = connection.makefile("rb")
        while message(requests):
            connection.sendall(answer)

    def accept():
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=accept, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}/v1"


def send_requests(gateway):
    body = json.dumps({"model": "up/m", "messages": [{"role": "user", "content": "Tell me something. " * 20}]})
    request = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: calls\r\nauthorization: Bearer {gateway.limited_key()}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}"
    )
    with socket.create_connection(gateway.address, timeout=60) as connection:
        answers = connection.makefile("rb")
        for _ in range(REQUESTS):
            connection.sendall(request.encode())
            head = message(answers)
            # A first request may come before the node's first share of the limit.
            if b" 200 " not in head and b" 429 " not in head:
                raise SystemExit(f"the answer is {head!r}; the log of the gateway:\n{gateway.log()}")


def sequences(trace):
    """Yields the calls from the arrival of a request to that of the next one."""
    calls = None
    for line in trace.read_text(errors="replace").splitlines():
        name = line.split("(")[0]
        if name == "recvfrom" and '"POST /v1' in line:
            if calls:
                yield tuple(calls)
            calls = []
        if calls is not None:
            calls.append(name)


def calls_of_a_request(binary, url, settings):
    """Returns the most frequent sequence of calls, and its share of the requests."""
    with tempfile.TemporaryDirectory() as folder:
        # With -D the traced process is the child itself, which the signal must reach.
        gateway = Gateway(binary, folder, url, ["strace", "-D", "-ff", "-qq", "-s", "16", "-o", f"{folder}/calls"], settings)
        try:
            send_requests(gateway)
        finally:
            gateway.stop()
        counts = collections.Counter(one for trace in pathlib.Path(folder).glob("calls.*") for one in sequences(trace))
        calls, count = counts.most_common(1)[0]
        return list(calls), count / REQUESTS


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gateway", required=True)
    binary = parser.parse_args().gateway
    checks, url, postgres = Checks(), upstream(), Postgres()
    try:
        for where, settings in (("files", {}), ("PostgreSQL", {"LLMGW_DATABASE_URL": postgres.url})):
            calls, share = calls_of_a_request(binary, url, settings)
            print(f"figure system calls of a request with its state in {where}: {len(calls)}, in {share:.0%} of the requests", flush=True)
            checks.check(f"{where}: {' '.join(calls)}", calls == EXPECTED and share > 0.5)
    finally:
        postgres.stop()
    print(f"instructions: {checks.passed} passed, {checks.failed} failed", flush=True)
    sys.exit(1 if checks.failed else 0)


main()
