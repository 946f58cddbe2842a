"""Shared by the Python suites: the gateway's address, the targets, and checks that run on several targets.

Environment: LLMGW_TEST_ORIGIN (what is driven), LLMGW_TEST_KEY, LLMGW_TEST_STATE (the scripted upstream's state), and
LLMGW_TEST_DIRECT=1 if the upstream itself is driven, which proves the checks.
"""

import base64
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import urllib.parse
import urllib.request

from pydantic import BaseModel

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "sdk"))

from checks import Suite, equal, eventually, holds  # noqa: E402, F401
from upstream.scenes import ODD, WEATHER  # noqa: E402, F401

ORIGIN = os.environ["LLMGW_TEST_ORIGIN"]
KEY = os.environ["LLMGW_TEST_KEY"]
DIRECT = os.environ.get("LLMGW_TEST_DIRECT") == "1"

OPENAI = {"native": "openai/m", "on_chat": "chat/m"}
ANTHROPIC = {"native": "anthropic/m", "on_chat": "chat/m"}
# The time that a session of an agent may take.
LIMIT_S = 300
HELLO = "Hello, wörld 🌍!"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
DATA_URL = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
PICTURE = f"image/png {hashlib.sha256(PIXEL).hexdigest()}"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class City(BaseModel):
    """The schema of the requested structured output."""

    name: str
    large: bool


def cities(*names):
    """The prompt for calls of get_weather, one for each city."""
    return f"scene:weather={','.join(names)}"


def weather_answer(*names):
    return "It says: " + " ".join(WEATHER[name] for name in names)


def state():
    with urllib.request.urlopen(os.environ["LLMGW_TEST_STATE"], timeout=10) as answer:
        return json.load(answer)


def last():
    """Returns the upstream's last request."""
    return state()["last"]


def asked(note):
    """Returns the last request of an agent's session about this file."""
    url = os.environ["LLMGW_TEST_STATE"].replace("/-/state", "/-/session")
    with urllib.request.urlopen(f"{url}?{urllib.parse.quote(str(note))}", timeout=10) as answer:
        return json.load(answer)


def idle():
    return state()["open"] == 0


def on(suite, targets, gateway_only=False):
    """A check that takes a model, once for each target."""

    def register(function):
        for name, model in targets.items():

            def check(model=model):
                function("m" if DIRECT else model)

            check.__name__ = f"{function.__name__} [{name}]"
            suite.check(gateway_only or (DIRECT and name != "native"))(check)
        return function

    return register


def raises(kind, call):
    """Returns the error of a call, which must be of an SDK's class `kind`."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def printed(command, folder, env):
    """Returns the output of an agent."""
    clean = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "LANG": "C.UTF-8", "NO_COLOR": "1", **env}
    (folder / "home").mkdir(exist_ok=True)
    (folder / "work").mkdir(exist_ok=True)
    done = subprocess.run(
        command, cwd=folder / "work", env=clean, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S
    )
    if done.returncode != 0:
        raise AssertionError(f"it ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def finish(suite):
    sys.exit(0 if suite.run(DIRECT) else 1)
