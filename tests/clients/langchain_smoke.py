"""LangChain over the gateway: its OpenAI and Anthropic chat models, with tools, streams and structured output."""

import langchain_core
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

from common import DIRECT, HELLO, KEY, ODD, ORIGIN, WEATHER, City, Suite, cities, equal, finish, on, weather_answer
from upstream.media import vector

SUITE = Suite(f"langchain-core-{langchain_core.__version__}")


def get_weather(city: str) -> str:
    """The weather in a city."""
    return WEATHER[city]


def both(model):
    """Returns the chat models for a target."""
    base = {"model": model, "max_tokens": 200, "max_retries": 0, "api_key": KEY, "stream_usage": True}
    yield ChatOpenAI(base_url=f"{ORIGIN}/v1", **base)
    yield ChatOpenAI(base_url=f"{ORIGIN}/v1", use_responses_api=True, **base)
    yield ChatAnthropic(base_url=ORIGIN, **base)


NAMES = {"native": "openai/m", "on_messages": "anthropic/m", "on_chat": "chat/m"}


@on(SUITE, NAMES)
def invoke_and_stream(model):
    for chat in both(model):
        equal(chat.invoke("scene:hello").text, HELLO, "the answer")
        whole = None
        for chunk in chat.stream(f"scene:odd {ODD}"):
            whole = chunk if whole is None else whole + chunk
        equal(whole.text, ODD, "the stream")
        equal((whole.usage_metadata["input_tokens"], whole.usage_metadata["output_tokens"]), (20, 9), "usage")


@on(SUITE, NAMES)
def tools_round_trip(model):
    for chat in both(model):
        chat = chat.bind_tools([get_weather])
        turns = [HumanMessage(cities("Paris", "Oslo"))]
        turns.append(chat.invoke(turns))
        equal([call["args"] for call in turns[1].tool_calls], [{"city": "Paris"}, {"city": "Oslo"}], "calls")
        turns += [ToolMessage(get_weather(**call["args"]), tool_call_id=call["id"]) for call in turns[1].tool_calls]
        equal(chat.invoke(turns).text, weather_answer("Paris", "Oslo"), "the answer")


@SUITE.check()
def embeddings():
    model = OpenAIEmbeddings(
        model="m" if DIRECT else "openai/embed", base_url=f"{ORIGIN}/v1", api_key=KEY, check_embedding_ctx_length=False
    )
    equal(model.embed_documents(["one", "two"]), [vector("one"), vector("two")], "vectors")


if __name__ == "__main__":
    finish(SUITE)
