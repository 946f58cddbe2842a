#!/usr/bin/env python3
"""A reference extension for llmgw: docs/extensions.md describes the protocol.

usage: LLMGW_SECRET=whsec_... extension.py 127.0.0.1:9000
       LLMGW_SECRET=whsec_... extension.py unix:/run/extension.sock

Its provider `words` has the model `echo`, which repeats the last message word by word, whole or as a stream of Chat
Completions. Replace `words_of` by a call of your own model.
"""

import base64
import contextlib
import hashlib
import hmac
import json
import os
import socketserver
import sys
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = os.environ["LLMGW_SECRET"]
KEY = base64.b64decode(SECRET.removeprefix("whsec_"))
CLOCKS_DIFFER_MAX = 300  # seconds
BODY_BYTES_MAX = 64 << 20
PAUSE = float(os.environ.get("WORD_PAUSE", "0.02"))  # seconds before each word of a stream
INFO = {
    "protocol": 1,
    "name": "Words",
    "providers": [{"id": "words", "name": "Repeats words", "protocols": ["chat"], "credential": "none"}],
}
MODELS = {"data": [{"id": "echo", "display_name": "Echo", "context_window": 8192}]}


def words_of(request):
    """Returns the text of the last message in pieces, and the numbers of input and output tokens."""
    texts = []
    for message in request["messages"]:
        content = message.get("content") or ""
        parts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
        texts.append(" ".join(parts))
    words = texts[-1].split()
    pieces = [word if index == 0 else f" {word}" for index, word in enumerate(words)]
    return pieces, sum(len(text.split()) for text in texts), len(pieces)


class Extension(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle(self):
        with contextlib.suppress(ConnectionError):  # the gateway has closed the connection: the client has left
            super().handle()

    def do_GET(self):
        if self.is_signed(b""):
            answer = {"/v1/info": INFO, "/v1/words/models": MODELS}.get(self.path)
            self.json(200, answer) if answer else self.error(404, "There is no such path.")

    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        if length > BODY_BYTES_MAX:
            self.close_connection = True
            return self.error(413, "The request is too large.")
        body = self.rfile.read(length)
        return self.answer(urllib.parse.urlsplit(self.path), body) if self.is_signed(body) else None

    def answer(self, url, body):
        """Answers a signed request."""
        if urllib.parse.parse_qs(url.query).get("dialect") != ["chat"]:
            return self.error(400, "The only dialect is chat.")
        try:
            request = json.loads(body)
            model, (pieces, input_tokens, output_tokens) = request["model"], words_of(request)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            return self.error(400, "The body is no chat request.")
        usage = {"prompt_tokens": input_tokens, "completion_tokens": output_tokens}
        usage["total_tokens"] = input_tokens + output_tokens
        head = {"id": f"chatcmpl-{hashlib.sha256(body).hexdigest()[:24]}", "created": 0, "model": model}
        if url.path == "/v1/words/invoke":
            message = {"role": "assistant", "content": "".join(pieces)}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return self.json(200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage})
        if url.path == "/v1/words/stream":
            return self.stream({**head, "object": "chat.completion.chunk"}, pieces, usage)
        return self.error(404, "There is no such path.")

    def is_signed(self, body):
        """Checks token, time and signature, or answers 401."""
        head = {name: self.headers.get(name, "") for name in ("webhook-id", "webhook-timestamp", "webhook-signature")}
        signed = f"{head['webhook-id']}.{head['webhook-timestamp']}.".encode() + body
        signature = "v1," + base64.b64encode(hmac.digest(KEY, signed, "sha256")).decode()
        token = self.headers.get("authorization", "").removeprefix("Bearer ")
        is_equal = hmac.compare_digest(signature.encode(), head["webhook-signature"].encode())
        is_known = hmac.compare_digest(SECRET.encode(), token.encode())
        sent = head["webhook-timestamp"]
        is_new = sent.isdecimal() and abs(time.time() - int(sent)) <= CLOCKS_DIFFER_MAX
        if not (is_equal and is_known and is_new):
            self.error(401, "The secret, the signature or the time is wrong.")
            return False
        return True

    def stream(self, head, pieces, usage):
        """Sends one event a word."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.event(head, {"role": "assistant", "content": ""})
        for piece in pieces:
            time.sleep(PAUSE)
            self.event(head, {"content": piece})
        self.event(head, {}, "stop")
        self.send({**head, "choices": [], "usage": usage})
        self.chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, head, delta, finish=None):
        self.send({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    def send(self, document):
        self.chunk(b"data: " + json.dumps(document).encode() + b"\n\n")

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def error(self, status, message):
        self.json(status, {"error": {"message": message, "code": None}})

    def json(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self):
        return "gateway"  # a Unix socket has no address to log


class SocketServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


if __name__ == "__main__":
    host, _, port = sys.argv[1].rpartition(":")
    Extension.disable_nagle_algorithm = host != "unix"  # each event is sent at once
    server = SocketServer(port, Extension) if host == "unix" else ThreadingHTTPServer((host, int(port)), Extension)
    server.serve_forever()
