"""Anthropic's Python SDK: Messages natively and on chat-only targets; counting; models; errors."""

import base64
import json

import anthropic
from anthropic import Anthropic

from common import (
    ANTHROPIC, DIRECT, HELLO, KEY, ODD, ORIGIN, PARAMETERS, PICTURE, PIXEL, WEATHER, City, Suite, cities, equal,
    eventually, finish, holds, idle, last, on, raises, weather_answer,
)  # fmt: skip
from upstream.messages import COUNTED, SIGNATURE

SUITE = Suite(f"anthropic-python-{anthropic.__version__}")
TARGETS = ANTHROPIC
client = Anthropic(base_url=ORIGIN, api_key=KEY, max_retries=0, timeout=60)
TOOLS = [{"name": "get_weather", "input_schema": PARAMETERS}]


def ask(content, **more):
    return {"max_tokens": 200, "messages": [{"role": "user", "content": content}], **more}


def usage_is_the_scripts(usage):
    equal((usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens), (16, 4, 9), "usage")


@on(SUITE, TARGETS)
def unary(model):
    answer = client.messages.create(model=model, **ask("scene:hello"))
    equal(([block.text for block in answer.content], answer.stop_reason), ([HELLO], "end_turn"), "the answer")
    usage_is_the_scripts(answer.usage)


@on(SUITE, TARGETS)
def stream(model):
    with client.messages.stream(model=model, **ask("scene:hello")) as events:
        pieces = list(events.text_stream)
        answer = events.get_final_message()
    equal((len(pieces), "".join(pieces)), (4, HELLO), "each piece came as it was")
    equal((answer.content[0].text, answer.stop_reason), (HELLO, "end_turn"), "the whole answer")
    usage_is_the_scripts(answer.usage)


@on(SUITE, TARGETS)
def odd_text_and_system(model):
    with client.messages.stream(model=model, **ask(f"scene:odd {ODD}")) as events:
        equal(events.get_final_text(), ODD, "the text")
    system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    answer = client.messages.create(model=model, system=system, **ask("scene:system"))
    equal(answer.content[0].text, "The system said: Be brief.", "the system prompt")


@on(SUITE, TARGETS)
def parallel_tools_round_trip(model):
    question = ask(cities("Paris", "Oslo"), tools=TOOLS)
    answer = client.messages.create(model=model, **question)
    equal(go_on(model, question, answer), weather_answer("Paris", "Oslo"), "the answer")


@on(SUITE, TARGETS)
def parallel_tools_in_a_stream(model):
    question = ask(cities("Paris", "Oslo"), tools=TOOLS)
    with client.messages.stream(model=model, **question) as events:
        pieces = [event for event in events if event.type == "input_json"]
        answer = events.get_final_message()
    holds(len(pieces) > 4, "the arguments came in fragments")
    equal(answer.content[0].text, "Let me look.", "the text before the calls")
    equal(go_on(model, question, answer), weather_answer("Paris", "Oslo"), "the answer")


def go_on(model, question, answer):
    equal(answer.stop_reason, "tool_use", "stop_reason")
    calls = [block for block in answer.content if block.type == "tool_use"]
    equal([call.input["city"] for call in calls], ["Paris", "Oslo"], "calls")
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": WEATHER[call.input["city"]]} for call in calls]
    turn = {"role": "assistant", "content": [block.model_dump(exclude_none=True, exclude={"parsed_output"}) for block in answer.content]}
    messages = [*question["messages"], turn, {"role": "user", "content": results}]
    return client.messages.create(model=model, **{**question, "messages": messages}).content[0].text


@on(SUITE, TARGETS)
def structured_output(model):
    answer = client.messages.parse(model=model, output_format=City, **ask("scene:schema"))
    equal(answer.parsed_output, City(name="Oslo", large=True), "the parsed answer")


@on(SUITE, TARGETS)
def vision(model):
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PIXEL).decode()}
    parts = [{"type": "text", "text": "scene:picture"}, {"type": "image", "source": source}]
    equal(client.messages.create(model=model, **ask(parts)).content[0].text, PICTURE, "what arrived")


@on(SUITE, TARGETS)
def thinking(model):
    question = ask("scene:think", thinking={"type": "enabled", "budget_tokens": 1024}) | {"max_tokens": 2000}
    with client.messages.stream(model=model, **question) as events:
        thought = "".join(event.thinking for event in events if event.type == "thinking")
        answer = events.get_final_message()
    equal((thought, answer.content[-1].text), ("First this, then that.", "Thought through."), "thought and text")
    turn = {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in answer.content]}
    question["messages"] += [turn, {"role": "user", "content": "scene:hello"}]
    equal(client.messages.create(model=model, **question).content[-1].text, HELLO, "the next answer")
    if model == TARGETS["native"]:
        equal(last()["body"]["messages"][1]["content"][0]["signature"], SIGNATURE, "what the upstream saw")


@on(SUITE, {"native": TARGETS["native"]})
def version_and_betas_go_upstream(model):
    client.beta.messages.create(model=model, betas=["context-management-2025-06-27"], **ask("scene:hello"))
    headers = last()["headers"]
    equal(headers["anthropic-beta"], "context-management-2025-06-27", "betas")
    equal(headers["anthropic-version"], client.default_headers["anthropic-version"], "version")


@on(SUITE, TARGETS)
def tokens_are_counted(model):
    question = {"messages": ask("scene:hello " + "word " * 400)["messages"]}
    counted = client.messages.count_tokens(model=model, **question).input_tokens
    if DIRECT or model == TARGETS["native"]:
        equal(counted, COUNTED, "the upstream's own count")
    else:
        holds(300 < counted < 800, f"an estimate of 400 words: {counted}")


ERRORS = [
    (400, anthropic.BadRequestError, "invalid_request_error"), (413, anthropic.RequestTooLargeError, "request_too_large"),
    (429, anthropic.RateLimitError, "rate_limit_error"), (500, anthropic.InternalServerError, "api_error"),
    (529, anthropic.OverloadedError, "overloaded_error"),
]  # fmt: skip


@on(SUITE, TARGETS)
def errors_are_the_sdks_classes(model):
    for streamed in (False, True):
        for status, kind, name in ERRORS:
            question = ask(f"scene:refuse={status}", stream=streamed)
            error = raises(kind, lambda: client.messages.create(model=model, **question))
            equal((error.status_code, error.body["error"]["type"]), (status, name), "status and type")
            holds(f"refuses with {status}" in error.message, f"the upstream's reason: {error.message}")
            if status == 429:
                equal(error.response.headers["retry-after"], "7", "retry-after")


@on(SUITE, {"native": TARGETS["native"]})
def the_cause_of_an_error_is_kept(model):
    question = ask("scene:refuse=429,contract_spend_limit_reached")
    error = raises(anthropic.ContractSpendLimitReachedError, lambda: client.messages.create(model=model, **question))
    equal(error.error_code, "contract_spend_limit_reached", "the cause, which decides about the class")


@on(SUITE, TARGETS)
def the_tool_runner_goes_on_without_a_thread(model):
    seen = []

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        seen.append(city)
        return WEATHER[city]

    runner = client.beta.messages.tool_runner(model=model, tools=[get_weather], **ask(cities("Paris", "Oslo")))
    equal(runner.until_done().content[0].text, weather_answer("Paris", "Oslo"), "the answer")
    equal(seen, ["Paris", "Oslo"], "what the tools were asked")


@on(SUITE, TARGETS)
def an_error_in_mid_stream_is_raised(model):
    seen = []

    def read():
        with client.messages.stream(model=model, **ask("scene:breaks")) as events:
            for text in events.text_stream:
                seen.append(text)

    error = raises(anthropic.APIStatusError, read)
    equal("".join(seen), "half an answer", "what came before")
    holds("breaks off" in json.dumps(error.body), f"the reason: {error.body}")


@on(SUITE, TARGETS)
def the_sdk_retries(model):
    name = f"py-messages-{model}"
    answer = client.with_options(max_retries=2).messages.create(model=model, **ask(f"scene:flaky={name}"))
    equal(answer.content[0].text, f"At the third attempt of {name}.", "the answer")


@on(SUITE, TARGETS)
def cancellation_stops_the_upstream(model):
    with client.messages.stream(model=model, **ask("scene:endless")) as events:
        for _ in range(8):
            next(events)
        holds(not idle(), "the upstream is at work")
    eventually("the upstream's answer ends", idle, 5)


@SUITE.check(gateway_only=True)
def models_list():
    page = client.models.list(limit=1000)
    ids = [model.id for model in page]
    for id in ("openai/m", "anthropic/m", "chat/m", "either"):
        holds(id in ids, f"{id} is among {ids}")
    one = client.models.retrieve("anthropic/m")
    equal((one.id, one.type), ("anthropic/m", "model"), "one model")


@SUITE.check(gateway_only=True)
def wrong_key_and_wrong_model():
    for stranger in (client.with_options(api_key="wrong"), Anthropic(base_url=ORIGIN, auth_token="wrong", max_retries=0)):
        error = raises(anthropic.AuthenticationError, lambda: stranger.messages.create(model="chat/m", **ask("scene:hello")))
        equal(error.body["error"]["type"], "authentication_error", "type")
    error = raises(anthropic.NotFoundError, lambda: client.messages.create(model="none", **ask("scene:hello")))
    equal(error.body["error"]["type"], "not_found_error", "type")


@SUITE.check(gateway_only=True)
def a_bearer_token_is_a_key_too():
    bearer = Anthropic(base_url=ORIGIN, auth_token=KEY, max_retries=0)
    equal(bearer.messages.create(model="chat/m", **ask("scene:hello")).content[0].text, HELLO, "the answer")


if __name__ == "__main__":
    finish(SUITE)
