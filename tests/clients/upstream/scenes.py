"""The answers of the scripted upstream, independent of the protocol.

A prompt names its scene: `scene:NAME` or `scene:NAME=ARGUMENT` in the last user text that has such a marker. A scene is
a function of the request; it raises `Wrong` for an unexpected request, which becomes a 400.
"""

import dataclasses
import hashlib
import json
import re

MARKER = re.compile(r"scene:([a-z_]+)(?:=([^\s\"'<]+))?")
ODD = "Zoë 👩‍👩‍👧 \u2028 \"quoted\" \\ back\u00e9"
WEATHER = {"Paris": "Rain, 7 degrees.", "Oslo": "Snow, -3 degrees."}


class Wrong(Exception):
    """The request does not match the scene or its protocol. `details` are Anthropic's."""

    def __init__(self, message, **details):
        super().__init__(message)
        self.details = details


@dataclasses.dataclass
class Ask:
    """A request, independent of the protocol. `results` are the outputs of tools by the ID of their call, in order."""

    body: dict
    stream: bool = False
    system: str = ""
    texts: list = dataclasses.field(default_factory=list)
    tools: list = dataclasses.field(default_factory=list)
    results: dict = dataclasses.field(default_factory=dict)
    calls: dict = dataclasses.field(default_factory=dict)
    images: list = dataclasses.field(default_factory=list)
    schema: dict | None = None
    thoughts: list = dataclasses.field(default_factory=list)

    def scene(self):
        found = [match for text in self.texts for match in MARKER.finditer(text)]
        return (found[-1].group(1), found[-1].group(2)) if found else ("hello", None)

    def add_call(self, id, name):
        self.calls[id] = name

    def add_result(self, id, text):
        if id not in self.calls:
            raise Wrong(f"a result of {id!r}, which no call has; known: {sorted(self.calls)}")
        self.results[id] = text

    def last_results(self, names):
        """Returns the newest outputs, which must be one for each of these tools."""
        ids = list(self.results)[-len(names) :]
        require([self.calls[id] for id in ids] == names, f"results of {names}, not {[self.calls[id] for id in ids]}")
        return [self.results[id] for id in ids]


@dataclasses.dataclass(frozen=True)
class Call:
    """One tool call; the input of a custom one is text."""

    id: str
    name: str
    arguments: str
    custom: bool = False


@dataclasses.dataclass(frozen=True)
class Scene:
    """An answer. `endless` continues until the client disconnects; `breaks` ends a stream with an error after the
    text, `drops` with the end of the connection."""

    pieces: tuple = ()
    calls: tuple = ()
    reasoning: str = ""
    endless: bool = False
    breaks: bool = False
    drops: bool = False
    pause_s: float = 0
    refused: int | None = None
    cause: str | None = None
    headers: tuple = ()

    def drop(self):
        if self.drops:
            raise ConnectionResetError("the script drops the connection")

    @property
    def text(self):
        return "".join(self.pieces)


def require(fact, what):
    if not fact:
        raise Wrong(f"the scene needs {what}")


def words(text):
    return tuple(re.findall(r"\S+\s*", text))


def hello(ask, _):
    return Scene(pieces=("Hello", ", ", "wörld 🌍", "!"))


def odd(ask, _):
    require(ODD in ask.texts[-1], "the odd text as it was")
    return Scene(pieces=tuple(ODD))


def system(ask, _):
    return Scene(pieces=words(f"The system said: {ask.system}"))


def think(ask, _):
    return Scene(reasoning="First this, then that.", pieces=words("Thought through."))


def weather(ask, cities):
    """Calls get_weather for one or more cities, and reports the results of the calls."""
    cities = (cities or "Paris").split(",")
    require("get_weather" in ask.tools, f"the tool get_weather, not {ask.tools}")
    if not ask.results:
        calls = [Call(f"call_{city}", "get_weather", json.dumps({"city": city})) for city in cities]
        return Scene(pieces=("Let me ",  "look."), calls=tuple(calls))
    outputs = ask.last_results(["get_weather"] * len(cities))
    return Scene(pieces=words("It says: " + " ".join(outputs)))


def schema(ask, _):
    if ask.tools == ["json"]:  # Some clients express a schema as the one tool that must be called.
        return Scene(calls=(Call("call_json", "json", '{"name": "Oslo", "large": true}'),))
    require(ask.schema and set(ask.schema["properties"]) == {"name", "large"}, f"the schema of a city, not {ask.schema}")
    return Scene(pieces=('{"name": ', '"Oslo", ', '"large": ', "true}"))


def picture(ask, _):
    require(len(ask.images) == 1, f"one image, not {len(ask.images)}")
    kind, data = ask.images[0]
    return Scene(pieces=(f"{kind} ", hashlib.sha256(data).hexdigest()))


def slow(ask, _):
    return Scene(pieces=words("one two three four five six"), pause_s=0.1)


def endless(ask, _):
    return Scene(pieces=("tick ",), endless=True, pause_s=0.01)


def breaks(ask, _):
    return Scene(pieces=("half an ", "answer"), breaks=True)


def drops(ask, _):
    return Scene(pieces=("half an ", "answer"), drops=True)


def refuse(ask, how):
    """Rejects with a status, and optionally a cause in Anthropic's details: `refuse=429,contract_spend_limit_reached`."""
    status, _, cause = how.partition(",")
    headers = (("retry-after", "7"),) if status == "429" else ()
    return Scene(refused=int(status), cause=cause or None, headers=headers)


FLAKY = {}


def flaky(ask, name):
    """Rejects the first two requests of a name."""
    FLAKY[name] = FLAKY.get(name, 0) + 1
    if FLAKY[name] <= 2:
        return Scene(refused=[429, 529][FLAKY[name] - 1], headers=(("retry-after", "0"),))
    return Scene(pieces=(f"At the third attempt of {name}.",))


def claude_code(ask, path):
    """A session of Claude Code: it writes a file, reads it twice in parallel, and ends."""
    require({"Write", "Read"} <= set(ask.tools), f"the tools Write and Read, not {ask.tools}")
    step = len(ask.results)
    if step == 0:
        arguments = json.dumps({"file_path": path, "content": f"written by a script: {ODD}\n"}, ensure_ascii=False)
        return Scene(
            reasoning="A note is wanted.", pieces=words("I write the note."), calls=(Call("call_w", "Write", arguments),)
        )
    if step == 1:
        require("error" not in ask.last_results(["Write"])[0].lower(), f"a written file: {ask.results}")
        read = json.dumps({"file_path": path})
        calls = (Call("call_r1", "Read", read), Call("call_r2", "Read", read))
        return Scene(reasoning="Now look at it.", pieces=words("I look at it twice."), calls=calls)
    outputs = ask.last_results(["Read", "Read"])
    require(all("written by a script" in output for output in outputs), f"the note's text in {outputs}")
    return Scene(pieces=words("The note is written."))


def codex(ask, path):
    """A session of Codex: it writes a file with a shell command, reads it, and ends."""
    tool = next((name for name in ("exec_command", "shell_command", "shell") if name in ask.tools), None)
    require(tool, f"a shell tool, not {ask.tools}")
    commands = [f"printf 'written by a script\\n' > {path}", f"cat {path}"]
    step = len(ask.results)
    if step < 2:
        key = {"exec_command": "cmd", "shell_command": "command"}.get(tool, "command")
        arguments = {key: commands[step] if tool != "shell" else ["bash", "-c", commands[step]]}
        call = Call(f"call_{step}", tool, json.dumps(arguments))
        return Scene(reasoning="A note is wanted.", pieces=words("I use the shell."), calls=(call,))
    require("written by a script" in ask.last_results([tool])[0], f"the note's text in {ask.results}")
    return Scene(pieces=words("The note is written."))


def codex_patch(ask, path):
    """A session of Codex: it edits a file by a patch, a function that stands for its custom tool, looks at it, and ends."""
    require({"apply_patch", "exec_command"} <= set(ask.tools), f"the tools apply_patch and exec_command, not {ask.tools}")
    step = len(ask.results)
    if step == 0:
        patch = f"*** Begin Patch\n*** Update File: {path}\n@@\n-a draft\n+written by a script\n*** End Patch\n"
        call = Call("call_patch", "apply_patch", json.dumps({"input": patch}))
        return Scene(reasoning="A draft.", pieces=words("I edit it."), calls=(call,))
    if step == 1:
        require("Success" in ask.last_results(["apply_patch"])[0], f"an edited file: {ask.results}")
        call = Call("call_cat", "exec_command", json.dumps({"cmd": f"cat {path}"}))
        return Scene(reasoning="Now look at it.", pieces=words("I look at it."), calls=(call,))
    require("written by a script" in ask.last_results(["exec_command"])[0], f"the note's text in {ask.results}")
    return Scene(pieces=words("The note is finished."))


def aider(ask, path):
    """A session of aider, which extracts whole files from the text of an answer and then requests a commit message."""
    require(not ask.tools, f"no tools, not {ask.tools}")
    require(path in ask.texts[-1] or path in ask.system, f"the file {path} in what is asked")
    return Scene(pieces=words(f"I write the note.\n\n{path}\n```\nwritten by a script: {ODD}\n```\n"))


def opencode(ask, path):
    """A session of opencode: it writes a file, reads it, and ends. In parallel it requests a title, without tools."""
    if not ask.tools:
        return Scene(pieces=("A note",))
    require({"write", "read"} <= set(ask.tools), f"the tools write and read, not {ask.tools}")
    step = len(ask.results)
    if step == 0:
        arguments = json.dumps({"filePath": path, "content": f"written by a script: {ODD}\n"}, ensure_ascii=False)
        return Scene(reasoning="A note is wanted.", pieces=words("I write the note."), calls=(Call("call_w", "write", arguments),))
    if step == 1:
        require("error" not in ask.last_results(["write"])[0].lower(), f"a written file: {ask.results}")
        return Scene(pieces=words("I look at it."), calls=(Call("call_r", "read", json.dumps({"filePath": path})),))
    require("written by a script" in ask.last_results(["read"])[0], f"the note's text in {ask.results}")
    return Scene(pieces=words("The note is written."))


def gemini_cli(ask, path):
    """A session of Gemini CLI: it writes a file, reads it, and ends."""
    require({"write_file", "read_file"} <= set(ask.tools), f"the tools write_file and read_file, not {ask.tools}")
    step = len(ask.results)
    if step == 0:
        arguments = json.dumps({"file_path": path, "content": f"written by a script: {ODD}\n"}, ensure_ascii=False)
        call = Call("call_w", "write_file", arguments)
        return Scene(reasoning="A note is wanted.", pieces=words("I write the note."), calls=(call,))
    if step == 1:
        require("error" not in ask.last_results(["write_file"])[0].lower(), f"a written file: {ask.results}")
        return Scene(pieces=words("I look at it."), calls=(Call("call_r", "read_file", json.dumps({"file_path": path})),))
    require("written by a script" in ask.last_results(["read_file"])[0], f"the note's text in {ask.results}")
    return Scene(pieces=words("The note is written."))


SCENES = {
    function.__name__: function
    for function in (
        hello, odd, system, think, weather, schema, picture, slow, endless, breaks, drops, refuse, flaky, claude_code,
        codex, codex_patch, aider, opencode, gemini_cli,
    )
}  # fmt: skip


def play(ask):
    """Returns the requested scene."""
    name, argument = ask.scene()
    if name not in SCENES:
        raise Wrong(f"there is no scene {name}")
    return SCENES[name](ask, argument)


def fragments(text, size=7):
    return [text[at : at + size] for at in range(0, len(text), size)]
