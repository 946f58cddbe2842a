"""Nodes on one PostgreSQL, their callers and the upstream, for outage.py and cluster.py."""

import asyncio
import collections
import contextlib
import hashlib
import multiprocessing
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "sdk"), str(HERE)]

import measure  # noqa: E402
from postgres import Postgres  # noqa: E402
from scale import Gateway, Line  # noqa: E402


@contextlib.contextmanager
def folder():
    """Yields a new folder, which is deleted afterwards."""
    with tempfile.TemporaryDirectory() as made:
        yield pathlib.Path(made)


@contextlib.contextmanager
def upstream():
    """Yields the process of an upstream, and its port."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=measure.serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield process, ours.recv()
    finally:
        process.terminate()
        process.join()


@contextlib.contextmanager
def cluster(binary, count, port, **variables):
    """Yields a server as durable as in production, and nodes on it."""
    postgres, nodes = Postgres(fsync="on", max_connections=300), []
    try:
        with folder() as places:
            for number in range(1, count + 1):
                place = places / f"n{number}"
                place.mkdir()
                nodes.append(Gateway(binary, str(place), port, LLMGW_DATABASE_URL=postgres.url, LLMGW_NODE_NAME=f"n{number}", **variables))
            try:
                yield postgres, nodes
            finally:
                for node in nodes:
                    node.stop()
    finally:
        postgres.stop()


def make_key(line, name, limit=None):
    """Creates a project with one key, and a hard limit (window, requests) of the project if there is one. Returns the text of the key."""
    project = line.admin("POST", "projects", {"name": name})["id"]
    if limit:
        window, most = limit
        line.admin("POST", "quotas", {"subject": {"kind": "project", "id": project}, "metric": "requests", "window": window, "limit": most})
    return line.admin("POST", "keys", {"name": name, "project": project})["key"]


def digest(request_id):
    """Returns a number for the ID of a request, which takes less memory."""
    return int.from_bytes(hashlib.blake2b(request_id, digest_size=8).digest())


class Callers:
    """A process that sends the requests of groups of callers to one node: {name: (key, requests a second or None for as many as the
    node answers, connections)}. Each minute's counts by group and status, and the digests of the IDs, are what `stop` returns."""

    def __init__(self, port, groups):
        self.pipe, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=self.run, args=(port, groups, theirs), daemon=True)
        self.process.start()

    def run(self, port, groups, pipe):
        self.ids, self.minutes, self.waits, self.stopping = [], collections.Counter(), [], False
        asyncio.run(self.call(port, groups, pipe))
        pipe.send((self.ids, self.minutes, sorted(self.waits)))

    async def call(self, port, groups, pipe):
        began = time.monotonic()
        callers = []
        for name, (key, rate, connections) in groups.items():
            for number in range(connections):
                pace = rate and (began + number / rate, connections / rate)
                callers.append(asyncio.create_task(self.one(port, name, key, pace, began)))
        while not pipe.poll():
            await asyncio.sleep(0.05)
        self.stopping = True
        await asyncio.gather(*callers)

    async def one(self, port, name, key, pace, began):
        raw = measure.request("/v1/chat/completions", measure.chat()).replace(measure.KEY.encode(), key.encode())
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        turn, step = pace or (0, 0)
        while not self.stopping:
            if step:
                await asyncio.sleep(turn - time.monotonic())
                turn += step
            sent = time.monotonic()
            writer.write(raw)
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE)[1]))
            self.waits.append(time.monotonic() - sent)
            self.ids.append(digest(re.search(rb"x-request-id: (\S+)", head, re.IGNORECASE)[1]))
            self.minutes[name, int((sent - began) // 60), int(head[9:12])] += 1
        writer.close()

    def stop(self):
        """Ends the callers. Returns the digests of the answered requests, their counts by (group, minute, status), and the times of answers."""
        self.pipe.send(None)
        answered = self.pipe.recv()
        self.process.join()
        return answered


def query(postgres, sql):
    """Runs SQL as the owner of the database, and returns its output: a line for each row."""
    command = [postgres.bin / "psql", postgres.url, "--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--command", sql]
    return subprocess.run(command, env=postgres.environment, check=True, capture_output=True, text=True).stdout.strip()


def load_average():
    return f"load average {os.getloadavg()[0]:.1f}"
