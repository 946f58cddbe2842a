"""Restarts three nodes on one PostgreSQL behind nginx under load: no request fails, and each is recorded and counted once.

The clients are the official SDK of OpenAI with its defaults. Each has a key of its own, so that nginx, which hashes keys, gives every
node some of them. A limit counts all requests, so they are served from shares of it.
"""

import argparse
import collections
import concurrent.futures
import http.client
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import openai

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "sdk"), str(HERE)]

from checks import Checks, eventually  # noqa: E402
from drive import KEY, PROMPT, Gateway, free_ports  # noqa: E402
from postgres import Postgres  # noqa: E402

# A stream of `slow` takes two seconds, longer than the delay: it runs when the drain begins.
CONFIG = """
providers:
  echo: {type: echo, models: [echo], echo: {delay_ms: 20}}
  slow: {type: echo, models: [echo], echo: {chunk_delay_ms: 250}}
"""
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
  upstream nodes {{
    hash $http_authorization$http_x_api_key consistent;
    server 127.0.0.1:{a} fail_timeout=2s; server 127.0.0.1:{b} fail_timeout=2s; server 127.0.0.1:{c} fail_timeout=2s;
    keepalive 64;
  }}
  server {{
    listen 127.0.0.1:{balanced};
    location / {{
      proxy_pass http://nodes; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_request_buffering off;
    }}
  }}
}}
"""
# nginx tries a server that refused a connection again after 2 s.
ROTATION_SECONDS = 2.5
CLIENTS = 12


def call(port, method, path, body=None):
    """Returns the answer of the admin API, or the lines of an export."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, f"/admin/api/{path}", body and json.dumps(body), {"x-api-key": KEY, "content-type": "application/json"})
    answer = connection.getresponse()
    text = answer.read().decode()
    if answer.status >= 300:
        raise SystemExit(f"{method} {path}: {answer.status} {text}")
    return list(map(json.loads, text.splitlines())) if "export" in path else json.loads(text)


class Load:
    """Requests until the restarts are done, each with an ID of its own."""

    def __init__(self, port, project):
        self.ends = threading.Event()
        self.answered, self.failures = [], []
        keys = [call(port, "POST", "keys", {"name": f"k{number}", "project": project})["key"] for number in range(CLIENTS)]
        clients = [openai.OpenAI(api_key=key, base_url=f"http://127.0.0.1:{port}/v1", timeout=60) for key in keys]
        self.threads = [threading.Thread(target=self.run, args=(number, client)) for number, client in enumerate(clients)]
        for thread in self.threads:
            thread.start()

    def run(self, number, client):
        model, count = ("echo/echo", "slow/echo")[number % 2], 0
        while not self.ends.is_set():
            count += 1
            request = f"client-{number}-{count}"
            try:
                text = self.ask(client, model, request)
                if PROMPT not in text:
                    raise ValueError(f"not whole: {text!r}")
                self.answered.append(request)
            except (openai.OpenAIError, ValueError) as error:
                self.failures.append(f"{request}: {type(error).__name__}: {error}")

    def ask(self, client, model, request):
        messages, headers = [{"role": "user", "content": PROMPT}], {"X-Request-Id": request}
        if model == "echo/echo":
            answer = client.chat.completions.create(model=model, messages=messages, extra_headers=headers)
            return answer.choices[0].message.content
        stream = client.chat.completions.create(model=model, messages=messages, extra_headers=headers, stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)

    def end(self):
        self.ends.set()
        for thread in self.threads:
            thread.join(60)


def check_records(checks, port, project, load):
    """Compares the records and the used part of the limit with what the clients got."""
    answered = set(load.answered)
    export = lambda: call(port, "GET", f"usage/export?format=jsonl&project={project}")
    served = lambda: [row["request_id"] for row in export() if row["outcome"] == "completed"]
    eventually("all nodes have stored their records", lambda: answered <= set(served()), 15)
    repeated = [request for request, count in collections.Counter(served()).items() if count > 1]
    checks.check(f"each answer has one record: {repeated[:3]}, {sorted(set(served()) - answered)[:3]}", not repeated and set(served()) == answered)
    # On a machine that stalls, a node can get its first share too late for a request, which the SDK then repeats.
    others = [row["error"] for row in export() if row["outcome"] != "completed"]
    print(f"{len(others)} attempts were repeated by the SDK", flush=True)
    checks.check(f"only a limit may refuse: {others[:3]}", set(others) <= {"quota_exceeded"})
    # A node knows what others have used of a limit as of their last sign of life, which they give every second.
    used = lambda: call(port, "GET", "quotas")["data"][0]["used"]
    eventually(f"the limit counts {len(answered)} requests", lambda: used() >= len(answered), 15)
    checks.check(f"the limit counts each of {len(answered)} requests once: {used()}", used() == len(answered))
    listed = call(port, "GET", "nodes")["data"]
    checks.check(f"the three nodes are still three: {listed}", [node["standing"] for node in listed] == ["live"] * 3)


def restart(checks, nodes, port):
    project = call(port, "POST", "projects", {"name": "blue"})["id"]
    limit = {"subject": {"kind": "project", "id": project}, "metric": "requests", "window": "day", "limit": 1_000_000}
    call(port, "POST", "quotas", limit)
    load = Load(port, project)
    try:
        for node in nodes:
            code, stop, start = node.restart()
            print(f"restarted a node: code {code}, stop {stop:.1f} s, start {start:.1f} s, {len(load.answered)} requests so far", flush=True)
            checks.check(f"a node stops in order: {code}", code == 0)
            time.sleep(ROTATION_SECONDS)
    finally:
        load.end()
    print(f"{len(load.failures)} of {len(load.answered) + len(load.failures)} requests failed", flush=True)
    checks.check(f"no request fails: {load.failures[:3]}", not load.failures and len(load.answered) > 100)
    check_records(checks, port, project, load)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gateway", required=True)
    binary = parser.parse_args().gateway
    checks, folder = Checks(), pathlib.Path(tempfile.mkdtemp())
    postgres, nodes, nginx = Postgres(), [], None
    try:
        a, b, c, balanced = free_ports(4)
        settings = {"LLMGW_DATABASE_URL": postgres.url, "LLMGW_DRAIN_DELAY_SECONDS": "1"}
        # All three create the tables of the empty database at once.
        with concurrent.futures.ThreadPoolExecutor() as pool:
            begin = lambda port: Gateway(binary, str(folder / str(port)), port, CONFIG, settings)
            nodes = list(pool.map(begin, [a, b, c]))
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder, a=a, b=b, c=c, balanced=balanced))
        nginx = subprocess.Popen(["/usr/sbin/nginx", "-c", folder / "nginx.conf", "-e", folder / "nginx.log"], stderr=subprocess.DEVNULL)
        eventually("nginx listens", (folder / "nginx.pid").exists, 20)
        restart(checks, nodes, balanced)
        if checks.failed:
            print((folder / "nginx.log").read_text()[-4_000:])
    finally:
        for node in nodes:
            node.process.child.kill()
        if nginx:
            nginx.send_signal(signal.SIGTERM)
            nginx.wait()
        postgres.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"rolling: {checks.passed} passed, {checks.failed} failed", flush=True)
    sys.exit(1 if checks.failed else 0)


main()
