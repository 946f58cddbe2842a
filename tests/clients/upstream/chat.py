"""The upstream's side of Chat Completions."""

import base64
import json
import re

from .scenes import Ask, Wrong, fragments

ID = "chatcmpl-scripted"
USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": 9,
    "total_tokens": 29,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 2},
}
KINDS = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


def image(url):
    match = re.fullmatch(r"data:([^;]+);base64,(.*)", url, re.S)
    if not match:
        raise Wrong(f"an image as a data URL, not {url[:80]}")
    return match.group(1), base64.b64decode(match.group(2), validate=True)


def text_of(content, ask):
    if isinstance(content, str) or content is None:
        return content or ""
    texts = []
    for part in content:
        if part["type"] == "text":
            texts.append(part["text"])
        elif part["type"] == "image_url":
            ask.images.append(image(part["image_url"]["url"]))
        else:
            raise Wrong(f"a part of kind {part['type']}")
    return "\n".join(texts)


def read(body):
    ask = Ask(body, stream=bool(body.get("stream")))
    ask.tools = [tool.get("function", tool.get("custom"))["name"] for tool in body.get("tools", [])]
    waiting = []
    for message in body["messages"]:
        role = message["role"]
        if role != "tool" and waiting:
            raise Wrong(f"results of {waiting} before a message of the {role}")
        text = text_of(message.get("content"), ask)
        if role in ("system", "developer"):
            ask.system += text
        elif role == "user":
            ask.texts.append(text)
        elif role == "tool":
            ask.add_result(message["tool_call_id"], text)
            waiting.remove(message["tool_call_id"])
        elif role == "assistant":
            for call in message.get("tool_calls") or []:
                json.loads(call["function"]["arguments"])
                ask.add_call(call["id"], call["function"]["name"])
                waiting.append(call["id"])
        else:
            raise Wrong(f"a message of the role {role}")
    if waiting:
        raise Wrong(f"results of {waiting}")
    form = body.get("response_format") or {}
    if form.get("type") == "json_schema":
        ask.schema = form["json_schema"]["schema"]
    return ask


def finish(scene):
    return "tool_calls" if scene.calls else "stop"


def call(index, call):
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def whole(scene, ask):
    message = {"role": "assistant", "content": scene.text or None}
    if scene.reasoning:
        message["reasoning_content"] = scene.reasoning
    if scene.calls:
        message["tool_calls"] = [call(index, each) for index, each in enumerate(scene.calls)]
    choice = {"index": 0, "message": message, "finish_reason": finish(scene), "logprobs": None}
    return {
        "id": ID, "object": "chat.completion", "created": 1, "model": ask.body["model"], "choices": [choice],
        "usage": USAGE, "scripted": True,
    }  # fmt: skip


def events(scene, ask):
    """Yields the data of each event, and None for a pause."""

    def chunk(delta, reason=None, **more):
        choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
        envelope = {"id": ID, "object": "chat.completion.chunk", "created": 1, "model": ask.body["model"]}
        return "data: " + json.dumps({**envelope, "choices": choices, **more}) + "\n\n"

    yield chunk({"role": "assistant", "content": ""})
    for piece in fragments(scene.reasoning):
        yield chunk({"reasoning_content": piece})
    while True:
        for piece in scene.pieces:
            yield chunk({"content": piece})
            yield None
        if not scene.endless:
            break
    scene.drop()
    if scene.breaks:
        yield "data: " + json.dumps(error(500, "The script breaks off.")) + "\n\n"
        return
    yield from (chunk({"tool_calls": calls}) for calls in interleaved(scene.calls))
    yield chunk({}, finish(scene))
    if (ask.body.get("stream_options") or {}).get("include_usage"):
        yield chunk({}, usage=USAGE).replace('"choices": [{"index": 0, "delta": {}, "finish_reason": null}]', '"choices": []')
    yield "data: [DONE]\n\n"


def interleaved(calls):
    """Starts all calls, then interleaves their arguments."""
    for index, each in enumerate(calls):
        begun = call(index, each)
        begun["function"]["arguments"] = ""
        yield [{"index": index, **begun}]
    parts = [fragments(each.arguments) for each in calls]
    for turn in range(max(map(len, parts), default=0)):
        for index, pieces in enumerate(parts):
            if turn < len(pieces):
                yield [{"index": index, "function": {"arguments": pieces[turn]}}]


def error(status, message, _=None):
    return {"error": {"message": message, "type": KINDS.get(status, "server_error"), "param": None, "code": "scripted"}}
