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
    """A request, independent of the protocol. `custom` are those tools that take text, `results` the outputs of tools by the
    ID of their call, in order."""

    body: dict
    stream: bool = False
    system: str = ""
    texts: list = dataclasses.field(default_factory=list)
    tools: list = dataclasses.field(default_factory=list)
    custom: list = dataclasses.field(default_factory=list)
    results: dict = dataclasses.field(default_factory=dict)
    calls: dict = dataclasses.field(default_factory=dict)
    images: list = dataclasses.field(default_factory=list)
    schema: dict | None = None
    thoughts: list = dataclasses.field(default_factory=list)
    # The ID of a stored answer.
    id: str | None = None

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


SCENES = {
    function.__name__: function
    for function in (
        hello, odd, system, think, weather, schema, picture, slow, endless, breaks, drops, refuse, flaky,
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
