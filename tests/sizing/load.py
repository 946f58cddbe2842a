"""An upstream and callers that take little CPU time beside a gateway, for cluster.py and cores.py: nginx and wrk, both of Debian."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile

import measure

# Without a limit of requests on a connection, because a gateway keeps one.
NGINX = """daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error;
events {{}}
http {{
    access_log off; keepalive_requests 1000000000; client_body_temp_path {folder};
    proxy_temp_path {folder}; fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
    server {{ listen 127.0.0.1:{port}; default_type application/json; location / {{ return 200 '{answer}'; }} }}
}}"""
# Each connection sends the next request of the list as soon as it has an answer.
WRK = """local requests, at = {{}}, 0
-- wrk knows the host by now, which each request names.
init = function()
    for key in string.gmatch("{keys}", "%S+") do
        local headers = {{["authorization"] = "Bearer " .. key, ["content-type"] = "application/json"}}
        requests[#requests + 1] = wrk.format("POST", "/v1/chat/completions", headers, '{body}')
    end
end
request = function() at = at % #requests + 1; return requests[at] end
done = function(summary, latency)
    local errors = summary.errors
    print(string.format("found %d %d %d %d %d %d", summary.requests, errors.status, errors.connect + errors.read + errors.write + errors.timeout,
        summary.duration, latency:percentile(50), latency:percentile(99)))
end"""


def needed(*tools):
    """Ends the program if a tool is missing."""
    if missing := [tool for tool in tools if not shutil.which(tool, path=f"/usr/sbin:{os.environ['PATH']}")]:
        raise SystemExit(f"needed: {', '.join(missing)} (apt-get install wrk nginx-light)")


@contextlib.contextmanager
def upstream():
    """Yields the port of an upstream that answers each request with the same answer of 1 KB."""
    needed("wrk", "nginx")
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        settings = pathlib.Path(folder, "nginx.conf")
        settings.write_text(NGINX.format(folder=folder, port=port, answer=measure.WHOLE.decode()))
        child = subprocess.Popen(["nginx", "-c", settings], env={"PATH": "/usr/sbin:/usr/bin"}, stderr=subprocess.DEVNULL)
        try:
            yield port
        finally:
            child.terminate()
            child.wait()


class Found:
    """What the callers of one gateway saw: the answers a second, the refusals, and the times of answers in milliseconds."""

    def __init__(self, output):
        found = re.search(r"^found (.*)$", output, re.MULTILINE)
        if not found:
            raise SystemExit(output)
        requests, self.refused, broken, microseconds, median, late = map(int, found[1].split())
        self.served = requests - self.refused
        if broken or not self.served:
            raise SystemExit(f"{broken} requests had no answer, {self.refused} were refused:\n{output}")
        self.rate = self.served / microseconds * 1e6
        self.median, self.late = median / 1e3, late / 1e3


def call(callers, connections, seconds):
    """Calls each gateway, given as (port, keys), over so many connections, and returns what was found at each."""
    body = json.dumps(measure.chat())
    with tempfile.TemporaryDirectory() as folder:
        running = []
        for number, (port, keys) in enumerate(callers):
            script = pathlib.Path(folder, f"{number}.lua")
            script.write_text(WRK.format(keys=" ".join(keys), body=body))
            command = ["wrk", "--threads=1", f"--connections={connections}", f"--duration={seconds}s", "--timeout=10s", f"--script={script}"]
            running.append(subprocess.Popen([*command, f"http://127.0.0.1:{port}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return [Found(child.communicate()[0]) for child in running]
