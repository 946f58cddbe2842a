"""Measures nodes on one PostgreSQL: what 1, 2 and 4 of them carry, and how fast their transactions are beside those of pgbench.

    cargo build --release --locked --bin llmgw --example fill_journal
    python3 tests/sizing/cluster.py target/release/llmgw target/release/examples/fill_journal

Each node gets the same share of the first core (`--share`) by a control group, so this needs root; everything else runs on the other
cores: PostgreSQL, wrk and nginx (apt-get install wrk nginx-light). It prints tables, with the load average of the machine: with other work on it, take the CPU times.
docs/cluster.md holds the figures.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import time

import load
import nodes
import scale
from nodes import Line

HERE = pathlib.Path(__file__).resolve().parent
TICK = os.sysconf("SC_CLK_TCK")
# Each key has a hard limit, and is used at one node, as behind a load balancer that keeps callers on nodes.
KEYS, CONNECTIONS, LIMIT = 8, 16, ("month", 1_000_000_000)
PERIOD_US = 20_000
# Before this process leaves the first core to the nodes.
CORES = sorted(os.sched_getaffinity(0))
WARM_UP = 3
@contextlib.contextmanager
def confined(gateways, share, cores=1):
    """Lets each gateway run on the first cores, on each for this share of the time."""
    v2 = pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists()
    root = pathlib.Path("/sys/fs/cgroup" if v2 else "/sys/fs/cgroup/cpu")
    groups = [root / f"llmgw-{os.getpid()}-{number}" for number in range(len(gateways))]
    try:
        if v2:
            (root / "cgroup.subtree_control").write_text("+cpu")
        for gateway, group in zip(gateways, groups):
            group.mkdir()
            quota = round(PERIOD_US * share * cores)
            if v2:
                (group / "cpu.max").write_text(f"{quota} {PERIOD_US}")
            else:
                (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (group / "cpu.cfs_quota_us").write_text(str(quota))
            (group / "cgroup.procs").write_text(str(gateway.child.pid))
            for task in gateway.tasks():
                os.sched_setaffinity(int(task.name), CORES[:cores])
        yield
    finally:
        for gateway, group in zip(gateways, groups):
            (root / "cgroup.procs").write_text(str(gateway.child.pid))
            group.rmdir()


def cpu_of_server(postgres):
    """Returns the CPU time in seconds of the server's sessions and helpers, which run all the time."""
    total = 0
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rsplit(")", 1)[1].split()
            if int(fields[1]) == postgres.child.pid:
                total += int(fields[11]) + int(fields[12])
    return total / TICK


def commits(postgres):
    return int(nodes.query(postgres, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"))


def head(*names):
    """Prints the head of a table, whose last column is the load average."""
    print(f"\n| {' | '.join([*names, 'load'])} |\n|{'---|' * (len(names) + 1)}")


def row(*values):
    print(f"| {' | '.join(map(str, values))} | {os.getloadavg()[0]:.1f} |", flush=True)


def throughput(options, port):
    """Prints what 1, 2 and 4 nodes carry."""
    print(f"\neach node with {options.share:.0%} of a core, {CONNECTIONS} connections, {KEYS} keys with a hard limit")
    head("nodes", "requests/s", "of one node", "without a share", "median, 99 %", "CPU of a request: node, PostgreSQL", "commits/s")
    for count in (1, 2, 4):
        with nodes.cluster(options.binary, count, port) as (postgres, gateways):
            line = Line(gateways[0])
            keys = lambda at: [nodes.make_key(line, f"caller {number} of node {at}", LIMIT) for number in range(KEYS)]
            callers = [(gateway.port, keys(at)) for at, gateway in enumerate(gateways)]
            counted = lambda: (sum(gateway.cpu() for gateway in gateways), cpu_of_server(postgres), commits(postgres))
            with confined(gateways, options.share):
                load.call(callers, CONNECTIONS, WARM_UP)
                before = counted()
                found = load.call(callers, CONNECTIONS, options.seconds)
                counts = [after - earlier for earlier, after in zip(before, counted())]
            served, rate = (sum(getattr(one, name) for one in found) for name in ("served", "rate"))
            node, server = (cpu / served * 1e6 for cpu in counts[:2])
            middle, late = statistics.median(one.median for one in found), max(one.late for one in found)
            times = [f"{middle:.1f}, {late:.1f} ms", f"{node:.0f}, {server:.0f} µs", f"{counts[2] / options.seconds:.0f}"]
            row(count, f"{rate:,.0f}", f"{rate / count:,.0f}", sum(one.refused for one in found), *times)


def statement(file, name):
    """Returns a statement of the gateway from its source."""
    text = (HERE.parent.parent / "control/src/db" / file).read_text()
    found = re.search(rf'const {name}: &str =\s+"((?:[^"\\]|\\\n)*)";', text)
    return re.sub(r"\\\n\s*", "", found[1]) + ";"


def pgbench(postgres, clients, seconds, script=None, values=()):
    """Returns the transactions a second of clients, each a process with the values of its own."""
    command = [postgres.bin / "pgbench", "--no-vacuum", "--client=1", f"--time={seconds}", "--protocol=prepared"]
    command += [f"--file={script}"] if script else ["--builtin=simple-update"]
    running = []
    for client in range(clients):
        defined = [f"--define={name}={value(client)}" for name, value in values]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        running.append(subprocess.Popen([*command, *defined, postgres.url], env=postgres.environment, **pipes))
    total = 0
    for process in running:
        output, errors = process.communicate()
        if process.returncode:
            raise SystemExit(errors)
        total += float(re.search(r"tps = ([\d.]+)", output)[1])
    return total


LIMITS = """INSERT INTO quotas (id, kind, subject, metric, period, amount, hard, version, created_at_ms, updated_at_ms)
    SELECT 'q-' || client || '-' || number, 'gateway', '', 'requests', 'month', 1000000000000, 1, 1, 1, 1
    FROM generate_series(0, 3) AS client, generate_series(0, 19) AS number"""
FENCES = """DELETE FROM fences WHERE node >= 900;
    INSERT INTO fences (node, lane, incarnation, seq) SELECT 900 + client, 'shares', 1, 0 FROM generate_series(0, 3) AS client"""


def transactions(options, port, folder):
    """Prints the rates of a node's transactions on limits: the fence with the sign of life, and claims of portions."""
    fence, renew = statement("cluster/fences/mod.rs", "PASS"), statement("cluster/nodes.rs", "RENEW")
    claims = [statement("quotas/shares/windows.rs", name) for name in ("CREATE", "LOCK", "CHANGE_WINDOWS", "CHANGE_SHARES")]
    scripts = {}
    for name, statements in (("fence", [fence, renew]), ("claim", [fence, *claims])):
        scripts[name] = folder / f"{name}.sql"
        scripts[name].write_text("\n".join(["BEGIN;", *statements, "COMMIT;", r"\set seq :seq + 1"]))
    windows = lambda quotas: json.dumps([f"{1:020}{quota}" for quota in quotas])
    changes = lambda quotas: json.dumps([f"{1:020}{1:020}00{quota}" for quota in quotas])
    own = lambda client: [f"q-{client}-{number}" for number in range(20)]
    with nodes.cluster(options.binary, 1, port) as (postgres, gateways):
        gateways[0].child.terminate()
        gateways[0].child.wait()
        nodes.query(postgres, LIMITS)
        subprocess.run([postgres.bin / "pgbench", "--initialize", "--quiet", postgres.url], env=postgres.environment, check=True, capture_output=True)
        head("transaction", "with 1 session", "with 4 sessions")
        for what, script, quotas in [
            ("pgbench, simple-update", None, None),
            ("fence and sign of life", "fence", lambda _: []),
            ("claim of a portion of 1 limit, each session its own", "claim", lambda client: own(client)[:1]),
            ("claim of portions of 20 limits, each session its own", "claim", own),
            ("claim of a portion of 1 limit, all sessions the same", "claim", lambda _: ["q-0-0"]),
        ]:
            rates = []
            for clients in (1, 4):
                nodes.query(postgres, FENCES)
                values = [("node", lambda client: 900 + client), ("lane", lambda _: "shares"), ("incarnation", lambda _: 1)]
                values += [("seq", lambda _: 0), ("alive", lambda _: 5_000)]
                if quotas:
                    values += [("windows", lambda client: windows(quotas(client))), ("changes", lambda client: changes(quotas(client)))]
                rate = pgbench(postgres, clients, options.seconds, script and scripts[script], values if script else ())
                if script:
                    passed = int(nodes.query(postgres, "SELECT sum(seq) FROM fences WHERE node >= 900"))
                    assert abs(passed / options.seconds - rate) < rate * 0.1 + 5, (passed, rate)
                rates.append(rate)
            row(what, *(f"{rate:,.0f}/s" for rate in rates))


def storing(options, port):
    """Prints how fast nodes store a full journal."""
    head(f"nodes that store {options.records:,} records each", "records/s", "commits/s", "CPU of a record: nodes, PostgreSQL")
    for count in (1, 2):
        with nodes.cluster(options.binary, count, port) as (postgres, gateways):
            made = scale.make_keys(gateways[0], 300)
            lines = "\n".join(json.dumps(scale.event(key, number)) for number, key in enumerate(made))
            settings = [{"LLMGW_DATABASE_URL": postgres.url, "LLMGW_NODE_NAME": f"n{number + 1}"} for number in range(count)]
            for gateway in gateways:
                gateway.stop()
                command = [options.fill_journal, gateway.folder / "state/journal", str(options.records), "1"]
                subprocess.run(command, input=lines, text=True, check=True)
            server, committed, began = cpu_of_server(postgres), commits(postgres), time.monotonic()
            gateways[:] = [nodes.Gateway(options.binary, str(gateway.folder), port, **each) for gateway, each in zip(gateways, settings)]
            while any(Line(gateway).admin("GET", "state")["usage"]["queued"] for gateway in gateways):
                time.sleep(0.2)
            seconds, total = time.monotonic() - began, count * options.records
            cpu = [sum(gateway.cpu() for gateway in gateways) / total * 1e6, (cpu_of_server(postgres) - server) / total * 1e6]
            stored = Line(gateways[0]).admin("GET", "usage")["totals"]["requests"]
            assert stored == total, (stored, total)
            row(count, f"{total / seconds:,.0f}", f"{(commits(postgres) - committed) / seconds:,.0f}", f"{cpu[0]:.1f}, {cpu[1]:.1f} µs")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("fill_journal")
    parser.add_argument("--share", type=float, default=0.25)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--records", type=int, default=500_000)
    options = parser.parse_args()
    # The upstream, the load and PostgreSQL; the nodes are moved to the first core.
    os.sched_setaffinity(0, CORES[1:] or CORES)
    with load.upstream() as port, nodes.folder() as folder:
        throughput(options, port)
        os.sched_setaffinity(0, CORES)
        transactions(options, port, folder)
        storing(options, port)


if __name__ == "__main__":
    main()
