import { expect, test } from "vitest";
import type { FullRecord, Points } from "../api/shapes";
import type { Quota } from "../api/types";
import { gotWords, headlineOf, sentenceOf, speedOf } from "../page/request/headline";
import { sessionWords } from "../page/request/session";
import { classesOf } from "../page/request/tokens";
import { asMet, markOf } from "../part/outcome";
import { labelledTicks } from "../part/waterfall";

const record = (more: Partial<FullRecord>): FullRecord =>
  ({
    tokens: { input: 1000, cache_read: 2000, output: 300, reasoning: 100 },
    price: "list 2026-11-22 in 2.5 cached 0.25 out 15",
    ...more,
  }) as FullRecord;

test("each class of tokens has the price and the cost that the record's label names", () => {
  const cost = 1000 * 2.5 + 2000 * 0.25 + 400 * 15;
  expect(classesOf(record({ cost_micro_usd: cost })).map(({ title, price, cost_micro_usd }) => [title, price, cost_micro_usd])).toEqual([
    ["Input", 2.5, 2500],
    ["Input from cache", 0.25, 500],
    ["Output", 15, 4500],
    ["Reasoning", 15, 1500],
  ]);
  const asInput = record({ cost_micro_usd: 3000 * 2.5 + 400 * 15, price: "config in 2.5 out 15" });
  expect(classesOf(asInput).map(({ price }) => price)).toEqual([2.5, 2.5, 15, 15]);
  for (const [other, label] of [
    [cost * 2, "list 2026-11-22 in 2.5 cached 0.25 out 15 more 6acc60c3"],
    [cost, "list 2026-11-22 in 2.5 out 15"],
    [null, null],
  ] as const)
    expect(classesOf(record({ cost_micro_usd: other, price: label })).map(({ price }) => price)).toEqual([null, null, null, null]);
});

test("a session is summed up with what has no price", () => {
  const points = { requests: [30, 7], cost_micro_usd: [600_000, 10_000], requests_unpriced: [0, 2] } as unknown as Points;
  expect(sessionWords(points)).toBe("37 requests, $0.610 + 2 unpriced");
});

test("a ruler has as many labels as there is room for, and none below the flag of the first token", () => {
  const ticks = [0, 100, 200, 300, 400, 500, 600];
  expect(labelledTicks(ticks, 620, null, 620)).toEqual(ticks);
  expect(labelledTicks(ticks, 620, null, 300)).toEqual([0, 200, 400, 600]);
  expect(labelledTicks(ticks, 620, 310, 620)).toEqual([0, 100, 200, 400, 500, 600]);
  expect(labelledTicks(ticks, 620, 310, 300)).toEqual([0, 600]);
  expect(labelledTicks([0], 10, null, 300)).toEqual([0]);
});

test("a target that cannot serve the request stands after the attempts, and a cut answer is no success", () => {
  const steps = ["no_vision", "circuit_open", "status", "served"].map((result) => ({ result }));
  expect(asMet(steps).map(({ result }) => result)).toEqual(["circuit_open", "status", "served", "no_vision"]);
  expect(steps.map((step) => markOf(step, "cut"))).toEqual(["off", "off", "failed", "cut"]);
  expect(markOf({ result: "served" }, "completed")).toBe("ok");
});

/** The errors of requests that a record may have, as `names.rs` of the records names them. */
const RECORDED = [
  ...["unsupported_field", "body_too_large", "budget_exhausted", "no_eligible_target", "quota_exceeded", "rate_limited"],
  ...["upstream_unreachable", "upstream_timeout", "upstream_invalid", "upstream_status", "upstream_cut", "cancelled", "internal"],
];

test("the headline names why a request failed, and a limit with its end", () => {
  const at = Date.UTC(2026, 10, 27, 10);
  const quota = {
    subject: { kind: "key", id: "key_1" },
    metric: "total_tokens",
    window: "day",
    resets_at_ms: Date.UTC(2026, 10, 28),
  } as Quota;
  const refused = record({
    outcome: "failed",
    status: 429,
    error: "quota_exceeded",
    key_name: "load-test",
    provider: null,
    started_at_ms: at,
  });
  expect(headlineOf(refused, quota)).toBe("Refused: tokens a day of load-test are used up until 00:00");
  expect(headlineOf({ ...refused, started_at_ms: at - 86_400_000 }, quota)).toBe("Refused: tokens a day of load-test are used up");
  expect(headlineOf(refused)).toBe("Refused: a limit is used up");
  const failed = { outcome: "failed", status: 503, error: "upstream_status", provider: "a", model: "m" } as const;
  expect(headlineOf(record(failed))).toBe("Failed: the upstream answered with an error");
  for (const error of RECORDED) expect(headlineOf(record({ ...failed, error }))).not.toBe(`Failed: ${error.replace(/_/g, " ")}`);
  expect(headlineOf(record({ outcome: "completed", provider: "a", model: "m" }))).toBe("Answered by a / m");
});

test("equal failures are listed once, with the status that the client got", () => {
  const step = { provider: "anthropic-prod", model: "m", result: "status", status: 529 };
  const failed = { outcome: "failed", status: 503, error: "upstream_status", selector: "coding" } as const;
  expect(sentenceOf(record({ ...failed, trace: [step, step] }))).toBe(
    "Asked for coding. anthropic-prod answered 529, 2 times. The client got 503.",
  );
  // The page shows the text of the error after the status, so the sentence leaves both out.
  const told = record({ ...failed, message: "Overloaded", trace: [step] });
  expect(sentenceOf(told)).toBe("Asked for coding. anthropic-prod answered 529.");
  expect(gotWords(told)).toBe("The client got 503");
  expect(gotWords(record({ ...failed, outcome: "cut", status: 200 }))).toBe("The answer ended with");
});

test("an answer that came at once has no speed", () => {
  expect(speedOf(record({ stream: true, first_content_us: 1_000, duration_us: 9_000 }), 400)).toBeNull();
  expect(speedOf(record({ stream: true, first_content_us: 0, duration_us: 2_000_000 }), 400)).toBe(200);
});
