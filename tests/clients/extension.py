"""The reference extension (docs/examples/extension.py) behind the gateway, over a Unix socket and over TCP: chat streamed to the
official SDKs of OpenAI and Anthropic, byte for byte, cancelled at once, with failover to a provider of another kind."""

import base64
import hmac
import http.client
import json
import os
import pathlib
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import anthropic
import httpx
import openai

from common import DIRECT, KEY, ORIGIN, Suite, equal, eventually, finish, holds

SUITE = Suite("reference extension")
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "examples"
SECRET = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
TEXT = "one two three four five"
openai_client = openai.OpenAI(base_url=f"{ORIGIN}/v1", api_key=KEY, max_retries=0, timeout=60)
anthropic_client = anthropic.Anthropic(base_url=ORIGIN, api_key=KEY, max_retries=0, timeout=60)


def admin(method, path, body=None):
    request = urllib.request.Request(f"{ORIGIN}/admin/api/{path}", method=method)
    request.add_header("x-api-key", KEY)
    if body is not None:
        request.add_header("content-type", "application/json")
        request.data = json.dumps(body).encode()
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read()
        return json.loads(text) if text else None


class Running:
    """A reference extension as a process, at `address`."""

    def __init__(self, address, pause="0.002", example="extension.py"):
        self.address = address
        env = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "LLMGW_SECRET": SECRET}
        env |= {"WORD_PAUSE": pause, "CREDENTIAL_LIFE": "5"}
        self.child = subprocess.Popen([sys.executable, str(EXAMPLES / example), address], env=env, stderr=subprocess.DEVNULL)
        eventually(f"the extension listens on {address}", self.listens, 30)

    def connect(self):
        if self.address.startswith("unix:"):
            line = socket.socket(socket.AF_UNIX)
            line.connect(self.address.removeprefix("unix:"))
        else:
            host, port = self.address.rsplit(":", 1)
            line = socket.create_connection((host, int(port)))
        return line

    def listens(self):
        try:
            self.connect().close()
        except OSError:
            return False
        return True

    def stop(self):
        self.child.kill()
        self.child.wait()


def free_address():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def url(address):
    return address if address.startswith("unix:") else f"http://{address}"


def chat(model, text=TEXT):
    return {"model": model, "messages": [{"role": "user", "content": text}]}


def streamed(model, text=TEXT):
    chunks = list(openai_client.chat.completions.create(**chat(model, text), stream=True, stream_options={"include_usage": True}))
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    return text, chunks[-1].usage


def raw(target, path, headers, body):
    """Sends a request and returns the bytes of its answer."""
    line = http.client.HTTPConnection("localhost", timeout=60)
    line.sock = target
    line.request("POST", path, body, {"content-type": "application/json", **headers})
    answer = line.getresponse()
    equal(answer.status, 200, "the status")
    return answer.read()


def gateway_line():
    host, port = ORIGIN.removeprefix("http://").rsplit(":", 1)
    return socket.create_connection((host, int(port)))


@SUITE.check(gateway_only=True)
def probe_lists_its_provider():
    admin("POST", "extensions", {"name": "words", "url": url(running.address), "secret": SECRET})
    probed = admin("POST", "extensions/words/probe", {})
    equal(probed["last_check"]["error"], None, "the probe")
    equal([(one["id"], one["models"]) for one in probed["providers"]], [("words", ["echo"])], "its providers")
    admin("POST", "providers", {"id": "words", "type": "extension", "extension": "words"})
    equal(admin("POST", "providers/words/sync", {})["models"], 1, "the catalog")
    failover = [{"provider": "words", "model": "echo"}, {"provider": "chat", "model": "m"}]
    admin("POST", "endpoints", {"name": "words-first", "failover": failover})


@SUITE.check(gateway_only=True)
def openai_sdk_whole_and_streamed():
    whole = openai_client.chat.completions.create(**chat("words/echo"))
    equal(whole.choices[0].message.content, TEXT, "the answer")
    equal(whole.usage.total_tokens, 10, "usage")
    text, usage = streamed("words-first")
    equal((text, usage.completion_tokens), (TEXT, 5), "the stream")


@SUITE.check(gateway_only=True)
def anthropic_sdk_streamed():
    with anthropic_client.messages.stream(
        model="words-first", max_tokens=100, messages=[{"role": "user", "content": TEXT}]
    ) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    equal((text, final.stop_reason, final.usage.output_tokens), (TEXT, "end_turn", 5), "the stream")


@SUITE.check(gateway_only=True)
def the_stream_is_byte_for_byte_that_of_the_extension():
    options = {"stream": True, "stream_options": {"include_usage": True}}
    through = raw(gateway_line(), "/v1/chat/completions", {"x-api-key": KEY}, json.dumps({**chat("words/echo"), **options}).encode())
    body = json.dumps({**chat("echo"), **options}).encode()
    sent = str(int(time.time()))
    signature = hmac.digest(base64.b64decode(SECRET.removeprefix("whsec_")), f"msg_1.{sent}.".encode() + body, "sha256")
    headers = {
        "authorization": f"Bearer {SECRET}",
        "webhook-id": "msg_1",
        "webhook-timestamp": sent,
        "webhook-signature": "v1," + base64.b64encode(signature).decode(),
    }
    equal(through, raw(running.connect(), "/v1/words/stream?dialect=chat", headers, body), "the bytes")


@SUITE.check(gateway_only=True)
def a_cancelled_stream_is_let_go_within_100_ms():
    slow = Running(free_address(), pause="0.2")
    admin("PATCH", "extensions/words", {"url": url(slow.address)})
    stream = openai_client.chat.completions.create(**chat("words/echo", "word " * 300), stream=True)
    next(chunk for chunk in stream if chunk.choices and chunk.choices[0].delta.content)
    equal(held(), 1, "attempts in flight")
    left = time.monotonic()
    stream.close()
    eventually("the connection is closed", lambda: held() == 0, 10)
    taken = time.monotonic() - left
    print(f"figure: a cancelled stream of the reference extension was let go after {taken * 1000:.0f} ms", flush=True)
    holds(taken < 0.1 or "CI" in os.environ and taken < 1, f"it took {taken:.3f} s")
    slow.stop()


def held():
    rows = admin("GET", "health/providers")["data"]
    return next(row["running"] for row in rows if row["provider"] == "words")


@SUITE.check(gateway_only=True)
def an_extension_that_dies_is_replaced_by_the_other_provider():
    admin("PATCH", "extensions/words", {"url": url(running.address)})
    equal(streamed("words-first")[0], TEXT, "it serves")
    running.stop()
    equal(streamed("words-first", "scene:hello")[0], "Hello, wörld 🌍!", "the other provider serves")
    try:
        openai_client.chat.completions.create(**chat("words/echo"))
    except openai.APIStatusError as error:
        holds(error.status_code >= 500, error)
    else:
        raise AssertionError("a dead extension has answered")


@SUITE.check(gateway_only=True)
def an_extension_that_is_killed_in_a_stream_ends_it_without_failover():
    slow = Running(free_address(), pause="0.2")
    admin("PATCH", "extensions/words", {"url": url(slow.address)})
    stream = openai_client.chat.completions.create(**chat("words-first", "word " * 300), stream=True)
    next(chunk for chunk in stream if chunk.choices and chunk.choices[0].delta.content)
    slow.stop()
    words = []
    try:
        words += [chunk.choices[0].delta.content for chunk in stream if chunk.choices]
    except (openai.APIError, httpx.HTTPError):
        pass
    else:
        raise AssertionError("the stream has ended as if it were complete")
    holds(all(word is None or "word" in word for word in words), words)
    equal(held(), 0, "attempts in flight")
    equal(streamed("words-first", "scene:hello")[0], "Hello, wörld 🌍!", "the other provider serves")


class Visit(urllib.request.HTTPRedirectHandler):
    """A visit of a page that returns the address to which it redirects."""

    def redirect_request(self, request, fp, code, msg, headers, newurl):
        return None

    def location(self, address):
        try:
            urllib.request.build_opener(self).open(address, timeout=60)
        except urllib.error.HTTPError as answer:
            return answer.headers["location"]
        raise AssertionError("the page does not redirect")


@SUITE.check(gateway_only=True)
def a_human_signs_in_to_the_example_with_accounts():
    signed_in = Running(free_address(), example="extension_with_accounts.py")
    ada = admin("POST", "principals", {"name": "Ada"})["id"]
    home = admin("POST", "projects", {"name": "home"})["id"]
    admin("PUT", f"projects/{home}/members/{ada}", {"role": "owner"})
    key = admin("POST", "keys", {"name": "hers", "project": home, "acts_as": ada})["key"]
    admin("POST", "extensions", {"name": "accounts", "url": url(signed_in.address), "secret": SECRET})
    equal(admin("POST", "extensions/accounts/probe", {})["providers"][0]["credential"], "sign_in", "its credential")
    provider = {"id": "private", "type": "extension", "extension": "accounts", "extension_provider": "words"}
    admin("POST", "providers", {**provider, "auth": "oauth", "owner": ada, "models": ["echo"]})
    head = {"x-api-key": KEY, "content-type": "application/json"}
    request = urllib.request.Request(f"{ORIGIN}/admin/api/providers/private/oauth/start", b"{}", head)
    with urllib.request.urlopen(request, timeout=60) as answer:
        page, cookie = json.load(answer)["authorize_url"], answer.headers["set-cookie"].split(";")[0]
    callback = Visit().location(page).removeprefix("https://llm.example.com")
    request = urllib.request.Request(ORIGIN + callback, headers={"cookie": cookie})
    with urllib.request.urlopen(request, timeout=60) as answer:
        holds("is connected as guest" in answer.read().decode(), "the page of the callback")
    hers = openai.OpenAI(base_url=f"{ORIGIN}/v1", api_key=key, max_retries=0, timeout=60)
    equal(hers.chat.completions.create(**chat("private/echo")).choices[0].message.content, TEXT, "the answer")
    sign_in = lambda: admin("GET", "providers/private")["sign_in"]
    eventually("the credential is renewed", lambda: sign_in()["refreshed_at_ms"] is not None, 60)
    equal(hers.chat.completions.create(**chat("private/echo")).choices[0].message.content, TEXT, "the answer after it")
    signed_in.stop()


@SUITE.check(gateway_only=True)
def a_wrong_secret_is_refused_by_the_extension():
    other = Running(free_address())
    wrong = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    admin("PATCH", "extensions/words", {"url": url(other.address), "secret": wrong})
    equal(admin("POST", "extensions/words/probe", {})["last_check"]["error"]["status"], 401, "the probe")
    other.stop()


with tempfile.TemporaryDirectory(prefix="llmgw-extension-") as folder:
    running = None if DIRECT else Running(f"unix:{folder}/e.sock")
    finish(SUITE)
