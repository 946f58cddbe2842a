"""Sends the corpus through every adaptation of a running gateway, and checks each upstream request.

The answers are checked too: they must be valid for the client's SDK, and call the tool by the client's name. If a
target cannot express a conversation, its rejection must be listed in `REFUSED`.
"""

import argparse
import collections
import http.client
import json
import pathlib
import re
import secrets
import sys
import tempfile
import time
import urllib.parse

from anthropic.types import Message
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "sdk"))

import corpus  # noqa: E402
import judges  # noqa: E402
from process import ended_well, start_gateway  # noqa: E402
from upstream import Upstream  # noqa: E402

# For each target: its provider, its model, its judge, and the clients that reach it by adaptation.
TARGETS = {
    "openai": ("gpt-5", judges.chat, ("messages",)),
    "chat": ("some-model", judges.chat, ("messages", "responses")),
    "local": ("qwen3", judges.local, ("messages", "responses")),
    "mistral": ("mistral-large-latest", judges.mistral, ("messages", "responses")),
    "responses": ("gpt-5-codex", judges.responses, ("chat",)),
    "anthropic": ("claude-sonnet-5", judges.messages, ("chat", "responses")),
    "anthropic-4": ("claude-haiku-4-5", judges.messages, ("chat", "responses")),
    "vertex-claude": ("claude-sonnet-4-5@20250929", judges.messages, ("chat", "responses")),
    "gemini": ("gemini-2.5-flash", judges.gemini, ("chat", "messages", "responses")),
    "gemini-3": ("gemini-3-pro-preview", judges.gemini, ("chat", "messages", "responses")),
    "vertex": ("gemini-2.5-pro", judges.gemini, ("chat", "messages", "responses")),
    "bedrock-claude": ("anthropic.claude-sonnet-4-5-v1:0", judges.bedrock, ("chat", "messages", "responses")),
    "bedrock-nova": ("amazon.nova-pro-v1:0", judges.bedrock, ("chat", "messages", "responses")),
    "bedrock-gpt": ("openai.gpt-oss-120b-1:0", judges.bedrock, ("chat", "messages", "responses")),
}
ANSWERS = {"chat": ChatCompletion, "responses": Response, "messages": Message}
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
# Expected rejections: a feature, the clients and targets, and the expected message.
REFUSED = [
    # The gateway does not fetch URLs for a target that accepts only bytes.
    ("web_image", {"chat", "messages", "responses"}, "gemini.*|vertex|bedrock.*", "must be a data URI"),
    ("schema_answer", {"chat", "messages", "responses"}, "bedrock.*", "a schema, which the|format that this target|not support schemas"),
    ("schema_answer_optional", {"messages"}, "bedrock.*", "does not support schemas"),
    ("top_k", {"messages"}, "openai|chat|local|mistral|bedrock-(nova|gpt)", "'top_k'"),
    ("pdf", {"messages", "responses"}, "chat|local|mistral", "does not read files|does not support here"),
    ("two_pdfs", {"messages", "responses"}, "chat|local|mistral", "does not read files|does not support here"),
    ("stops", {"chat"}, "responses", "'stop' has no counterpart"),
]


def configuration(upstream):
    kinds = {
        "openai": {"type": "openai", "base_url": f"{upstream}/openai/v1", "api_key": "sk-a", "protocols": ["chat"]},
        "chat": {"type": "compatible", "base_url": f"{upstream}/chat/v1", "api_key": "sk-b"},
        "local": {"type": "local_server", "base_url": f"{upstream}/local/v1"},
        "mistral": {"registry_id": "mistral", "base_url": f"{upstream}/mistral/v1", "api_key": "sk-c"},
        "responses": {"type": "openai", "base_url": f"{upstream}/openai/v1", "api_key": "sk-d", "force_api_support": True},
        "anthropic": {"type": "anthropic", "base_url": upstream, "api_key": "sk-e"},
        "anthropic-4": {"type": "anthropic", "base_url": upstream, "api_key": "sk-f"},
        "gemini": {"type": "gemini", "base_url": upstream, "api_key": "AIzaa"},
        "gemini-3": {"type": "gemini", "base_url": upstream, "api_key": "AIzab"},
    }
    google = {"type": "vertex", "base_url": upstream, "project": "p", "location": "l", "api_key": "ya29.token"}
    amazon = {"type": "bedrock", "region": "eu-west-1", "base_url": upstream, "api_key": "bedrock-key"}
    kinds |= {"vertex": google, "vertex-claude": google}
    kinds |= {name: amazon for name in ("bedrock-claude", "bedrock-nova", "bedrock-gpt")}
    for name, (model, _, _) in TARGETS.items():
        known = {"id": model, "reasoning": True, "vision": True, "tools": True}
        known |= {"protocols": ["responses"]} if name == "responses" else {}
        kinds[name] = kinds[name] | {"models": [known]}
    never_again = {"retry_max_attempts": 1, "circuit_failure_threshold": 0}
    return json.dumps({"providers": kinds, "policies": {"defaults": never_again}})


class Client:
    """Asks the gateway over one connection."""

    def __init__(self, origin, key):
        self.connection = http.client.HTTPConnection(urllib.parse.urlsplit(origin).netloc, timeout=60)
        self.headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}

    def post(self, path, body):
        self.connection.request("POST", path, json.dumps(body), self.headers)
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read())


def judged(client, upstream, conversation, dialect, target):
    """Returns ("accepted" | "refused" | "failed", why) for a conversation of a client at a target."""
    model, judge, _ = TARGETS[target]
    body = corpus.bodies(conversation, f"{target}/{model}")[dialect]
    upstream.request = None
    status, answer = client.post(PATHS[dialect], body)
    if status == 400 and upstream.request is None:
        why = answer["error"]["message"]
        return ("refused" if may_be_refused(conversation, dialect, target, why) else "failed"), why
    if status != 200 or upstream.request is None:
        return "failed", f"{status} {json.dumps(answer):.300}"
    faults = judge(model, upstream.request[1]) + answer_faults(dialect, body, answer)
    return ("failed", "; ".join(faults[:4])) if faults else ("accepted", "")


def may_be_refused(conversation, dialect, target, why):
    return any(
        feature in conversation.features and dialect in clients and re.fullmatch(targets, target) and re.search(member, why)
        for feature, clients, targets, member in REFUSED
    )


def answer_faults(dialect, request, answer):
    """Returns the faults of an answer according to the client's SDK."""
    try:
        ANSWERS[dialect].model_validate(answer)
    except ValueError as error:
        return [f"the answer: {error}"]
    offered = [tool.get("name") or tool["function"]["name"] for tool in request.get("tools", request.get("functions", []))]
    called = list(names_called(dialect, request, answer))
    return [f"the answer calls {name!r}, which was not offered" for name in called if name not in offered]


def names_called(dialect, request, answer):
    if dialect == "messages":
        yield from (block["name"] for block in answer["content"] if block["type"] == "tool_use")
    elif dialect == "responses":
        yield from (item["name"] for item in answer["output"] if item["type"] == "function_call")
    else:
        message = answer["choices"][0]["message"]
        new, old = message.get("tool_calls") or [], message.get("function_call")
        yield from (call["function"]["name"] for call in new)
        yield from ([old["name"]] if old else [])
        if "functions" in request and new:
            yield "a tool call in place of a function call"


def drive(gateway_path, directory, only):
    upstream = Upstream()
    key = f"test-{secrets.token_hex(16)}"
    gateway, origin = start_gateway(gateway_path, configuration(upstream.origin), key, directory)
    client, counts, failures = Client(origin, key), collections.defaultdict(collections.Counter), []
    try:
        held = corpus.conversations()
        for target, (_, _, clients) in TARGETS.items():
            for dialect in clients:
                for conversation in held:
                    if dialect not in conversation.clients or only not in f"{dialect} over {target}: {conversation.name}":
                        continue
                    fate, why = judged(client, upstream, conversation, dialect, target)
                    counts[f"{dialect} over {target}"][fate] += 1
                    if fate == "failed":
                        failures.append(f"{dialect} over {target}: {conversation.name}: {why}")
        ended_well(gateway, False)
    finally:
        gateway.child.kill()
    return counts, failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gateway", required=True)
    parser.add_argument("--only", default="", help="a part of `CLIENT over TARGET: CONVERSATION`")
    arguments = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="llmgw-corpus-") as directory:
        counts, failures = drive(arguments.gateway, directory, arguments.only)
    for failure in failures:
        print(failure)
    for pair, fates in counts.items():
        print(f"{pair}: {fates['accepted']} accepted, {fates['refused']} refused as documented, {fates['failed']} failed")
    total = sum(counts.values(), collections.Counter())
    seconds = time.monotonic() - started
    print(
        f"conversations: {total['accepted']} accepted, {total['refused']} refused as documented, "
        f"{total['failed']} failed, in {seconds:.0f} s"
    )
    return 1 if total["failed"] or not total["accepted"] else 0


if __name__ == "__main__":
    sys.exit(main())
