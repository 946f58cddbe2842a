"""usage: load.py REQUESTS CONCURRENCY

Sends chat requests to the endpoint `candidate` with the key in RUN_KEY and prints statuses and percentiles. Any harness that speaks
OpenAI's API does the same; docs/clients.md names some.
"""

import collections
import concurrent.futures
import http.client
import json
import os
import sys
import threading
import time

HOST = "127.0.0.1:8787"
local = threading.local()


def ask(number):
    """Returns the status and the time of one request, on this thread's connection."""
    if not hasattr(local, "connection"):
        local.connection = http.client.HTTPConnection(HOST, timeout=300)
    body = {"model": "candidate", "max_tokens": 200, "messages": [{"role": "user", "content": f"Question {number}"}]}
    headers = {"Authorization": f"Bearer {os.environ['RUN_KEY']}", "Content-Type": "application/json"}
    began = time.monotonic()
    local.connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    answer = local.connection.getresponse()
    answer.read()
    return answer.status, time.monotonic() - began


def main():
    requests, concurrency = int(sys.argv[1]), int(sys.argv[2])
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
        answers = list(pool.map(ask, range(requests)))
    seconds = time.monotonic() - began
    times = sorted(taken for _, taken in answers)
    statuses = dict(collections.Counter(status for status, _ in answers))
    print(f"statuses {statuses}, {requests / seconds:.0f} requests/s")
    print(f"p50 {times[len(times) // 2] * 1000:.0f} ms, p99 {times[len(times) * 99 // 100] * 1000:.0f} ms")


main()
