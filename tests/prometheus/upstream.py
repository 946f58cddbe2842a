"""An upstream for all kinds of answers: the model of a request determines the answer."""

import http.server
import json
import threading
import time

USAGE = {
    "prompt_tokens": 40,
    "completion_tokens": 20,
    "total_tokens": 60,
    "prompt_tokens_details": {"cached_tokens": 30},
}
# The pause before the first content of a stream, and between its events, in seconds.
FIRST_SECONDS = 0.06
GAP_SECONDS = 0.03


class Upstream(http.server.BaseHTTPRequestHandler):
    """Answers by the model: `broken` with an error, `cut` by breaking off, `endless` with a stream that does not end."""

    protocol_version = "HTTP/1.1"
    # Set when the streams without end may end.
    released = threading.Event()

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if request["model"] == "broken":
            self.whole(500, {"error": {"message": "out of order", "type": "server_error"}})
        elif self.path.endswith("/embeddings"):
            self.whole(200, {"data": [{"index": 0, "embedding": [0.5]}], "usage": {"prompt_tokens": 3, "total_tokens": 3}})
        elif request.get("stream"):
            self.stream(request["model"])
        else:
            message = {"role": "assistant", "content": "Hello."}
            choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
            self.whole(200, {"id": "1", "object": "chat.completion", "choices": choices, "usage": USAGE})

    def whole(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def stream(self, model):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        time.sleep(FIRST_SECONDS)
        for _ in range(10):
            self.event({"choices": [{"index": 0, "delta": {"content": "word "}, "finish_reason": None}]})
            time.sleep(GAP_SECONDS)
        if model == "cut":
            return
        if model == "endless":
            self.released.wait()
        self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self.event({"choices": [], "usage": USAGE})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, chunk):
        data = json.dumps({"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", **chunk})
        self.wfile.write(f"data: {data}\n\n".encode())
        self.wfile.flush()

    def log_message(self, *_):
        pass


def start():
    """Starts the upstream; returns the address of its API."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}/v1"
