"""LangChain's chat model and embeddings of Google over the gateway, on targets of each protocol."""

import importlib.metadata

from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_google_genai import ChatGoogleGenerativeAI, GoogleGenerativeAIEmbeddings

from common import DATA_URL, HELLO, KEY, ODD, ORIGIN, PICTURE, WEATHER, City, Suite, cities, equal, finish, holds, last, on, raises, weather_answer  # fmt: skip
from upstream.media import vector

SUITE = Suite(f"langchain-google-genai-{importlib.metadata.version('langchain-google-genai')}")
CLAUDE_ON_BEDROCK = "bedrock/anthropic.claude-sonnet-4-5-v1:0"
TARGETS = {"on_gemini": "google/m", "on_chat": "chat/m", "on_messages": "anthropic/m", "on_bedrock": CLAUDE_ON_BEDROCK}


def get_weather(city: str) -> str:
    """The weather in a city."""
    return WEATHER[city]


def connect(model, **settings):
    settings = {"max_output_tokens": 200, "max_retries": 1, **settings}
    return ChatGoogleGenerativeAI(model=model, base_url=ORIGIN, api_key=KEY, **settings)


@on(SUITE, TARGETS, gateway_only=True)
def invoke_and_stream(model):
    chat = connect(model)
    equal(chat.invoke("scene:hello").text, HELLO, "the answer")
    whole = None
    for chunk in chat.stream(f"scene:odd {ODD}"):
        whole = chunk if whole is None else whole + chunk
    equal(whole.text, ODD, "the stream")
    equal((whole.usage_metadata["input_tokens"], whole.usage_metadata["output_tokens"]), (20, 9), "usage")
    answer = chat.invoke([SystemMessage("Be brief."), HumanMessage("scene:system")])
    equal(answer.text, "The system said: Be brief.", "the system prompt")


@on(SUITE, TARGETS, gateway_only=True)
def tools_over_three_turns(model):
    chat = connect(model).bind_tools([get_weather])
    turns = [HumanMessage(cities("Paris", "Oslo"))]
    turns.append(chat.invoke(turns))
    equal([call["args"] for call in turns[1].tool_calls], [{"city": "Paris"}, {"city": "Oslo"}], "calls")
    turns += [ToolMessage(get_weather(**call["args"]), tool_call_id=call["id"]) for call in turns[1].tool_calls]
    turns.append(chat.invoke(turns))
    equal(turns[-1].text, weather_answer("Paris", "Oslo"), "the answer")
    equal(chat.invoke([*turns, HumanMessage("scene:hello")]).text, HELLO, "the next turn")


@on(SUITE, TARGETS, gateway_only=True)
def structured_output(model):
    chat = connect(model).with_structured_output(City, method="json_schema")
    if model == CLAUDE_ON_BEDROCK:
        # Not every model of Bedrock takes a schema, so the gateway sends none.
        error = raises(Exception, lambda: chat.invoke("scene:schema"))
        holds("asks for a schema" in str(error), f"the reason: {error}")
    else:
        equal(chat.invoke("scene:schema"), City(name="Oslo", large=True), "the parsed answer")


@on(SUITE, TARGETS, gateway_only=True)
def vision(model):
    content = [{"type": "text", "text": "scene:picture"}, {"type": "image_url", "image_url": {"url": DATA_URL}}]
    equal(connect(model).invoke([HumanMessage(content)]).text, PICTURE, "what arrived")


@on(SUITE, {"on_gemini": "google/m", "on_messages": "anthropic/claude-sonnet-4-5", "on_bedrock": CLAUDE_ON_BEDROCK}, gateway_only=True)
def thinking(model):
    chat = connect(model, include_thoughts=True, thinking_budget=4096, max_output_tokens=8192)
    turns = [HumanMessage("scene:think")]
    turns.append(chat.invoke(turns))
    thoughts = [block["reasoning"] for block in turns[1].content_blocks if block["type"] == "reasoning"]
    equal((thoughts, turns[1].text), (["First this, then that."], "Thought through."), "thought and text")
    equal(chat.invoke([*turns, HumanMessage("scene:hello")]).text, HELLO, "the next turn")


@on(SUITE, TARGETS, gateway_only=True)
def errors_are_raised(model):
    for status in (400, 500):
        error = raises(Exception, lambda: connect(model).invoke(f"scene:refuse={status}"))
        holds(f"refuses with {status}" in str(error), f"the upstream's reason: {error}")


@on(SUITE, {"on_gemini": "google/gemini-embedding-001", "on_openai": "openai/embed"}, gateway_only=True)
def embeddings(model):
    embedder = GoogleGenerativeAIEmbeddings(model=model, base_url=ORIGIN, google_api_key=KEY)
    equal(embedder.embed_documents(["one", "two"]), [vector("one"), vector("two")], "vectors")
    equal(embedder.embed_query("one"), vector("one"), "one vector")
    holds(last()["path"].startswith(f"/{model.split('/')[0]}/"), "the target")


if __name__ == "__main__":
    finish(SUITE)
