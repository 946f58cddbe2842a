"""Restarts two gateways behind nginx and HAProxy under load, and checks that no request fails."""

import argparse
import asyncio
import collections
import json
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "sdk")]

from checks import Checks, eventually  # noqa: E402
from process import start_gateway  # noqa: E402

KEY = "administrator-key-of-the-rolling-restart"
CONFIG = """
providers:
  echo: {type: echo, models: [echo], echo: {delay_ms: 20, chunk_delay_ms: 20}}
"""
# Each with the defaults of its package; what is not a default is what a proxy of streams cannot do without.
NGINX = """
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}/client; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream closing {{ server 127.0.0.1:{a}; server 127.0.0.1:{b}; }}
  upstream keeping {{ server 127.0.0.1:{a}; server 127.0.0.1:{b}; keepalive 64; }}
  server {{ listen 127.0.0.1:{closing}; location / {{ proxy_pass http://closing; }} }}
  server {{
    listen 127.0.0.1:{keeping};
    location / {{ proxy_pass http://keeping; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
"""
HAPROXY = """
defaults
  mode http
  timeout connect 5s
  timeout client 1m
  timeout server 1m
frontend clients
  bind 127.0.0.1:{balanced}
  default_backend gateways
backend gateways
  option httpchk GET /ready
  server a 127.0.0.1:{a} check
  server b 127.0.0.1:{b} check
"""
# After a refused connection nginx leaves a server out for 10 s (fail_timeout); HAProxy needs two checks, 2 s apart.
ROTATION_SECONDS = 11
CLIENTS = 16
PROMPT = "one two three four five six seven eight"


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


class Client:
    """Sends requests, one after the other, on connections that it keeps open as long as the proxy permits."""

    def __init__(self, port, streams):
        self.port, self.streams, self.connection = port, streams, None

    async def request(self):
        """Returns what is wrong with the answer, or None."""
        try:
            return await asyncio.wait_for(self._request(), 60)
        except (OSError, asyncio.IncompleteReadError, ValueError, asyncio.TimeoutError) as error:
            self.connection = None
            return f"{type(error).__name__}: {error}"

    async def _request(self):
        if self.connection is None:
            self.connection = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.connection
        body = json.dumps(
            {"model": "echo/echo", "stream": self.streams, "messages": [{"role": "user", "content": PROMPT}]}
        ).encode()
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: rolling\r\ncontent-type: application/json\r\n"
            + f"authorization: Bearer {KEY}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        status = int(head.split(" ", 2)[1])
        answer = await self._body(reader, head)
        if "connection: close" in head:
            writer.close()
            self.connection = None
        if status != 200:
            return f"status {status}: {answer[:200]!r}"
        if self.streams:
            return None if answer.endswith(b"data: [DONE]\n\n") else f"a stream without an end: {answer[-80:]!r}"
        return None if PROMPT in json.loads(answer)["choices"][0]["message"]["content"] else f"{answer[:200]!r}"

    async def _body(self, reader, head):
        if "transfer-encoding: chunked" in head:
            body = b""
            while True:
                length = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
                body += (await reader.readexactly(length + 2))[:-2]
                if length == 0:
                    return body
        length = [line.split(":")[1] for line in head.splitlines() if line.startswith("content-length:")]
        return await reader.readexactly(int(length[0])) if length else await reader.read()


class Load:
    """Requests through every proxy until the restarts are done."""

    def __init__(self):
        self.ends = False
        self.counts = collections.Counter()
        self.failures = collections.defaultdict(list)

    def least(self):
        """Returns the number of streams or of whole answers, the smaller one."""
        kinds = ["streams", "whole answers"]
        return min(sum(count for name, count in self.counts.items() if name.endswith(kind)) for kind in kinds)

    async def run(self, name, port, streams):
        client = Client(port, streams)
        kind = f"{name}, {'streams' if streams else 'whole answers'}"
        while not self.ends:
            failure = await client.request()
            self.counts[kind] += 1
            if failure:
                self.failures[kind].append(failure)
                await asyncio.sleep(0.1)


class Gateway:
    """A gateway that is started again on its port."""

    def __init__(self, binary, folder, port, config=CONFIG, settings=None):
        self.binary, self.folder, self.port, self.config, self.settings = binary, folder, port, config, settings or {}
        pathlib.Path(folder).mkdir()
        self.process, _ = self._start()

    def _start(self):
        settings = {
            "LLMGW_PORT": str(self.port),
            "LLMGW_CREDENTIAL_ENCRYPTION_KEY": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
            # An empty value is the default.
            "LLMGW_DRAIN_DELAY_SECONDS": "",
        }
        return start_gateway(self.binary, self.config, KEY, self.folder, settings | self.settings)

    def restart(self):
        """Returns the exit code and how long the stop and the start took."""
        began = time.monotonic()
        code = self.process.stop()
        stopped = time.monotonic()
        self.process, _ = self._start()
        return code, stopped - began, time.monotonic() - stopped


async def restart_under_load(gateways, ports, wanted):
    load = Load()
    clients = [
        asyncio.create_task(load.run(name, port, streams))
        for name, port in ports.items()
        for streams in [False, True]
        for _ in range(CLIENTS)
    ]
    codes, restarts = [], 0
    await asyncio.sleep(2)
    while restarts == 0 or load.least() < wanted:
        for gateway in gateways:
            code, stop, start = await asyncio.to_thread(gateway.restart)
            codes.append(code)
            print(f"restarted: code {code}, stop {stop:.1f} s, start {start:.1f} s", flush=True)
            await asyncio.sleep(ROTATION_SECONDS)
        restarts += 1
    load.ends = True
    await asyncio.gather(*clients)
    return load, codes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gateway", required=True)
    parser.add_argument("--requests", type=int, required=True)
    options = parser.parse_args()
    checks, children, gateways = Checks(), [], []
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        a, b, closing, keeping, balanced = free_ports(5)
        gateways += [Gateway(options.gateway, str(folder / name), port) for name, port in [("a", a), ("b", b)]]
        names = {"folder": folder, "a": a, "b": b, "closing": closing, "keeping": keeping, "balanced": balanced}
        for name, text in [("nginx.conf", NGINX), ("haproxy.cfg", HAPROXY)]:
            (folder / name).write_text(text.format(**names))
        for command in [
            ["/usr/sbin/nginx", "-c", folder / "nginx.conf", "-e", folder / "nginx.log"],
            ["/usr/sbin/haproxy", "-db", "-f", folder / "haproxy.cfg"],
        ]:
            children.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        ports = {"nginx": closing, "nginx with kept connections": keeping, "haproxy": balanced}
        for name, port in ports.items():
            eventually(f"{name} listens", lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, 20)
        load, codes = asyncio.run(restart_under_load(gateways, ports, options.requests))
        checks.check(f"each gateway stops with code 0: {codes}", set(codes) == {0})
        checks.check("the proxies ran to the end", all(child.poll() is None for child in children))
        for kind, count in load.counts.items():
            failures = load.failures[kind]
            print(f"{kind}: {len(failures)} of {count} failed", flush=True)
            checks.check(f"{kind}: {failures[:3]}", count > 0 and not failures)
        total = sum(load.counts.values())
        print(f"{sum(map(len, load.failures.values()))} of {total} requests failed in {len(codes)} restarts", flush=True)
        if checks.failed and (folder / "nginx.log").exists():
            print((folder / "nginx.log").read_text()[-4_000:])
    finally:
        for gateway in gateways:
            gateway.process.child.kill()
        for child in children:
            child.send_signal(signal.SIGTERM)
            child.wait()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"rolling: {checks.passed} passed, {checks.failed} failed", flush=True)
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
