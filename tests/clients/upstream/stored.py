"""What OpenAI stores of Responses, by ID, and its other routes below /v1/responses."""

import itertools
import threading
import urllib.parse

from . import responses
from .scenes import Ask, Wrong, play

ROOT = "/v1/responses"
POSTS = {f"{ROOT}/input_tokens", f"{ROOT}/compact"}
NUMBERS = itertools.count(1)
LOCK = threading.Lock()
# The stored responses by their IDs, each with what made it.
STORED = {}


def made(ask):
    """Gives the answer to a request an ID of its own and keeps what made it, unless the client wants nothing stored."""
    if ask.body.get("store") is not False:
        with LOCK:
            ask.id = f"resp_stored_{next(NUMBERS)}"
            STORED[ask.id] = ask


def count(body):
    responses.read(body)
    return {"object": "response.input_tokens", "input_tokens": 41}


def compact(body):
    ask = responses.read(body)
    summary = {"type": "compaction", "id": "cmp_1", "encrypted_content": responses.SEALED}
    items = [item for item in inputs(ask) if item.get("role") == "user"]
    return {"id": "resp_compact_1", "object": "response.compaction", "created_at": 1, "output": [*items, summary], "usage": responses.USAGE}


def inputs(ask):
    """Returns the input of a request as a list of items with IDs."""
    given = ask.body["input"]
    items = [{"role": "user", "content": [{"type": "input_text", "text": given}]}] if isinstance(given, str) else given
    return [{"type": "message", "id": f"msg_in_{index}", **item} for index, item in enumerate(items)]


def found(path):
    """Returns the ID in a path and what follows it, or None for another path."""
    if not path.startswith(f"{ROOT}/") or path in POSTS:
        return None
    identity, _, part = path.removeprefix(f"{ROOT}/").partition("/")
    return identity, part


def serve(method, url):
    """Returns the status and the body of the answer about a stored response; the body is a list of events for a stream."""
    url = urllib.parse.urlsplit(url)
    identity, part = found("/" + url.path.removeprefix("/").partition("/")[2])
    query = dict(urllib.parse.parse_qsl(url.query))
    ask = STORED.get(identity)
    if not ask:
        return 404, responses.error(404, f"Response with id '{identity}' not found.")
    whole = responses.whole(play(ask), ask)
    if (method, part) == ("GET", ""):
        if query.get("stream") != "true":
            return 200, whole
        after = int(query.get("starting_after", -1))
        return 200, list(responses.events(play(ask), ask))[after + 1 :]
    if (method, part) == ("DELETE", ""):
        del STORED[identity]
        return 200, {"id": identity, "object": "response", "deleted": True}
    if (method, part) == ("POST", "cancel"):
        return 400, responses.error(400, "Only responses with background=true can be canceled.")
    if (method, part) == ("GET", "input_items"):
        items = inputs(ask)
        if query.get("order", "desc") == "desc":
            items.reverse()
        at = next((at + 1 for at, item in enumerate(items) if item["id"] == query.get("after")), 0)
        page = items[at : at + int(query.get("limit", 20))]
        more = at + len(page) < len(items)
        return 200, {"object": "list", "data": page, "has_more": more, "first_id": page[0]["id"], "last_id": page[-1]["id"]}
    raise Wrong(f"{method} of a stored response's {part!r}")
