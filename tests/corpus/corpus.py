"""Two hundred conversations of real clients, including unusual ones, each in every client protocol that can express it.

A conversation is built of *features*: each adds one thing (an empty turn, a tool loop, an image, signed thoughts, a
long tool name, ...). Every feature occurs alone once; the rest are combinations drawn with a fixed seed, so that the
corpus is the same on every machine. `bodies(conversation)` renders it in chat, Responses and Messages.
"""

import copy
import json
import random

COUNT = 200
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
PDF = "JVBERi0xLjQKJSVFT0YK"
# Every vendor's signatures are base64.
SIGNED = "RXFzQkNrWUlCeGdDS2tCc2lnbmF0dXJlLW9mLXRob3VnaHRz"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
OPTIONAL = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["C", "F"]}},
    "required": ["city"],
    "additionalProperties": False,
}
CLOSED = OPTIONAL | {"required": ["city", "unit"]}
LONG = "mcp__a_server_with_a_rather_long_name_of_its_own__read_the_file_at_this_path"
LONG_TWIN = LONG + "_again"


class Conversation:
    """A conversation, independent of the protocol."""

    def __init__(self, *features):
        self.features = [feature.__name__ for feature in features]
        self.name = "+".join(self.features)
        self.system = [{"text": "You answer briefly."}]
        self.turns = [spoken("user", text("What is the weather like in Paris?"))]
        self.tools = []
        self.options = {}
        # Verbatim members, by protocol.
        self.extra = {"chat": {}, "responses": {}, "messages": {}}
        self.clients = {"chat", "responses", "messages"}
        self.functions = False
        for feature in features:
            feature(self)
        if self.turns and self.turns[-1]["role"] == "assistant" and "prefill" not in self.features:
            self.turns.append(spoken("user", text("And now?")))

    def only(self, *clients):
        self.clients &= set(clients)

    def calls(self):
        return [call for turn in self.turns for call in turn.get("calls", [])]


def spoken(role, *parts, **more):
    return {"role": role, "parts": list(parts)} | more


def text(said_text, **more):
    return {"kind": "text", "text": said_text} | more


def image(mime="image/png"):
    return {"kind": "image", "mime": mime, "data": PIXEL}


def tool(name="get_weather", schema=CITY, **more):
    return {"name": name, "description": f"Tells {name}.", "schema": copy.deepcopy(schema)} | more


def call(id="call_a1", name="get_weather", arguments='{"city":"Paris"}'):
    return {"id": id, "name": name, "arguments": arguments}


def result(id="call_a1", *parts, **more):
    return {"id": id, "parts": list(parts) or [text("18 degrees")]} | more


def step(conversation, calls, results=None, words=None, thoughts=None):
    """Adds tool calls of the assistant and their results."""
    parts = [] if words is None else [text(words)]
    conversation.turns.append(spoken("assistant", *parts, calls=calls, thoughts=thoughts or []))
    conversation.turns.append({"role": "results", "results": results or [result(one["id"]) for one in calls], "parts": []})
    named = {known["name"] for known in conversation.tools}
    conversation.tools += [tool(name) for name in dict.fromkeys(one["name"] for one in calls) if name not in named]


# The features of conversations. ---------------------------------------------------------------------------------------


def plain(c):
    pass


def no_system(c):
    c.system = []


def empty_system(c):
    c.system = [{"text": ""}]


def blank_system(c):
    c.system = [{"text": "\n\n"}]


def system_blocks_one_empty(c):
    c.system = [{"text": "You answer briefly."}, {"text": ""}, {"text": "In English."}]


def system_alone(c):
    c.turns = []
    c.only("chat", "responses")


def developer(c):
    c.only("chat", "responses")
    c.system[:1] = [{"text": "You answer briefly.", "role": "developer"}]


def system_in_the_middle(c):
    c.turns += [spoken("assistant", text("Fine.")), spoken("system", text("Be brief.")), spoken("user", text("And Rome?"))]


def assistant_first(c):
    c.turns.insert(0, spoken("assistant", text("Hello! How can I help?")))


def assistant_first_twice(c):
    c.turns[:0] = [spoken("assistant", text("Hello!")), spoken("assistant", text("How can I help?"))]


def call_first(c):
    step(c, [call("call_f1")], words="Let me look.")
    c.turns = c.turns[-2:] + c.turns[:-2]


def users_in_a_row(c):
    c.turns += [spoken("user", text("And in Rome?")), spoken("user", text("And in Oslo?"))]


def assistants_in_a_row(c):
    c.turns += [spoken("assistant", text("Sunny.")), spoken("assistant", text("And warm."))]


def prefill(c):
    c.turns.append(spoken("assistant", text("It is ")))
    c.only("chat")


def empty_user_turn(c):
    c.turns.insert(0, spoken("user", text("")))


def blank_user_turn(c):
    c.turns.insert(0, spoken("user", text(" \n")))


def empty_part_beside_image(c):
    c.turns.append(spoken("user", text(""), image()))


def blank_part_beside_image(c):
    c.turns.append(spoken("user", text("\n\n"), image()))


def empty_parts_only(c):
    c.turns[:0] = [spoken("user", text(""), text(""))]


def several_parts(c):
    c.turns.append(spoken("user", text("One."), text("Two."), text("Three.")))


def image_only(c):
    c.turns.append(spoken("user", image("image/jpeg")))


def images(c):
    c.turns.append(spoken("user", text("What are these?"), image(), image("image/gif"), image("image/webp")))


def jpg_image(c):
    c.only("chat", "responses")
    c.turns.append(spoken("user", text("And this?"), image("image/jpg")))


def web_image(c):
    c.turns.append(spoken("user", text("And this?"), {"kind": "web", "url": "https://example.com/a.png"}))


def pdf(c):
    c.turns.append(spoken("user", text("Read this."), {"kind": "pdf", "data": PDF, "name": "Report (1)_final.pdf"}))


def two_pdfs(c):
    for _ in range(2):
        pdf(c)


def letters(c):
    c.turns.append(spoken("user", text('Grüße, 世界! 🌍 "quoted" \\ back\t\u0007 \u2028 end')))


def long_text(c):
    c.turns.append(spoken("user", text("la " * 6000)))


def empty_assistant(c):
    c.turns += [spoken("assistant", text("")), spoken("user", text("Hello?"))]


def blank_assistant(c):
    c.turns += [spoken("assistant", text("\n\n")), spoken("user", text("Hello?"))]


def trailing_blanks(c):
    c.turns += [spoken("assistant", text("Sunny. \n\n")), spoken("user", text("Thanks. \n"))]


def refused(c):
    c.turns += [spoken("assistant", refusal="I will not."), spoken("user", text("Why?"))]
    c.only("chat", "responses")


def one_call(c):
    step(c, [call()])


def call_with_words(c):
    step(c, [call("call_w1")], words="Let me look.")


def blank_text_beside_call(c):
    step(c, [call("call_b1")], words="\n\n")


def empty_text_beside_call(c):
    step(c, [call("call_b2")], words="")


def parallel_calls(c):
    step(c, [call(f"call_p{number}", arguments=json.dumps({"city": city})) for number, city in enumerate("ABC")])


def results_reversed(c):
    calls = [call(f"call_r{number}") for number in range(3)]
    step(c, calls, [result(one["id"]) for one in reversed(calls)])


def tool_loop(c):
    for number in range(5):
        step(c, [call(f"call_l{number}")], words="Again." if number % 2 else None)


def result_then_words(c):
    step(c, [call("call_t1")])
    c.turns[-1]["parts"] = [text("Go on."), image()]


def empty_result(c):
    step(c, [call("call_e1")], [result("call_e1", text(""))])


def blank_result(c):
    step(c, [call("call_e2")], [result("call_e2", text("\n"))])


def result_in_parts(c):
    step(c, [call("call_m1")], [result("call_m1", text("18"), text(""), text("degrees"))])


def result_with_image(c):
    step(c, [call("call_i1")], [result("call_i1", text("A map:"), image())])
    c.only("messages")


def failed_result(c):
    step(c, [call("call_x1")], [result("call_x1", text("no such city"), error=True)])


def json_results(c):
    for number, said_json in enumerate(('[1,2]', '{"degrees":18}', '"warm"', "18", "null", '{"a":')):
        step(c, [call(f"call_j{number}")], [result(f"call_j{number}", text(said_json))])


def call_without_arguments(c):
    step(c, [call("call_n1", arguments="")])
    c.only("chat", "responses")


def call_with_nested_arguments(c):
    step(c, [call("call_n2", arguments='{ "a" : {"b":[1, 2.50, null, "x\\n\\u00fc"]}, "big": 12345678901234567890 }')])


def odd_ids(c):
    for number in range(3):
        step(c, [call(f"functions.get_weather:{number}")])


def long_ids(c):
    step(c, [call("call_" + "x" * 90), call("call_" + "x" * 89 + "y")])


def claude_ids(c):
    step(c, [call("toolu_01A09q90qw90lq917835lq9")])


def nine_ids(c):
    step(c, [call("a1B2c3D4e")])


def unanswered_then_done(c):
    step(c, [call("call_u1")])
    c.turns.append(spoken("assistant", text("It is 18 degrees.")))


def offered(c):
    c.tools.append(tool())


def no_parameters(c):
    c.tools.append(tool("ping", None))


def empty_parameters(c):
    c.tools.append(tool("ping", {}))


def untyped_parameters(c):
    c.tools.append(tool("find", {"properties": {"q": {"type": "string"}}, "required": ["q"]}))


def untyped_empty_parameters(c):
    c.tools.append(tool("find_any", {"properties": {}}))


def described_schema(c):
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "additionalProperties": False} | CITY
    schema["properties"] = {"city": {"type": ["string", "null"], "description": "", "minLength": 1}}
    c.tools.append(tool("look_up", schema))


def referring_schema(c):
    schema = {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}
    c.tools.append(tool("count", schema))


def strict_optional(c):
    c.tools.append(tool("report", OPTIONAL, strict=True))
    c.only("messages")


def strict_closed(c):
    c.tools.append(tool("report_all", CLOSED, strict=True))


def no_description(c):
    c.tools.append(tool("quiet") | {"description": ""})


def many_tools(c):
    c.tools += [tool(f"tool_{number}") for number in range(60)]


def long_name(c):
    c.tools.append(tool(LONG))


def long_name_called(c):
    step(c, [call("call_g1", LONG)])


def long_twins_called(c):
    step(c, [call("call_g2", LONG), call("call_g3", LONG_TWIN)])


def long_name_chosen(c):
    c.tools.append(tool(LONG_TWIN + "_x"))
    c.options["choice"] = LONG_TWIN + "_x"


def very_long_name(c):
    c.only("messages")
    c.tools.append(tool("mcp__" + "server_" * 16 + "read"))


def dotted_name(c):
    c.only("chat", "responses")
    step(c, [call("call_d1", "files.read/all")])


def name_with_digit(c):
    c.tools.append(tool("3d_print"))


def choice_auto(c):
    c.tools.append(tool())
    c.options["choice"] = "auto"


def choice_none(c):
    c.tools.append(tool())
    c.options["choice"] = "none"


def choice_required(c):
    c.tools.append(tool())
    c.options["choice"] = "required"


def choice_named(c):
    c.tools.append(tool())
    c.options["choice"] = "get_weather"


def choice_without_tools(c):
    c.options["choice"] = "auto"
    c.only("messages", "responses")


def one_at_a_time(c):
    c.tools.append(tool())
    c.options["parallel"] = False


def allowed_tools(c):
    c.only("chat", "responses")
    c.tools += [tool("one"), tool("two")]
    c.extra["responses"]["tool_choice"] = {
        "type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "one"}],
    }
    c.extra["chat"]["tool_choice"] = {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "one"}}]},
    }


def tools_only_in_history(c):
    step(c, [call("call_h1")])
    c.tools = []
    c.only("chat", "responses")


def old_functions(c):
    c.functions = True
    c.only("chat")
    c.tools.append(tool())


def old_functions_called(c):
    old_functions(c)
    step(c, [call("call_o1")])
    step(c, [call("call_o2")])


def old_function_chosen(c):
    old_functions(c)
    c.options["choice"] = "get_weather"


def signed_thoughts(c):
    step(c, [call("call_s1")], thoughts=[{"thinking": "Paris, then.", "signature": SIGNED}])
    c.only("chat", "messages")


def redacted_thoughts(c):
    thoughts = [{"thinking": "Hm.", "signature": SIGNED}, {"data": SIGNED}]
    step(c, [call("call_s2")], thoughts=thoughts, words="So.")
    c.only("chat", "messages")


def unsigned_thoughts(c):
    step(c, [call("call_s3")], thoughts=[{"thinking": "Hm.", "signature": ""}])
    c.only("chat", "messages")


def thoughts_alone(c):
    c.turns += [spoken("assistant", thoughts=[{"thinking": "Hm.", "signature": SIGNED}]), spoken("user", text("Well?"))]
    c.only("messages")


def reasoning_items(c):
    c.only("chat", "responses")
    step(c, [call("call_s4")])
    c.turns[-2]["reasoning"] = "Paris, then."


def thinking_enabled(c):
    c.options |= {"thinking": {"type": "enabled", "budget_tokens": 2048}, "max_tokens": 8192}
    c.only("chat", "messages")


def thinking_adaptive(c):
    c.options |= {"thinking": {"type": "adaptive"}, "effort": "high", "max_tokens": 8192}
    c.only("messages")


def thinking_disabled(c):
    c.options["thinking"] = {"type": "disabled"}
    c.only("messages")


def thinking_in_a_loop(c):
    thinking_enabled(c)
    signed_thoughts(c)


def effort_low(c):
    c.options["effort"] = "low"
    c.only("chat", "responses")


def effort_high(c):
    c.options |= {"effort": "high", "max_tokens": 32000}
    c.only("chat", "responses")


def google_signatures(c):
    """Signatures in the format of Gemini's own chat endpoint."""
    c.only("chat")
    step(c, [call("call_q1"), call("call_q2")])
    c.turns[-2]["calls"][0]["signature"] = SIGNED
    c.turns += [spoken("assistant", text("Sunny."), signature=SIGNED)]


def sampled(c):
    c.options |= {"temperature": 1, "top_p": 0.9}


def cold(c):
    c.options["temperature"] = 0


def top_k(c):
    c.options["top_k"] = 40
    c.only("messages")


def stops(c):
    c.options["stop"] = ["END", "STOP"]


def short(c):
    c.options["max_tokens"] = 20


def unbounded(c):
    c.options["max_tokens"] = None
    c.only("chat", "responses")


def schema_answer(c):
    c.options["schema"] = CLOSED


def schema_answer_optional(c):
    c.options["schema"] = OPTIONAL
    c.only("messages")


def named_user(c):
    c.options["user"] = "user-0123456789"


def cached_system(c):
    c.only("chat", "messages")
    c.system = [{"text": "You answer briefly.", "cache": {"type": "ephemeral"}}]


def cached_an_hour(c):
    c.only("chat", "messages")
    c.system = [{"text": "You answer briefly.", "cache": {"type": "ephemeral", "ttl": "1h"}}]


def cached_everywhere(c):
    cached_system(c)
    c.tools += [tool("first"), tool("last", cache={"type": "ephemeral"})]
    c.turns.append(spoken("user", text("Long."), text("Text.", cache={"type": "ephemeral"})))


def cached_result(c):
    c.only("messages")
    step(c, [call("call_c1")], [result("call_c1", cache={"type": "ephemeral"})])


def cached_blank(c):
    c.only("messages")
    c.turns[:0] = [spoken("user", text("", cache={"type": "ephemeral"}), text("Hello."))]


def deferred_tools(c):
    c.only("messages")
    c.tools += [tool("ToolSearch"), tool(LONG, defer_loading=True)]
    step(c, [call("call_k1", "ToolSearch", '{"query":"file"}')], [result("call_k1", {"kind": "reference", "name": LONG})])


def claude_code(c):
    """The shape of a session of Claude Code."""
    c.only("messages")
    c.system = [
        {"text": "x-anthropic-billing-header: cc_version=2.1"},
        {"text": "You are an agent.", "cache": {"type": "ephemeral"}},
    ]
    c.options |= {"thinking": {"type": "adaptive"}, "max_tokens": 32000, "user": "device", "effort": "medium"}
    c.tools += [tool("Bash"), tool("Read", cache={"type": "ephemeral"})]
    thoughts = [{"thinking": "Look.", "signature": SIGNED}]
    step(c, [call("toolu_01", "Bash", '{"command":"ls"}'), call("toolu_02", "Read", '{"path":"a"}')], thoughts=thoughts, words="\n\n")
    c.turns[-1]["parts"] = [text("<system-reminder>\nBe brief.\n</system-reminder>")]


def codex(c):
    """The shape of a session of Codex."""
    c.only("responses")
    c.options["parallel"] = False
    c.tools += [tool("shell", OPTIONAL), tool("update_plan", {"type": "object", "properties": {}})]
    c.turns.insert(0, spoken("developer", text("<permissions>"), text("")))
    step(c, [call("call_z1", "shell", '{"city":"."}')])
    c.extra["responses"] |= {"prompt_cache_key": "k", "client_metadata": {"a": "b"}}


def named_speaker(c):
    c.only("chat")
    c.turns[0]["name"] = "ann"


ODD = {"plain", "prefill", "system_alone"}
FEATURES = [
    value for name, value in list(globals().items())
    if callable(value) and getattr(value, "__code__", None) and value.__code__.co_varnames[:1] == ("c",)
]


def conversations():
    """Returns all conversations, the same on every run."""
    made = [Conversation(feature) for feature in FEATURES]
    dice = random.Random(20261122)
    combinable = [feature for feature in FEATURES if feature.__name__ not in ODD]
    names = {one.name for one in made}
    while len(made) < COUNT:
        one = Conversation(*dice.sample(combinable, dice.choice((2, 2, 3, 4))))
        if one.clients and one.name not in names and sound(one):
            names.add(one.name)
            made.append(one)
    return made[:COUNT]


def sound(conversation):
    """Returns true if a client could send it: no tool twice, and only one way to choose or call."""
    names = [known["name"] for known in conversation.tools]
    mixed = conversation.functions and any(len(turn.get("calls", [])) > 1 for turn in conversation.turns)
    chosen = conversation.options.get("choice")
    named = chosen in (None, "auto", "none", "required") or chosen in names
    thinks = conversation.options.get("thinking", {}).get("type") == "enabled"
    too_short = thinks and (conversation.options.get("max_tokens") or 8192) <= 2048
    twice = chosen and conversation.extra["chat"].get("tool_choice")
    return len(set(names)) == len(names) and named and not (mixed or too_short or twice)


# Rendering in each protocol. ------------------------------------------------------------------------------------------


def bodies(c, model, stream=False):
    """Returns the request in each client protocol that can express it, by protocol."""
    said_in = {"chat": chat, "responses": responses, "messages": messages}
    return {client: said_in[client](c) | c.extra[client] | {"model": model, "stream": stream} for client in sorted(c.clients)}


def content(parts, render):
    """Returns a string for a single text, as clients do."""
    if len(parts) == 1 and parts[0]["kind"] == "text" and "cache" not in parts[0]:
        return parts[0]["text"]
    return [render(part) for part in parts]


def marked(block, part):
    return block | ({"cache_control": part["cache"]} if "cache" in part else {})


def data_url(part):
    return f"data:{part['mime']};base64,{part['data']}"


def chat_part(part):
    match part["kind"]:
        case "text":
            said_part = {"type": "text", "text": part["text"]}
        case "image":
            said_part = {"type": "image_url", "image_url": {"url": data_url(part), "detail": "auto"}}
        case "web":
            said_part = {"type": "image_url", "image_url": {"url": part["url"]}}
        case "pdf":
            file = {"filename": part["name"], "file_data": f"data:application/pdf;base64,{part['data']}"}
            said_part = {"type": "file", "file": file}
    return marked(said_part, part)


def chat_call(one):
    body = {"id": one["id"], "type": "function", "function": {"name": one["name"], "arguments": one["arguments"]}}
    if "signature" in one:
        body["extra_content"] = {"google": {"thought_signature": one["signature"]}}
    return body


def chat_assistant(turn, functions):
    message = {"role": "assistant", "content": content(turn["parts"], chat_part) if turn["parts"] else None}
    if turn.get("refusal"):
        message["refusal"] = turn["refusal"]
    calls = turn.get("calls", [])
    if calls and functions:
        message["function_call"] = {"name": calls[0]["name"], "arguments": calls[0]["arguments"]}
    elif calls:
        message["tool_calls"] = [chat_call(one) for one in calls]
    if turn.get("thoughts"):
        message["thinking_blocks"] = [thought(one) for one in turn["thoughts"]]
        message["reasoning_content"] = "".join(one.get("thinking", "") for one in turn["thoughts"])
    if "reasoning" in turn:
        message["reasoning_content"] = turn["reasoning"]
    if "signature" in turn:
        message["extra_content"] = {"google": {"thought_signature": turn["signature"]}}
    return message


def chat(c):
    body = {"messages": []}
    for block in c.system:
        parts = [{"kind": "text", **block}]
        body["messages"].append({"role": block.get("role", "system"), "content": content(parts, chat_part)})
    names = {one["id"]: one["name"] for one in c.calls()}
    for turn in c.turns:
        if turn["role"] == "assistant":
            body["messages"].append(chat_assistant(turn, c.functions))
        elif turn["role"] == "results":
            for one in turn["results"]:
                answer = {"content": content(one["parts"], chat_part)}
                whose = {"role": "function", "name": names[one["id"]]} if c.functions else {"role": "tool", "tool_call_id": one["id"]}
                body["messages"].append(whose | answer)
            if turn["parts"]:
                body["messages"].append({"role": "user", "content": content(turn["parts"], chat_part)})
        else:
            named = {"name": turn["name"]} if "name" in turn else {}
            body["messages"].append({"role": turn["role"], "content": content(turn["parts"], chat_part)} | named)
    functions = []
    for known in c.tools:
        function = {"name": known["name"], "description": known["description"]}
        function |= {"parameters": known["schema"]} if known["schema"] is not None else {}
        function |= {"strict": True} if known.get("strict") else {}
        functions.append((function, known))
    if functions and c.functions:
        body["functions"] = [function for function, _ in functions]
    elif functions:
        body["tools"] = [marked({"type": "function", "function": function}, known) for function, known in functions]
    options = c.options
    if "choice" in options:
        choice = options["choice"]
        word = choice if choice in ("auto", "none", "required") else {"name": choice}
        if c.functions:
            body["function_call"] = word
        else:
            body["tool_choice"] = word if isinstance(word, str) else {"type": "function", "function": word}
    if "parallel" in options and functions and not c.functions:
        body["parallel_tool_calls"] = options["parallel"]
    if options.get("max_tokens", 1024) is not None:
        body["max_completion_tokens"] = options.get("max_tokens", 1024)
    body |= {name: options[name] for name in ("temperature", "top_p", "stop", "user", "thinking") if name in options}
    if "effort" in options:
        body["reasoning_effort"] = options["effort"]
    if "schema" in options:
        schema = {"name": "answer", "schema": options["schema"], "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def response_part(part):
    match part["kind"]:
        case "text":
            return {"type": "input_text", "text": part["text"]}
        case "image":
            return {"type": "input_image", "image_url": data_url(part), "detail": "auto"}
        case "web":
            return {"type": "input_image", "image_url": part["url"], "detail": "auto"}
        case "pdf":
            data = f"data:application/pdf;base64,{part['data']}"
            return {"type": "input_file", "filename": part["name"], "file_data": data}


def response_items(turn):
    if turn["role"] == "results":
        for one in turn["results"]:
            yield {"type": "function_call_output", "call_id": one["id"], "output": content(one["parts"], response_part)}
        if turn["parts"]:
            yield {"type": "message", "role": "user", "content": [response_part(part) for part in turn["parts"]]}
        return
    if turn["role"] != "assistant":
        yield {"type": "message", "role": turn["role"], "content": [response_part(part) for part in turn["parts"]]}
        return
    if "reasoning" in turn:
        yield {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": turn["reasoning"]}]}
    parts = [{"type": "output_text", "text": part["text"], "annotations": []} for part in turn["parts"]]
    if turn.get("refusal"):
        parts.append({"type": "refusal", "refusal": turn["refusal"]})
    if parts:
        yield {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": parts}
    for one in turn.get("calls", []):
        yield {"type": "function_call", "call_id": one["id"], "name": one["name"], "arguments": one["arguments"]}


def responses(c):
    options = c.options
    body = {"store": False, "input": [item for turn in c.turns for item in response_items(turn)]}
    if c.system:
        body["instructions"] = "\n\n".join(block["text"] for block in c.system)
    if c.tools:
        body["tools"] = [
            {"type": "function", "name": known["name"], "description": known["description"],
             "parameters": known["schema"], "strict": bool(known.get("strict"))}
            for known in c.tools
        ]
    if "choice" in options:
        choice = options["choice"]
        body["tool_choice"] = choice if choice in ("auto", "none", "required") else {"type": "function", "name": choice}
    if "parallel" in options:
        body["parallel_tool_calls"] = options["parallel"]
    if options.get("max_tokens", 1024) is not None:
        body["max_output_tokens"] = options.get("max_tokens", 1024)
    body |= {name: options[name] for name in ("temperature", "top_p", "user") if name in options}
    if "effort" in options:
        body["reasoning"] = {"effort": options["effort"]}
    if "schema" in options:
        body["text"] = {"format": {"type": "json_schema", "name": "answer", "schema": options["schema"], "strict": True}}
    return body


def message_block(part):
    match part["kind"]:
        case "text":
            block = {"type": "text", "text": part["text"]}
        case "image":
            block = {"type": "image", "source": {"type": "base64", "media_type": part["mime"], "data": part["data"]}}
        case "web":
            block = {"type": "image", "source": {"type": "url", "url": part["url"]}}
        case "pdf":
            source = {"type": "base64", "media_type": "application/pdf", "data": part["data"]}
            block = {"type": "document", "source": source, "title": part["name"]}
        case "reference":
            block = {"type": "tool_reference", "tool_name": part["name"]}
    return marked(block, part)


def thought(one):
    if "data" in one:
        return {"type": "redacted_thinking", "data": one["data"]}
    return {"type": "thinking", "thinking": one["thinking"], "signature": one["signature"]}


def message_turn(turn):
    if turn["role"] == "results":
        blocks = [
            marked({"type": "tool_result", "tool_use_id": one["id"], "content": content(one["parts"], message_block)}, one)
            | ({"is_error": True} if one.get("error") else {})
            for one in turn["results"]
        ]
        return {"role": "user", "content": blocks + [message_block(part) for part in turn["parts"]]}
    if turn["role"] == "assistant":
        blocks = [thought(one) for one in turn.get("thoughts", [])] + [message_block(part) for part in turn["parts"]]
        blocks += [
            {"type": "tool_use", "id": one["id"], "name": one["name"], "input": json.loads(one["arguments"] or "{}")}
            for one in turn.get("calls", [])
        ]
        return {"role": "assistant", "content": blocks}
    return {"role": turn["role"], "content": content(turn["parts"], message_block)}


def messages(c):
    options = c.options
    body = {"max_tokens": options.get("max_tokens") or 1024, "messages": [message_turn(turn) for turn in c.turns]}
    if len(c.system) == 1 and "cache" not in c.system[0]:
        body["system"] = c.system[0]["text"]
    elif c.system:
        body["system"] = [marked({"type": "text", "text": block["text"]}, block) for block in c.system]
    for known in c.tools:
        one = {"name": known["name"], "description": known["description"], "input_schema": known["schema"] or {"type": "object"}}
        one |= {name: known[name] for name in ("strict", "defer_loading") if name in known}
        body.setdefault("tools", []).append(marked(one, known))
    if "choice" in options:
        words = {"auto": "auto", "none": "none", "required": "any"}
        choice = options["choice"]
        body["tool_choice"] = {"type": words[choice]} if choice in words else {"type": "tool", "name": choice}
    if options.get("parallel") is False:
        body.setdefault("tool_choice", {"type": "auto"})["disable_parallel_tool_use"] = True
    body |= {name: options[name] for name in ("temperature", "top_p", "top_k", "thinking") if name in options}
    if "stop" in options:
        body["stop_sequences"] = options["stop"]
    if "user" in options:
        body["metadata"] = {"user_id": options["user"]}
    if "effort" in options:
        body["output_config"] = {"effort": options["effort"]}
    if "schema" in options:
        body.setdefault("output_config", {})["format"] = {"type": "json_schema", "schema": options["schema"]}
    return body
