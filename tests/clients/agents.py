"""Coding agents through the gateway, each on a target of each protocol: sessions in which the agent reads a file, edits it and
runs a command with its own tools.

Sessions run side by side. Each is checked by what it leaves on the disk and by the last request that the target gets; the
scripted upstream judges each translated request by the definitions of the target's vendor. docs/clients.md has the table.
"""

import datetime
import json
import os
import pathlib
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from agent_programs import PROGRAMS, VERSIONS
from common import DIRECT, HERE, KEY, Suite, asked, equal, finish, holds, printed, raises
from upstream.sessions import DRAFT, FINISHED

SUITE = Suite("agents")
# The path of the requests to each family of targets.
PATHS = {
    "chat": "/chat/v1/chat/completions", "messages": "/anthropic/v1/messages", "responses": "/openai/v1/responses",
    "gemini": "/google/v1beta/models/", "bedrock": "/bedrock/model/",
}  # fmt: skip
# The protocols of agents that do not speak Chat, and the names of endpoints by which some choose their tools.
NATIVE = {"claude_code": "messages", "codex": "responses", "gemini_cli": "gemini"}
NAMES = {"claude_code": "claude-sonnet-5", "codex": "gpt-5.5"}
TITLES = {
    "claude_code": "Claude Code", "codex": "Codex", "gemini_cli": "Gemini CLI", "aider": "aider", "opencode": "opencode",
    "copilot": "Copilot CLI", "qwen_code": "Qwen Code", "pi": "pi",
}  # fmt: skip
CHOSEN = os.environ["LLMGW_TEST_SESSIONS"]
PAGE = HERE.parent.parent / "docs" / "clients.md"


def native(agent):
    return NATIVE.get(agent, "chat")


def session(agent, family):
    """Runs a session; returns its output and the target's last request."""
    with tempfile.TemporaryDirectory(prefix="llmgw-agent-") as name:
        folder = pathlib.Path(name)
        note = folder / "work" / "note.txt"
        note.parent.mkdir()
        note.write_text(DRAFT)
        where = "native" if native(agent) == family else "adapted"
        task = f"Finish the note. scene:session={agent},{where},{note}"
        command, env = PROGRAMS[agent](folder, f"{NAMES.get(agent, 'smart')}-on-{family}", task)
        output = printed(command, folder, env)
        equal(note.read_text(), FINISHED, "the edited note")
        equal((folder / "work" / "note.txt.seen").read_text(), FINISHED, "what the command left")
        last = asked(note)
    holds(last["path"].startswith(PATHS[family]), f"the target: {last['path']}")
    holds(KEY not in json.dumps(last["headers"]), "the key stays here")
    return output, last


def lines(output):
    """Returns the JSON lines that an agent has printed."""
    return [json.loads(line) for line in output.split("\n") if line.startswith("{")]


def claude_code(output, last, family):
    result = lines(output)[-1]
    equal((result["subtype"], result["is_error"], result["result"]), ("success", False, "The note is finished."), "the end")
    if family == "messages":
        holds("claude-code" in last["headers"]["anthropic-beta"], "its betas go upstream")
        turns = [turn["content"] for turn in last["body"]["messages"] if turn["role"] == "assistant"]
        kinds = [block["type"] for turn in turns for block in turn]
        equal(kinds.count("thinking"), 3, f"its thoughts come back, signed: {kinds}")
    else:
        holds("x-anthropic-billing-header" not in json.dumps(last["body"]), "what would defeat caches is left out")


def codex(output, last, family):
    printed_lines = lines(output)
    items = [line["item"] for line in printed_lines if line["type"] == "item.completed"]
    kinds = [item["type"] for item in items]
    equal((kinds.count("file_change"), kinds.count("command_execution")), (1, 2), f"what it did: {kinds}")
    equal(items[-1].get("text"), "The note is finished.", "the last answer")
    usage = printed_lines[-1]["usage"]
    equal((usage["input_tokens"], usage["output_tokens"]), (80, 36), "usage of four requests, as scripted")
    if family == "responses":
        sealed = [item.get("encrypted_content") for item in last["body"]["input"] if item.get("type") == "reasoning"]
        holds(len(sealed) == 3 and all(sealed), f"its reasoning comes back, sealed: {sealed}")
    elif family == "chat":
        turns = [message for message in last["body"]["messages"] if message["role"] == "assistant"]
        thoughts = [turn.get("reasoning_content") for turn in turns]
        equal(thoughts, ["Step 0.", "Step 1.", "Step 2."], "its reasoning comes back, opened")


def gemini_cli(output, last, family):
    answer = json.loads(output[output.index("{") :])
    holds(answer["response"].endswith("The note is finished."), f"the last answer: {answer}")
    tools = {name: tool["success"] for name, tool in answer["stats"]["tools"]["byName"].items()}
    equal(tools, {"read_file": 1, "replace": 1, "run_shell_command": 1}, "its tools")
    (used,) = answer["stats"]["models"].values()
    tokens = used["tokens"]
    equal((tokens["prompt"], tokens["candidates"] + tokens["thoughts"]), (80, 36), "usage, as the script gave it")


def opencode(output, last, family):
    parts = [line["part"] for line in lines(output)]
    equal([part["tool"] for part in parts if part["type"] == "tool"], ["read", "edit", "bash"], "the tools that it ran")
    equal([part["text"] for part in parts if part["type"] == "text"][-1], "The note is finished.", "the last answer")
    used = [part["tokens"]["total"] for part in parts if part["type"] == "step-finish"]
    equal(used, [29, 29, 29, 29], "usage, as the script gave it")


def ends_well(output, last, family):
    holds("The note is finished." in output, f"the last answer: {output[-500:]}")


def aider(output, last, family):
    equal(output.count("Applied edit to note.txt"), 3, f"its edits: {output}")


CHECKS = {"claude_code": claude_code, "codex": codex, "gemini_cli": gemini_cli, "opencode": opencode, "aider": aider}


def chosen():
    every = [(agent, family) for agent in PROGRAMS for family in PATHS]
    if CHOSEN == "today":
        day = datetime.date.today().toordinal()
        others = {agent: [family for family in PATHS if family != native(agent)] for agent in PROGRAMS}
        today = {agent: others[agent][(day + at) % len(others[agent])] for at, agent in enumerate(PROGRAMS)}
        return [(agent, family) for agent, family in every if family in (native(agent), today[agent])]
    return [one for one in every if CHOSEN == "all" or CHOSEN in one]


def check_of(agent, family):
    def check():
        output, last = STARTED[agent, family].result()
        CHECKS.get(agent, ends_well)(output, last, family)

    check.__name__ = f"{agent} {VERSIONS[agent]} [{family}]"
    SUITE.check(gateway_only=True)(check)


for one in chosen():
    check_of(*one)


@SUITE.check(gateway_only=True)
def codex_on_a_strict_target_is_told_why_not():
    with tempfile.TemporaryDirectory(prefix="llmgw-agent-") as name:
        folder = pathlib.Path(name)
        command, env = PROGRAMS["codex"](folder, "gpt-5.5-strict", "scene:hello")
        output = str(raises(AssertionError, lambda: printed(command, folder, env)))
        holds("it ended with 1" in output and "'include' requests" in output, f"the unsupported field: {output}")


def table():
    """Returns the table of the documentation, each of whose cells is a session of `--sessions all`."""
    head = "| agent | its protocol | Chat | Messages | Responses | Gemini | Bedrock |\n|---|---|---|---|---|---|---|\n"
    rows = []
    for agent, title in TITLES.items():
        cells = ["native" if family == native(agent) else "adapted" for family in PATHS]
        rows.append(f"| {title} {VERSIONS[agent]} | {native(agent).capitalize()} | {' | '.join(cells)} |\n")
    return head + "".join(rows)


@SUITE.check()
def the_documentation_has_the_table_of_these_sessions():
    if set(TITLES) == set(PROGRAMS):
        found = re.search(r"<!-- agents -->\n\n(.*?\n)\n<!-- end -->", PAGE.read_text(), re.S)
        equal(found and found[1], table(), f"the table of {PAGE}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--table"]:
        print(table(), end="")
        sys.exit(0)
    workers = ThreadPoolExecutor(3)
    STARTED = {} if DIRECT else {one: workers.submit(session, *one) for one in chosen()}
    finish(SUITE)
