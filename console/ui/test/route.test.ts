import { expect, test } from "vitest";
import type { ExplainedCase } from "../api/explain";
import { phraseOf } from "../api/phrase";
import type { Circuit, Model } from "../api/types";
import { abilitiesOf } from "../page/models";
import { patchOf, typedJson } from "../page/provider/body";
import { withPart, withStep } from "../page/provider/errors";
import { withRequests } from "../page/provider/model";
import { tlsPatch } from "../page/provider/way";
import { casesFor, rowsOf } from "../page/route/cases";
import { contentOf, type Draft, yamlOf } from "../page/route/draft";
import { assumed, faultsOf, faultsText, wordsOf } from "../page/route/rehearse";
import { standingOf } from "../page/routes";

test("a phrase names filters of the catalog, and names of models stay names", () => {
  const table: [string, Record<string, string>, string][] = [
    ["images under $2", { capability: "vision", price_max: "2" }, ""],
    ["claude with tools and images", { capability: "vision,tools" }, "claude"],
    ["proven models with 200k context", { proven: "true", context_min: "200000" }, ""],
    ["over 1M tokens below 0.5", { context_min: "1000000", price_max: "0.5" }, ""],
    ["gpt-image-1", {}, "gpt-image-1"],
    ["openai/gpt-5.1", {}, "openai/gpt-5.1"],
    ["GPT-4o", {}, "GPT-4o"],
    ["qwen 32k", { context_min: "32000" }, "qwen"],
    ["embeddings", { operation: "embeddings" }, ""],
    ["", {}, ""],
  ];
  for (const [text, filters, rest] of table) expect([text, phraseOf(text)]).toEqual([text, { filters, rest }]);
});

const a = { provider: "a", model: "m" };
const b = { provider: "b", model: "m" };
const case_ = (name: string, more: Partial<ExplainedCase> = {}): ExplainedCase => ({
  name,
  affinity: null,
  choice: null,
  would_wait: null,
  budget_ms: null,
  needs: [],
  operation: null,
  resolved: null,
  selector: null,
  stream: null,
  candidates: [a, b],
  passed_over: [],
  refusal: null,
  path: null,
  ...more,
});

test("protocols that fare alike share a row of the matrix", () => {
  const alike = [case_("Text through Chat"), case_("Text through Messages"), case_("Text through Responses")];
  const images = case_("Images", { candidates: [a], passed_over: [{ ...b, reason: "no_vision" }] });
  const rows = rowsOf([...alike, images], [a, b]);
  expect(rows.map(({ name, cells }) => [name, ...cells.map(({ short }) => short)])).toEqual([
    ["Text, any protocol", null, null],
    ["Long input, 100 k tokens", null, null],
    ["Images", null, "no images"],
  ]);
  const unlike = [
    ...alike.slice(0, 2),
    case_("Text through Responses", { candidates: [a], passed_over: [{ ...b, reason: "unsupported" }] }),
  ];
  expect(rowsOf(unlike, [a, b])).toHaveLength(4);
  const refused = case_("Images", { candidates: [], refusal: { status: 400, code: "x", message: "No target takes images.", param: null } });
  expect(rowsOf([refused], [a])[0]).toMatchObject({ refusal: "No target takes images.", cells: [{ short: "refused" }] });
  expect(rowsOf([case_("Embeddings", { candidates: [a] })], [a, b])[0]?.cells[1]?.short).toBe("never used");
});

test("chosen faults survive the address, and concern providers of the draft alone", () => {
  const faults = faultsOf("a:529,b:hang,c:nonsense,nothing");
  expect(faultsText(faults)).toBe("a:529,b:hang");
  expect(assumed(faults, [a])).toEqual([{ provider: "a", fault: "status", status: 529 }]);
  const step = { target: a, starts_at_ms: 0, ends_at_ms: 0, tries: [] };
  expect(wordsOf({ ...step, attempts: 2, result: "status", status: 529 })).toBe("a, 2 attempts: answered 529");
  expect(wordsOf({ ...step, attempts: 0, result: "circuit_open", status: null })).toBe("a is skipped: its circuit has opened");
});

test("settings without effect are not stored", () => {
  const shared: Draft = {
    failover: [{ ...a, weight: 2, tier: 2 }, b],
    order: "weighted",
    sticky: false,
    also: ["x"],
    preamble: "",
    cursor_bodies: true,
  };
  expect(contentOf(shared)).toEqual({ ...shared, preamble: null });
  expect(contentOf({ ...shared, order: "listed" }).failover).toEqual([a, b]);
  expect(contentOf({ ...shared, order: "cheapest" }).failover).toEqual([{ ...a, tier: 2 }, b]);
  const alone = contentOf({ ...shared, failover: [{ ...a, weight: 2 }] });
  expect([alone.failover, alone.order, alone.sticky]).toEqual([[a], "listed", null]);
});

test("a draft is written as the configuration file has it", () => {
  const failover = [a, { provider: "local", model: 'llama3.2:1b "x"' }];
  expect(yamlOf("on", { failover, order: "listed", sticky: null, also: [], preamble: "Be brief.\nAlways.", cursor_bodies: false })).toBe(
    'endpoints:\n  "on":\n    preamble: "Be brief.\\nAlways."\n    failover:\n      - {provider: a, model: m}\n      - {provider: local, model: "llama3.2:1b \\"x\\""}\n',
  );
  const shared: Draft = {
    failover: [
      { ...a, weight: 0 },
      { ...b, tier: 2 },
    ],
    order: "weighted",
    sticky: false,
    also: ["x-*"],
    preamble: "",
    cursor_bodies: true,
  };
  expect(yamlOf("e", shared)).toBe(
    'endpoints:\n  e:\n    also: ["x-*"]\n    order: weighted\n    sticky: false\n    cursor_bodies: true\n    failover:\n      - {provider: a, model: m, weight: 0}\n      - {provider: b, model: m, tier: 2}\n',
  );
});

test("a target that serves by an adaptation says so", () => {
  const adapted = case_("Text through Messages", { needs: ["messages"], candidates: [{ ...a, adapted: "chat" }, b] });
  const [row] = rowsOf([adapted], [a, b]);
  expect(row?.cells).toEqual([
    { short: null, words: "serves, adapted to chat", adapted: ["messages", "chat"] },
    { short: null, words: "serves" },
  ]);
});

test("a target is marked by its circuit, and one that is skipped as such", () => {
  const circuit = (state: Circuit["state"]): Circuit => ({ state, open_since_ms: null, retry_in_ms: null, failures: 0, failures_max: 4 });
  expect(standingOf(false, undefined)).toEqual(["ok", null]);
  expect(standingOf(false, circuit("closed"))).toEqual(["ok", null]);
  expect(standingOf(false, circuit("open"))).toEqual(["bad", "failing"]);
  expect(standingOf(false, circuit("half_open"))).toEqual(["warn", "failing"]);
  expect(standingOf(true, circuit("open"))).toEqual(["off", "skipped"]);
});

test("a target whose model is not known to take images is tried, and marked as unknown", () => {
  const target = { provider: "p", model: "m" };
  const images = { name: "Images", needs: ["chat"], candidates: [target], passed_over: [] } as unknown as ExplainedCase;
  const model = (vision: boolean | null) => new Map([["p/m", { vision } as Model]]);
  expect(rowsOf([images], [target], model(null))[0]?.cells).toEqual([{ short: null, words: "serves", isUnknown: true }]);
  expect(rowsOf([images], [target], model(true))[0]?.cells).toEqual([{ short: null, words: "serves" }]);
});

test("a long input fits by the catalog's context window, and a target with too small a one is still tried", () => {
  const targets = ["small", "exact", "large", "unknown", "absent", "open"].map((provider) => ({ provider, model: "m" }));
  const windows: [string, number | null][] = [
    ["small/m", 32_000],
    ["exact/m", 100_000],
    ["large/m", 128_000],
    ["unknown/m", null],
    ["open/m", 1_000_000],
  ];
  const models = new Map(windows.map(([id, context_window]) => [id, { context_window } as Model]));
  const passed_over = [{ provider: "open", model: "m", reason: "circuit_open" as const }];
  const chat = case_("Text through Chat", { candidates: targets.slice(0, 5), passed_over });
  const row = rowsOf([chat], targets, models).find(({ name }) => name === "Long input, 100 k tokens");
  expect(row?.cells.map((cell) => cell.short ?? (cell.isUnknown ? "?" : "yes"))).toEqual([
    "only 32 k, still tried",
    "only 100 k, still tried",
    "yes",
    "?",
    "?",
    "circuit open",
  ]);
  expect(row?.cells[0]?.words).toContain("still tried");
});

test("a PDF is refused by an adaptation without files, and is otherwise unknown", () => {
  const pdf = casesFor("m", [], []).find(({ name }) => name === "PDF through Messages");
  expect(pdf?.path).toBe("/v1/messages");
  const body = pdf?.body as { messages: [{ content: [{ source: { data: string } }] }] };
  expect(atob(body.messages[0].content[0].source.data)).toMatch(/^%PDF-.*\n%%EOF$/s);
  const passed_over = [{ ...b, reason: "unsupported" as const, param: "messages.0.content.0.source" }];
  const adapted = { provider: "c", model: "m", adapted: "chat" as const };
  const explained = case_("PDF through Messages", { needs: ["messages"], candidates: [a, adapted], passed_over });
  const [row] = rowsOf([explained], [a, b, adapted]);
  expect(row?.cells).toMatchObject([{ short: null, isUnknown: true }, { short: "no PDF" }, { short: null, isUnknown: true }]);
});

test("a model without conversations is described by its operations", () => {
  const unknown = { vision: null, tools: null, reasoning: null, audio: null };
  expect(abilitiesOf({ ...unknown, operations: ["embeddings"] })).toBe("embeddings");
  expect(abilitiesOf({ ...unknown, operations: ["chat_completions", "embeddings"] })).toBeNull();
  expect(abilitiesOf({ ...unknown, vision: false, operations: ["messages"] })).toBe("only text");
  expect(abilitiesOf({ ...unknown, tools: true, vision: true, operations: ["messages"] })).toBe("images, tools");
});

test("a part of a rule for errors that is cleared fits any error", () => {
  const rule = withPart(withPart(withStep({}, "rest"), "status", "429"), "contains", "busy");
  expect(rule).toEqual(withStep({ status: 429, contains: "busy" }, "rest"));
  expect(withPart(withPart(rule, "status", ""), "contains", "")).toEqual(withStep({}, "rest"));
  expect(withStep(rule, "unknown")).toEqual(withStep(rule, "next"));
});

test("the time of a target to its first content stays in the content and in the file", () => {
  const draft: Draft = {
    failover: [{ ...a, first_content_timeout: 2.5 }, b],
    order: "listed",
    sticky: null,
    also: [],
    preamble: "",
    cursor_bodies: false,
  };
  expect(contentOf(draft).failover).toEqual([{ ...a, first_content_timeout: 2.5 }, b]);
  expect(yamlOf("line", draft)).toContain("{provider: a, model: m, first_content_timeout: 2.5}");
});

test("a model gets members and headers of its own, and the others stay as they are", () => {
  const models = ["a", { id: "b", vision: true, headers: { "x-a": "1" } }] as const;
  expect(withRequests([...models], "b", { body: '{"remove":["n"]}', headers: " " })).toEqual([
    "a",
    { id: "b", vision: true, body: { remove: ["n"] } },
  ]);
  expect(withRequests([...models], "a", { headers: '{"x-b":"2"}' })).toEqual([{ id: "a", headers: { "x-b": "2" } }, models[1]]);
  expect(withRequests([...models], "found", { headers: "{" })).toEqual([...models, { id: "found", headers: "{" }]);
});

test("without any text nothing of TLS is left", () => {
  const before = { ca: "a", certificate: "", key: "" };
  expect(tlsPatch(before, { ca: " " })).toBeNull();
  expect(tlsPatch(before, { ca: "", certificate: "c", key: " k" })).toEqual({ ca: null, certificate: "c", key: "k" });
});

test("members of requests are replaced by a merge", () => {
  const before = { set: { a: 1, b: { x: 1 } }, remove: ["c"] };
  expect(patchOf(before, { set: { b: { y: 2 } }, defaults: { d: [1] } })).toEqual({
    set: { a: null, b: { x: null, y: 2 } },
    remove: null,
    defaults: { d: [1] },
  });
  expect([patchOf(before, null), patchOf(null, before), typedJson(" "), typedJson("{"), typedJson('{"a":1}')]).toEqual([
    null,
    before,
    null,
    "{",
    { a: 1 },
  ]);
});
