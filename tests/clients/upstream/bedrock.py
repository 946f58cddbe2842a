"""The upstream's side of Bedrock's Converse, with its binary streams."""

import base64
import json
import re
import struct
import urllib.parse
import zlib

from .scenes import Ask, Wrong, fragments, require

COUNTED = 4242
METHOD = re.compile(r"/model/([^/]+)/(converse|converse-stream|count-tokens)")
USAGE = {"inputTokens": 16, "outputTokens": 9, "totalTokens": 29, "cacheReadInputTokens": 4, "cacheWriteInputTokens": 0}
STREAM = "application/vnd.amazon.eventstream"
STREAMS = {"converse-stream"}
SIGNATURE = "c2lnbmVkLWJ5LWJlZHJvY2s="
KINDS = {
    400: "ValidationException", 401: "UnrecognizedClientException", 403: "AccessDeniedException",
    404: "ResourceNotFoundException", 429: "ThrottlingException", 500: "InternalServerException",
    503: "ServiceUnavailableException",
}  # fmt: skip


def method(path):
    """Returns the model and the method of a call."""
    found = METHOD.fullmatch(path)
    return (urllib.parse.unquote(found[1]), found[2]) if found else None


def text_of(block, ask):
    """Returns the text of a block, and takes note of everything else."""
    if "text" in block:
        return block["text"]
    if "image" in block:
        image = block["image"]
        ask.images.append((f"image/{image['format']}", base64.b64decode(image["source"]["bytes"], validate=True)))
    elif "toolUse" in block:
        ask.add_call(block["toolUse"]["toolUseId"], block["toolUse"]["name"])
    elif "toolResult" in block:
        result = block["toolResult"]
        texts = [json.dumps(one["json"]) if "json" in one else text_of(one, ask) for one in result["content"]]
        ask.add_result(result["toolUseId"], "\n".join(texts))
    elif "reasoningContent" in block:
        thought = block["reasoningContent"]["reasoningText"]
        if thought.get("signature") != SIGNATURE:
            raise Wrong(f"a thought that was signed here, not {block}")
        ask.thoughts.append(thought["text"])
    elif "cachePoint" not in block:
        raise Wrong(f"a block {sorted(block)}")
    return ""


def read(body, stream, model):
    ask = Ask(body | {"model": model}, stream=stream)
    ask.system = "".join(text_of(block, ask) for block in body.get("system", []))
    tools = body.get("toolConfig", {}).get("tools", [])
    ask.tools = [tool["toolSpec"]["name"] for tool in tools if "toolSpec" in tool]
    for message in body["messages"]:
        texts = [text_of(block, ask) for block in message["content"]]
        if message["role"] == "user":
            ask.texts.append("\n".join(filter(None, texts)))
    missing = set(ask.calls) - set(ask.results)
    if missing:
        raise Wrong(f"results of {sorted(missing)}")
    form = body.get("outputConfig", {}).get("textFormat", {})
    if form.get("type") == "json_schema":
        ask.schema = json.loads(form["structure"]["jsonSchema"]["schema"])
    return ask


def count(body):
    require("converse" in body["input"], "a conversation")
    return {"inputTokens": COUNTED}


OTHERS = {"count-tokens": count}


def thinks(scene, ask):
    thinking = ask.body.get("additionalModelRequestFields", {}).get("thinking") or {}
    return bool(scene.reasoning) and thinking.get("type", "disabled") != "disabled"


def stop_reason(scene):
    return "tool_use" if scene.calls else "end_turn"


def whole(scene, ask):
    thought = {"reasoningText": {"text": scene.reasoning, "signature": SIGNATURE}}
    content = [{"reasoningContent": thought}] if thinks(scene, ask) else []
    content += [{"text": scene.text}] if scene.pieces else []
    for call in scene.calls:
        content.append({"toolUse": {"toolUseId": call.id, "name": call.name, "input": json.loads(call.arguments)}})
    message = {"role": "assistant", "content": content}
    return {"output": {"message": message}, "stopReason": stop_reason(scene), "usage": USAGE, "metrics": {"latencyMs": 1}}


def events(scene, ask):
    """Yields each message of the stream, and None for a pause."""
    yield event("messageStart", role="assistant")
    index = 0
    if thinks(scene, ask):
        thought = [{"text": piece} for piece in fragments(scene.reasoning)] + [{"signature": SIGNATURE}]
        yield from block(index, [{"reasoningContent": piece} for piece in thought])
        index += 1
    while scene.endless:
        yield event("contentBlockDelta", contentBlockIndex=index, delta={"text": scene.pieces[0]})
        yield None
    for piece in scene.pieces:
        yield event("contentBlockDelta", contentBlockIndex=index, delta={"text": piece})
        yield None
    scene.drop()
    if scene.breaks:
        yield frame("exception", "modelStreamErrorException", {"message": "The script breaks off."})
        return
    if scene.pieces:
        yield event("contentBlockStop", contentBlockIndex=index)
        index += 1
    for at, call in enumerate(scene.calls):
        begun = {"toolUse": {"toolUseId": call.id, "name": call.name}}
        yield event("contentBlockStart", contentBlockIndex=index + at, start=begun)
        yield from block(index + at, [{"toolUse": {"input": piece}} for piece in fragments(call.arguments)])
    yield event("messageStop", stopReason=stop_reason(scene))
    yield event("metadata", usage=USAGE, metrics={"latencyMs": 1})


def block(index, deltas):
    for delta in deltas:
        yield event("contentBlockDelta", contentBlockIndex=index, delta=delta)
    yield event("contentBlockStop", contentBlockIndex=index)


def event(kind, **members):
    return frame("event", kind, members)


def frame(message, kind, payload):
    """Returns a message of Amazon's binary streams: lengths, their checksum, headers, payload, checksum."""
    texts = {":message-type": message, f":{message}-type": kind, ":content-type": "application/json"}
    headers = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in texts.items()
    )
    data = json.dumps(payload).encode()
    head = struct.pack(">II", 16 + len(headers) + len(data), len(headers))
    body = head + struct.pack(">I", zlib.crc32(head)) + headers + data
    return body + struct.pack(">I", zlib.crc32(body))


def error(status, message, _=None):
    return {"message": message}
