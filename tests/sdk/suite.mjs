// The official Node SDK against the gateway, or with LLMGW_TEST_DIRECT=1 against the model server itself.
// The environment is suite.py's. Exits with 1 when a check fails.

import assert from "node:assert/strict";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

// The packages are in the cache folder that setup.sh created, not beside this file.
const packages = process.env.LLMGW_TEST_NODE;
const require = createRequire(path.join(packages, "package.json"));
const { default: OpenAI } = await import(pathToFileURL(require.resolve("openai")));
const { version } = JSON.parse(fs.readFileSync(path.join(packages, "node_modules/openai/package.json"), "utf8"));

const ORIGIN = process.env.LLMGW_TEST_ORIGIN;
const UPSTREAM = process.env.LLMGW_TEST_UPSTREAM;
const KEY = process.env.LLMGW_TEST_KEY;
const MODEL = process.env.LLMGW_TEST_MODEL;
const ENDPOINT = process.env.LLMGW_TEST_ENDPOINT;
const DEAD_FIRST = process.env.LLMGW_TEST_DEAD_FIRST_ENDPOINT;
const DIRECT = process.env.LLMGW_TEST_DIRECT === "1";

const options = { apiKey: KEY, maxRetries: 0, timeout: 60_000 };
const client = new OpenAI({ baseURL: `${ORIGIN}/v1`, ...options });
const messages = [{ role: "user", content: "Say hello to the gateway, in one sentence." }];
const steady = { model: ENDPOINT, messages, max_tokens: 24, temperature: 0, seed: 1, cache_prompt: false };
const endless = { model: ENDPOINT, messages, max_tokens: 1500, ignore_eos: true, stream: true };
const weather = [{ role: "user", content: "Use the tool get_weather with city Paris." }];
const tools = [
  {
    type: "function",
    function: {
      name: "get_weather",
      description: "The weather in a city.",
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    },
  },
];
// Small models are unreliable: this question makes this one call the tool, with or without sampling.
const call = { messages: weather, tools, max_tokens: 96 };

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

const textOf = (chunks) => chunks.flatMap((chunk) => chunk.choices.map((choice) => choice.delta.content ?? "")).join("");

async function eventually(what, probe, seconds) {
  const deadline = performance.now() + seconds * 1000;
  for (;;) {
    const value = await probe();
    if (value) return value;
    assert.ok(performance.now() < deadline, `not within ${seconds} s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const upstreamMetrics = async () => (await (await fetch(`${UPSTREAM}/metrics`)).text()).split("\n");

async function upstreamIsIdle() {
  const lines = await upstreamMetrics();
  return lines.includes("llamacpp:requests_processing 0") && lines.includes("llamacpp:requests_deferred 0");
}

async function tokensPredicted() {
  const line = (await upstreamMetrics()).find((text) => text.startsWith("llamacpp:tokens_predicted_total "));
  assert.ok(line, "the model server counts its tokens");
  return Number(line.split(" ")[1]);
}

function record(requestId) {
  return eventually(`a record of ${requestId}`, async () => {
    const response = await fetch(`${ORIGIN}/admin/api/requests`, { headers: { "x-api-key": KEY } });
    assert.equal(response.status, 200);
    return (await response.json()).data.find((row) => row.request_id === requestId);
  }, 5);
}

const usageAddsUp = (usage) => {
  assert.ok(usage.prompt_tokens > 0 && usage.completion_tokens > 0);
  assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
};

const checks = {
  async completion() {
    const answer = await client.chat.completions.create(steady);
    assert.ok(answer.choices[0].message.content);
    usageAddsUp(answer.usage);
  },

  async stream() {
    const chunks = await collect(await client.chat.completions.create({ ...steady, stream: true }));
    const whole = await client.chat.completions.create(steady);
    assert.equal(textOf(chunks), whole.choices[0].message.content);
    assert.ok(chunks.length > 5, "it came in pieces");
    assert.ok(chunks.every((chunk) => chunk.choices.length > 0), "no unrequested usage-only chunk");
  },

  async stream_with_usage() {
    const chunks = await collect(
      await client.chat.completions.create({ ...steady, stream: true, stream_options: { include_usage: true } }),
    );
    usageAddsUp(chunks.at(-1).usage);
    assert.deepEqual(chunks.at(-1).choices, []);
  },

  async stream_helper() {
    const runner = client.chat.completions.stream({ ...steady, stream: true });
    assert.ok(await runner.finalContent());
  },

  async tool_call() {
    const answer = await client.chat.completions.create({ ...steady, ...call });
    const [choice] = answer.choices;
    assert.equal(choice.finish_reason, "tool_calls");
    assert.equal(choice.message.tool_calls[0].function.name, "get_weather");
    assert.deepEqual(JSON.parse(choice.message.tool_calls[0].function.arguments), { city: "Paris" });
  },

  async tool_call_in_a_stream() {
    const runner = client.chat.completions.stream({ ...steady, ...call });
    let fragments = 0;
    runner.on("tool_calls.function.arguments.delta", () => { fragments += 1; });
    const message = await runner.finalMessage();
    assert.equal(message.tool_calls[0].function.name, "get_weather");
    assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), { city: "Paris" });
    assert.ok(fragments > 1, "the call came in fragments");
  },

  async four_streams_at_once() {
    const texts = await Promise.all([1, 2, 3, 4].map(async (index) => {
      const body = { model: ENDPOINT, max_tokens: 16, stream: true };
      const asked = [{ role: "user", content: `Count from ${index}.` }];
      return textOf(await collect(await client.chat.completions.create({ ...body, messages: asked })));
    }));
    assert.ok(texts.every((text) => text.length > 0));
  },

  async cancellation_in_mid_stream_stops_the_model() {
    const stream = await client.chat.completions.create(endless);
    let seen = 0;
    for await (const _ of stream) {
      seen += 1;
      if (seen < 5) continue;
      assert.ok(!(await upstreamIsIdle()), "the model is at work");
      stream.controller.abort();
      break;
    }
    await eventually("the model stops", upstreamIsIdle, 2);
  },

  async models_list() {
    const ids = (await collect(client.models.list())).map((model) => model.id);
    const wanted = DIRECT ? [MODEL] : [MODEL, ENDPOINT, DEAD_FIRST, "smollm2-135m"];
    for (const id of wanted) assert.ok(ids.includes(id), `${id} is among ${ids}`);
  },

  async bad_messages_are_a_bad_request_error() {
    await assert.rejects(client.chat.completions.create({ ...steady, messages: 3 }), OpenAI.BadRequestError);
  },

  async base_url_without_v1() {
    const bare = new OpenAI({ baseURL: ORIGIN, ...options });
    assert.ok((await bare.chat.completions.create({ ...steady, max_tokens: 4 })).choices.length);
  },
};

const gatewayChecks = {
  async cancellation_is_recorded_with_what_was_used() {
    const { data: stream, request_id: requestId } = await client.chat.completions.create(endless).withResponse();
    let seen = 0;
    for await (const _ of stream) {
      seen += 1;
      if (seen === 5) break;
    }
    stream.controller.abort();
    const row = await record(requestId);
    assert.equal(row.outcome, "cancelled");
    assert.ok(row.tokens.output > 0, "what was relayed is not free");
  },

  async cancellation_before_the_first_content_is_recorded() {
    const requestId = `node-early-${Date.now()}`;
    const gone = new AbortController();
    await eventually("the model is idle", upstreamIsIdle, 30);
    const before = await tokensPredicted();
    const long = [{ role: "user", content: "word ".repeat(1000) }];
    const pending = client.chat.completions.create(
      { ...endless, messages: long },
      { signal: gone.signal, headers: { "x-request-id": requestId } },
    );
    await eventually("the model is at work", async () => !(await upstreamIsIdle()), 5);
    gone.abort();
    await assert.rejects(pending, OpenAI.APIUserAbortError);
    assert.equal((await record(requestId)).outcome, "cancelled");
    // The server notices a disconnect only between batches of a long prompt, which take seconds on a busy machine.
    await eventually("the model stops", upstreamIsIdle, 120);
    assert.ok((await tokensPredicted()) - before < 400, "it stopped long before the answer's end");
  },

  async one_model_by_its_id() {
    assert.equal((await client.models.retrieve(MODEL)).id, MODEL);
  },

  async dead_first_target_is_passed_over() {
    const { data, response } = await client.chat.completions
      .create({ model: DEAD_FIRST, messages, max_tokens: 8, stream: true })
      .withResponse();
    assert.equal(response.headers.get("x-llmgw-provider"), "llama");
    assert.equal(response.headers.get("x-llmgw-attempts"), "2");
    assert.ok(textOf(await collect(data)));
  },

  async wrong_key_is_an_authentication_error() {
    const stranger = new OpenAI({ ...options, baseURL: `${ORIGIN}/v1`, apiKey: "sk-wrong-key" });
    await assert.rejects(stranger.chat.completions.create(steady), (error) => {
      assert.ok(error instanceof OpenAI.AuthenticationError);
      assert.equal(error.code, "invalid_api_key");
      assert.ok(error.requestID);
      return true;
    });
  },

  async unknown_model_is_a_not_found_error() {
    await assert.rejects(client.chat.completions.create({ ...steady, model: "no-such-model" }), (error) => {
      assert.ok(error instanceof OpenAI.NotFoundError);
      assert.equal(error.code, "model_not_found");
      return true;
    });
  },
};

const title = `node-${version}`;
let passed = 0;
let failed = 0;
for (const [name, check] of Object.entries(DIRECT ? checks : { ...checks, ...gatewayChecks })) {
  const started = performance.now();
  try {
    await check();
    passed += 1;
    console.log(`ok ${title} ${name} (${((performance.now() - started) / 1000).toFixed(2)} s)`);
  } catch (error) {
    failed += 1;
    console.log(`not ok ${title} ${name}: ${error}`);
    console.error(error);
  }
}
const skipped = DIRECT ? Object.keys(gatewayChecks).length : 0;
console.log(`${title}: ${passed} passed, ${failed} failed, ${skipped} skipped`);
process.exit(failed === 0 && passed > 0 ? 0 : 1);
