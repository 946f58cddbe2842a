// Anthropic's Node SDK: Messages natively and on chat-only targets.

import assert from "node:assert/strict";

import {
  CITY, DIRECT, eventually, HELLO, idle, KEY, last, load, ODD, ORIGIN, OSLO, PARAMETERS, PICTURE, PIXEL, rejection, run, TOLD,
  versionOf, WEATHER,
} from "./checks.mjs"; // prettier-ignore

const { default: Anthropic } = await load("@anthropic-ai/sdk");
const client = new Anthropic({ baseURL: ORIGIN, apiKey: KEY, maxRetries: 0, timeout: 60_000 });
const ask = (model, content, more) => ({ model, max_tokens: 200, messages: [{ role: "user", content }], ...more });
const tools = [{ name: "get_weather", input_schema: PARAMETERS }];

const checks = {
  async unary(model) {
    const answer = await client.messages.create(ask(model, "scene:hello"));
    assert.deepEqual([answer.content.map((block) => block.text), answer.stop_reason], [[HELLO], "end_turn"]);
    const { input_tokens, cache_read_input_tokens, output_tokens } = answer.usage;
    assert.deepEqual([input_tokens, cache_read_input_tokens, output_tokens], [16, 4, 9]);
  },

  async stream(model) {
    const pieces = [];
    const stream = client.messages.stream(ask(model, `scene:odd ${ODD}`)).on("text", (text) => pieces.push(text));
    const answer = await stream.finalMessage();
    assert.deepEqual([pieces.join(""), answer.content[0].text], [ODD, ODD]);
    assert.deepEqual([answer.usage.input_tokens, answer.usage.output_tokens], [16, 9]);
  },

  async parallel_tools_in_a_stream(model) {
    const question = ask(model, "scene:weather=Paris,Oslo", { tools });
    let fragments = 0;
    const stream = client.messages.stream(question).on("inputJson", () => (fragments += 1));
    const answer = await stream.finalMessage();
    assert.ok(fragments > 4, `${fragments} fragments`);
    assert.equal(answer.stop_reason, "tool_use");
    const calls = answer.content.filter((block) => block.type === "tool_use");
    const results = calls.map((call) => ({ type: "tool_result", tool_use_id: call.id, content: WEATHER[call.input.city] }));
    const turns = [{ role: "assistant", content: answer.content }, { role: "user", content: results }];
    const next = await client.messages.create({ ...question, messages: [...question.messages, ...turns] });
    assert.equal(next.content[0].text, TOLD);
  },

  async tools_run_by_the_helper(model) {
    const tool = { ...tools[0], run: ({ city }) => WEATHER[city], parse: (input) => input };
    const runner = client.beta.messages.toolRunner(ask(model, "scene:weather=Paris,Oslo", { tools: [tool] }));
    assert.equal((await runner).content[0].text, TOLD);
  },

  async structured_output_and_vision(model) {
    const format = { type: "json_schema", schema: CITY };
    const answer = await client.messages.create(ask(model, "scene:schema", { output_config: { format } }));
    assert.deepEqual(JSON.parse(answer.content[0].text), OSLO);
    const source = { type: "base64", media_type: "image/png", data: PIXEL };
    const parts = [{ type: "text", text: "scene:picture" }, { type: "image", source }];
    assert.equal((await client.messages.create(ask(model, parts))).content[0].text, PICTURE);
  },

  async thinking(model) {
    const thinking = { type: "enabled", budget_tokens: 1024 };
    const answer = await client.messages.stream({ ...ask(model, "scene:think", { thinking }), max_tokens: 2000 }).finalMessage();
    assert.equal(answer.content[0].thinking, "First this, then that.");
    assert.equal(answer.content[1].text, "Thought through.");
  },

  async tokens_are_counted(model, target) {
    const { messages } = ask(model, `scene:hello ${"word ".repeat(400)}`);
    const { input_tokens } = await client.messages.countTokens({ model, messages });
    if (target === "native") assert.equal(input_tokens, 4242);
    else assert.ok(input_tokens > 300 && input_tokens < 800, `an estimate of 400 words: ${input_tokens}`);
  },

  async errors(model) {
    const table = [
      [400, Anthropic.BadRequestError, "invalid_request_error"],
      [429, Anthropic.RateLimitError, "rate_limit_error"],
      [500, Anthropic.InternalServerError, "api_error"],
      [529, Anthropic.InternalServerError, "overloaded_error"],
    ];
    for (const stream of [false, true]) {
      for (const [status, kind, type] of table) {
        const error = await rejection(kind, client.messages.create(ask(model, `scene:refuse=${status}`, { stream })));
        assert.deepEqual([error.status, error.error.error.type], [status, type]);
      }
    }
    const error = await rejection(Anthropic.APIError, client.messages.stream(ask(model, "scene:breaks")).finalMessage());
    assert.match(error.message, /breaks off/);
  },

  async retries(model) {
    const name = `node-messages-${model}`;
    const answer = await client.messages.create(ask(model, `scene:flaky=${name}`), { maxRetries: 2 });
    assert.equal(answer.content[0].text, `At the third attempt of ${name}.`);
  },

  async cancellation(model) {
    const stream = client.messages.stream(ask(model, "scene:endless"));
    for await (const event of stream) if (event.type === "content_block_delta") break;
    stream.abort();
    await eventually("the upstream's answer ends", idle, 5);
  },
};

const once = {
  async betas_go_upstream() {
    const model = DIRECT ? "m" : "anthropic/m";
    await client.beta.messages.create({ ...ask(model, "scene:hello"), betas: ["context-management-2025-06-27"] });
    assert.equal((await last()).headers["anthropic-beta"], "context-management-2025-06-27");
  },

  async gateway_models_and_faults() {
    const ids = [];
    for await (const model of client.models.list({ limit: 1000 })) ids.push(model.id);
    for (const id of ["anthropic/m", "chat/m", "either"]) assert.ok(ids.includes(id), `${id} in ${ids}`);
    assert.equal((await client.models.retrieve("chat/m")).id, "chat/m");
    const stranger = new Anthropic({ baseURL: ORIGIN, apiKey: "wrong", maxRetries: 0 });
    await rejection(Anthropic.AuthenticationError, stranger.messages.create(ask("chat/m", "scene:hello")));
    await rejection(Anthropic.NotFoundError, client.messages.create(ask("none", "scene:hello")));
  },
};

await run(`anthropic-node-${versionOf("@anthropic-ai/sdk")}`, { native: "anthropic/m", on_chat: "chat/m" }, checks, once);
