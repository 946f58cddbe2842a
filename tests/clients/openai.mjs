// OpenAI's Node SDK: Chat Completions and Responses, natively and over other protocols; embeddings and audio.

import assert from "node:assert/strict";

import {
  CITY, collect, DIRECT, eventually, HELLO, idle, KEY, last, load, ODD, ORIGIN, OSLO, PARAMETERS, PICTURE, PIXEL, rejection,
  run, TOLD, vector, versionOf, WEATHER,
} from "./checks.mjs"; // prettier-ignore

const { default: OpenAI, toFile } = await load("openai");
const client = new OpenAI({ baseURL: `${ORIGIN}/v1`, apiKey: KEY, maxRetries: 0, timeout: 60_000 });
const chat = (model, content, more) => ({ model, messages: [{ role: "user", content }], max_tokens: 200, ...more });
const respond = (model, input, more) => ({ model, input, max_output_tokens: 200, store: false, ...more });
const chatTools = [{ type: "function", function: { name: "get_weather", parameters: PARAMETERS } }];
const responseTools = [{ type: "function", name: "get_weather", parameters: PARAMETERS, strict: false }];
const both = "scene:weather=Paris,Oslo";
const dataUrl = `data:image/png;base64,${PIXEL}`;
const textOf = (chunks) => chunks.flatMap((chunk) => chunk.choices.map((choice) => choice.delta.content ?? "")).join("");
const weatherOf = (text) => WEATHER[JSON.parse(text).city];

const checks = {
  async chat(model) {
    const answer = await client.chat.completions.create(chat(model, "scene:hello"));
    assert.equal(answer.choices[0].message.content, HELLO);
    assert.deepEqual([answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens], [20, 9, 29]);
  },

  async chat_stream(model) {
    const options = { stream: true, stream_options: { include_usage: true } };
    const chunks = await collect(await client.chat.completions.create(chat(model, `scene:odd ${ODD}`, options)));
    assert.equal(textOf(chunks), ODD);
    assert.equal(chunks.at(-1).usage.prompt_tokens_details.cached_tokens, 4);
  },

  async chat_tools_run_by_the_helper(model) {
    const seen = [];
    const getWeather = (given) => {
      seen.push(given.city);
      return WEATHER[given.city];
    };
    const tool = { type: "function", function: { name: "get_weather", parse: JSON.parse, function: getWeather, parameters: PARAMETERS } };
    const runner = client.chat.completions.runTools(chat(model, both, { tools: [tool], stream: true }));
    assert.equal(await runner.finalContent(), TOLD);
    assert.deepEqual(seen, ["Paris", "Oslo"]);
  },

  async chat_tools_whole(model) {
    const question = chat(model, both, { tools: chatTools });
    const { message } = (await client.chat.completions.create(question)).choices[0];
    const results = message.tool_calls.map((call) => (
      { role: "tool", tool_call_id: call.id, content: weatherOf(call.function.arguments) }
    ));
    const next = { ...question, messages: [...question.messages, message, ...results] };
    assert.equal((await client.chat.completions.create(next)).choices[0].message.content, TOLD);
  },

  async chat_structured_output_and_vision(model) {
    const format = { type: "json_schema", json_schema: { name: "city", strict: true, schema: CITY } };
    const answer = await client.chat.completions.parse(chat(model, "scene:schema", { response_format: format }));
    assert.deepEqual(JSON.parse(answer.choices[0].message.content), OSLO);
    const parts = [{ type: "text", text: "scene:picture" }, { type: "image_url", image_url: { url: dataUrl } }];
    assert.equal((await client.chat.completions.create(chat(model, parts))).choices[0].message.content, PICTURE);
  },

  async chat_errors(model) {
    const kinds = { 400: OpenAI.BadRequestError, 429: OpenAI.RateLimitError, 500: OpenAI.InternalServerError };
    for (const stream of [false, true]) {
      for (const [status, kind] of Object.entries(kinds)) {
        const error = await rejection(kind, client.chat.completions.create(chat(model, `scene:refuse=${status}`, { stream })));
        assert.equal(error.status, Number(status));
        assert.match(error.message, /The script refuses/);
      }
    }
    const broken = await client.chat.completions.create(chat(model, "scene:breaks", { stream: true }));
    const error = await rejection(OpenAI.APIError, collect(broken));
    assert.match(error.message, /breaks off/);
  },

  async chat_retries(model) {
    const name = `node-chat-${model}`;
    const answer = await client.chat.completions.create(chat(model, `scene:flaky=${name}`), { maxRetries: 2 });
    assert.equal(answer.choices[0].message.content, `At the third attempt of ${name}.`);
  },

  async chat_cancellation(model) {
    const stream = await client.chat.completions.create(chat(model, "scene:endless", { stream: true }));
    for await (const chunk of stream) if (textOf([chunk])) break;
    await eventually("the upstream's answer ends", idle, 5);
  },

  async responses(model) {
    const answer = await client.responses.create(respond(model, "scene:hello"));
    assert.equal(answer.output_text, HELLO);
    assert.deepEqual([answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.total_tokens], [20, 9, 29]);
  },

  async responses_stream(model) {
    const stream = client.responses.stream(respond(model, `scene:odd ${ODD}`));
    const events = await collect(stream);
    assert.equal((await stream.finalResponse()).output_text, ODD);
    assert.equal(events.filter((event) => event.type === "response.output_text.delta").map((event) => event.delta).join(""), ODD);
    assert.deepEqual([events[0].type, events.at(-1).type], ["response.created", "response.completed"]);
  },

  async responses_tools_in_a_stream(model) {
    const question = respond(model, [{ role: "user", content: both }], { tools: responseTools });
    const answer = await client.responses.stream(question).finalResponse();
    const calls = answer.output.filter((item) => item.type === "function_call");
    const outputs = calls.map((call) => (
      { type: "function_call_output", call_id: call.call_id, output: weatherOf(call.arguments) }
    ));
    const turn = answer.output.map(({ parsed_arguments, ...item }) => item);
    const next = { ...question, input: [...question.input, ...turn, ...outputs] };
    assert.equal((await client.responses.create(next)).output_text, TOLD);
  },

  async responses_structured_output_and_vision(model) {
    const text = { format: { type: "json_schema", name: "city", strict: true, schema: CITY } };
    assert.deepEqual((await client.responses.parse(respond(model, "scene:schema", { text }))).output_parsed, OSLO);
    const content = [{ type: "input_text", text: "scene:picture" }, { type: "input_image", image_url: dataUrl, detail: "auto" }];
    assert.equal((await client.responses.create(respond(model, [{ role: "user", content }]))).output_text, PICTURE);
  },

  async responses_errors(model) {
    const error = await rejection(OpenAI.RateLimitError, client.responses.create(respond(model, "scene:refuse=429", { stream: true })));
    assert.equal(error.headers.get("retry-after"), "7");
    const seen = [];
    let raised = "";
    try {
      for await (const event of await client.responses.create(respond(model, "scene:breaks", { stream: true }))) seen.push(event);
    } catch (error) {
      // The SDK raises an exception for an `error` event; after `response.failed` the gateway closes the connection.
      raised = error.message;
    }
    const failed = seen.filter((event) => event.type === "response.failed").map((event) => event.response.error.message);
    assert.match([raised, ...failed].join(" "), /breaks off/);
    assert.ok(!seen.some((event) => event.type === "response.completed"));
  },

  async responses_cancellation(model) {
    const gone = new AbortController();
    const stream = await client.responses.create(respond(model, "scene:endless", { stream: true }), { signal: gone.signal });
    for await (const event of stream) if (event.type === "response.output_text.delta") gone.abort();
    await eventually("the upstream's answer ends", idle, 5);
  },
};

const media = {
  async embeddings() {
    const model = DIRECT ? "m" : "openai/embed";
    const answer = await client.embeddings.create({ model, input: ["one", "zwölf 🌍"] });
    assert.deepEqual(answer.data.map((item) => [...item.embedding]), [vector("one"), vector("zwölf 🌍")]);
    assert.equal((await last()).body.encoding_format, "base64");
  },

  async stored_responses() {
    const model = DIRECT ? "m" : "openai/m";
    const made = await client.responses.create({ model, input: "scene:hello" });
    assert.equal((await client.responses.retrieve(made.id)).output_text, HELLO);
    const events = await collect(await client.responses.retrieve(made.id, { stream: true, starting_after: 0 }));
    assert.deepEqual([events[0].sequence_number, events.at(-1).type], [1, "response.completed"]);
    const items = await collect(client.responses.inputItems.list(made.id));
    assert.deepEqual(items.map((item) => item.content[0].text), ["scene:hello"]);
    assert.match((await rejection(OpenAI.BadRequestError, client.responses.cancel(made.id))).message, /background/);
    await client.responses.delete(made.id);
    await rejection(OpenAI.NotFoundError, client.responses.retrieve(made.id));
    await rejection(OpenAI.NotFoundError, client.responses.delete(made.id));
    assert.equal((await client.responses.inputTokens.count({ model, input: "scene:hello" })).input_tokens, 41);
    const compacted = await client.responses.compact({ model, input: "scene:hello" });
    assert.deepEqual(compacted.output.map((item) => item.type), ["message", "compaction"]);
  },

  async gateway_images() {
    const ask = (model) => client.images.generate({ model, prompt: "eine Kätze 🐈", n: 1 });
    const made = {};
    for (const model of ["openai/gpt-image-1", "google/gemini-2.5-flash-image"]) made[model] = (await ask(model)).data;
    assert.equal(made["openai/gpt-image-1"].length, 1);
    assert.deepEqual(made["google/gemini-2.5-flash-image"], made["openai/gpt-image-1"]);
    const refused = client.images.generate({ model: "google/gemini-2.5-flash-image", prompt: "scene:unsafe" });
    assert.equal((await rejection(OpenAI.BadRequestError, refused)).code, "moderation_blocked");
  },

  async speech() {
    const answer = await client.audio.speech.create({ model: DIRECT ? "m" : "openai/tts", input: "Say wörd.", voice: "alloy" });
    assert.equal(answer.headers.get("content-type"), "audio/mp3");
    const bytes = Buffer.from(await answer.arrayBuffer());
    assert.ok(bytes.includes(Buffer.from('["Say wörd.", "alloy", "mp3"]')), bytes.subarray(0, 40));
    assert.deepEqual(bytes.subarray(-256), Buffer.from([...Array(256).keys()]));
  },

  async transcription() {
    const file = await toFile(Buffer.from("RIFF".repeat(9000)), "ä b.wav");
    const answer = await client.audio.transcriptions.create({ model: DIRECT ? "m" : "openai/stt", file });
    assert.equal(answer.text, "What was said, wörd for wörd.");
    assert.equal(answer.file, "ä b.wav");
  },

  async gateway_models_and_faults() {
    const ids = (await collect(client.models.list())).map((model) => model.id);
    for (const id of ["openai/m", "chat/m", "either"]) assert.ok(ids.includes(id), `${id} in ${ids}`);
    const stranger = new OpenAI({ baseURL: `${ORIGIN}/v1`, apiKey: "sk-wrong", maxRetries: 0 });
    await rejection(OpenAI.AuthenticationError, stranger.chat.completions.create(chat("chat/m", "scene:hello")));
    await rejection(OpenAI.NotFoundError, client.chat.completions.create(chat("none", "scene:hello")));
  },
};

const targets = { native: "openai/m", on_chat: "chat/m", on_messages: "anthropic/m" };
await run(`openai-node-${versionOf("openai")}`, targets, checks, media);
