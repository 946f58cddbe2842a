"""The upstream's side of Responses."""

import json

from .chat import error, image  # noqa: F401  (the same envelope of errors)
from .scenes import Ask, Wrong, fragments

ID = "resp_scripted"
USAGE = {
    "input_tokens": 20,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
    "output_tokens": 9,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 29,
}
SEALED = "sealed-by-the-script"


def text_of(content, ask):
    if isinstance(content, str):
        return content
    texts = []
    for part in content:
        if part["type"] in ("input_text", "output_text"):
            texts.append(part["text"])
        elif part["type"] == "input_image":
            ask.images.append(image(part["image_url"]))
        else:
            raise Wrong(f"a part of kind {part['type']}")
    return "\n".join(texts)


def read(body):
    ask = Ask(body, stream=bool(body.get("stream")), system=body.get("instructions") or "")
    tools = list(body.get("tools", []))
    items = body["input"]
    for item in items if isinstance(items, list) else []:
        tools += item["tools"] if item.get("type") == "additional_tools" else []
    ask.tools = [tool.get("name", tool["type"]) for tool in tools]
    ask.custom = [tool["name"] for tool in tools if tool["type"] == "custom"]
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        read_item(item, ask)
    missing = set(ask.calls) - set(ask.results)
    if missing:
        raise Wrong(f"outputs of {sorted(missing)}")
    form = (body.get("text") or {}).get("format") or {}
    if form.get("type") == "json_schema":
        ask.schema = form["schema"]
    return ask


def read_item(item, ask):
    kind = item.get("type", "message")
    if kind == "message":
        text = text_of(item["content"], ask)
        if item["role"] in ("system", "developer"):
            ask.system += text
        elif item["role"] == "user":
            ask.texts.append(text)
    elif kind in ("function_call", "custom_tool_call"):
        ask.add_call(item["call_id"], item["name"])
    elif kind in ("function_call_output", "custom_tool_call_output"):
        ask.add_result(item["call_id"], text_of(item["output"], ask))
    elif kind == "reasoning":
        ask.thoughts.append(item)
        if item.get("encrypted_content", SEALED) not in (SEALED, None):
            raise Wrong(f"reasoning that was sealed here, not {item}")
    elif kind != "additional_tools":
        raise Wrong(f"an item of kind {kind}")


def message(scene):
    text = {"type": "output_text", "text": scene.text, "annotations": [], "logprobs": []}
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [text]}


def reasoning(scene, sealed):
    summary = [{"type": "summary_text", "text": scene.reasoning}]
    return {"id": "rs_1", "type": "reasoning", "summary": summary, **({"encrypted_content": SEALED} if sealed else {})}


def call(index, call):
    ids = {"id": f"fc_{index}", "call_id": call.id, "name": call.name, "status": "completed"}
    if call.custom:
        return {"type": "custom_tool_call", **ids, "input": call.arguments}
    return {"type": "function_call", **ids, "arguments": call.arguments}


def output(scene, ask):
    items = [reasoning(scene, bool(ask.body.get("include")))] if scene.reasoning else []
    items += [message(scene)] if scene.pieces else []
    return items + [call(index, each) for index, each in enumerate(scene.calls)]


def response(scene, ask, status="completed"):
    done = status == "completed"
    body = ask.body
    return {
        "id": ask.id or ID, "object": "response", "created_at": 1, "status": status, "model": body["model"], "error": None,
        "incomplete_details": None, "instructions": body.get("instructions"), "metadata": {}, "temperature": 1,
        "top_p": 1, "parallel_tool_calls": True, "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools", []), "output": output(scene, ask) if done else [], "usage": USAGE if done else None,
        "store": bool(ask.id),
    }  # fmt: skip


def whole(scene, ask):
    return response(scene, ask)


def events(scene, ask):
    """Yields the data of each event, and None for a pause."""
    number = 0

    def event(kind, **members):
        nonlocal number
        number += 1
        data = {"type": kind, "sequence_number": number - 1, **members}
        return f"event: {kind}\ndata: {json.dumps(data)}\n\n"

    yield event("response.created", response=response(scene, ask, "in_progress"))
    yield event("response.in_progress", response=response(scene, ask, "in_progress"))
    for index, item in enumerate(output(scene, ask)):
        place = {"output_index": index, "item_id": item["id"]}
        begun = {
            "message": {"content": []}, "function_call": {"arguments": ""}, "custom_tool_call": {"input": ""},
            "reasoning": {"summary": []},
        }  # fmt: skip
        status = {} if item["type"] == "reasoning" else {"status": "in_progress"}
        yield event("response.output_item.added", output_index=index, item={**item, **begun[item["type"]], **status})
        for piece in PARTS[item["type"]](scene, item, place):
            yield piece and event(piece[0], **piece[1])
        scene.drop()
        if scene.breaks and item["type"] == "message":
            yield event("error", code="server_error", message="The script breaks off.", param=None)
            return
        yield event("response.output_item.done", output_index=index, item=item)
    yield event("response.completed", response=response(scene, ask))


def message_parts(scene, item, place):
    place = {**place, "content_index": 0}
    part = item["content"][0]
    yield "response.content_part.added", {**place, "part": {**part, "text": ""}}
    while True:
        for piece in scene.pieces:
            yield "response.output_text.delta", {**place, "delta": piece, "logprobs": []}
            yield None
        if not scene.endless:
            break
    yield "response.output_text.done", {**place, "text": part["text"], "logprobs": []}
    yield "response.content_part.done", {**place, "part": part}


def call_parts(scene, item, place):
    for piece in fragments(item["arguments"]):
        yield "response.function_call_arguments.delta", {**place, "delta": piece}
    yield "response.function_call_arguments.done", {**place, "name": item["name"], "arguments": item["arguments"]}


def custom_call_parts(scene, item, place):
    for piece in fragments(item["input"]):
        yield "response.custom_tool_call_input.delta", {**place, "delta": piece}
    yield "response.custom_tool_call_input.done", {**place, "input": item["input"]}


def reasoning_parts(scene, item, place):
    place = {**place, "summary_index": 0}
    part = item["summary"][0]
    yield "response.reasoning_summary_part.added", {**place, "part": {**part, "text": ""}}
    for piece in fragments(part["text"]):
        yield "response.reasoning_summary_text.delta", {**place, "delta": piece}
    yield "response.reasoning_summary_text.done", {**place, "text": part["text"]}
    yield "response.reasoning_summary_part.done", {**place, "part": part}


PARTS = {
    "message": message_parts, "function_call": call_parts, "custom_tool_call": custom_call_parts,
    "reasoning": reasoning_parts,
}  # fmt: skip
