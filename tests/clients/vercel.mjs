// The Vercel AI SDK with its providers openai (chat and responses), openai-compatible and anthropic.

import assert from "node:assert/strict";

import {
  collect, DIRECT, eventually, HELLO, idle, KEY, load, ODD, ORIGIN, OSLO, PICTURE, PIXEL, rejection, run, TOLD, vector,
  versionOf, WEATHER,
} from "./checks.mjs"; // prettier-ignore

const ai = await load("ai");
const { z } = await load("zod");
const { createOpenAI } = await load("@ai-sdk/openai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { createAnthropic } = await load("@ai-sdk/anthropic");

const settings = { baseURL: `${ORIGIN}/v1`, apiKey: KEY };
const openai = createOpenAI(settings);
const compatible = createOpenAICompatible({ ...settings, name: "gateway", includeUsage: true, supportsStructuredOutputs: true });
const anthropic = createAnthropic(settings);
const providers = {
  "openai.chat": (model) => openai.chat(model),
  "openai.responses": (model) => openai.responses(model),
  "openai-compatible": (model) => compatible(model),
  anthropic: (model) => anthropic(model),
};
const targets = {};
for (const name of Object.keys(providers)) {
  const native = name === "anthropic" ? "anthropic/m" : "openai/m";
  Object.assign(targets, { [`native ${name}`]: native, [`on_chat ${name}`]: "chat/m" });
}
/** What generateText and streamText need, for a check's model and target. */
const ask = (model, target, prompt, more) => ({
  model: providers[target.split(" ")[1]](model),
  prompt,
  maxOutputTokens: 200,
  maxRetries: 0,
  // Otherwise its Responses provider sends references to items stored at the vendor, which only the vendor can resolve.
  providerOptions: { openai: { store: false } },
  ...more,
});
const quiet = { onError() {} };
const weather = (seen) => ai.tool({
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => {
    seen.push(city);
    return WEATHER[city];
  },
});

/** Returns the error part of a stream, which follows half of its text. */
async function errorPart(model, target, prompt) {
  const parts = await collect(ai.streamText({ ...ask(model, target, prompt), ...quiet }).fullStream);
  assert.equal(parts.filter((part) => part.type === "text-delta").map((part) => part.text).join(""), "half an answer");
  return parts.filter((part) => part.type === "error").map(({ error }) => JSON.stringify(error) + error.message).join();
}

const checks = {
  async text(model, target) {
    const { text, finishReason, usage } = await ai.generateText(ask(model, target, "scene:hello"));
    assert.deepEqual([text, finishReason], [HELLO, "stop"]);
    assert.deepEqual([usage.inputTokens, usage.outputTokens], [20, 9]);
  },

  async stream(model, target) {
    const result = ai.streamText(ask(model, target, `scene:odd ${ODD}`));
    assert.equal((await collect(result.textStream)).join(""), ODD);
    const usage = await result.usage;
    assert.deepEqual([usage.inputTokens, usage.outputTokens], [20, 9]);
  },

  async parallel_tools_in_steps(model, target) {
    const seen = [];
    const more = { tools: { get_weather: weather(seen) }, stopWhen: ai.stepCountIs(3) };
    assert.equal((await ai.generateText(ask(model, target, "scene:weather=Paris,Oslo", more))).text, TOLD);
    assert.deepEqual(seen, ["Paris", "Oslo"]);
  },

  async parallel_tools_in_streamed_steps(model, target) {
    const seen = [];
    const more = { tools: { get_weather: weather(seen) }, stopWhen: ai.stepCountIs(3) };
    const result = ai.streamText(ask(model, target, "scene:weather=Paris,Oslo", more));
    assert.equal((await collect(result.textStream)).join(""), `Let me look.${TOLD}`);
    assert.deepEqual([seen.toSorted(), (await result.steps).length], [["Oslo", "Paris"], 2]);
  },

  async structured_output(model, target) {
    const output = ai.Output.object({ schema: z.object({ name: z.string(), large: z.boolean() }) });
    assert.deepEqual((await ai.generateText(ask(model, target, "scene:schema", { output }))).output, OSLO);
  },

  async vision(model, target) {
    const image = { type: "file", mediaType: "image/png", data: Buffer.from(PIXEL, "base64") };
    const messages = [{ role: "user", content: [{ type: "text", text: "scene:picture" }, image] }];
    const { prompt, ...rest } = ask(model, target);
    assert.equal((await ai.generateText({ ...rest, messages })).text, PICTURE);
  },

  async errors(model, target) {
    for (const [status, retryable] of [[400, false], [429, true], [500, true]]) {
      const error = await rejection(ai.APICallError, ai.generateText(ask(model, target, `scene:refuse=${status}`)));
      assert.deepEqual([error.statusCode, error.isRetryable], [status, retryable]);
      assert.match(error.message, /The script refuses/);
    }
  },

  // The SDK throws instead of returning an error part if the body does not end properly.
  async error_in_mid_stream(model, target) {
    assert.match(await errorPart(model, target, "scene:breaks"), /breaks off/);
  },

  async end_of_the_connection_in_mid_stream(model, target) {
    if (!DIRECT) assert.match(await errorPart(model, target, "scene:drops"), /connection broke/);
  },

  async retries(model, target) {
    const name = `vercel-${model}-${target.replace(" ", "-")}`;
    const { text } = await ai.generateText(ask(model, target, `scene:flaky=${name}`, { maxRetries: 2 }));
    assert.equal(text, `At the third attempt of ${name}.`);
  },

  async cancellation(model, target) {
    const gone = new AbortController();
    const result = ai.streamText({ ...ask(model, target, "scene:endless", { abortSignal: gone.signal }), ...quiet });
    for await (const part of result.fullStream) if (part.type === "text-delta") gone.abort();
    await eventually("the upstream's answer ends", idle, 5);
  },
};

const media = {
  async embeddings() {
    const model = DIRECT ? "m" : "openai/embed";
    for (const embedder of [openai.embedding(model), compatible.embeddingModel(model)]) {
      const { embeddings } = await ai.embedMany({ model: embedder, values: ["one", "zwölf 🌍"], maxRetries: 0 });
      assert.deepEqual(embeddings, [vector("one"), vector("zwölf 🌍")]);
    }
  },

  async speech_and_transcription() {
    const { audio } = await ai.generateSpeech({ model: openai.speech(DIRECT ? "m" : "openai/tts"), text: "Say wörd.", voice: "alloy" });
    assert.ok(Buffer.from(audio.uint8Array).includes('["Say wörd.", "alloy", "mp3"]'));
    const model = openai.transcription(DIRECT ? "m" : "openai/stt");
    const { text } = await ai.transcribe({ model, audio: Buffer.from("RIFF".repeat(9000)), maxRetries: 0 });
    assert.equal(text, "What was said, wörd for wörd.");
  },
};

await run(`vercel-ai-${versionOf("ai")}`, targets, checks, media);
