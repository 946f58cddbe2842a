"""Gemini CLI through a scripted session over the gateway, on targets of each protocol: it writes a file, reads it, and ends."""

import json
import os
import pathlib
import tempfile

from common import KEY, ODD, ORIGIN, Suite, equal, finish, holds, last, on, printed

PACKAGE = pathlib.Path(os.environ["LLMGW_TEST_NODE"], "node_modules", "@google", "gemini-cli")
VERSION = json.loads((PACKAGE / "package.json").read_text())["version"]
SUITE = Suite(f"gemini-cli-{VERSION}")
TARGETS = {"on_gemini": "google/m", "on_chat": "chat/m", "on_messages": "anthropic/m"}
SETTINGS = {
    "general": {"disableAutoUpdate": True, "disableUpdateNag": True, "enableAutoUpdate": False},
    "privacy": {"usageStatisticsEnabled": False},
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "telemetry": {"enabled": False},
}


@on(SUITE, TARGETS, gateway_only=True)
def a_note_is_written_and_read(model):
    with tempfile.TemporaryDirectory(prefix="llmgw-gemini-cli-") as name:
        folder = pathlib.Path(name)
        note = folder / "work" / "note.txt"
        settings = folder / "home" / ".gemini" / "settings.json"
        settings.parent.mkdir(parents=True)
        settings.write_text(json.dumps(SETTINGS))
        env = {
            "GOOGLE_GEMINI_BASE_URL": ORIGIN,
            "GEMINI_API_KEY": KEY,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        }
        prompt = f"Write the note. scene:gemini_cli={note}"
        command = ["node", str(PACKAGE / "bundle" / "gemini.js"), "-m", model, "--yolo", "-o", "json", "-p", prompt]
        output = printed(command, folder, env)
        equal(note.read_text(), f"written by a script: {ODD}\n", "the note")
        answer = json.loads(output[output.index("{") :])
        holds(answer["response"].endswith("The note is written."), f"the last answer: {answer}")
        tools = answer["stats"]["tools"]["byName"]
        equal({name: tool["success"] for name, tool in tools.items()}, {"write_file": 1, "read_file": 1}, "its tools")
        (used,) = answer["stats"]["models"].values()
        tokens = used["tokens"]
        equal((tokens["prompt"], tokens["candidates"] + tokens["thoughts"]), (60, 27), "usage, as the script gave it")
        holds(last()["headers"].get("x-goog-api-key") != KEY, "its key stays here")


if __name__ == "__main__":
    finish(SUITE)
