"""Google's Gen AI SDK for Python on targets of other protocols: text, streams, tools, images, thoughts, formats, errors."""

import google.genai
from google import genai
from google.genai import errors, types

from common import HELLO, KEY, ODD, ORIGIN, PICTURE, PIXEL, WEATHER, City, Suite, cities, equal, eventually, finish, holds, idle, last, on, raises, weather_answer  # fmt: skip
from upstream import bedrock
from upstream.messages import SIGNATURE

SUITE = Suite(f"google-genai-python-{google.genai.__version__}")
CLAUDE_ON_BEDROCK = "bedrock/anthropic.claude-sonnet-4-5-v1:0"
TARGETS = {"on_chat": "chat/m", "on_messages": "anthropic/m", "on_bedrock": CLAUDE_ON_BEDROCK}


def connect(key=KEY):
    return genai.Client(api_key=key, http_options=types.HttpOptions(base_url=ORIGIN, timeout=60_000))


client = connect()


def ask(model, contents, **config):
    return client.models.generate_content(model=model, contents=contents, config=types.GenerateContentConfig(**config))


def stream(model, contents, **config):
    config = types.GenerateContentConfig(**config)
    return client.models.generate_content_stream(model=model, contents=contents, config=config)


@on(SUITE, TARGETS, gateway_only=True)
def unary(model):
    answer = ask(model, "scene:hello")
    equal((answer.text, answer.candidates[0].finish_reason.value), (HELLO, "STOP"), "the answer")
    usage = answer.usage_metadata
    equal((usage.prompt_token_count, usage.cached_content_token_count), (20, 4), "input")
    holds(usage.candidates_token_count > 0, f"output: {usage}")


@on(SUITE, TARGETS, gateway_only=True)
def streamed(model):
    pieces = [piece for piece in stream(model, "scene:hello")]
    texts = [piece.text for piece in pieces if piece.text]
    equal((len(texts), "".join(texts)), (4, HELLO), "each piece came as it was")
    equal(pieces[-1].candidates[0].finish_reason.value, "STOP", "the end")
    equal(pieces[-1].usage_metadata.prompt_token_count, 20, "the usage of the last frame")


@on(SUITE, TARGETS, gateway_only=True)
def odd_text_and_system(model):
    equal("".join(piece.text or "" for piece in stream(model, f"scene:odd {ODD}")), ODD, "the text")
    answer = ask(model, "scene:system", system_instruction="Be brief.")
    equal(answer.text, "The system said: Be brief.", "the system prompt")


@on(SUITE, TARGETS, gateway_only=True)
def tools_are_called_in_a_chat(model):
    seen = []

    def get_weather(city: str) -> str:
        """The weather in a city."""
        seen.append(city)
        return WEATHER[city]

    for send in ("send_message", "send_message_stream"):
        seen.clear()
        chat = client.chats.create(model=model, config=types.GenerateContentConfig(tools=[get_weather]))
        answer = getattr(chat, send)(cities("Paris", "Oslo"))
        text = answer.text if send == "send_message" else "".join(piece.text or "" for piece in answer)
        holds(text.endswith(weather_answer("Paris", "Oslo")), f"the answer: {text}")
        equal(seen, ["Paris", "Oslo"], "what the tools were asked")
        equal(chat.send_message("scene:hello").text, HELLO, "the next turn")


@on(SUITE, TARGETS, gateway_only=True)
def structured_output(model):
    def call():
        return ask(model, "scene:schema", response_mime_type="application/json", response_schema=City)

    if model == CLAUDE_ON_BEDROCK:
        # Not every model of Bedrock takes a schema, so the gateway sends none.
        error = raises(errors.ClientError, call)
        equal((error.code, error.status), (400, "INVALID_ARGUMENT"), "code and status")
        holds("asks for a schema" in error.message, f"the reason: {error.message}")
    else:
        equal(call().parsed, City(name="Oslo", large=True), "the parsed answer")


@on(SUITE, TARGETS, gateway_only=True)
def vision(model):
    image = types.Part.from_bytes(data=PIXEL, mime_type="image/png")
    equal(ask(model, ["scene:picture", image]).text, PICTURE, "what arrived")


# A target is asked to reason if its model is known to.
THINKERS = {"on_chat": "chat/m", "on_messages": "anthropic/claude-sonnet-4-5", "on_bedrock": CLAUDE_ON_BEDROCK}


@on(SUITE, THINKERS, gateway_only=True)
def thinking(model):
    config = {"thinking_config": types.ThinkingConfig(include_thoughts=True, thinking_budget=1024), "max_output_tokens": 2000}
    answer = ask(model, "scene:think", **config)
    parts = answer.candidates[0].content.parts
    thought = "".join(part.text for part in parts if part.thought)
    equal((thought, answer.text), ("First this, then that.", "Thought through."), "thought and text")
    history = [types.Content(role="user", parts=[types.Part(text="scene:think")]), answer.candidates[0].content]
    history.append(types.Content(role="user", parts=[types.Part(text="scene:hello")]))
    equal(ask(model, history, **config).text, HELLO, "the next answer")
    if model == THINKERS["on_messages"]:
        equal(last()["body"]["messages"][1]["content"][0]["signature"], SIGNATURE, "what Claude got back")
    if model == CLAUDE_ON_BEDROCK:
        thought = last()["body"]["messages"][1]["content"][0]["reasoningContent"]["reasoningText"]
        equal((thought["text"], thought["signature"]), ("First this, then that.", bedrock.SIGNATURE), "what Claude got back")


@on(SUITE, TARGETS, gateway_only=True)
def tokens_are_estimated(model):
    counted = client.models.count_tokens(model=model, contents="word " * 400).total_tokens
    holds(300 < counted < 800, f"an estimate of 400 words: {counted}")


@on(SUITE, TARGETS, gateway_only=True)
def errors_have_googles_status(model):
    for status, code, name in [(400, 400, "INVALID_ARGUMENT"), (429, 429, "RESOURCE_EXHAUSTED"), (500, 500, "INTERNAL")]:
        for call in (lambda: ask(model, f"scene:refuse={status}"), lambda: list(stream(model, f"scene:refuse={status}"))):
            error = raises(errors.APIError, call)
            equal((error.code, error.status), (code, name), "code and status")
            holds(f"refuses with {status}" in error.message, f"the upstream's reason: {error.message}")


@on(SUITE, TARGETS, gateway_only=True)
def an_error_in_mid_stream_is_raised(model):
    seen = []

    def read():
        for piece in stream(model, "scene:breaks"):
            seen.append(piece.text or "")

    error = raises(errors.APIError, read)
    equal("".join(seen), "half an answer", "what came before")
    holds("breaks off" in str(error), f"the reason: {error}")


@on(SUITE, TARGETS, gateway_only=True)
def cancellation_stops_the_upstream(model):
    pieces = stream(model, "scene:endless")
    for _ in range(8):
        next(pieces)
    holds(not idle(), "the upstream is at work")
    pieces.close()
    eventually("the upstream's answer ends", idle, 5)


@SUITE.check(gateway_only=True)
def models_list():
    names = [model.name for model in client.models.list()]
    for name in ("models/openai/m", "models/anthropic/m", "models/chat/m", "models/either"):
        holds(name in names, f"{name} is among {names}")
    holds("generateContent" in client.models.get(model="chat/m").supported_actions, "what it can do")


@SUITE.check(gateway_only=True)
def wrong_key_and_wrong_model():
    stranger = connect("wrong")
    error = raises(errors.ClientError, lambda: stranger.models.generate_content(model="chat/m", contents="x"))
    equal((error.code, error.status), (401, "UNAUTHENTICATED"), "a wrong key")
    error = raises(errors.ClientError, lambda: ask("none", "scene:hello"))
    equal((error.code, error.status), (404, "NOT_FOUND"), "a wrong model")


@SUITE.check(gateway_only=True)
def what_google_stores_is_refused():
    tools = [types.Tool(google_search=types.GoogleSearch())]
    error = raises(errors.ClientError, lambda: ask("chat/m", "x", tools=tools))
    equal((error.code, error.status), (400, "INVALID_ARGUMENT"), "a tool that Google runs")
    error = raises(errors.ClientError, lambda: client.caches.create(model="chat/m", config={"contents": ["x"]}))
    equal((error.code, error.status), (404, "NOT_FOUND"), "a cache")


if __name__ == "__main__":
    finish(SUITE)
