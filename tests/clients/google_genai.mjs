// Google's Gen AI SDK for Node on targets of each protocol: text, streams, tools over three turns, images, thoughts,
// formats, token counts, embeddings, errors.

import assert from "node:assert/strict";

import {
  CITY, collect, eventually, HELLO, idle, KEY, last, load, ODD, ORIGIN, OSLO, PARAMETERS, PICTURE, PIXEL, rejection, run,
  TOLD, vector, versionOf, WEATHER,
} from "./checks.mjs"; // prettier-ignore

const { ApiError, GoogleGenAI } = await load("@google/genai");
const client = new GoogleGenAI({ apiKey: KEY, httpOptions: { baseUrl: ORIGIN } });
// The scripted upstream serves a client of Google only as a target.
const CLAUDE_ON_BEDROCK = "bedrock/anthropic.claude-sonnet-4-5-v1:0";
const targets = { on_gemini: "google/m", on_chat: "chat/m", on_messages: "anthropic/m", on_bedrock: CLAUDE_ON_BEDROCK };
const ask = (model, contents, config) => client.models.generateContent({ model, contents, config });
const stream = (model, contents, config) => client.models.generateContentStream({ model, contents, config });
const texts = (pieces) => pieces.map((piece) => piece.text ?? "").join("");
const weather = { functionDeclarations: [{ name: "get_weather", parametersJsonSchema: PARAMETERS }] };

const checks = {
  async text(model) {
    const answer = await ask(model, "scene:hello");
    assert.deepEqual([answer.text, answer.candidates[0].finishReason], [HELLO, "STOP"]);
    const { promptTokenCount, cachedContentTokenCount, candidatesTokenCount, thoughtsTokenCount = 0 } = answer.usageMetadata;
    assert.deepEqual([promptTokenCount, cachedContentTokenCount, candidatesTokenCount + thoughtsTokenCount], [20, 4, 9]);
  },

  async stream(model) {
    assert.equal(texts(await collect(await stream(model, `scene:odd ${ODD}`))), ODD);
    const pieces = await collect(await stream(model, "scene:hello"));
    assert.equal(pieces.filter((piece) => piece.text).length, 4);
    assert.equal(pieces.at(-1).candidates[0].finishReason, "STOP");
    assert.equal(pieces.at(-1).usageMetadata.promptTokenCount, 20);
  },

  async system(model) {
    const { text } = await ask(model, "scene:system", { systemInstruction: "Be brief." });
    assert.equal(text, "The system said: Be brief.");
  },

  async parallel_tools_over_three_turns(model) {
    for (const send of ["sendMessage", "sendMessageStream"]) {
      const chat = client.chats.create({ model, config: { tools: [weather] } });
      const turn = async (message) => {
        const answer = await chat[send]({ message });
        const pieces = send === "sendMessage" ? [answer] : await collect(answer);
        return { text: texts(pieces), calls: pieces.flatMap((piece) => piece.functionCalls ?? []) };
      };
      const { calls } = await turn("scene:weather=Paris,Oslo");
      assert.deepEqual(calls.map((call) => call.args), [{ city: "Paris" }, { city: "Oslo" }]);
      const result = ({ id, name, args }) => ({ functionResponse: { id, name, response: { output: WEATHER[args.city] } } });
      assert.equal((await turn(calls.map(result))).text, TOLD);
      assert.equal((await turn("scene:hello")).text, HELLO);
    }
  },

  async structured_output(model) {
    const answer = ask(model, "scene:schema", { responseMimeType: "application/json", responseJsonSchema: CITY });
    if (model === CLAUDE_ON_BEDROCK) {
      // Not every model of Bedrock takes a schema, so the gateway sends none.
      const error = await rejection(ApiError, answer);
      assert.equal(error.status, 400);
      assert.match(error.message, /asks for a schema/);
    } else {
      assert.deepEqual(JSON.parse((await answer).text), OSLO);
    }
  },

  async vision(model) {
    const contents = [{ text: "scene:picture" }, { inlineData: { mimeType: "image/png", data: PIXEL } }];
    assert.equal((await ask(model, contents)).text, PICTURE);
  },

  async errors(model) {
    for (const status of [400, 429, 500]) {
      for (const call of [ask, async (...all) => collect(await stream(...all))]) {
        const error = await rejection(ApiError, call(model, `scene:refuse=${status}`));
        assert.equal(error.status, status);
        assert.match(error.message, new RegExp(`refuses with ${status}`));
      }
    }
  },

  async cancellation(model) {
    const gone = new AbortController();
    const read = async () => {
      for await (const piece of await stream(model, "scene:endless", { abortSignal: gone.signal })) if (piece.text) gone.abort();
    };
    await rejection(Error, read());
    await eventually("the upstream's answer ends", idle, 5);
  },
};

const thinkers = { ...targets, on_messages: "anthropic/claude-sonnet-4-5" };
const once = {};
for (const [target, model] of Object.entries(thinkers)) {
  once[`gateway_thinking [${target}]`] = async () => {
    const config = { thinkingConfig: { includeThoughts: true, thinkingLevel: "HIGH" } };
    const { candidates } = await ask(model, "scene:think", config);
    const { parts } = candidates[0].content;
    const thoughts = parts.filter((part) => part.thought).map((part) => part.text).join("");
    assert.deepEqual([thoughts, parts.at(-1).text], ["First this, then that.", "Thought through."]);
    const user = (text) => ({ role: "user", parts: [{ text }] });
    const history = [user("scene:think"), candidates[0].content, user("scene:hello")];
    assert.equal((await ask(model, history, config)).text, HELLO);
  };
}

await run(`google-genai-node-${versionOf("@google/genai")}`, targets, checks, {
  ...once,

  async gateway_tokens() {
    const counted = async (model) => (await client.models.countTokens({ model, contents: "word ".repeat(400) })).totalTokens;
    assert.equal(await counted("google/m"), 4242);
    const estimate = await counted("chat/m");
    assert.ok(300 < estimate && estimate < 800, `an estimate of 400 words: ${estimate}`);
  },

  async gateway_embeddings() {
    for (const [model, path] of [
      ["google/gemini-embedding-001", "/google/v1beta/models/gemini-embedding-001:batchEmbedContents"],
      ["openai/embed", "/openai/v1/embeddings"],
    ]) {
      const { embeddings } = await client.models.embedContent({ model, contents: ["one", "zwölf 🌍"] });
      assert.deepEqual(embeddings.map(({ values }) => values), [vector("one"), vector("zwölf 🌍")]);
      assert.equal((await last()).path, path);
    }
  },

  async gateway_models() {
    const models = await collect(await client.models.list());
    const named = (name) => models.find((model) => model.name === `models/${name}`);
    assert.ok(named("chat/m").supportedActions.includes("generateContent"));
    assert.deepEqual(named("google/gemini-embedding-001").supportedActions, ["embedContent", "batchEmbedContents"]);
  },

  async gateway_wrong_key_and_model() {
    const stranger = new GoogleGenAI({ apiKey: "wrong", httpOptions: { baseUrl: ORIGIN } });
    const refused = await rejection(ApiError, stranger.models.generateContent({ model: "chat/m", contents: "x" }));
    assert.equal(refused.status, 401);
    assert.equal((await rejection(ApiError, ask("none", "scene:hello"))).status, 404);
  },
});
