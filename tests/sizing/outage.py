"""Shows what an outage of PostgreSQL costs: two nodes serve 200 requests a second each without it, and catch up afterwards.

    python3 tests/sizing/outage.py target/release/llmgw 60

The number is the minutes without PostgreSQL. Nine of ten requests at each node have no limit; the others count in a budget, and in a
limit by the minute, of which each node has a share. Afterwards each answered request must have one record. docs/cluster.md holds the
figures of 60 minutes.
"""

import argparse
import collections
import http.client
import json
import signal
import time

import measure
import nodes
from nodes import Line

# Requests a second at each node, the connections that send them, and the hard limit of the project.
GROUPS = {"no limit": (180, 18, None), "budget": (10, 2, ("total", 100_000)), "minute": (10, 2, ("minute", 2_400))}


def waiting(gateway):
    """Returns the usage part of `GET state`; it is of the node itself, so it is answered without PostgreSQL too."""
    return Line(gateway).admin("GET", "state")["usage"]


def show(minute, what, gateways, cpu):
    """Prints a line of the log: memory, written bytes of the journal and CPU time of each node."""
    each = []
    for number, gateway in enumerate(gateways):
        used = gateway.cpu()
        each.append(f"{gateway.resident() >> 10} MiB, journal {waiting(gateway)['journal_waiting_bytes'] >> 20} MiB, {used - cpu[number]:.1f} s CPU")
        cpu[number] = used
    print(f"{minute:5.1f} min {what}: {'; '.join(each)} ({nodes.load_average()})", flush=True)


def until_stored(gateways):
    """Waits until no record waits. Returns the seconds from now until the first answer that needs PostgreSQL, and until the end."""
    began, first = time.monotonic(), None
    while True:
        states = [waiting(gateway) for gateway in gateways]
        if first is None:
            connection = http.client.HTTPConnection("127.0.0.1", gateways[0].port, timeout=60)
            connection.request("GET", "/admin/api/keys?limit=1", headers={"authorization": f"Bearer {measure.KEY}"})
            first = time.monotonic() - began if connection.getresponse().status == 200 else None
            connection.close()
        # Callers go on, so a few records of the last second always wait.
        if first is not None and all(state["queued"] < 1_000 and state["failing_since_ms"] is None for state in states):
            return first, time.monotonic() - began
        time.sleep(0.2)


def recorded(gateway):
    """Returns how often each request has a record, and the number of records by status."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=600)
    connection.request("GET", "/admin/api/usage/export?format=jsonl", headers={"authorization": f"Bearer {measure.KEY}"})
    answer, times, statuses = connection.getresponse(), collections.Counter(), collections.Counter()
    for line in answer:
        record = json.loads(line)
        times[nodes.digest(record["request_id"].encode())] += 1
        statuses[record["status"]] += 1
    return times, statuses


def served(minutes, name, status):
    """Returns the number of answers with this status by minute."""
    last = max(minute for _, minute, _ in minutes)
    return [minutes[name, minute, status] for minute in range(last + 1)]


def compare(gateways, answers):
    """Prints what callers got, and compares it with the records. Fails if a record is missing, or there more than once."""
    minutes = sum((found[1] for found in answers), collections.Counter())
    for name in GROUPS:
        for status in sorted({status for group, _, status in minutes if group == name}):
            print(f"{name}, answers with {status} by minute: {served(minutes, name, status)}")
    waits = sorted(wait for found in answers for wait in found[2])
    print(f"times of answers: median {waits[len(waits) // 2] * 1e3:.1f} ms, 99 % {waits[len(waits) * 99 // 100] * 1e3:.1f} ms, longest {waits[-1] * 1e3:.0f} ms")
    times, statuses = recorded(gateways[0])
    ids = [each for found in answers for each in found[0]]
    missing, twice = sum(each not in times for each in ids), sum(count > 1 for count in times.values())
    unknown = len(times.keys() - set(ids))
    print(f"{len(ids):,} answered requests, {sum(statuses.values()):,} records ({dict(statuses)})")
    print(f"answers without a record {missing}, records that are there twice {twice}, records without an answer {unknown}")
    sums = Line(gateways[1]).admin("GET", "usage")["totals"]["requests"]
    print(f"sums of all records: {sums:,} requests")
    if missing or twice or unknown or sums != len(ids):
        raise SystemExit("answers, records and sums differ")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("minutes", type=float, nargs="?", default=60)
    options = parser.parse_args()
    # Project keys are accepted for the whole time.
    settings = {"LLMGW_STALE_SECONDS": "86400"}
    with nodes.upstream() as (_, port), nodes.cluster(options.binary, 2, port, **settings) as (postgres, gateways):
        line, cpu = Line(gateways[0]), [0.0, 0.0]
        groups = {name: (nodes.make_key(line, name, limit), rate, connections) for name, (rate, connections, limit) in GROUPS.items()}
        callers = [nodes.Callers(gateway.port, groups) for gateway in gateways]
        time.sleep(60)
        show(0, "with PostgreSQL", gateways, cpu)
        postgres.end(signal.SIGQUIT)
        began = time.monotonic()
        for minute in range(1, int(options.minutes) + 1):
            time.sleep(max(0, began + 60 * minute - time.monotonic()))
            show(minute, "without PostgreSQL", gateways, cpu)
        time.sleep(max(0, began + 60 * options.minutes - time.monotonic()))
        journals = [gateway.journal() for gateway in gateways]
        print("bytes that are written in the journals:", ", ".join(f"{size:,}" for size in journals), flush=True)
        began = time.monotonic()
        postgres.start()
        ready = time.monotonic() - began
        first, stored = until_stored(gateways)
        print(f"PostgreSQL was ready after {ready:.1f} s; then a list was answered after {first:.1f} s, and all was stored after {stored:.1f} s")
        show(options.minutes, "stored", gateways, cpu)
        time.sleep(30)
        answers = [each.stop() for each in callers]
        time.sleep(5)
        show(options.minutes, "30 s later", gateways, cpu)
        compare(gateways, answers)


if __name__ == "__main__":
    main()
