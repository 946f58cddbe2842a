"""An upstream for every vendor's protocol that stores its last request and calls the first tool of the request."""

import http.server
import json
import threading


class Upstream(http.server.ThreadingHTTPServer):
    """Listens on a free loopback port; `request` is the path and the body of the last request."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.request = None
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def origin(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body are two writes. Without this, the second waits 40 ms for the first to be acknowledged.
    disable_nagle_algorithm = True

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.request = (self.path, body)
        answer = json.dumps(answer_of(self.path, body)).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments):
        pass


def answer_of(path, body):
    if ":generateContent" in path:
        return gemini([one["name"] for tool in body.get("tools", []) for one in tool["functionDeclarations"]])
    if path.endswith("/converse"):
        tools = body.get("toolConfig", {}).get("tools", [])
        return bedrock([tool["toolSpec"]["name"] for tool in tools if "toolSpec" in tool])
    if path.endswith("/responses"):
        return response(body, [tool["name"] for tool in body.get("tools", [])])
    if path.endswith(("/messages", ":rawPredict")):
        return message([tool["name"] for tool in body.get("tools", [])])
    return completion([tool["function"]["name"] for tool in body.get("tools", [])])


def completion(names):
    message = {"role": "assistant", "content": "Hello.", "refusal": None}
    if names:
        function = {"name": names[0], "arguments": '{"city":"Rome"}'}
        message = message | {"content": None, "tool_calls": [{"id": "call_9", "type": "function", "function": function}]}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls" if names else "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


def response(body, names):
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "Hello.", "annotations": []}]}
    if names:
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_9", "name": names[0],
                "arguments": '{"city":"Rome"}', "status": "completed"}
    usage = {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12,
             "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "m", "error": None,
            "incomplete_details": None, "output": [item], "usage": usage}


def message(names):
    block = {"type": "text", "text": "Hello."}
    if names:
        block = {"type": "tool_use", "id": "toolu_9", "name": names[0], "input": {"city": "Rome"}}
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [block],
            "stop_reason": "tool_use" if names else "end_turn", "stop_sequence": None,
            "usage": {"input_tokens": 9, "output_tokens": 3}}


def gemini(names):
    part = {"text": "Hello."}
    if names:
        part = {"functionCall": {"name": names[0], "args": {"city": "Rome"}}, "thoughtSignature": "c2lnbmVk"}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12}
    return {"candidates": [candidate], "usageMetadata": usage}


def bedrock(names):
    block = {"text": "Hello."}
    if names:
        block = {"toolUse": {"toolUseId": "tooluse_9", "name": names[0], "input": {"city": "Rome"}}}
    usage = {"inputTokens": 9, "outputTokens": 3, "totalTokens": 12}
    return {"output": {"message": {"role": "assistant", "content": [block]}},
            "stopReason": "tool_use" if names else "end_turn", "usage": usage, "metrics": {"latencyMs": 1}}
