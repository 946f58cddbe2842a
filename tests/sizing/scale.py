"""Measures the gateway at a size that a large company has: 100,000 keys, 20,000 of them active, and 10 million records.

    cargo build --release --locked --bin llmgw --example fill_journal
    python3 tests/sizing/scale.py target/release/llmgw target/release/examples/fill_journal

`--records N`, `--keys N`, `--active N` and `--days N` change the size, `--folder PATH` keeps the state for another run, which
then measures only. It prints a table: what, the goal, the wall time and the CPU time of the gateway. On a machine that does
other work take the CPU times. The full size takes about half an hour and 6 GB.
"""

import argparse
import concurrent.futures
import http.client
import json
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time

import measure
from measure import KEY

DAY_MS = 86_400_000


class Gateway(measure.Gateway):
    def cpu(self):
        """CPU time of the process in seconds, with that of threads that have ended (clock_getcpuclockid(3))."""
        return time.clock_gettime((~self.child.pid << 3) | 2)


class Line:
    """A connection to the gateway that is kept."""

    def __init__(self, gateway, key=KEY):
        self.gateway, self.key, self.number = gateway, key, 0
        self.connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=600)

    def ask(self, method, path, body=None, wanted=(200, 201, 202, 204)):
        headers = {"authorization": f"Bearer {self.key}"}
        if body is not None:
            self.number += 1
            headers |= {"content-type": "application/json", "idempotency-key": f"{id(self)}-{time.time_ns()}-{self.number}"}
        self.connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status not in wanted:
            raise SystemExit(f"{method} {path}: {answer.status} {text[:300]!r}")
        return json.loads(text) if text else None

    def admin(self, method, path, body=None):
        return self.ask(method, f"/admin/api/{path}", body)


def event(key, number):
    """A usage event as the data plane writes it, without its id and time."""
    return {
        "request_id": "", "started_at_ms": 0, "duration_us": 800_000 + number % 1000, "operation": "chat_completions", "key": key["id"],
        "project": key["project"], "principal": None, "selector": "up/m", "endpoint": None, "provider": "up", "model": f"m{number % 5}",
        "stream": number % 2 == 0, "status": 200, "outcome": "completed", "error": None,
        "tokens": {"input": 900 + number % 100, "output": 300}, "provenance": "reported", "cost_nano_usd": 12_000 + number % 900,
        "head_us": 40_000, "first_content_us": 300_000,
        "trace": [{"provider": "up", "model": f"m{number % 5}", "result": "served", "start_us": 100, "spent_us": 700_000}],
    }  # fmt: skip


def make_keys(gateway, count):
    """Creates a project for each 1,000 keys, and the keys. Returns those of them that `keep` wants with their texts."""
    line, local, made = Line(gateway), threading.local(), []
    projects = [line.admin("POST", "projects", {"name": f"team {n}"})["id"] for n in range(max(1, count // 1000))]

    def make(number):
        if not hasattr(local, "line"):
            local.line = Line(gateway)
        key = local.line.admin("POST", "keys", {"name": f"key {number}", "project": projects[number % len(projects)]})
        return {"id": key["id"], "project": key["project"], "key": key["key"]}

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for key in pool.map(make, range(count), chunksize=64):
            made.append(key)
    return made


def fill(options, folder, binary):
    """Makes the state: keys by the API, records by the journal, which the next start stores."""
    gateway = Gateway(binary, folder, 9)
    keys = make_keys(gateway, options.keys)
    gateway.stop()
    (folder / "keys.json").write_text(json.dumps(keys[: options.active]))
    lines = "\n".join(json.dumps(event(key, number)) for number, key in enumerate(keys[: options.active]))
    step = max(1, options.days * DAY_MS // options.records)
    subprocess.run([options.fill_journal, folder / "state/journal", str(options.records), str(step)], input=lines, text=True, check=True)
    began = time.monotonic()
    gateway = Gateway(binary, folder, 9)
    show("start with all records waiting: first answer", "2 s", gateway.start_ms / 1000, gateway.cpu())
    while (state := Line(gateway).admin("GET", "state"))["usage"]["queued"] > 0:
        time.sleep(1)
    show(f"storing {options.records:,} records", "", time.monotonic() - began, gateway.cpu())
    assert state["usage"]["lost"] == 0, state["usage"]
    gateway.stop()


def show(what, goal, wall, cpu, note=""):
    wall, cpu = (f"{seconds * 1000:,.1f} ms" if seconds < 1 else f"{seconds:,.2f} s" for seconds in (wall, cpu))
    print(f"| {what} | {goal} | {wall} | {cpu} | {note} |", flush=True)


def times(gateway, count, work):
    """Returns the wall times of `count` runs, sorted, and the CPU time of one."""
    found, before = [], gateway.cpu()
    for number in range(count):
        began = time.monotonic()
        work(number)
        found.append(time.monotonic() - began)
    return sorted(found), (gateway.cpu() - before) / count


def percentile(found, share):
    return found[min(len(found) - 1, int(len(found) * share))]


def measure_writes(gateway, line):
    project = line.admin("GET", "projects?limit=1")["data"][0]["id"]
    limits = [{"metric": "requests", "window": "minute", "limit": 60}]
    found, cpu = times(gateway, 200, lambda n: line.admin("POST", "keys", {"name": f"new {n}", "project": project, "limits": limits}))
    show("POST keys with a minute limit, p99", "10 ms", percentile(found, 0.99), cpu, f"p50 {percentile(found, 0.5) * 1000:.1f} ms")
    found, cpu = times(gateway, 100, lambda n: line.admin("PATCH", f"projects/{project}", {"name": f"renamed {n}"}))
    show("rename of a project with a hundredth of the keys, p99", "10 ms", percentile(found, 0.99), cpu, f"p50 {percentile(found, 0.5) * 1000:.1f} ms")


def measure_own_key(gateway, keys):
    """Asks `GET /v1/key` from 16 connections for 5 s."""
    until, before, counts = time.monotonic() + 5, gateway.cpu(), []

    def ask(first):
        lines = [Line(gateway, key["key"]) for key in keys[first : first + 8]]
        number = 0
        while time.monotonic() < until:
            lines[number % len(lines)].ask("GET", "/v1/key")
            number += 1
        counts.append(number)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(ask, range(0, 128, 8)))
    total = sum(counts)
    show("GET /v1/key, one answer", "2 ms (500/s)", 5 / total, (gateway.cpu() - before) / total, f"{total / 5:,.0f} answers/s")


def measure_reads(gateway, line):
    now = int(time.time() * 1000)
    for days in (1, 7, 90):
        answers = []
        path = f"series?from={now - days * DAY_MS}&to={now}"
        found, cpu = times(gateway, 3, lambda _, path=path: answers.append(line.admin("GET", path)))
        partial = "incomplete" if answers[-1]["partial"] else "complete"
        show(f"chart of {days} days", "300 ms, complete" if days == 90 else "", found[1], cpu, partial)
    month = f"usage?from={now - 30 * DAY_MS}&to={now}&bucket=day"
    for name, goal, query in [
        ("by day and key in Berlin time, first page", "2 s", "&group_by=key&tz=Europe/Berlin"),
        ("by day and key in UTC, first page", "", "&group_by=key"),
        ("by model", "", "&group_by=model"),
    ]:
        refused = []

        def ask(_, query=query, refused=refused):
            answer = line.ask("GET", f"/admin/api/{month}{query}", wanted=(200, 503))
            refused.extend([answer["error"]["code"]] if "error" in answer else [])

        found, cpu = times(gateway, 3, ask)
        show(f"report of a month {name}", goal, found[1], cpu, f"refused {len(refused)} of 3 times" if refused else "")
    found, cpu = times(gateway, 3, lambda _: line.admin("GET", "keys?limit=50&sort=name&order=desc"))
    show("a sorted page of keys", "", found[1], cpu)


def measure_alerts(gateway, line):
    """Follows the evaluation of alerts, of which that of spending is a part, for a while."""
    before, longest, errors = gateway.cpu(), 0, set()
    until = time.monotonic() + 30
    while time.monotonic() < until:
        job = next(job for job in line.admin("GET", "state")["jobs"] if "alert" in job["name"])
        if job["last_ended_at_ms"] and job["last_started_at_ms"]:
            longest = max(longest, job["last_ended_at_ms"] - job["last_started_at_ms"])
        errors.add(job["last_error"])
        time.sleep(0.1)
    faults = ", ".join(error for error in errors if error) or "no error"
    show("evaluation of alerts with spend_anomaly, the longest", "2 s", longest / 1000, (gateway.cpu() - before) / 15, f"CPU of one tick; {faults}")


def measure_backups(gateway, line, folder):
    files = list((folder / "state").glob("*.db"))
    began = time.monotonic()
    for file in files:
        shutil.copyfile(file, folder / "copy")
    copying = time.monotonic() - began
    (folder / "copy").unlink()
    size = sum(file.stat().st_size for file in files)
    show("copy of the database files", "", copying, 0, f"{size >> 20:,} MiB")
    for number in ("first", "second"):
        earlier = {backup["name"] for backup in line.admin("GET", "backups")["data"]}
        before, began = gateway.cpu(), time.monotonic()
        # The archive of the first one is listed before its job has ended.
        while "error" in line.ask("POST", "/admin/api/backups", {}, wanted=(202, 409)):
            time.sleep(0.2)
            before, began = gateway.cpu(), time.monotonic()
        while not (done := [b for b in line.admin("GET", "backups")["data"] if b["name"] not in earlier and b.get("state") != "running"]):
            time.sleep(0.2)
        wall = time.monotonic() - began
        show(f"{number} backup", f"{2 * copying:.1f} s" if number == "second" else "", wall, gateway.cpu() - before, f"{done[0].get('bytes', 0) >> 20:,} MiB")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("fill_journal")
    for name, default in [("records", 10_000_000), ("keys", 100_000), ("active", 20_000), ("days", 90)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--folder")
    options = parser.parse_args()
    folder = pathlib.Path(options.folder or tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    print("| what | goal | wall | CPU | |\n|---|---|---|---|---|", flush=True)
    gateway = None
    try:
        if not (folder / "keys.json").exists():
            fill(options, folder, options.binary)
        keys = json.loads((folder / "keys.json").read_text())
        gateway = Gateway(options.binary, str(folder), 9)
        line = Line(gateway)
        show("start, first answer", "2 s", gateway.start_ms / 1000, gateway.cpu(), f"{gateway.resident() >> 10} MiB resident")
        measure_writes(gateway, line)
        measure_own_key(gateway, keys)
        measure_reads(gateway, line)
        measure_alerts(gateway, line)
        measure_backups(gateway, line, folder)
    finally:
        if gateway:
            gateway.stop()
        if not options.folder:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
