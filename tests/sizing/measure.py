"""Measures what the gateway takes of a machine: CPU time, memory, disk, open files. docs/sizing.md holds the figures.

    python3 tests/sizing/measure.py target/release/llmgw

CPU time is what the kernel accounts to the gateway's process, so the load and the upstream do not count. It needs 5,000
open files and takes about four minutes.
"""

import asyncio
import base64
import http.client
import json
import multiprocessing
import os
import pathlib
import re
import resource
import secrets
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

KEY = "administrator-key-of-the-sizing-figures"
CONFIG = 'providers:\n  up: {{type: compatible, base_url: "http://127.0.0.1:{port}/v1", api_key: k, models: [m]}}\n'
USAGE = {"prompt_tokens": 200, "completion_tokens": 150, "total_tokens": 350}
WHOLE = json.dumps({
    "id": "chatcmpl-1", "object": "chat.completion", "model": "m", "usage": USAGE,
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "word " * 150}, "finish_reason": "stop"}],
}).encode()  # fmt: skip
ROUNDS = 5
HELD = 2000
RECORDS = 200_000
KEYS = 2000


async def upstream(reader, writer):
    """Answers whole, or with `max_tokens` pieces, `seed` milliseconds apart (20 without it)."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            request = json.loads(await reader.readexactly(int(length[1])) if length else b"{}")
            if not request.get("stream"):
                kind = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
                writer.write(kind % len(WHOLE) + WHOLE)
                continue
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            for number in range(request.get("max_tokens") or request["max_completion_tokens"]):
                delta = {"index": 0, "delta": {"content": f"word {number} "}, "finish_reason": None}
                send(writer, json.dumps({"id": "chatcmpl-1", "model": "m", "choices": [delta]}).encode())
                await asyncio.sleep(request.get("seed", 20) / 1000)
            end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": USAGE}
            send(writer, json.dumps(end).encode())
            send(writer, b"[DONE]")
            writer.write(b"0\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def send(writer, data):
    event = b"data: " + data + b"\n\n"
    writer.write(b"%x\r\n%s\r\n" % (len(event), event))


def serve(pipe):
    async def run():
        server = await asyncio.start_server(upstream, "127.0.0.1", 0, limit=4 << 20, backlog=HELD)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


class Gateway:
    def __init__(self, binary, folder, port, **variables):
        self.folder = pathlib.Path(folder)
        (self.folder / "config.yaml").write_text(CONFIG.format(port=port))
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "LLMGW_API_KEY": KEY,
            "LLMGW_CREDENTIAL_ENCRYPTION_KEY": base64.b64encode(b"0" * 32).decode(),
            "LLMGW_STATE_DIR": f"{folder}/state",
            "LLMGW_CONFIG": f"{folder}/config.yaml",
            "LLMGW_PORT": "0",
            "LLMGW_WORKERS": "1",
            "LLMGW_DRAIN_DELAY_SECONDS": "0",
        } | variables
        began = time.monotonic()
        with open(self.folder / "log", "w") as log:
            self.child = subprocess.Popen([binary, "serve"], env=environment, stderr=log)
        listening = r"listening on http://127\.0\.0\.1:(\d+)"
        while not (found := re.search(listening, (self.folder / "log").read_text())):
            if self.child.poll() is not None:
                raise SystemExit((self.folder / "log").read_text())
            time.sleep(0.002)
        self.start_ms = round((time.monotonic() - began) * 1000)
        self.port = int(found[1])
        time.sleep(1)

    def cpu(self):
        """User and system time in seconds; the kernel counts nanoseconds here, not ticks."""
        return sum(int(pathlib.Path(task, "schedstat").read_text().split()[0]) for task in self.tasks()) / 1e9

    def tasks(self):
        return pathlib.Path(f"/proc/{self.child.pid}/task").iterdir()

    def resident(self):
        status = pathlib.Path(f"/proc/{self.child.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1])

    def files(self):
        return len(os.listdir(f"/proc/{self.child.pid}/fd"))

    def disk(self, name="*"):
        return sum(path.stat().st_size for path in (self.folder / "state").rglob(name) if path.is_file())

    def journal(self):
        """Bytes of the journal that are written; its files are allocated ahead."""
        data = [path.read_bytes().rstrip(b"\0") for path in (self.folder / "state").rglob("*.usage")]
        return sum(map(len, data))

    def stop(self):
        self.child.terminate()
        self.child.wait(60)


def request(path, body):
    body = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {KEY}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def chat(words=200, **members):
    return {"model": "up/m", "messages": [{"role": "user", "content": "word " * words}], **members}


async def exchange(reader, writer, raw):
    writer.write(raw)
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head[:16]:
        raise SystemExit(head.decode())
    if length := re.search(rb"content-length: (\d+)", head):
        await reader.readexactly(int(length[1]))
    else:
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
        await reader.readline()


def load(gateway, raw, count, connections):
    async def one():
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=4 << 20)
        for _ in range(count // connections):
            await exchange(reader, writer, raw)
        writer.close()

    async def run():
        await asyncio.gather(*[one() for _ in range(connections)])

    asyncio.run(run())


def microseconds(gateway, raw, count, connections=16):
    """Returns the CPU time of a request in microseconds: the median of the rounds, and their lowest and highest."""
    found = []
    for _ in range(ROUNDS):
        before = gateway.cpu()
        load(gateway, raw, count, connections)
        # The record of the last request is stored within half a second.
        time.sleep(1)
        found.append((gateway.cpu() - before) / count * 1e6)
    return statistics.median(found), min(found), max(found)


def show(what, *figures):
    print(f"{what}:", ", ".join(f"{figure:,.1f}" if isinstance(figure, float) else str(figure) for figure in figures), flush=True)


def measure_requests(gateway):
    native = request("/v1/chat/completions", chat())
    load(gateway, native, 2000, 16)
    show("whole answer, 1 KB, native: us of CPU (median, lowest, highest)", *microseconds(gateway, native, 8000))
    large = request("/v1/chat/completions", chat(200_000))
    show("whole answer to 1 MB, native", *microseconds(gateway, large, 320))
    messages = request("/v1/messages", chat(max_tokens=500))
    show("whole answer, 1 KB, Messages over Chat Completions", *microseconds(gateway, messages, 8000))
    responses = request("/v1/responses", {"model": "up/m", "input": "word " * 200})
    show("whole answer, 1 KB, Responses over Chat Completions", *microseconds(gateway, responses, 8000))
    for name, path in [("native", "/v1/chat/completions"), ("Messages over Chat Completions", "/v1/messages")]:
        few, many = (request(path, chat(stream=True, max_tokens=pieces)) for pieces in (10, 60))
        few, many = (microseconds(gateway, raw, 400, 100)[0] for raw in (few, many))
        show(f"a piece of a stream, one in 20 ms, 100 streams, {name}", (many - few) / 50)


def measure_records(gateway):
    native = request("/v1/chat/completions", chat())
    show("resident after all these requests: KiB", gateway.resident())
    load(gateway, native, RECORDS, 16)
    time.sleep(5)
    show(f"resident after {RECORDS} further requests: KiB", gateway.resident())


def measure_journal(gateway):
    before = gateway.journal()
    database = sqlite3.connect(gateway.folder / "state" / "gateway.db", isolation_level=None, timeout=5)
    database.execute("BEGIN IMMEDIATE")
    load(gateway, request("/v1/chat/completions", chat()), 20_000, 16)
    show("journal, bytes a record while the database takes none", (gateway.journal() - before) / 20_000)
    database.execute("ROLLBACK")
    database.close()


async def hold(gateway, raw, connections):
    pairs = []
    for _ in range(connections):
        pair = await asyncio.open_connection("127.0.0.1", gateway.port)
        pairs.append(pair)
        if raw:
            pair[1].write(raw)
    return pairs


def measure_held(gateway):
    async def run():
        for name, raw in [("silent connection", None), ("stream", request("/v1/chat/completions", chat(stream=True, max_tokens=1000, seed=2000)))]:
            memory, files = gateway.resident(), gateway.files()
            pairs = await hold(gateway, raw, HELD)
            await asyncio.sleep(6)
            show(f"a {name}: KiB, files", (gateway.resident() - memory) / HELD, (gateway.files() - files) / HELD)
            before = gateway.cpu()
            await asyncio.sleep(10)
            pieces = 5 * HELD
            if raw:
                show("a piece of a held stream, one in 2 s: us of CPU", (gateway.cpu() - before) / pieces * 1e6)
            for _, writer in pairs:
                writer.close()
            await asyncio.sleep(3)

    asyncio.run(run())


def measure_keys(gateway):
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port)

    def post(path, body):
        headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json", "idempotency-key": secrets.token_hex(16)}
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 201:
            raise SystemExit(f"{path}: {answer.status} {text[:300]!r}")
        return json.loads(text)

    project = post("/admin/api/projects", {"name": "measured"})["id"]
    memory, before = gateway.resident(), gateway.cpu()
    for number in range(KEYS):
        post("/admin/api/keys", {"name": f"key-{number}", "project": project})
    show("creating a key: ms of CPU", (gateway.cpu() - before) / KEYS * 1000)
    show("1,000 keys: KiB of memory", (gateway.resident() - memory) / KEYS * 1000)


def main():
    binary = sys.argv[1]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    port = ours.recv()
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway(binary, folder, port)
        show("start on an empty state: ms, KiB resident, files", gateway.start_ms, gateway.resident(), gateway.files())
        before = gateway.cpu()
        time.sleep(20)
        show("at rest: ms of CPU a second", (gateway.cpu() - before) / 20 * 1000)
        measure_requests(gateway)
        gateway.stop()
        before = gateway.disk("*.db")
        gateway = Gateway(binary, folder, port)
        measure_records(gateway)
        gateway.stop()
        show("bytes of the database for a record", (gateway.disk("*.db") - before) / RECORDS)
        gateway = Gateway(binary, folder, port)
        show("start on these records: ms, KiB resident", gateway.start_ms, gateway.resident())
        measure_journal(gateway)
        gateway.stop()
        before = gateway.disk("*.db")
        gateway = Gateway(binary, folder, port)
        measure_keys(gateway)
        gateway.stop()
        show("1,000 keys: bytes of the database", (gateway.disk("*.db") - before) / KEYS * 1000)
        gateway = Gateway(binary, folder, port)
        show("start on these records and keys: ms, KiB resident", gateway.start_ms, gateway.resident())
        gateway.stop()
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway(binary, folder, port)
        measure_held(gateway)
        gateway.stop()
    process.terminate()


if __name__ == "__main__":
    main()
