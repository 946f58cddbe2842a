"""Judges the requests of the gateway by the definitions of the vendors' own packages, with the judges of the corpus."""

import importlib

from .scenes import Wrong

# The judge of the requests whose path contains this.
JUDGES = {
    "/chat/completions": "chat", "/responses": "responses", "/messages": "messages", "/model/": "bedrock", "/models/": "gemini",
}  # fmt: skip


def judges():
    """Returns the judges' module; it takes seconds to load, so this is called beside the first requests."""
    return importlib.import_module("judges")


def judge(ask, path):
    """Raises what the target's vendor would find fault with."""
    body = {name: value for name, value in ask.body.items() if name != "model" or "/model" not in path}
    if path.endswith("/chat/completions"):
        # Of the servers that send it, some require it back; OpenAI does not define it.
        body["messages"] = [{k: v for k, v in one.items() if k != "reasoning_content"} for one in body["messages"]]
    name = next(name for part, name in JUDGES.items() if part in path)
    faults = getattr(judges(), name)(ask.body["model"], body)
    if faults:
        raise Wrong(f"the vendor's definitions forbid it: {faults[:5]}")
