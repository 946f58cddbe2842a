import { expect, test } from "vitest";
import type { Setup } from "../api/shapes";
import type { Model, Provider } from "../api/types";
import { initialsOf, inOrder } from "../page/connect_provider";
import { type Seen, stagesOf, troubleOf } from "../page/setup/check";
import { costOf, modelToTest, providerOfStep } from "../page/setup/provider";
import { freeName, provenTarget } from "../page/setup/route";
import { nextStep, stepAfter, stepsLeft } from "../page/setup/steps";
import { clientName } from "../part/client_name";

const NONE: Setup = {
  human: false,
  project: false,
  owner: false,
  provider: false,
  synced: false,
  proven: false,
  endpoint: false,
  key: false,
  first_request: null,
};

test("the next step is the first that is not done, wherever the others were done", () => {
  expect(nextStep(NONE)).toBe("access");
  expect(nextStep({ ...NONE, human: true, project: true })).toBe("access");
  const later = { ...NONE, human: true, project: true, owner: true, provider: true, synced: true };
  expect(nextStep(later)).toBe("test");
  expect(stepsLeft(later)).toBe(4);
  expect(stepAfter("access", later)).toBe("test");
  expect(stepAfter("keys", { ...later, proven: true, endpoint: true, key: true })).toBe("client");
  expect(nextStep({ ...later, proven: true, endpoint: true, key: true, first_request: "req_1" })).toBeNull();
});

test("a test's cost is known only if both prices are", () => {
  expect(costOf({ prices: { input: 1, output: 10 } })).toBe(20 + 1280);
  expect(costOf({ prices: { input: 1 } })).toBeNull();
  expect(costOf(undefined)).toBeNull();
});

test("a step offers no provider that cannot complete it, wanted or not", () => {
  const of = (id: string, type: string, state = "ready"): Provider => ({ id, type, state }) as Provider;
  const echo = of("echo", "echo");
  const mine = of("mine", "openai_compatible");
  const other = of("other", "openai");
  expect(providerOfStep([echo, of("voice", "builtin_speech")], "echo")).toBeUndefined();
  expect(providerOfStep([echo, mine, other], "echo")).toBe(mine);
  expect(providerOfStep([echo, mine, other], "other")).toBe(other);
});

test("the target that was proven last is suggested", () => {
  const of = (id: string, model: string | null, at: number | null) =>
    ({ id, evidence: { inference: { model, proven_at_ms: at } } }) as unknown as Provider;
  expect(provenTarget([of("a", "m", 1), of("b", "x/y", 3), of("c", null, null)])).toBe("b/x/y");
  expect(provenTarget([of("a", null, null), {} as Provider])).toBeNull();
});

const seen = (change: Partial<Seen>): Seen => ({
  address: "127.0.0.1",
  client: "claude-cli/2.1.329",
  path: "/v1/messages",
  status: 200,
  code: null,
  param: null,
  key_prefix: "llmgw_Q68",
  model: "default",
  request_id: "req_1",
  ...change,
});
const expected = { prefix: "llmgw_Q68", endpoints: ["default"] };

test("a client's first request is followed from its arrival to its stream", () => {
  expect(stagesOf(null, "llmgw_Q68", null)).toEqual([null, null, null, null, null]);
  expect(stagesOf(seen({ status: 401, key_prefix: "llmgw_Xy7" }), "llmgw_Q68", null)).toEqual([true, false, false, false, false]);
  expect(stagesOf(seen({ status: 404 }), "llmgw_Q68", null)).toEqual([true, true, false, false, false]);
  expect(stagesOf(seen({ status: 400 }), "llmgw_Q68", null)).toEqual([true, true, true, false, false]);
  expect(stagesOf(seen({}), "llmgw_Q68", null)).toEqual([true, true, true, true, null]);
  expect(stagesOf(seen({}), "llmgw_Q68", { stream: true, first_content_us: 1, error: null })).toEqual([true, true, true, true, true]);
});

test("what went wrong has its own sentence", () => {
  const said = (change: Partial<Seen>) => troubleOf(seen(change), null, expected);
  expect(said({})).toBeNull();
  expect(said({ status: 401, key_prefix: "llmgw_Xy7" })?.text).toBe(
    "A request from 127.0.0.1 (Claude Code 2.1.329) carried another key: llmgw_Xy7…",
  );
  expect(said({ status: 404, path: "/v1/v1/chat/completions", model: null })?.text).toBe(
    "It asked for /v1/v1/chat/completions. Leave /v1 out of the client's address.",
  );
  expect(said({ status: 404, path: "/v1/v1beta/models/m:generateContent", model: null })?.text).toBe(
    "It asked for /v1/v1beta/models/m:generateContent. Leave /v1 out of the client's address.",
  );
  expect(said({ status: 404, model: "gpt-4o" })).toEqual({
    text: "It asked for gpt-4o, which this key cannot use. It may use: default.",
    missing: "gpt-4o",
  });
  expect(said({ status: 400, code: "unsupported_parameter" })?.text).toBe("It was answered 400: unsupported_parameter.");
  const unsupported = seen({ status: 400, code: "unsupported_parameter", param: "store", path: "/v1/responses" });
  expect(troubleOf(unsupported, null, { ...expected, taker: "openai-main" })?.text).toBe(
    "It sent store, which no target of default takes. A target of openai-main takes it.",
  );
  expect(troubleOf(unsupported, null, expected)?.text).toBe("It sent store, which no target of default takes.");
  expect(said({ status: 400, code: "invalid_request", param: "messages[0].role" })?.text).toBe(
    "It was answered 400, invalid_request: the field messages[0].role is not right.",
  );
});

test("clients are called by the names of their makers", () => {
  expect(clientName("claude-cli/2.1.329")).toBe("Claude Code 2.1.329");
  expect(clientName("AsyncOpenAI/Python/1.2.3")).toBe("OpenAI SDK 1.2.3");
  expect(clientName("OpenAI/Python 2.8.1")).toBe("OpenAI SDK 2.8.1");
  expect(clientName("GeminiCLI-tui/0.61.0/smart")).toBe("Gemini CLI 0.61.0");
  expect(clientName("google-genai-sdk/3.6.1")).toBe("Google Gen AI SDK 3.6.1");
  expect(clientName("my-agent/7")).toBe("my-agent 7");
  expect(clientName(null)).toBeNull();
});

test("the endpoint that is suggested has a name that nothing else has", () => {
  expect(freeName([])).toBe("smart");
  expect(freeName(["smart", "smart-2", "openai"])).toBe("smart-3");
});

test("the model that a test asks first chats, and is the cheapest of known prices", () => {
  const of = (model: string, operations: string[], prices: object | null) => ({ model, operations, prices }) as unknown as Model;
  const chat = ["chat_completions"];
  expect(modelToTest([])).toBe("");
  expect(modelToTest([of("embed", ["embeddings"], null)])).toBe("embed");
  expect(modelToTest([of("embed", ["embeddings"], { input: 0, output: 0 }), of("a", chat, null), of("b", chat, null)])).toBe("a");
  expect(modelToTest([of("a", chat, null), of("dear", chat, { input: 3, output: 9 }), of("cheap", chat, { input: 1, output: 2 })])).toBe(
    "cheap",
  );
});

test("popular providers come first, then the others by name", () => {
  const kind = (id: string, name: string) => ({ id, name, type: "compatible", registry: true });
  const kinds = [
    kind("dashscope", "Alibaba Cloud"),
    kind("vercel", "Vercel"),
    kind("cohere", "Cohere"),
    kind("groq", "Groq"),
    kind("openai", "OpenAI"),
  ];
  expect(inOrder(kinds).map(({ id }) => id)).toEqual(["openai", "groq", "dashscope", "cohere", "vercel"]);
  const initials = ["OpenAI", "Anthropic", "Google Gemini API", "vLLM", "llama.cpp server", "Z.ai"].map(initialsOf);
  expect(initials).toEqual(["OA", "An", "GG", "vL", "ls", "Za"]);
});
