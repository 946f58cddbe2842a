// The Vercel AI SDK with its provider of Google on targets of each protocol.

import assert from "node:assert/strict";

import {
  collect, eventually, HELLO, idle, KEY, last, load, ODD, ORIGIN, OSLO, PICTURE, PIXEL, rejection, run, vector, versionOf,
  WEATHER,
} from "./checks.mjs"; // prettier-ignore

const ai = await load("ai");
const { z } = await load("zod");
const { createGoogleGenerativeAI } = await load("@ai-sdk/google");

const google = createGoogleGenerativeAI({ baseURL: `${ORIGIN}/v1beta`, apiKey: KEY });
// The scripted upstream serves a client of Google only as a target.
const CLAUDE_ON_BEDROCK = "bedrock/anthropic.claude-sonnet-4-5-v1:0";
const targets = { on_gemini: "google/m", on_chat: "chat/m", on_messages: "anthropic/m", on_bedrock: CLAUDE_ON_BEDROCK };
const ask = (model, prompt, more) => ({ model: google(model), prompt, maxOutputTokens: 200, maxRetries: 0, ...more });
const quiet = { onError() {} };

const checks = {
  async text(model) {
    const { text, finishReason, usage } = await ai.generateText(ask(model, "scene:hello"));
    assert.deepEqual([text, finishReason], [HELLO, "stop"]);
    assert.deepEqual([usage.inputTokens, usage.outputTokens], [20, 9]);
  },

  async stream(model) {
    const result = ai.streamText(ask(model, `scene:odd ${ODD}`));
    assert.equal((await collect(result.textStream)).join(""), ODD);
    assert.equal((await result.usage).inputTokens, 20);
  },

  async parallel_tools_in_steps(model) {
    for (const generate of [ai.generateText, ai.streamText]) {
      const seen = [];
      const get_weather = ai.tool({
        inputSchema: z.object({ city: z.string() }),
        execute: async ({ city }) => {
          seen.push(city);
          return WEATHER[city];
        },
      });
      const more = { tools: { get_weather }, stopWhen: ai.stepCountIs(3) };
      const result = await generate(ask(model, "scene:weather=Paris,Oslo", more));
      const steps = await result.steps;
      const { text } = steps.at(-1);
      assert.ok(text.startsWith("It says: ") && Object.values(WEATHER).every((words) => text.includes(words)), text);
      assert.deepEqual([seen.toSorted(), steps.length], [["Oslo", "Paris"], 2]);
    }
  },

  async structured_output(model) {
    const output = ai.Output.object({ schema: z.object({ name: z.string(), large: z.boolean() }) });
    const answer = ai.generateText(ask(model, "scene:schema", { output }));
    if (model === CLAUDE_ON_BEDROCK) {
      // Not every model of Bedrock takes a schema, so the gateway sends none.
      const error = await rejection(ai.APICallError, answer);
      assert.equal(error.statusCode, 400);
      assert.match(error.message, /asks for a schema/);
    } else {
      assert.deepEqual((await answer).output, OSLO);
    }
  },

  async vision(model) {
    const image = { type: "file", mediaType: "image/png", data: Buffer.from(PIXEL, "base64") };
    const messages = [{ role: "user", content: [{ type: "text", text: "scene:picture" }, image] }];
    const { prompt, ...rest } = ask(model);
    assert.equal((await ai.generateText({ ...rest, messages })).text, PICTURE);
  },

  async errors(model) {
    for (const [status, retryable] of [[400, false], [429, true], [500, true]]) {
      const error = await rejection(ai.APICallError, ai.generateText(ask(model, `scene:refuse=${status}`)));
      assert.deepEqual([error.statusCode, error.isRetryable], [status, retryable]);
      assert.match(error.message, /The script refuses/);
    }
  },

  async cancellation(model) {
    const gone = new AbortController();
    const result = ai.streamText({ ...ask(model, "scene:endless", { abortSignal: gone.signal }), ...quiet });
    for await (const part of result.fullStream) if (part.type === "text-delta") gone.abort();
    await eventually("the upstream's answer ends", idle, 5);
  },
};

await run(`vercel-ai-google-${versionOf("@ai-sdk/google")}`, targets, checks, {
  async gateway_thinking() {
    const options = { google: { thinkingConfig: { includeThoughts: true, thinkingLevel: "high" } } };
    for (const model of ["google/m", "anthropic/claude-sonnet-4-5", CLAUDE_ON_BEDROCK]) {
      const more = { providerOptions: options, maxOutputTokens: 32_000 };
      const { reasoningText, text } = await ai.generateText(ask(model, "scene:think", more));
      assert.deepEqual([reasoningText, text], ["First this, then that.", "Thought through."], model);
    }
  },

  async gateway_embeddings() {
    for (const [model, upstream] of [["google/gemini-embedding-001", "/google/"], ["openai/embed", "/openai/"]]) {
      const embedder = google.textEmbeddingModel(model);
      const one = await ai.embed({ model: embedder, value: "one", maxRetries: 0 });
      assert.deepEqual(one.embedding, vector("one"));
      const { embeddings } = await ai.embedMany({ model: embedder, values: ["one", "zwölf 🌍"], maxRetries: 0 });
      assert.deepEqual(embeddings, [vector("one"), vector("zwölf 🌍")]);
      assert.ok((await last()).path.startsWith(upstream), model);
    }
  },
});
