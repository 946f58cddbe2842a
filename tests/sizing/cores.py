"""Measures what two workers on two cores carry beside one worker on one core.

    cargo build --release --locked --bin llmgw
    python3 tests/sizing/cores.py target/release/llmgw

The gateway gets a share of each core (`--share`) by a control group, so this needs root; wrk and nginx use what is left
(apt-get install wrk nginx-light). The share is less than half, because they take as much CPU time for a request as the gateway. It prints,
for one worker and for two, the requests per second, the CPU time of a request and what each worker took of it, in interleaved rounds, and
the ratio. docs/sizing.md holds the figures.
"""

import argparse
import statistics
import tempfile

import cluster
import load
import measure
import nodes


def workers_of(gateway):
    """Returns the CPU time in seconds of each thread of the data plane."""
    named = {task: (task / "comm").read_text().strip() for task in gateway.tasks()}
    return {name: int((task / "schedstat").read_text().split()[0]) / 1e9 for task, name in named.items() if name.startswith("data-")}


def carried(options, cores, upstream):
    """Returns the requests per second, the CPU time of one in microseconds, and the parts of the workers in it."""
    with tempfile.TemporaryDirectory() as folder:
        gateway = measure.Gateway(options.binary, folder, upstream, LLMGW_WORKERS=str(cores))
        try:
            with cluster.confined([gateway], options.share, cores):
                callers = [(gateway.port, [measure.KEY])] * 2
                load.call(callers, cluster.CONNECTIONS, cluster.WARM_UP)
                before, cpu = workers_of(gateway), gateway.cpu()
                found = load.call(callers, cluster.CONNECTIONS, options.seconds)
                after, cpu = workers_of(gateway), gateway.cpu() - cpu
        finally:
            gateway.stop()
    served, rate = (sum(getattr(one, name) for one in found) for name in ("served", "rate"))
    parts = [after[name] - before[name] for name in sorted(after)]
    return rate, cpu / served * 1e6, [part / sum(parts) for part in parts]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--share", type=float, default=0.3)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    ratios = []
    print("| workers | requests/s | CPU of a request | parts of the workers | load average |\n|---|---|---|---|---|")
    with load.upstream() as port:
        for _ in range(options.rounds):
            rates = []
            for cores in (1, 2):
                rate, cpu, parts = carried(options, cores, port)
                rates.append(rate)
                print(f"| {cores} | {rate:,.0f} | {cpu:.1f} µs | {', '.join(f'{part:.0%}' for part in parts)} | {nodes.load_average()} |", flush=True)
            ratios.append(rates[1] / rates[0])
    print(f"two cores carry {statistics.median(ratios):.2f} times what one does ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
