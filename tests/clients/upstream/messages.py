"""The upstream's side of Anthropic Messages."""

import base64
import json

from .scenes import Ask, Wrong, fragments

ID = "msg_scripted"
COUNTED = 4242
INPUT = {"input_tokens": 16, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 0}
KINDS = {
    400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
    404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error",
}  # fmt: skip
SIGNATURE = "c2lnbmVkLWJ5LXRoZS1zY3JpcHQ="


def text_of(content, ask):
    if isinstance(content, str):
        return content
    texts = []
    for block in content:
        kind = block["type"]
        if kind == "text":
            texts.append(block["text"])
        elif kind == "image":
            source = block["source"]
            ask.images.append((source["media_type"], base64.b64decode(source["data"], validate=True)))
        elif kind == "tool_use":
            ask.add_call(block["id"], block["name"])
        elif kind == "tool_result":
            ask.add_result(block["tool_use_id"], text_of(block.get("content", ""), ask))
        elif kind == "thinking":
            if block["signature"] != SIGNATURE:
                raise Wrong(f"a thought that was signed here, not {block}")
            ask.thoughts.append(block["thinking"])
        else:
            raise Wrong(f"a block of kind {kind}")
    return "\n".join(texts)


def read(body):
    ask = Ask(body, stream=bool(body.get("stream")))
    ask.system = text_of(body.get("system") or "", ask)
    ask.tools = [tool["name"] for tool in body.get("tools", [])]
    for message in body["messages"]:
        text = text_of(message["content"], ask)
        if message["role"] == "user":
            ask.texts.append(text)
        elif message["role"] == "system":
            ask.system += text
    missing = set(ask.calls) - set(ask.results)
    if missing:
        raise Wrong(f"results of {sorted(missing)}")
    form = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
    if form.get("type") == "json_schema":
        ask.schema = form["schema"]
    return ask


def blocks(scene, ask):
    thinks = scene.reasoning and (ask.body.get("thinking") or {}).get("type", "disabled") != "disabled"
    content = [{"type": "thinking", "thinking": scene.reasoning, "signature": SIGNATURE}] if thinks else []
    content += [{"type": "text", "text": scene.text}] if scene.pieces else []
    for call in scene.calls:
        content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)})
    return content


def message(ask, **members):
    empty = {"content": [], "stop_reason": None, "stop_sequence": None}
    return {"id": ID, "type": "message", "role": "assistant", "model": ask.body["model"], **empty, **members}


def stop_reason(scene):
    return "tool_use" if scene.calls else "end_turn"


def check(ask):
    """Checks the members that an answer requires and a count does not."""
    if not isinstance(ask.body.get("max_tokens"), int):
        raise Wrong("max_tokens: Field required")
    if ask.body.get("thread"):
        raise Wrong("There are no threads.", error_code="thread_unsupported_request", unsupported=["scripts"])


def whole(scene, ask):
    content = blocks(scene, ask)
    return message(ask, content=content, stop_reason=stop_reason(scene), usage={**INPUT, "output_tokens": 9})


def event(kind, **members):
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n"


def events(scene, ask):
    """Yields the data of each event, and None for a pause."""
    yield event("message_start", message=message(ask, usage={**INPUT, "output_tokens": 1}))
    yield event("ping")
    for index, block in enumerate(blocks(scene, ask)):
        yield event("content_block_start", index=index, content_block={**block, **BEGUN[block["type"]]})
        for delta in DELTAS[block["type"]](scene, block):
            yield delta and event("content_block_delta", index=index, delta=delta)
        scene.drop()
        if scene.breaks:
            yield event("error", **{"error": {"type": "overloaded_error", "message": "The script breaks off."}})
            return
        yield event("content_block_stop", index=index)
    delta = {"stop_reason": stop_reason(scene), "stop_sequence": None}
    yield event("message_delta", delta=delta, usage={**INPUT, "output_tokens": 9})
    yield event("message_stop")


def text_deltas(scene, _):
    while True:
        for piece in scene.pieces:
            yield {"type": "text_delta", "text": piece}
            yield None
        if not scene.endless:
            return


def input_deltas(_, block):
    for piece in ["", *fragments(json.dumps(block["input"], ensure_ascii=False))]:
        yield {"type": "input_json_delta", "partial_json": piece}


def thinking_deltas(_, block):
    for piece in fragments(block["thinking"]):
        yield {"type": "thinking_delta", "thinking": piece}
    yield {"type": "signature_delta", "signature": block["signature"]}


BEGUN = {"text": {"text": ""}, "tool_use": {"input": {}}, "thinking": {"thinking": "", "signature": ""}}
DELTAS = {"text": text_deltas, "tool_use": input_deltas, "thinking": thinking_deltas}


def error(status, text, details=None):
    error = {"type": KINDS.get(status, "api_error"), "message": text, **({"details": details} if details else {})}
    return {"type": "error", "error": error, "request_id": "req_script"}
