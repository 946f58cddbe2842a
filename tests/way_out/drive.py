"""Sends requests of a gateway through tinyproxy, and reads in the proxy's log which of them it has seen."""

import argparse
import http.server
import json
import pathlib
import re
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

KEY = "way-out-admin-key-0123456789"
ENCRYPTION_KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
PASSWORD = "planted-pass.word-of-the-proxy"
RESULTS = {True: 0, False: 0}


def check(name, is_right, detail=""):
    RESULTS[bool(is_right)] += 1
    print(f"{'ok  ' if is_right else 'FAIL'} {name}{'' if is_right else f': {detail}'}", flush=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(what, is_done, seconds=30):
    end = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > end:
            raise SystemExit(f"way-out: no {what} within {seconds} s")
        time.sleep(0.05)


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


class Model(http.server.BaseHTTPRequestHandler):
    """An upstream that answers every chat, whole or as a stream."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers.get("proxy-authorization"):
            return self.send_error(500, "the credentials of the proxy came through")
        if body.get("stream"):
            piece = {"id": "1", "object": "chat.completion.chunk", "model": "m"}
            choice = lambda delta, end: {**piece, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}
            events = [choice({"role": "assistant", "content": "hel"}, None), choice({"content": "lo"}, None), choice({}, "stop")]
            text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
            kind = "text/event-stream"
        else:
            message = {"role": "assistant", "content": "hello"}
            text = json.dumps({"id": "1", "object": "chat.completion", "model": "m",
                               "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
            kind = "application/json"
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


def upstream(folder=None):
    server = http.server.ThreadingHTTPServer(("0.0.0.0", 0), Model)
    if folder:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "ca.pem", folder / "key.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


class Proxy:
    """A running tinyproxy."""

    def __init__(self, folder, name, *lines):
        self.port = free_port()
        self.log = folder / f"{name}.log"
        self.log.touch(mode=0o666)
        config = folder / f"{name}.conf"
        config.write_text("\n".join([f"Port {self.port}", "Listen 127.0.0.1", "Timeout 60", "MaxClients 20", "LogLevel Info",
                                     f'LogFile "{self.log}"', *lines]) + "\n")
        self.process = subprocess.Popen(["tinyproxy", "-d", "-c", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(f"tinyproxy {name}", lambda: listens(self.port))

    def url(self, user=""):
        return f"http://{user}127.0.0.1:{self.port}"

    def requests(self):
        """The first lines of the requests that it has seen, without those that only look whether it listens."""
        return re.findall(r"Request \(file descriptor \d+\): (\w+ \S+)", self.log.read_text())

    def stop(self):
        self.process.terminate()
        self.process.wait(10)


class Gateway:
    """A running gateway with providers, each with its settings."""

    def __init__(self, binary, providers, environment):
        self.folder = tempfile.TemporaryDirectory()
        home = pathlib.Path(self.folder.name)
        (home / "config.yaml").write_text(json.dumps({
            "providers": {name: {"type": "compatible", "models": ["m"], "api_key": "k", **settings}
                          for name, settings in providers.items()} | {"rehearsal": {"type": "echo"}},
            "endpoints": {"line": {"failover": [{"provider": next(iter(providers)), "model": "m"},
                                                {"provider": "rehearsal", "model": "echo"}]}},
            "policies": {"defaults": {"retry_max_attempts": 1, "circuit_failure_threshold": 0}}}))
        self.port = free_port()
        self.log = home / "log"
        variables = {"HOME": str(home), "LLMGW_API_KEY": KEY, "LLMGW_CREDENTIAL_ENCRYPTION_KEY": ENCRYPTION_KEY,
                     "LLMGW_CONFIG": str(home / "config.yaml"), "LLMGW_PORT": str(self.port), "LLMGW_DRAIN_DELAY_SECONDS": "0",
                     **environment}
        self.process = subprocess.Popen([binary, "serve"], env=variables, stdout=subprocess.DEVNULL, stderr=self.log.open("w"))
        wait_for(f"gateway: {self.log.read_text()}", lambda: listens(self.port))

    def chat(self, model, stream=False):
        body = json.dumps({"model": model, "stream": stream, "messages": [{"role": "user", "content": "hi"}]}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/chat/completions", body,
                                         {"authorization": f"Bearer {KEY}", "content-type": "application/json"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=30) as answer:
                return answer.status, answer.read().decode(), answer.headers.get("x-llmgw-provider")
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(), None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)
        check("the log of the gateway has no password", PASSWORD not in self.log.read_text())
        self.folder.cleanup()


def served(answer):
    return answer[0] == 200 and ("hello" in answer[1] or '"lo"' in answer[1])


def by_provider(binary, folder, ports, tls):
    proxy = Proxy(folder, "with-credentials", f"BasicAuth user {PASSWORD}")
    open_proxy = Proxy(folder, "open")
    narrow = Proxy(folder, "narrow", "ConnectPort 1")
    secret = folder / "password"
    secret.write_text(PASSWORD + "\n")
    url = proxy.url("user:${FILE:%s}@" % secret)
    https, http_ = f"https://127.0.0.1:{ports[True]}", f"http://127.0.0.1:{ports[False]}"
    providers = {
        "narrow": {"base_url": https + "/v1", "proxy": narrow.url()},
        "tls": {"base_url": https + "/v1", "proxy": url},
        "plain": {"base_url": http_ + "/v1", "proxy": url},
        "open": {"base_url": https + "/v1", "proxy": open_proxy.url()},
        "direct": {"base_url": https + "/v1", "proxy": "direct"},
        "wrong": {"base_url": https + "/v1", "proxy": proxy.url("user:wrong@")},
        "wrong-plain": {"base_url": http_ + "/v1", "proxy": proxy.url()},
    }
    with Gateway(binary, providers, tls) as gateway:
        for name, seen in (("tls", f"CONNECT {https[8:]}"), ("plain", f"POST {http_}/v1/chat/completions")):
            for stream in (False, True):
                answer = gateway.chat(f"{name}/m", stream)
                check(f"{name} answers through the proxy, stream {stream}", served(answer), answer)
            check(f"{name} went through the proxy", seen in proxy.requests(), proxy.requests())
        check("the other proxy saw nothing", not open_proxy.requests(), open_proxy.requests())
        check("a proxy without credentials serves its provider", served(gateway.chat("open/m")))
        check("it saw one tunnel", open_proxy.requests() == [f"CONNECT {https[8:]}"], open_proxy.requests())
        count = len(proxy.requests())
        check("a direct provider needs no proxy", served(gateway.chat("direct/m")) and len(proxy.requests()) == count)
        for name in ("wrong", "wrong-plain"):
            answer = gateway.chat(f"{name}/m")
            check(f"{name} credentials are named", answer[0] == 502 and re.search(r"its proxy rejected the credentials.*\((401|407)\)", answer[1]), answer)
        answer = gateway.chat("narrow/m")
        check("a forbidden port is named", answer[0] == 502 and "its proxy does not permit the connection (403)" in answer[1], answer)
        answer = gateway.chat("line")
        check("the next target serves then", answer[0] == 200 and answer[2] == "rehearsal", answer)
        narrow.stop()
        answer = gateway.chat("narrow/m")
        check("a proxy that is down is named", "the connection to its proxy was refused" in answer[1], answer)
        answer = gateway.chat("line")
        check("the next target serves then too", answer[0] == 200 and answer[2] == "rehearsal", answer)
    proxy.stop()
    open_proxy.stop()


def by_variables(binary, folder, ports, tls, address):
    password = urllib.parse.quote(PASSWORD, safe="")
    proxy = Proxy(folder, "of-variables", f"BasicAuth user {PASSWORD}")
    providers = {"tls": {"base_url": f"https://{address}:{ports[True]}/v1"}, "plain": {"base_url": f"http://{address}:{ports[False]}/v1"},
                 "near": {"base_url": f"https://127.0.0.1:{ports[True]}/v1"}}
    proxies = {"HTTPS_PROXY": proxy.url(f"user:{password}@"), "http_proxy": proxy.url(f"user:{password}@")}
    with Gateway(binary, providers, tls | proxies) as gateway:
        for name in providers:
            answer = gateway.chat(f"{name}/m", True)
            check(f"{name} answers with the variables", served(answer), answer)
        want = [f"CONNECT {address}:{ports[True]}", f"POST http://{address}:{ports[False]}/v1/chat/completions"]
        check("the proxy saw all but this machine's own address", proxy.requests() == want, proxy.requests())
    block = f"{address.rsplit('.', 1)[0]}.0/24"
    for entry in (address, block, f"{address}:{ports[True]}", "*"):
        before = len(proxy.requests())
        with Gateway(binary, {"tls": providers["tls"]}, tls | proxies | {"NO_PROXY": f"other.test,{entry}"}) as gateway:
            answer = gateway.chat("tls/m")
            check(f"NO_PROXY={entry} leads around the proxy", served(answer) and len(proxy.requests()) == before, answer)
    proxy.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gateway", required=True)
    binary = parser.parse_args().gateway
    addresses = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True).stdout.split()
    address = next((address for address in addresses if ":" not in address), None)
    if address is None:
        raise SystemExit("way-out: this machine has no IPv4 address but loopback, to which the variables never apply")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-keyout", folder / "key.pem", "-out", folder / "ca.pem", "-subj", "/CN=way-out",
                        "-addext", f"subjectAltName=IP:127.0.0.1,IP:{address}", "-addext", "basicConstraints=critical,CA:FALSE"],
                       check=True, capture_output=True)
        ports = {True: upstream(folder), False: upstream()}
        tls = {"LLMGW_EXTRA_CA_FILE": str(folder / "ca.pem")}
        by_provider(binary, folder, ports, tls)
        by_variables(binary, folder, ports, tls, address)
    print(f"way-out: {RESULTS[True]} passed, {RESULTS[False]} failed")
    raise SystemExit(1 if RESULTS[False] else 0)


main()
