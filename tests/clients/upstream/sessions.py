"""Sessions of coding agents, each with the agent's own tools: it reads a file, edits it, runs a command, and ends.

`scene:session=AGENT,WHERE,NOTE` names the agent and the file; WHERE is `native`, or `adapted` for a request that the gateway has
translated, which is judged by the definitions of the target's vendor.
"""

import json

from .scenes import ODD, Call, Scene, require, words

DRAFT, FINISHED = "a draft\n", f"finished by a script: {ODD}\n"
ASKED = {}


def command(note):
    """Returns a command whose effect can be seen, and whose output is the note."""
    return f"cp {note} {note}.seen && cat {note}"


def replaced(old, new):
    return {old: DRAFT.strip(), new: FINISHED.strip()}


def claude_code(note):
    run = {"command": command(note), "description": "Look at it"}
    return [
        [("Read", {"file_path": note}), ("Bash", {"command": "pwd", "description": "Look around"})],
        [("Edit", {"file_path": note, **replaced("old_string", "new_string")})],
        [("Bash", run)],
    ]


def codex(note):
    patch = f"*** Begin Patch\n*** Update File: {note}\n@@\n-{DRAFT}+{FINISHED}*** End Patch\n"
    return [
        [("exec_command", {"cmd": f"cat {note}"})],
        [("apply_patch", patch)],
        [("exec_command", {"cmd": command(note)})],
    ]


def opencode(note):
    return [
        [("read", {"filePath": note})],
        [("edit", {"filePath": note, **replaced("oldString", "newString")})],
        [("bash", {"command": command(note), "description": "Look at it"})],
    ]


def gemini_cli(note):
    edit = {"file_path": note, "instruction": "Finish it.", **replaced("old_string", "new_string")}
    return [
        [("read_file", {"file_path": note})],
        [("replace", edit)],
        [("run_shell_command", {"command": command(note)})],
    ]


def copilot(note):
    return [
        [("view", {"path": note})],
        [("edit", {"path": note, **replaced("old_str", "new_str")})],
        [("bash", {"command": command(note), "description": "Look at it"})],
    ]


def qwen_code(note):
    return [
        [("read_file", {"file_path": note})],
        [("edit", {"file_path": note, **replaced("old_string", "new_string")})],
        [("run_shell_command", {"command": command(note), "is_background": False})],
    ]


def pi(note):
    return [
        [("read", {"path": note})],
        [("edit", {"path": note, "edits": [replaced("oldText", "newText")]})],
        [("bash", {"command": command(note)})],
    ]


ROUNDS = {function.__name__: function for function in (claude_code, codex, opencode, gemini_cli, copilot, qwen_code, pi)}


def parts(argument):
    return argument.split(",", 2)


def note(ask, asked):
    """Stores the last request of a session; returns True if the gateway has translated it."""
    name, argument = ask.scene()
    if name != "session":
        return False
    _, where, note = parts(argument)
    ASKED[note] = asked
    return where == "adapted"


def session(ask, argument):
    agent, _, note = parts(argument)
    if agent == "aider":
        return aider(ask, note)
    if not ask.tools:
        # Some agents ask for a title, in parallel.
        return Scene(pieces=("A note",))
    rounds = ROUNDS[agent](note)
    needed = {name for calls in rounds for name, _ in calls}
    require(needed <= set(ask.tools), f"the tools {sorted(needed)}, not {ask.tools}")
    done = 0
    for step, calls in enumerate(rounds):
        if len(ask.results) == done:
            made = [call(f"call_{step}_{at}", name, arguments, ask) for at, (name, arguments) in enumerate(calls)]
            return Scene(reasoning=f"Step {step}.", pieces=words(f"I do step {step}."), calls=tuple(made))
        done += len(calls)
    (seen,) = ask.last_results([rounds[-1][0][0]])
    # Qwen Code sometimes loses what a command has printed that ends at once.
    require(FINISHED.strip() in seen or "Exit Code: 0" in seen, f"the finished note in what the command printed: {seen!r}")
    return Scene(pieces=words("The note is finished."))


def call(id, name, arguments, ask):
    if name in ask.custom:
        return Call(id, name, arguments, custom=True)
    # A custom tool becomes a function with one text for targets that have none.
    arguments = {"input": arguments} if isinstance(arguments, str) else arguments
    return Call(id, name, json.dumps(arguments, ensure_ascii=False))


def aider(ask, note):
    """aider has no tools: it extracts files from the text of an answer, runs its test command, and sends what that printed."""
    require(not ask.tools, f"no tools, not {ask.tools}")
    step = sum(any(f"not finished: draft {at}" in text for text in ask.texts) for at in range(2))
    text = FINISHED if step == 2 else f"draft {step}\n"
    return Scene(pieces=words(f"I edit the note.\n\n{note.rpartition('/')[2]}\n```\n{text}```\n"))
