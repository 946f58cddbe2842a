"""OpenAI's Python SDK: Responses natively, on chat-only and on Messages targets."""

import json

import openai
from openai import OpenAI

from common import (
    ANTHROPIC, DATA_URL, HELLO, KEY, ODD, OPENAI, ORIGIN, PARAMETERS, PICTURE, WEATHER, City, Suite, cities,
    equal, eventually, finish, holds, idle, last, on, raises, weather_answer,
)  # fmt: skip

SUITE = Suite(f"openai-python-{openai.__version__} responses")
TARGETS = {**OPENAI, "on_messages": ANTHROPIC["native"]}
NATIVE = {"native": OPENAI["native"]}
client = OpenAI(base_url=f"{ORIGIN}/v1", api_key=KEY, max_retries=0, timeout=60)
TOOLS = [{"type": "function", "name": "get_weather", "parameters": PARAMETERS, "strict": False}]


def ask(text, **more):
    return {"input": text, "max_output_tokens": 200, "store": False, **more}


def usage_is_the_scripts(usage):
    equal((usage.input_tokens, usage.output_tokens, usage.total_tokens), (20, 9, 29), "usage")
    equal(usage.input_tokens_details.cached_tokens, 4, "cached tokens")


@on(SUITE, TARGETS)
def unary(model):
    answer = client.responses.create(model=model, **ask("scene:hello"))
    equal((answer.output_text, answer.status), (HELLO, "completed"), "the answer")
    usage_is_the_scripts(answer.usage)


@on(SUITE, TARGETS)
def stream(model):
    events = list(client.responses.create(model=model, stream=True, **ask("scene:hello")))
    equal("".join(event.delta for event in events if event.type == "response.output_text.delta"), HELLO, "the text")
    equal((events[0].type, events[-1].type), ("response.created", "response.completed"), "the first and the last")
    equal([event.sequence_number for event in events], list(range(len(events))), "numbers")
    usage_is_the_scripts(events[-1].response.usage)
    equal(events[-1].response.output_text, HELLO, "the whole answer")


@on(SUITE, TARGETS)
def odd_text_and_instructions(model):
    with client.responses.stream(model=model, **ask(f"scene:odd {ODD}")) as events:
        equal(events.get_final_response().output_text, ODD, "the text")
    answer = client.responses.create(model=model, instructions="Be brief.", **ask("scene:system"))
    equal(answer.output_text, "The system said: Be brief.", "the instructions")


@on(SUITE, TARGETS)
def parallel_tools_round_trip(model):
    question = ask([{"role": "user", "content": cities("Paris", "Oslo")}], tools=TOOLS)
    answer = client.responses.create(model=model, **question)
    equal(go_on(model, question, answer), weather_answer("Paris", "Oslo"), "the answer")


@on(SUITE, TARGETS)
def parallel_tools_in_a_stream(model):
    question = ask([{"role": "user", "content": cities("Paris", "Oslo")}], tools=TOOLS)
    with client.responses.stream(model=model, **question) as events:
        kinds = {event.type for event in events}
        answer = events.get_final_response()
    holds({"response.function_call_arguments.delta", "response.output_item.done"} <= kinds, f"events: {kinds}")
    equal(answer.output_text, "Let me look.", "the text before the calls")
    equal(go_on(model, question, answer), weather_answer("Paris", "Oslo"), "the answer")


def go_on(model, question, answer):
    calls = [item for item in answer.output if item.type == "function_call"]
    equal([json.loads(call.arguments)["city"] for call in calls], ["Paris", "Oslo"], "calls")
    outputs = [
        {"type": "function_call_output", "call_id": call.call_id, "output": WEATHER[json.loads(call.arguments)["city"]]}
        for call in calls
    ]
    turn = [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in answer.output]
    for item in turn:
        for part in item.get("content", []):
            part.pop("parsed", None)
    return client.responses.create(model=model, **{**question, "input": [*question["input"], *turn, *outputs]}).output_text


@on(SUITE, TARGETS)
def structured_output(model):
    answer = client.responses.parse(model=model, text_format=City, **ask("scene:schema"))
    equal(answer.output_parsed, City(name="Oslo", large=True), "the parsed answer")


@on(SUITE, TARGETS)
def vision(model):
    parts = [{"type": "input_text", "text": "scene:picture"}, {"type": "input_image", "image_url": DATA_URL, "detail": "auto"}]
    equal(client.responses.create(model=model, **ask([{"role": "user", "content": parts}])).output_text, PICTURE, "what arrived")


@on(SUITE, NATIVE)
def sealed_reasoning_goes_back_as_it_came(model):
    question = ask([{"role": "user", "content": "scene:think"}], include=["reasoning.encrypted_content"])
    with client.responses.stream(model=model, **question) as events:
        kinds = {event.type for event in events}
        answer = events.get_final_response()
    holds("response.reasoning_summary_text.delta" in kinds, f"events: {kinds}")
    sealed = answer.output[0]
    equal((sealed.type, sealed.encrypted_content), ("reasoning", "sealed-by-the-script"), "the reasoning")
    turn = [item.model_dump(exclude_none=True) for item in answer.output]
    question["input"] += [*turn, {"role": "user", "content": "scene:hello"}]
    equal(client.responses.create(model=model, **question).output_text, HELLO, "the next answer")
    sent = [item for item in last()["body"]["input"] if item.get("type") == "reasoning"]
    equal([item["encrypted_content"] for item in sent], ["sealed-by-the-script"], "what the upstream saw")


@on(SUITE, {"on_chat": OPENAI["on_chat"]}, gateway_only=True)
def what_only_a_native_target_can_is_refused_by_name(model):
    error = raises(openai.BadRequestError, lambda: client.responses.create(model=model, **ask("x", previous_response_id="resp_1")))
    equal(error.param, "previous_response_id", "param")
    error = raises(openai.BadRequestError, lambda: client.responses.create(model=model, **ask("x", tools=[{"type": "web_search"}])))
    holds(error.param.startswith("tools"), f"param: {error.param}")


@on(SUITE, NATIVE)
def a_stored_response_is_read_listed_and_deleted(model):
    question = [{"role": "user", "content": f"scene:hello {number}"} for number in range(3)]
    made = client.responses.create(model=model, **{**ask(question), "store": True})
    again = client.responses.retrieve(made.id)
    equal((again.id, again.output_text, again.status), (made.id, HELLO, "completed"), "the stored response")
    events = list(client.responses.retrieve(made.id, stream=True, starting_after=0))
    equal((events[0].sequence_number, events[-1].type), (1, "response.completed"), "the stored stream")
    equal("".join(event.delta for event in events if event.type == "response.output_text.delta"), HELLO, "its text")
    # The SDK asks for the next pages by itself.
    listed = [item.content[0].text if not isinstance(item.content, str) else item.content
              for item in client.responses.input_items.list(made.id, limit=2, order="asc")]  # fmt: skip
    equal(listed, [item["content"] for item in question], "its input")
    error = raises(openai.BadRequestError, lambda: client.responses.cancel(made.id))
    holds("background" in error.message, f"the vendor's reason: {error.message}")
    client.responses.delete(made.id)
    for call in (client.responses.retrieve, client.responses.cancel, client.responses.delete, client.responses.input_items.list):
        raises(openai.NotFoundError, lambda call=call: call(made.id))


@on(SUITE, NATIVE)
def a_streamed_response_is_stored_too(model):
    with client.responses.stream(model=model, input="scene:hello") as events:
        made = events.get_final_response()
    equal(client.responses.retrieve(made.id).output_text, HELLO, "the stored response")
    client.responses.delete(made.id)


@on(SUITE, {"gateway": "openai/m"}, gateway_only=True)
def a_response_that_is_not_stored_is_unknown_by_its_id(model):
    made = client.responses.create(model=model, **ask("scene:hello"))
    raises(openai.NotFoundError, lambda: client.responses.retrieve(made.id))
    raises(openai.NotFoundError, lambda: client.responses.retrieve("resp_of_nobody"))


@on(SUITE, NATIVE)
def input_tokens_are_counted_by_the_target(model):
    equal(client.responses.input_tokens.count(model=model, input="scene:hello").input_tokens, 41, "the count")


@on(SUITE, {"on_chat": "chat/m"}, gateway_only=True)
def input_tokens_of_other_targets_are_estimated(model):
    counted = client.responses.input_tokens.with_raw_response.count(model=model, input="scene:hello")
    equal(counted.headers.get("x-llmgw-token-count"), "estimate", "the header")
    holds(counted.parse().input_tokens > 0, "a count")


@on(SUITE, NATIVE)
def a_conversation_is_compacted_and_goes_on(model):
    question = [{"role": "user", "content": "scene:hello"}, {"role": "assistant", "content": HELLO}]
    compacted = client.responses.compact(model=model, input=question)
    kinds = [item.type for item in compacted.output]
    equal((kinds, compacted.usage.total_tokens), (["message", "compaction"], 29), "the compacted conversation")


@on(SUITE, {"on_chat": "chat/m"}, gateway_only=True)
def other_targets_cannot_compact(model):
    error = raises(openai.BadRequestError, lambda: client.responses.compact(model=model, input="scene:hello"))
    equal(error.code, "unsupported_parameter", "code")


ERRORS = [
    (400, openai.BadRequestError), (429, openai.RateLimitError), (500, openai.InternalServerError),
    (529, openai.InternalServerError),
]  # fmt: skip


@on(SUITE, TARGETS)
def errors_are_the_sdks_classes(model):
    for streamed in (False, True):
        for status, kind in ERRORS:
            question = ask(f"scene:refuse={status}", stream=streamed)
            error = raises(kind, lambda: client.responses.create(model=model, **question))
            equal(error.status_code, status, "status")
            holds(f"refuses with {status}" in error.message, f"the upstream's reason: {error.message}")


@on(SUITE, TARGETS)
def an_error_in_mid_stream_is_told(model):
    seen = []
    try:
        for event in client.responses.create(model=model, stream=True, **ask("scene:breaks")):
            seen.append(event)
    except openai.APIConnectionError:
        pass  # The gateway closes the connection after the event, so that no client takes the answer for complete.
    failed = [event for event in seen if event.type in ("error", "response.failed")]
    equal(len(failed), 1, f"failures in {[event.type for event in seen]}")
    reason = failed[0].message if failed[0].type == "error" else failed[0].response.error.message
    holds("breaks off" in reason, f"the reason: {reason}")
    holds("response.completed" not in {event.type for event in seen}, "it is not complete")
    equal("".join(event.delta for event in seen if event.type == "response.output_text.delta"), "half an answer", "before it")


@on(SUITE, TARGETS)
def the_sdk_retries(model):
    name = f"py-responses-{model}"
    answer = client.with_options(max_retries=2).responses.create(model=model, **ask(f"scene:flaky={name}"))
    equal(answer.output_text, f"At the third attempt of {name}.", "the answer")


@on(SUITE, TARGETS)
def cancellation_stops_the_upstream(model):
    events = client.responses.create(model=model, stream=True, **ask("scene:endless"))
    for _ in range(8):
        next(events)
    holds(not idle(), "the upstream is at work")
    events.close()
    eventually("the upstream's answer ends", idle, 5)


@SUITE.check(gateway_only=True)
def stored_responses_are_not_to_be_had():
    holds(raises(openai.APIStatusError, lambda: client.responses.retrieve("resp_1")).status_code in (404, 501), "status")


if __name__ == "__main__":
    finish(SUITE)
