"""usage: python -m upstream   serves on a free loopback port until it is killed; its first line is the address.

Below /openai, /anthropic, /google, /bedrock and /chat it is a vendor with that vendor's paths and key; below /direct it is
all of them but Google and Amazon, and accepts any key. `GET /-/state` returns the number of running answers and the last
request, `GET /-/session?NOTE` the last request of an agent's session about that file, `GET /-/page` an empty page.
"""

import http.server
import json
import threading
import time
import urllib.parse

from . import bedrock, chat, gemini, google, judging, media, messages, responses, sessions, stored
from .scenes import SCENES, Scene, Wrong, play

CHAT, MEDIA = (
    {"/v1/chat/completions": chat},
    {"/v1/embeddings", "/v1/audio/speech", "/v1/audio/transcriptions", "/v1/images/generations"},
)
RESPONSES, MESSAGES = {"/v1/responses": responses}, {"/v1/messages": messages}
MOUNTS = {
    "openai": ({**CHAT, **RESPONSES}, MEDIA | stored.POSTS, ("authorization", "Bearer sk-scripted-openai")),
    "anthropic": (MESSAGES, {"/v1/messages/count_tokens"}, ("x-api-key", "sk-scripted-anthropic")),
    "google": ({}, set(google.METHODS), ("x-goog-api-key", "AIza-scripted-google")),
    "bedrock": ({}, set(), ("authorization", "Bearer bedrock-scripted")),
    "chat": (CHAT, MEDIA, ("authorization", "Bearer sk-scripted-chat")),
    "direct": ({**CHAT, **RESPONSES, **MESSAGES}, MEDIA | stored.POSTS | {"/v1/messages/count_tokens"}, None),
}
SCENES["session"] = sessions.session
COUNTING = threading.Lock()
STATE = {"open": 0, "asked": 0, "last": {}}
# The vendors whose paths have the model and the method.
BY_PATH = {"google": gemini, "bedrock": bedrock}


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path == "/-/state":
            return self.reply(200, json.dumps(STATE))
        if self.path.startswith("/-/session?"):
            return self.reply(200, json.dumps(sessions.ASKED.get(urllib.parse.unquote(self.path.partition("?")[2]), {})))
        if self.path == "/-/page":
            return self.reply(200, "<!doctype html><title>A page</title>", "text/html")
        self.serve_stored("GET")

    def do_DELETE(self):
        self.serve_stored("DELETE")

    def serve_stored(self, method):
        """Serves what is stored of Responses."""
        mount, _, path = self.path.partition("?")[0].removeprefix("/").partition("/")
        if mount not in ("openai", "direct") or not stored.found("/" + path):
            return self.reply(404, json.dumps(chat.error(404, "There is nothing here.")))
        key = MOUNTS[mount][2]
        if key and self.headers.get(key[0]) != key[1]:
            return self.refuse(responses, 401, f"The key in {key[0]} is not the script's.")
        status, body = stored.serve(method, self.path)
        if isinstance(body, list):
            return self.stream(body, 0)
        self.reply(status, json.dumps(body))

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("transfer-encoding") == "chunked":
            raw = self.read_chunks()
        mount, _, path = self.path.split("?")[0].removeprefix("/").partition("/")
        protocols, others, key = MOUNTS.get(mount, ({}, set(), None))
        path = "/" + path
        if "/v1/responses" in protocols and stored.found(path):
            return self.serve_stored("POST")
        call = BY_PATH[mount].method(path) if mount in BY_PATH else None
        protocol = BY_PATH[mount] if call else protocols.get(path, messages if mount == "anthropic" else chat)
        if not call and path not in protocols and path not in others:
            return self.refuse(protocol, 404, f"There is no {self.path} here.")
        if key and self.headers.get(key[0]) != key[1]:
            return self.refuse(protocol, 401, f"The key in {key[0]} is not the script's.")
        if mount == "anthropic" and not self.headers.get("anthropic-version"):
            return self.refuse(protocol, 400, "anthropic-version: Field required")
        with COUNTING:
            STATE["open"] += 1
            STATE["asked"] += 1
            self.asked = {"mount": mount, "path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}}
            STATE["last"] = self.asked
        try:
            self.serve(protocol, path, raw, call)
        except (Wrong, KeyError, ValueError, TypeError) as error:
            self.refuse(protocol, 400, f"{type(error).__name__}: {error}", details=getattr(error, "details", None))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with COUNTING:
                STATE["open"] -= 1

    def serve(self, protocol, path, raw, call):
        if path == "/v1/audio/transcriptions":
            fields = media.form(self.headers["content-type"], raw)
            self.asked["body"] = {"model": fields["model"]}
            kind, body = media.transcription(fields)
            return self.reply(200, body, kind) if isinstance(body, str) else self.stream(body, 0)
        body = json.loads(raw)
        self.asked["body"] = body
        if path == "/v1/embeddings":
            return self.reply(200, json.dumps(media.embeddings(body)))
        if path == "/v1/images/generations":
            return self.reply(200, json.dumps(media.images(body)))
        if path in stored.POSTS:
            return self.reply(200, json.dumps(stored.count(body) if path.endswith("input_tokens") else stored.compact(body)))
        if path in google.METHODS:
            return self.reply(200, json.dumps(google.METHODS[path](body)))
        if path == "/v1/audio/speech":
            kind, data = media.speech(body)
            return self.reply(200, data, kind)
        if call and call[1] in protocol.OTHERS:
            return self.reply(200, json.dumps(protocol.OTHERS[call[1]](body)))
        if body.get("model") == "overloaded":
            return self.refuse(protocol, 529, "This model is always overloaded.")
        if path == "/v1/messages/count_tokens":
            messages.read(body)
            return self.reply(200, json.dumps({"input_tokens": messages.COUNTED}))
        ask = protocol.read(body, call[1] in protocol.STREAMS, call[0]) if call else protocol.read(body)
        if protocol is messages:
            messages.check(ask)
        if protocol is responses:
            stored.made(ask)
        if sessions.note(ask, self.asked):
            judging.judge(ask, path)
        scene: Scene = play(ask)
        if scene.refused:
            message, details = f"The script refuses with {scene.refused}.", scene.cause and {"error_code": scene.cause}
            return self.refuse(protocol, scene.refused, message, scene.headers, details)
        if ask.stream:
            kind = bedrock.STREAM if protocol is bedrock else "text/event-stream"
            return self.stream(protocol.events(scene, ask), scene.pause_s, kind)
        if scene.pause_s:
            time.sleep(scene.pause_s)
        self.reply(200, json.dumps(protocol.whole(scene, ask)))

    def refuse(self, protocol, status, message, headers=(), details=None):
        if protocol is bedrock:
            headers = (*headers, ("x-amzn-errortype", bedrock.KINDS[status]))
        self.reply(status, json.dumps(protocol.error(status, message, details)), headers=headers)

    def reply(self, status, body, kind="application/json", headers=()):
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in (("content-type", kind), ("content-length", str(len(data))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def stream(self, events, pause_s, kind="text/event-stream"):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in events:
            if event is None:
                time.sleep(pause_s)
            else:
                data = event.encode() if isinstance(event, str) else event
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")

    def read_chunks(self):
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body


class Server(http.server.ThreadingHTTPServer):
    """Ignores clients that disconnect: some do so on purpose."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        pass


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), Handler)
    print(f"listening on http://127.0.0.1:{server.server_address[1]}", flush=True)
    threading.Thread(target=judging.judges, daemon=True).start()
    server.serve_forever()
