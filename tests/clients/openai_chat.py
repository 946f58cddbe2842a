"""OpenAI's Python SDK: Chat Completions natively and on Messages targets, embeddings, images, audio, models, errors."""

import asyncio
import json

import openai
from openai import AsyncOpenAI, OpenAI

from common import (
    ANTHROPIC, DATA_URL, DIRECT, HELLO, KEY, ODD, OPENAI, ORIGIN, PARAMETERS, PICTURE, WEATHER, City, Suite, cities,
    equal, eventually, finish, holds, idle, last, on, raises, weather_answer,
)  # fmt: skip
from upstream.media import TEXT, picture, speech, vector

SUITE = Suite(f"openai-python-{openai.__version__} chat")
TARGETS = {"native": OPENAI["native"], "on_messages": ANTHROPIC["native"]}
client = OpenAI(base_url=f"{ORIGIN}/v1", api_key=KEY, max_retries=0, timeout=60)
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}]


def ask(text, **more):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 200, **more}


def usage_is_the_scripts(usage):
    equal((usage.prompt_tokens, usage.completion_tokens, usage.total_tokens), (20, 9, 29), "usage")
    equal(usage.prompt_tokens_details.cached_tokens, 4, "cached tokens")


def text_of(chunks):
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


@on(SUITE, TARGETS)
def unary(model):
    answer = client.chat.completions.create(model=model, **ask("scene:hello"))
    equal((answer.choices[0].message.content, answer.choices[0].finish_reason), (HELLO, "stop"), "the answer")
    usage_is_the_scripts(answer.usage)


@on(SUITE, TARGETS)
def stream(model):
    events = client.chat.completions.create(model=model, stream=True, **ask("scene:hello"))
    chunks = list(events)
    equal(text_of(chunks), HELLO, "the text")
    holds(len([chunk for chunk in chunks if text_of([chunk])]) == 4, "each piece came as it was")
    equal(chunks[-1].choices[0].finish_reason, "stop", "the last chunk")


@on(SUITE, TARGETS)
def stream_with_usage(model):
    options = {"include_usage": True}
    chunks = list(client.chat.completions.create(model=model, stream=True, stream_options=options, **ask("scene:hello")))
    usage_is_the_scripts(chunks[-1].usage)
    equal(chunks[-1].choices, [], "the usage comes in a chunk of its own, the last")


@on(SUITE, TARGETS)
def odd_text_both_ways(model):
    events = client.chat.completions.create(model=model, stream=True, **ask(f"scene:odd {ODD}"))
    equal(text_of(list(events)), ODD, "the text")


@on(SUITE, TARGETS)
def system_prompt(model):
    question = ask("scene:system")
    question["messages"].insert(0, {"role": "system", "content": "Be brief."})
    equal(client.chat.completions.create(model=model, **question).choices[0].message.content, "The system said: Be brief.", "")


@on(SUITE, TARGETS)
def parallel_tools_round_trip(model):
    question = ask(cities("Paris", "Oslo"), tools=TOOLS)
    answer = client.chat.completions.create(model=model, **question).choices[0]
    equal(answer.finish_reason, "tool_calls", "finish_reason")
    equal([json.loads(call.function.arguments)["city"] for call in answer.message.tool_calls], ["Paris", "Oslo"], "calls")
    equal(go_on(model, question, answer.message.model_dump(exclude_none=True)), weather_answer("Paris", "Oslo"), "the answer")


@on(SUITE, TARGETS)
def parallel_tools_in_a_stream(model):
    question = ask(cities("Paris", "Oslo"), tools=TOOLS)
    with client.chat.completions.stream(model=model, **question) as events:
        kinds = {event.type for event in events}
        message = events.get_final_completion().choices[0].message
    holds("tool_calls.function.arguments.delta" in kinds, f"the helper saw the arguments come: {kinds}")
    equal([json.loads(call.function.arguments)["city"] for call in message.tool_calls], ["Paris", "Oslo"], "calls")
    equal(message.content, "Let me look.", "the text before the calls")
    dumped = message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"})
    for call in dumped["tool_calls"]:
        call["function"].pop("parsed_arguments", None)
        call.pop("index", None)
    equal(go_on(model, question, dumped), weather_answer("Paris", "Oslo"), "the answer")


def go_on(model, question, message):
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": WEATHER[json.loads(call["function"]["arguments"])["city"]]}
        for call in message["tool_calls"]
    ]
    question = {**question, "messages": [*question["messages"], message, *results]}
    return client.chat.completions.create(model=model, **question).choices[0].message.content


@on(SUITE, TARGETS)
def structured_output(model):
    answer = client.chat.completions.parse(model=model, response_format=City, **ask("scene:schema"))
    equal(answer.choices[0].message.parsed, City(name="Oslo", large=True), "the parsed answer")


@on(SUITE, TARGETS)
def vision(model):
    parts = [{"type": "text", "text": "scene:picture"}, {"type": "image_url", "image_url": {"url": DATA_URL}}]
    equal(client.chat.completions.create(model=model, **ask(parts)).choices[0].message.content, PICTURE, "what arrived")


@on(SUITE, {"native": OPENAI["native"]})
def reasoning_and_unknown_members_pass(model):
    answer = client.chat.completions.create(model=model, **ask("scene:think"))
    equal(answer.choices[0].message.model_extra["reasoning_content"], "First this, then that.", "the reasoning")
    equal(answer.model_extra["scripted"], True, "a member that no SDK knows")


ERRORS = [
    (400, openai.BadRequestError), (422, openai.UnprocessableEntityError), (429, openai.RateLimitError),
    (500, openai.InternalServerError), (503, openai.InternalServerError), (529, openai.InternalServerError),
]  # fmt: skip


@on(SUITE, TARGETS)
def errors_are_the_sdks_classes(model):
    for streamed in (False, True):
        for status, kind in ERRORS:
            question = ask(f"scene:refuse={status}", stream=streamed)
            error = raises(kind, lambda: client.chat.completions.create(model=model, **question))
            equal(error.status_code, status, "status")
            holds(f"refuses with {status}" in error.message, f"the upstream's reason: {error.message}")
            holds(error.type, "a type")
            if status == 429:
                equal(error.response.headers["retry-after"], "7", "retry-after")


@on(SUITE, TARGETS)
def an_error_in_mid_stream_is_raised(model):
    seen = []

    def read():
        for chunk in client.chat.completions.create(model=model, stream=True, **ask("scene:breaks")):
            seen.append(chunk)

    error = raises(openai.APIError, read)
    equal(text_of(seen), "half an answer", "what came before")
    holds("breaks off" in error.message, f"the reason: {error.message}")


@on(SUITE, TARGETS)
def the_sdk_retries(model):
    patient = client.with_options(max_retries=2)
    name = f"py-chat-{model}"
    answer = patient.chat.completions.create(model=model, **ask(f"scene:flaky={name}"))
    equal(answer.choices[0].message.content, f"At the third attempt of {name}.", "the answer")


@on(SUITE, TARGETS)
def cancellation_stops_the_upstream(model):
    events = client.chat.completions.create(model=model, stream=True, **ask("scene:endless"))
    for _ in range(5):
        next(events)
    holds(not idle(), "the upstream is at work")
    events.close()
    eventually("the upstream's answer ends", idle, 5)


@on(SUITE, TARGETS)
def eight_streams_at_once(model):
    async def one(asynchronous):
        events = await asynchronous.chat.completions.create(model=model, stream=True, **ask("scene:slow"))
        return text_of([chunk async for chunk in events])

    async def eight():
        async with AsyncOpenAI(base_url=f"{ORIGIN}/v1", api_key=KEY, max_retries=0, timeout=60) as asynchronous:
            return await asyncio.gather(*(one(asynchronous) for _ in range(8)))

    equal(set(asyncio.run(eight())), {"one two three four five six"}, "each stream is whole")


@SUITE.check()
def embeddings():
    model = "m" if DIRECT else "openai/embed"
    texts = ["one", "zwölf 🌍"]
    answer = client.embeddings.create(model=model, input=texts)
    equal([item.embedding for item in answer.data], [vector(text) for text in texts], "vectors, by way of base64")
    equal(last()["body"]["encoding_format"], "base64", "what the SDK asks for unasked")
    equal(client.embeddings.create(model=model, input="x", encoding_format="float").data[0].embedding, vector("x"), "floats")
    equal(answer.usage.prompt_tokens, 5, "usage")


IMAGES = {
    "native": "openai/gpt-image-1",
    "on_gemini": "google/gemini-2.5-flash-image",
    "on_imagen": "google/imagen-4.0-generate-001",
}


@on(SUITE, IMAGES)
def images(model):
    count = 1 if "gemini" in model else 3
    answer = client.images.generate(model=model, prompt="eine Kätze 🐈", n=count, size="1024x1024", output_format="png")
    got = [image.b64_json for image in answer.data]
    equal(got, [picture("eine Kätze 🐈", index) for index in range(count)], "the images, in their order")
    equal(answer.output_format, "png", "their format")
    used = answer.usage and (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.total_tokens)
    want = {IMAGES["on_gemini"]: (5, 1290, 1295), IMAGES["on_imagen"]: None}
    equal(used, want.get(model, (5, 272, 277)), "usage")


@SUITE.check(gateway_only=True)
def images_that_are_not_made():
    def ask(prompt, **more):
        return client.images.generate(**{"model": IMAGES["on_gemini"], "prompt": prompt, **more})

    error = raises(openai.BadRequestError, lambda: ask("scene:unsafe"))
    equal((error.code, error.type), ("moderation_blocked", "image_generation_user_error"), "a refusal")
    error = raises(openai.InternalServerError, lambda: ask("scene:chatty"))
    holds(error.status_code == 502 and "Which cat do you mean?" in str(error), f"words in place of an image: {error}")
    for param, value in (("n", 2), ("size", "4096x1024"), ("stream", True)):
        error = raises(openai.BadRequestError, lambda: ask("a cat", **{param: value}))
        equal(error.param, param, "the unsupported member")


@SUITE.check()
def speech_is_the_upstreams_bytes():
    question = {"input": "Say wörd.", "voice": "alloy", "response_format": "wav"}
    with client.audio.speech.with_streaming_response.create(model="m" if DIRECT else "openai/tts", **question) as answer:
        equal((answer.headers["content-type"], b"".join(answer.iter_bytes())), speech(question), "type and bytes")


@SUITE.check()
def transcription():
    question = {"model": "m" if DIRECT else "openai/stt", "file": ("ä b.wav", b"RIFF\0\r\n--x\r\n" * 5000)}
    answer = client.audio.transcriptions.create(**question)
    equal((answer.text, answer.model_extra["file"]), (TEXT, "ä b.wav"), "the text, and the file's name")
    equal(last()["body"]["model"], ["m" if DIRECT else "stt"], "the model's name upstream")
    holds(client.audio.transcriptions.create(**question, response_format="text").startswith(TEXT), "as plain text")
    events = list(client.audio.transcriptions.create(**question, stream=True))
    equal((events[-1].type, events[-1].text), ("transcript.text.done", TEXT), "the last event")
    equal("".join(event.delta for event in events[:-1]).strip(), TEXT, "the pieces")


@SUITE.check(gateway_only=True)
def models_list():
    ids = [model.id for model in client.models.list()]
    for id in ("openai/m", "anthropic/m", "chat/m", "either"):
        holds(id in ids, f"{id} is among {ids}")
    equal(client.models.retrieve("chat/m").id, "chat/m", "an id with a slash")


@SUITE.check(gateway_only=True)
def wrong_key_and_wrong_model():
    stranger = client.with_options(api_key="sk-wrong-key")
    error = raises(openai.AuthenticationError, lambda: stranger.chat.completions.create(model="chat/m", **ask("scene:hello")))
    equal((error.status_code, error.code), (401, "invalid_api_key"), "the error")
    error = raises(openai.NotFoundError, lambda: client.chat.completions.create(model="none", **ask("scene:hello")))
    equal((error.status_code, error.code), (404, "model_not_found"), "the error")


@SUITE.check(gateway_only=True)
def failover_crosses_protocols():
    answer = client.chat.completions.with_raw_response.create(model="either", **ask("scene:hello"))
    equal((answer.headers["x-llmgw-provider"], answer.headers["x-llmgw-attempts"]), ("anthropic", "2"), "who served")
    equal(answer.headers["x-llmgw-adapted"], "messages", "how")
    equal(answer.parse().choices[0].message.content, HELLO, "the answer")


if __name__ == "__main__":
    finish(SUITE)
