"""The upstream's side of Gemini's generateContent, embeddings and token counts."""

import base64
import json
import re

from .media import vector
from .scenes import Ask, Wrong, require

COUNTED = 4242
STREAMS = {"streamGenerateContent"}
MODELS = ("m", "gemini-embedding-001", "gemini-3-pro-preview")
STATUSES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL"}


FREE = ("args", "response", "parameters", "parametersJsonSchema", "responseJsonSchema", "responseSchema")


def camel(value):
    """Returns a message of the protocol with its names in camelCase: Google reads both spellings."""
    if isinstance(value, list):
        return [camel(element) for element in value]
    if not isinstance(value, dict):
        return value
    named = {re.sub(r"_([a-z])", lambda found: found[1].upper(), name): inner for name, inner in value.items()}
    return {name: inner if name in FREE else camel(inner) for name, inner in named.items()}


def method(path):
    """Returns the model and the method of a call of one of the models."""
    for model in MODELS:
        if path.startswith(f"/v1beta/models/{model}:"):
            return model, path.rpartition(":")[2]
    return None


def result(part, ask):
    """Adds the result of a call: by its ID, or to the oldest open call of its name."""
    response, name = part["response"], part["name"]
    is_open = [id for id, of in ask.calls.items() if of == name and id not in ask.results]
    id = part.get("id") or (is_open[0] if is_open else None)
    text = next((response[key] for key in ("output", "result", "content") if isinstance(response.get(key), str)), None)
    ask.add_result(id, json.dumps(response, ensure_ascii=False) if text is None else text)


def read_part(part, ask):
    """Returns the text of a part."""
    if "functionCall" in part:
        call = part["functionCall"]
        ask.add_call(call.get("id") or f"{call['name']}#{len(ask.calls)}", call["name"])
    elif "functionResponse" in part:
        result(part["functionResponse"], ask)
    elif "inlineData" in part:
        data = part["inlineData"]
        ask.images.append((data["mimeType"], base64.b64decode(data["data"].replace("-", "+").replace("_", "/") + "==")))
    elif part.get("thought"):
        ask.thoughts.append(part["text"])
    elif "text" in part:
        return part["text"]
    else:
        raise Wrong(f"a part {part}")
    return ""


def read(body, stream, model):
    body = camel(body)
    ask = Ask(body | {"model": model}, stream=stream)
    ask.system = "".join(part["text"] for part in body.get("systemInstruction", {}).get("parts", []))
    ask.tools = [one["name"] for tool in body.get("tools", []) for one in tool["functionDeclarations"]]
    for content in body["contents"]:
        texts = [read_part(part, ask) for part in content["parts"]]
        if content.get("role", "user") == "user":
            ask.texts.append("\n".join(filter(None, texts)))
    config = body.get("generationConfig", {})
    ask.schema = config.get("responseJsonSchema") or config.get("responseSchema")
    return ask


def answer(parts, end=None):
    usage = {"promptTokenCount": 20, "cachedContentTokenCount": 4, "candidatesTokenCount": 9, "totalTokenCount": 29}
    candidate = {"content": {"role": "model", "parts": parts}, "index": 0} | ({"finishReason": end} if end else {})
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"}


def parts(scene, ask, pieces):
    """Yields the parts of an answer: thoughts if they are wanted, texts, and calls, which have no IDs."""
    if scene.reasoning and ask.body.get("generationConfig", {}).get("thinkingConfig", {}).get("includeThoughts"):
        yield {"text": scene.reasoning, "thought": True}
    for piece in pieces:
        yield {"text": piece}
    for call in scene.calls:
        yield {"functionCall": {"name": call.name, "args": json.loads(call.arguments)}, "thoughtSignature": "c2NyaXB0"}


def whole(scene, ask):
    return answer(list(parts(scene, ask, [scene.text] if scene.text else [])), "STOP")


def events(scene, ask):
    for part in parts(scene, ask, scene.pieces):
        yield frame(answer([part]))
        yield None
    while scene.endless:
        yield frame(answer([{"text": scene.pieces[0]}]))
        yield None
    scene.drop()
    if scene.breaks:
        yield frame(error(500, "The script breaks off."))
    else:
        yield frame(answer([{"text": ""}], "STOP"))


def frame(value):
    # Older SDKs for Node fail at a raw U+2028.
    return f"data: {json.dumps(value)}\r\n\r\n"


def error(status, message, details=None):
    return {"error": {"code": status, "message": message, "status": STATUSES.get(status, "UNAVAILABLE")}}


def count(body):
    require("generateContentRequest" in body, "the whole request")
    return {"totalTokens": COUNTED}


def embedding(content):
    return {"values": vector("\n".join(part["text"] for part in content["parts"]))}


def embed(body):
    return {"embedding": embedding(body["content"])}


def embed_batch(body):
    models = {request["model"] for request in body["requests"]}
    require(models == {"models/gemini-embedding-001"}, f"the model of the path, not {models}")
    return {"embeddings": [embedding(request["content"]) for request in body["requests"]]}


OTHERS = {"countTokens": count, "embedContent": embed, "batchEmbedContents": embed_batch}
