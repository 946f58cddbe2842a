"""Checks requests as a vendor would: by the definitions of its own package, and by its documentation.

Each judge takes a request's model and body and returns its faults.
"""

import json
import re

import botocore.session
from anthropic.types import message_create_params
from google.genai import types as google
from mistralai.client.models import ChatCompletionRequest
from openai.types.chat import completion_create_params
from openai.types.responses import response_create_params

from shapes import faults_of_model, faults_of_shape, faults_of_typed_dict

CONVERSE = botocore.session.get_session().get_service_model("bedrock-runtime").operation_model("Converse").input_shape
ANY = re.compile(r"(?s).+")
WORD = re.compile(r"[a-zA-Z0-9_-]{1,64}")
WORD_OF_CLAUDE = re.compile(r"[a-zA-Z0-9_-]{1,128}")
WORD_OF_GEMINI = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
NINE = re.compile(r"[a-zA-Z0-9]{9}")
ID_OF_CLAUDE = re.compile(r"[a-zA-Z0-9_-]+")


def local(model, body):
    """A local model server: OpenAI's definitions, and names of any length."""
    return faults_of_typed_dict(completion_create_params.CompletionCreateParams, body) + chat_rules(body, WORD, ANY)


def chat(model, body):
    faults = faults_of_typed_dict(completion_create_params.CompletionCreateParams, body)
    return faults + chat_rules(body, WORD) + [
        f"tools.{at}: {fault}" for at, tool in enumerate(body.get("tools", [])) for fault in strict_faults(tool["function"])
    ] + answer_faults(body)


def mistral(model, body):
    return faults_of_model(ChatCompletionRequest, body) + chat_rules(body, NINE)


def chat_rules(body, ids, words=WORD):
    """Checks that results follow their calls, that names and IDs are words, and that schemas describe objects."""
    faults, open_calls = [], []
    for at, message in enumerate(body["messages"]):
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                faults.append(f"messages.{at}: answers no call before it")
            else:
                open_calls.remove(message["tool_call_id"])
            continue
        if open_calls:
            faults.append(f"messages.{at}: the calls {open_calls} were not answered")
        open_calls = [call["id"] for call in message.get("tool_calls") or []]
        faults += [f"messages.{at}: the id {one!r}" for one in open_calls if not ids.fullmatch(one)]
        names = [call["function"]["name"] for call in message.get("tool_calls") or []]
        faults += [f"messages.{at}: the name {name!r}" for name in names if not words.fullmatch(name)]
        content = message.get("content")
        if content == [] or content is None and not (message["role"] == "assistant" and (names or message.get("refusal"))):
            faults.append(f"messages.{at}: has no content")
    if not body["messages"]:
        faults.append("messages: is empty")
    functions = [tool["function"] for tool in body.get("tools", [])]
    return faults + tool_faults([(one["name"], one.get("parameters")) for one in functions], words) + choice_faults(
        body.get("tool_choice"), [one["name"] for one in functions]
    )


def choice_faults(choice, names):
    chosen = (choice.get("function") or choice).get("name") if isinstance(choice, dict) else None
    faults = [] if chosen is None or chosen in names else [f"tool_choice: {chosen} is not offered"]
    return faults + (["tool_choice: nothing is offered"] if choice and not names else [])


def tool_faults(tools, name_pattern):
    faults = [f"tools: the name {name!r}" for name, _ in tools if not name_pattern.fullmatch(name)]
    faults += ["tools: two of one name"] if len({name for name, _ in tools}) < len(tools) else []
    return faults + [
        f"tools: {name} has a schema of no object: {json.dumps(schema):.60}"
        for name, schema in tools if schema is not None and schema.get("type") != "object"
    ]


def strict_faults(function):
    """Checks OpenAI's rules for strict schemas: closed, and all members required."""
    return open_objects(function.get("parameters") or {}) if function.get("strict") else []


def answer_faults(body):
    schema = (body.get("response_format") or {}).get("json_schema", {})
    faults = [] if not schema or WORD.fullmatch(schema.get("name", "")) else ["response_format: the name"]
    return faults + (open_objects(schema.get("schema", {})) if schema.get("strict") else [])


def open_objects(schema):
    faults = []
    if isinstance(schema, dict):
        if schema.get("type") == "object" or "properties" in schema:
            if schema.get("additionalProperties") is not False:
                faults.append("a strict schema is open")
            if set(schema.get("properties", {})) != set(schema.get("required", [])):
                faults.append("a strict schema has optional members")
        faults += [fault for inner in schema.values() for fault in open_objects(inner)]
    return faults


def responses(model, body):
    faults = faults_of_typed_dict(response_create_params.ResponseCreateParams, body)
    calls = []
    for at, item in enumerate(body["input"]):
        kind = item["type"]
        if kind == "function_call":
            calls.append(item["call_id"])
            faults += [] if WORD.fullmatch(item["name"]) else [f"input.{at}: the name {item['name']!r}"]
            faults += [] if WORD.fullmatch(item["call_id"]) else [f"input.{at}: the id {item['call_id']!r}"]
        elif kind == "function_call_output" and item["call_id"] not in calls:
            faults.append(f"input.{at}: answers no call before it")
        elif kind == "message" and not item["content"]:
            faults.append(f"input.{at}: is empty")
    tools = body.get("tools", [])
    faults += tool_faults([(one["name"], one.get("parameters")) for one in tools], WORD)
    for tool in tools:
        # The default is true.
        faults += strict_faults({"strict": True} | tool)
    outputs = [item["call_id"] for item in body["input"] if item["type"] == "function_call_output"]
    faults += [f"input: the call {one} was not answered" for one in calls if one not in outputs]
    return faults + ([] if body["input"] else ["input: is empty"])


def messages(model, body):
    request = dict(body)
    if "anthropic_version" in request and "model" not in request:
        # Clouds have the model in the path.
        request["model"] = request.pop("anthropic_version")
    # Members of the requested protocol version 2023-06-01; the package has a later one.
    request = {name: value for name, value in request.items() if name not in ("temperature", "top_p", "top_k")}
    faults = faults_of_typed_dict(message_create_params.MessageCreateParams, request)
    faults += blanks(body.get("system"), "system") + claude_turns(body["messages"])
    tools = body.get("tools", [])
    faults += tool_faults([(one["name"], one["input_schema"]) for one in tools], WORD_OF_CLAUDE)
    faults += choice_faults(body.get("tool_choice"), [one["name"] for one in tools])
    marks = json.dumps(body).count('"cache_control"')
    faults += [f"{marks} cache marks"] if marks > 4 else []
    budget = (body.get("thinking") or {}).get("budget_tokens", 0)
    faults += ["thinking: takes all tokens"] if budget >= body["max_tokens"] else []
    return faults + ([] if 0 <= body.get("temperature", 0) <= 1 else ["temperature"])


def blanks(content, place):
    """Reports empty and blank text, which the target rejects."""
    if isinstance(content, str):
        return [] if content.strip() else [f"{place}: is blank"]
    texts = [(at, block) for at, block in enumerate(content or []) if block["type"] == "text"]
    return [f"{place}.{at}: is blank" for at, block in texts if not block["text"].strip()]


def claude_turns(turns):
    faults = [] if turns else ["messages: is empty"]
    waiting = []
    for at, turn in enumerate(turns):
        content = turn["content"]
        faults += blanks(content, f"messages.{at}") + ([] if content else [f"messages.{at}: is empty"])
        blocks = content if isinstance(content, list) else []
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(answered) != sorted(waiting):
            faults.append(f"messages.{at}: the calls {waiting} are answered by {answered}")
        kinds = [block["type"] == "tool_result" for block in blocks]
        faults += [] if kinds == sorted(kinds, reverse=True) else [f"messages.{at}: results do not come first"]
        for block in blocks:
            if block["type"] == "tool_result" and isinstance(block.get("content"), list):
                faults += blanks(block["content"], f"messages.{at}.tool_result")
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        faults += [f"messages.{at}: the id {one!r}" for one in waiting if not ID_OF_CLAUDE.fullmatch(one)]
        names = [block["name"] for block in blocks if block["type"] == "tool_use"]
        faults += [f"messages.{at}: the name {name!r}" for name in names if not WORD_OF_CLAUDE.fullmatch(name)]
    return faults + ([f"messages: {waiting} are not answered"] if waiting else [])


def gemini(model, body):
    faults = [f".{name}: unknown" for name in body if name not in (
        "contents", "systemInstruction", "tools", "toolConfig", "generationConfig")]
    for at, content in enumerate(body["contents"]):
        faults += faults_of_model(google.Content, content, f"contents.{at}")
    definitions = {
        "systemInstruction": google.Content, "toolConfig": google.ToolConfig, "generationConfig": google.GenerationConfig,
    }
    for name, definition in definitions.items():
        faults += faults_of_model(definition, body[name], name) if name in body else []
    for at, tool in enumerate(body.get("tools", [])):
        faults += faults_of_model(google.Tool, tool, f"tools.{at}")
    functions = [one for tool in body.get("tools", []) for one in tool["functionDeclarations"]]
    faults += tool_faults([(one["name"], one.get("parametersJsonSchema")) for one in functions], WORD_OF_GEMINI)
    allowed = body.get("toolConfig", {}).get("functionCallingConfig", {}).get("allowedFunctionNames", [])
    faults += [f"toolConfig: {name} is not offered" for name in allowed if name not in [one["name"] for one in functions]]
    return faults + gemini_contents(model, body)


def gemini_contents(model, body):
    faults = [] if body["contents"] else ["contents: is empty"]
    waiting, step_is_signed = [], True
    for at, content in enumerate(body["contents"] + [body.get("systemInstruction", {"parts": [{"text": "x"}]})]):
        faults += [] if content["parts"] else [f"contents.{at}: has no parts"]
        faults += [f"contents.{at}: empty text" for part in content["parts"] if part.get("text") == ""]
        if at == len(body["contents"]):
            break
        calls = [part for part in content["parts"] if "functionCall" in part]
        answers = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        if sorted(one["name"] for one in answers) != sorted(waiting):
            faults.append(f"contents.{at}: the calls {waiting} are answered by {[one['name'] for one in answers]}")
        faults += [f"contents.{at}: the name {one['name']!r}" for one in answers if not WORD_OF_GEMINI.fullmatch(one["name"])]
        faults += [f"contents.{at}: begins with a call" for _ in calls[:1] if at == 0]
        waiting = [part["functionCall"]["name"] for part in calls]
        if calls and "gemini-3" in model and not calls[0].get("thoughtSignature"):
            faults.append(f"contents.{at}: the first call of a step bears no signature")
    return faults


def bedrock(model, body):
    faults = faults_of_shape(CONVERSE, body | {"modelId": model})
    roles = [message["role"] for message in body["messages"]]
    faults += ["messages: do not begin with the user"] if roles[:1] != ["user"] else []
    faults += ["messages: two of one role in a row"] if any(one == two for one, two in zip(roles, roles[1:])) else []
    waiting, names = [], []
    for at, message in enumerate(body["messages"]):
        blocks = message["content"]
        faults += [] if blocks else [f"messages.{at}: is empty"]
        faults += [f"messages.{at}: is blank" for block in blocks if "text" in block and not block["text"].strip()]
        faults += [f"messages.{at}: begins with a mark" for block in blocks[:1] if "cachePoint" in block]
        answered = [block["toolResult"]["toolUseId"] for block in blocks if "toolResult" in block]
        if sorted(answered) != sorted(waiting):
            faults.append(f"messages.{at}: the calls {waiting} are answered by {answered}")
        for block in blocks:
            inner = block.get("toolResult", {}).get("content", [])
            faults += [f"messages.{at}: a blank result" for one in inner if "text" in one and not one["text"].strip()]
            names += [block["document"]["name"]] if "document" in block else []
        waiting = [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block]
        if (waiting or answered) and "toolConfig" not in body:
            faults.append(f"messages.{at}: calls and results, and no tools")
    faults += ["two documents of one name"] if len(set(names)) < len(names) else []
    faults += [f"the document {name!r}" for name in names if not re.fullmatch(r"(?!.*  )[a-zA-Z0-9 ()\[\]-]+", name)]
    faults += ["system: is blank" for block in body.get("system", []) if "text" in block and not block["text"].strip()]
    faults += ["system: begins with a mark" for block in body.get("system", [])[:1] if "cachePoint" in block]
    tools = [tool["toolSpec"] for tool in body.get("toolConfig", {}).get("tools", []) if "toolSpec" in tool]
    faults += tool_faults([(one["name"], one["inputSchema"]["json"]) for one in tools], WORD)
    choice = body.get("toolConfig", {}).get("toolChoice", {}).get("tool")
    return faults + choice_faults(choice, [one["name"] for one in tools]) + claude_fields(model, body)


def claude_fields(model, body):
    marks = json.dumps(body).count('"cachePoint"')
    thinking = body.get("additionalModelRequestFields", {}).get("thinking", {})
    faults = [f"{marks} cache marks"] if marks > 4 else []
    faults += ["cache marks at a model that has none"] if marks and not ("claude" in model or "nova" in model) else []
    most = body.get("inferenceConfig", {}).get("maxTokens", 4096)
    return faults + (["thinking: takes all tokens"] if thinking.get("budget_tokens", 0) >= most else [])
