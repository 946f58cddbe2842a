"""The upstream's side of embeddings, images, speech and transcriptions."""

import base64
import email.parser
import email.policy
import hashlib
import json
import struct

from .scenes import Wrong

DIMENSIONS = 8
TEXT = "What was said, wörd for wörd."


def vector(text):
    """Returns eight numbers that are unique to this text and exact in 32 bits."""
    return [byte / 256 for byte in hashlib.sha256(text.encode()).digest()[:DIMENSIONS]]


def embeddings(body):
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    data = []
    for index, text in enumerate(texts):
        numbers = vector(text)
        if body.get("encoding_format") == "base64":
            numbers = base64.b64encode(struct.pack(f"<{DIMENSIONS}f", *numbers)).decode()
        data.append({"object": "embedding", "index": index, "embedding": numbers})
    return {"object": "list", "model": body["model"], "data": data, "usage": {"prompt_tokens": 5, "total_tokens": 5}}


def picture(prompt, index):
    """Returns a placeholder image: base64 that is unique to this prompt and position."""
    return base64.b64encode(hashlib.sha256(f"{prompt} {index}".encode()).digest() * 1000).decode()


def images(body):
    data = [{"b64_json": picture(body["prompt"], index)} for index in range(body.get("n") or 1)]
    details = {"text_tokens": 5, "image_tokens": 0}
    usage = {"input_tokens": 5, "input_tokens_details": details, "output_tokens": 272, "total_tokens": 277}
    return {"created": 1, "data": data, "output_format": "png", "usage": usage}


def speech(body):
    """Returns (media type, bytes); the bytes describe the request, so that a client can compare them."""
    kind = body.get("response_format", "mp3")
    asked = json.dumps([body["input"], body["voice"], kind], ensure_ascii=False).encode()
    return f"audio/{kind}", b"\0\xff" + asked + bytes(range(256)) * 64


def form(content_type, body):
    """Returns the fields of a multipart form, each a list; a file as (name, bytes)."""
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    parsed = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
    fields = {}
    for part in parsed.iter_parts():
        data = part.get_payload(decode=True)
        name = part.get_filename()
        value = (name, data) if name else data.decode()
        fields.setdefault(part.get_param("name", header="content-disposition"), []).append(value)
    return fields


def transcription(fields):
    """Returns (media type, text or list of events)."""
    (name, data), = fields["file"]
    if not data:
        raise Wrong("a file with something in it")
    digest = hashlib.sha256(data).hexdigest()
    usage = {"type": "tokens", "input_tokens": 14, "output_tokens": 8, "total_tokens": 22}
    kind = fields.get("response_format", ["json"])[0]
    if fields.get("stream", ["false"])[0] == "true":
        pieces = TEXT.split(" ")
        deltas = [{"type": "transcript.text.delta", "delta": piece + " "} for piece in pieces]
        events = [*deltas, {"type": "transcript.text.done", "text": TEXT, "usage": usage}]
        return "text/event-stream", [f"data: {json.dumps(event)}\n\n" for event in events]
    if kind == "text":
        return "text/plain; charset=utf-8", f"{TEXT} {digest}\n"
    return "application/json", json.dumps({"text": TEXT, "file": name, "sha256": digest, "usage": usage})
