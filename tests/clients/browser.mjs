// The SDKs of OpenAI and Anthropic inside Chromium, bundled as for a web page, on a page whose origin `cors.origins`
// lists: preflights, answers, streams, errors and readable headers. A page of another origin must be rejected.

import assert from "node:assert/strict";

import { DIRECT, HELLO, KEY, load, ODD, ORIGIN, run, STATE, versionOf } from "./checks.mjs";

const esbuild = await load("esbuild");
const { chromium } = await load("playwright-core");

const ENTRY = 'export { default as OpenAI } from "openai"; export { default as Anthropic } from "@anthropic-ai/sdk";';
const bundled = await (esbuild.build ?? esbuild.default.build)({
  stdin: { contents: ENTRY, resolveDir: process.env.LLMGW_TEST_NODE },
  bundle: true,
  platform: "browser",
  format: "iife",
  globalName: "sdks",
  write: false,
  logLevel: "error",
});
const bundle = bundled.outputFiles[0].text;

const browser = await chromium.launch({
  executablePath: process.env.LLMGW_TEST_BROWSER,
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--no-proxy-server"],
});

/** A page of `origin` with the SDKs in it, as `openai` and `anthropic`. */
async function open(origin) {
  const page = await browser.newPage();
  await page.goto(`${origin}/-/page`);
  await page.addScriptTag({ content: bundle });
  await page.evaluate(([origin, apiKey]) => {
    const common = { apiKey, dangerouslyAllowBrowser: true, maxRetries: 0, timeout: 60_000 };
    window.openai = new sdks.OpenAI({ ...common, baseURL: `${origin}/v1` });
    window.anthropic = new sdks.Anthropic({ ...common, baseURL: origin });
  }, [ORIGIN, KEY]);
  return page;
}

const allowed = new URL(STATE).origin;
const other = allowed.replace("127.0.0.1", "localhost");
const page = await open(allowed);
const asked = async () => (await (await fetch(STATE)).json()).asked;
const of = (model, vendor) => (DIRECT ? "m" : model[vendor]);

/** Pages read the gateway's own headers as well. */
function expectHeaders(headers) {
  if (!DIRECT) assert.ok(headers["x-llmgw-provider"] && headers["x-request-id"], JSON.stringify(headers));
}

const checks = {
  async chat(model) {
    const [text, headers] = await page.evaluate(async (model) => {
      const messages = [{ role: "user", content: "scene:hello" }];
      const { data, response } = await openai.chat.completions.create({ model, messages, max_tokens: 200 }).withResponse();
      return [data.choices[0].message.content, Object.fromEntries(response.headers)];
    }, of(model, "openai"));
    assert.equal(text, HELLO);
    expectHeaders(headers);
  },

  async chat_stream(model) {
    const [pieces, headers] = await page.evaluate(async ([model, content]) => {
      const question = { model, messages: [{ role: "user", content }], max_tokens: 200, stream: true };
      const { data, response } = await openai.chat.completions.create(question).withResponse();
      const pieces = [];
      for await (const chunk of data) pieces.push(...chunk.choices.map((choice) => choice.delta.content ?? ""));
      return [pieces, Object.fromEntries(response.headers)];
    }, [of(model, "openai"), `scene:odd ${ODD}`]);
    assert.equal(pieces.join(""), ODD);
    assert.ok(pieces.filter((piece) => piece).length > 1, `${pieces.length} pieces`);
    expectHeaders(headers);
  },

  async responses(model) {
    const text = await page.evaluate(async (model) => {
      const answer = await openai.responses.create({ model, input: "scene:hello", max_output_tokens: 200, store: false });
      return answer.output_text;
    }, of(model, "openai"));
    assert.equal(text, HELLO);
  },

  async responses_stream(model) {
    const text = await page.evaluate(async ([model, input]) => {
      const stream = await openai.responses.create({ model, input, max_output_tokens: 200, store: false, stream: true });
      let text = "";
      for await (const event of stream) if (event.type === "response.output_text.delta") text += event.delta;
      return text;
    }, [of(model, "openai"), `scene:odd ${ODD}`]);
    assert.equal(text, ODD);
  },

  async messages(model) {
    const [text, headers] = await page.evaluate(async (model) => {
      const messages = [{ role: "user", content: "scene:hello" }];
      const { data, response } = await anthropic.messages.create({ model, max_tokens: 200, messages }).withResponse();
      return [data.content[0].text, Object.fromEntries(response.headers)];
    }, of(model, "anthropic"));
    assert.equal(text, HELLO);
    expectHeaders(headers);
  },

  async messages_stream(model) {
    const text = await page.evaluate(async ([model, content]) => {
      const stream = anthropic.messages.stream({ model, max_tokens: 200, messages: [{ role: "user", content }] });
      return (await stream.finalMessage()).content[0].text;
    }, [of(model, "anthropic"), `scene:odd ${ODD}`]);
    assert.equal(text, ODD);
  },

  async errors_are_readable(model) {
    const outcomes = await page.evaluate(async ([one, two]) => {
      const messages = [{ role: "user", content: "scene:refuse=429" }];
      const settled = (promise) => promise.catch((error) => [error.status, error.message]);
      return [
        await settled(openai.chat.completions.create({ model: one, messages, max_tokens: 200 })),
        await settled(openai.chat.completions.create({ model: one, messages, max_tokens: 200, stream: true })),
        await settled(anthropic.messages.create({ model: two, messages, max_tokens: 200 })),
      ];
    }, [of(model, "openai"), of(model, "anthropic")]);
    for (const [status, message] of outcomes) {
      assert.equal(status, 429);
      assert.match(message, /The script refuses/);
    }
  },
};

const once = {
  async gateway_lists_models_for_a_page() {
    const ids = await page.evaluate(async () => (await openai.models.list()).data.map((model) => model.id));
    assert.ok(ids.includes("openai/m"), ids.join(" "));
  },

  async gateway_gives_pages_of_other_origins_nothing() {
    const stranger = await open(other);
    const before = await asked();
    const outcomes = await stranger.evaluate(async () => {
      const messages = [{ role: "user", content: "scene:hello" }];
      const settled = (promise) => promise.then(() => "answered", (error) => error.constructor.name);
      return [
        await settled(openai.chat.completions.create({ model: "openai/m", messages })),
        await settled(anthropic.messages.create({ model: "anthropic/m", messages, max_tokens: 200 })),
      ];
    });
    const named = await stranger.evaluate(() => [sdks.OpenAI.APIConnectionError.name, sdks.Anthropic.APIConnectionError.name]);
    assert.deepEqual(outcomes, named);
    assert.equal(await asked(), before, "the preflight was refused, so nothing went upstream");
    await stranger.close();
  },
};

console.log(`browser ${browser.version()}, openai ${versionOf("openai")}, @anthropic-ai/sdk ${versionOf("@anthropic-ai/sdk")}`);
process.on("exit", () => browser.close());
await run("browser", {
  native: { openai: "openai/m", anthropic: "anthropic/m" },
  on_chat: { openai: "chat/m", anthropic: "chat/m" },
}, checks, once);
