"""The official Python SDK against the gateway, or with LLMGW_TEST_DIRECT=1 against the model server itself.

Environment: LLMGW_TEST_ORIGIN (http://127.0.0.1:PORT of what is driven), LLMGW_TEST_KEY (an administrator key),
LLMGW_TEST_UPSTREAM (the model server's own origin), LLMGW_TEST_MODEL, LLMGW_TEST_ENDPOINT,
LLMGW_TEST_DEAD_FIRST_ENDPOINT. Exits with 1 when a check fails.
"""

import asyncio
import json
import os
import sys
import urllib.request

import openai
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from checks import Suite, equal, eventually, holds

ORIGIN = os.environ["LLMGW_TEST_ORIGIN"]
UPSTREAM = os.environ["LLMGW_TEST_UPSTREAM"]
KEY = os.environ["LLMGW_TEST_KEY"]
MODEL = os.environ["LLMGW_TEST_MODEL"]
ENDPOINT = os.environ["LLMGW_TEST_ENDPOINT"]
DEAD_FIRST = os.environ["LLMGW_TEST_DEAD_FIRST_ENDPOINT"]
DIRECT = os.environ.get("LLMGW_TEST_DIRECT") == "1"

SUITE = Suite(f"python-{openai.__version__}")
check = SUITE.check

client = OpenAI(base_url=f"{ORIGIN}/v1", api_key=KEY, max_retries=0, timeout=60)
upstream = OpenAI(base_url=f"{UPSTREAM}/v1", api_key="none", max_retries=0, timeout=60)

# Deterministic answers: no sampling, and no reuse of an earlier conversation. `cache_prompt` is a field of the model
# server, which no SDK defines.
STEADY = {"temperature": 0, "seed": 1, "extra_body": {"cache_prompt": False}}
# Continues until it is stopped.
ENDLESS = {"max_tokens": 1500, "extra_body": {"ignore_eos": True}}
QUESTION = [{"role": "user", "content": "Say hello to the gateway, in one sentence."}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]
# Small models are unreliable: this question makes this one call the tool, with or without sampling.
CALL = {"tools": TOOLS, "max_tokens": 96}
WEATHER = [{"role": "user", "content": "Use the tool get_weather with city Paris."}]


def fetch(url, key=None):
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {key}"} if key else {})
    with urllib.request.urlopen(request, timeout=10) as response:
        return response.read()


def upstream_is_idle():
    """Returns true if the model server is idle."""
    lines = fetch(f"{UPSTREAM}/metrics").decode().splitlines()
    return "llamacpp:requests_processing 0" in lines and "llamacpp:requests_deferred 0" in lines


def record(request_id):
    """Returns the record of a request, once it exists."""

    def probe():
        rows = json.loads(fetch(f"{ORIGIN}/admin/api/requests", KEY))["data"]
        return next((row for row in rows if row["request_id"] == request_id), None)

    return eventually(f"a record of {request_id}", probe, 5)


def usage_adds_up(usage):
    holds(usage.prompt_tokens > 0 and usage.completion_tokens > 0, f"tokens are counted: {usage}")
    equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens, "total_tokens")


def text_of(chunks):
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


@check()
def completion():
    answer = client.chat.completions.create(model=ENDPOINT, messages=QUESTION, max_tokens=24, **STEADY)
    holds(answer.choices[0].message.content, "there is text")
    holds(answer.choices[0].finish_reason in ("stop", "length"), "a known finish reason")
    usage_adds_up(answer.usage)


@check()
def the_answer_is_the_model_servers_own():
    ours = client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=24, **STEADY)
    theirs = upstream.chat.completions.create(model="smollm2-135m", messages=QUESTION, max_tokens=24, **STEADY)
    equal(ours.choices[0].message.content, theirs.choices[0].message.content, "text")
    equal(ours.usage.model_dump(), theirs.usage.model_dump(), "usage")
    holds("timings" in ours.model_extra, "members that no SDK knows come through")


@check()
def stream():
    with client.chat.completions.create(model=ENDPOINT, messages=QUESTION, max_tokens=24, stream=True, **STEADY) as events:
        chunks = list(events)
    whole = client.chat.completions.create(model=ENDPOINT, messages=QUESTION, max_tokens=24, **STEADY)
    equal(text_of(chunks), whole.choices[0].message.content, "the stream's text is the whole answer's")
    holds(len(chunks) > 5, "it came in pieces")
    holds(all(chunk.choices for chunk in chunks), "no unrequested usage-only chunk")


@check()
def stream_with_usage():
    options = {"include_usage": True}
    with client.chat.completions.create(
        model=ENDPOINT, messages=QUESTION, max_tokens=24, stream=True, stream_options=options, **STEADY
    ) as events:
        chunks = list(events)
    usage_adds_up(chunks[-1].usage)
    equal(chunks[-1].choices, [], "the usage comes in a chunk of its own, the last")


@check()
def stream_helper():
    with client.chat.completions.stream(model=ENDPOINT, messages=QUESTION, max_tokens=24, **STEADY) as events:
        deltas = [event.delta for event in events if event.type == "content.delta"]
        snapshot = events.current_completion_snapshot
    holds(deltas, "the helper sees the text come in")
    equal(snapshot.choices[0].message.content, "".join(deltas), "the helper puts the answer together")


@check()
def tool_call():
    answer = client.chat.completions.create(model=ENDPOINT, messages=WEATHER, **CALL, **STEADY)
    call = answer.choices[0].message.tool_calls[0]
    equal(answer.choices[0].finish_reason, "tool_calls", "finish_reason")
    equal(call.function.name, "get_weather", "name")
    equal(json.loads(call.function.arguments), {"city": "Paris"}, "arguments")
    follow_up = client.chat.completions.create(
        model=ENDPOINT,
        messages=[
            *WEATHER,
            answer.choices[0].message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "Rain, 7 degrees."},
        ],
        max_tokens=24,
        **STEADY,
    )
    holds(follow_up.choices[0].message.content, "the conversation goes on after the tool's result")


@check()
def tool_call_in_a_stream():
    names, ids, arguments, finish, pieces = [], [], "", None, 0
    with client.chat.completions.create(model=ENDPOINT, messages=WEATHER, stream=True, **CALL, **STEADY) as events:
        for chunk in events:
            for choice in chunk.choices:
                finish = choice.finish_reason or finish
                for call in choice.delta.tool_calls or []:
                    names += [call.function.name] if call.function.name else []
                    ids += [call.id] if call.id else []
                    arguments += call.function.arguments or ""
                    pieces += 1
    equal(names, ["get_weather"], "names")
    equal(len(ids), 1, "ids")
    equal(finish, "tool_calls", "finish_reason")
    holds(pieces > 2, "the call came in fragments")
    equal(json.loads(arguments), {"city": "Paris"}, "the fragments together")


class City(BaseModel):
    name: str
    large: bool


@check()
def structured_output():
    answer = client.chat.completions.parse(
        model=ENDPOINT,
        messages=[{"role": "user", "content": "Describe Oslo."}],
        response_format=City,
        max_tokens=128,
        **STEADY,
    )
    holds(isinstance(answer.choices[0].message.parsed, City), "the answer follows the schema")


@check()
def four_streams_at_once():
    async def one(asynchronous, index):
        events = await asynchronous.chat.completions.create(
            model=ENDPOINT, messages=[{"role": "user", "content": f"Count from {index}."}], max_tokens=16, stream=True
        )
        return text_of([chunk async for chunk in events])

    async def four():
        async with AsyncOpenAI(base_url=f"{ORIGIN}/v1", api_key=KEY, max_retries=0, timeout=60) as asynchronous:
            return await asyncio.gather(*(one(asynchronous, index) for index in range(4)))

    holds(all(asyncio.run(four())), "each stream has text")


@check()
def cancellation_in_mid_stream_stops_the_model():
    events = client.chat.completions.create(model=ENDPOINT, messages=QUESTION, stream=True, **ENDLESS)
    for _ in range(5):
        next(events)
    holds(not upstream_is_idle(), "the model is at work")
    events.close()
    eventually("the model stops", upstream_is_idle, 2)


@check(gateway_only=True)
def cancellation_is_recorded_with_what_was_used():
    events = client.chat.completions.create(model=ENDPOINT, messages=QUESTION, stream=True, **ENDLESS)
    for _ in range(5):
        next(events)
    request_id = events.response.headers["x-request-id"]
    events.close()
    row = record(request_id)
    equal(row["outcome"], "cancelled", "outcome")
    holds(row["tokens"]["output"] > 0, "what was relayed is not free")


@check()
def models_list():
    ids = [model.id for model in client.models.list()]
    for id in [MODEL] if DIRECT else [MODEL, ENDPOINT, DEAD_FIRST, "smollm2-135m"]:
        holds(id in ids, f"{id} is among {ids}")


@check(gateway_only=True)
def one_model_by_its_id():
    equal(client.models.retrieve(MODEL).id, MODEL, "an id with a slash")


@check(gateway_only=True)
def bare_model_name_is_an_alias():
    answer = client.chat.completions.with_raw_response.create(model="smollm2-135m", messages=QUESTION, max_tokens=4)
    equal(answer.headers["x-llmgw-model"], "smollm2-135m", "X-LLMGW-Model")


@check(gateway_only=True)
def dead_first_target_is_passed_over():
    answer = client.chat.completions.with_raw_response.create(model=DEAD_FIRST, messages=QUESTION, max_tokens=8)
    equal(answer.headers["x-llmgw-provider"], "llama", "X-LLMGW-Provider")
    equal(answer.headers["x-llmgw-attempts"], "2", "X-LLMGW-Attempts")
    holds(answer.parse().choices[0].message.content, "there is text")
    row = record(answer.headers["x-request-id"])
    equal(row["outcome"], "completed", "outcome")
    equal(row["provider"], "llama", "provider")
    trace = json.loads(fetch(f"{ORIGIN}/admin/api/requests/{row['request_id']}", KEY))["trace"]
    equal([(step["provider"], step["result"]) for step in trace], [("dead", "unreachable"), ("llama", "served")], "trace")


@check(gateway_only=True)
def dead_first_target_is_passed_over_in_a_stream():
    events = client.chat.completions.create(model=DEAD_FIRST, messages=QUESTION, max_tokens=8, stream=True)
    equal(events.response.headers["x-llmgw-provider"], "llama", "X-LLMGW-Provider")
    equal(events.response.headers["x-llmgw-attempts"], "2", "X-LLMGW-Attempts")
    holds(text_of(list(events)), "there is text")


@check(gateway_only=True)
def usage_of_a_completed_stream_is_recorded_though_not_asked_for():
    events = client.chat.completions.create(model=ENDPOINT, messages=QUESTION, max_tokens=8, stream=True, **STEADY)
    request_id = events.response.headers["x-request-id"]
    list(events)
    row = record(request_id)
    whole = client.chat.completions.create(model=ENDPOINT, messages=QUESTION, max_tokens=8, **STEADY)
    equal(row["provenance"], "reported", "provenance")
    equal(row["tokens"]["input"], whole.usage.prompt_tokens, "input tokens")
    equal(row["tokens"]["output"], whole.usage.completion_tokens, "output tokens")


def refused(kind, **changes):
    """Returns the error of a request, which must be of the SDK's class `kind`."""
    other = client.with_options(api_key=changes.pop("api_key", KEY))
    try:
        other.chat.completions.create(**{"model": ENDPOINT, "messages": QUESTION, "max_tokens": 4, **changes})
    except kind as error:
        return error
    raise AssertionError("it was accepted")


@check(gateway_only=True)
def wrong_key_is_an_authentication_error():
    error = refused(openai.AuthenticationError, api_key="sk-wrong-key")
    equal(error.code, "invalid_api_key", "code")
    holds(error.request_id, "it names the request")
    holds("sk-wrong-key" not in str(error), "the key is not repeated")


@check(gateway_only=True)
def unknown_model_is_a_not_found_error():
    error = refused(openai.NotFoundError, model="no-such-model")
    equal(error.code, "model_not_found", "code")
    equal(error.type, "invalid_request_error", "type")


@check()
def bad_messages_are_a_bad_request_error():
    error = refused(openai.BadRequestError, messages=3)
    equal(error.status_code, 400, "status")
    holds(error.body["message"], "it has a reason")


@check()
def too_long_a_prompt_keeps_the_upstreams_reason():
    error = refused(openai.BadRequestError, messages=[{"role": "user", "content": "word " * 4000}])
    holds("context" in error.message, f"the model server's reason is kept: {error.message}")


@check()
def base_url_without_v1():
    bare = OpenAI(base_url=ORIGIN, api_key=KEY, max_retries=0, timeout=60)
    holds(bare.chat.completions.create(model=ENDPOINT, messages=QUESTION, max_tokens=4).choices, "there is an answer")
    holds(bare.models.list().data, "there are models")


if __name__ == "__main__":
    sys.exit(0 if SUITE.run(DIRECT) else 1)
