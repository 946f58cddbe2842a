import { expect, test } from "vitest";
import { Live } from "../api/live";
import type { Points, Running, SeriesAnswer, Verdict } from "../api/shapes";
import type { UsageLine } from "../api/types";
import {
  headlineOf,
  limitsOf,
  marksWithin,
  onCourse,
  outcomesOf,
  ownChanges,
  providerLines,
  rateOf,
  standingOf,
  timesOf,
} from "../page/overview/figures";
import { ordered, silenceOf, stateOf } from "../page/overview/running";
import { folded } from "../page/overview/spend";
import { alsoWords, failingProviders, momentBefore, noticed, reasonWords } from "../page/overview/verdict";
import { actionWords } from "../part/action";
import { flagsOf, knownOf, labelled, lineOf, ticksOf } from "../part/chart";

const points = (change: Partial<Points>): Points => {
  const zeros = [0, 0, 0];
  const nulls = [null, null, null];
  return {
    requests: zeros,
    completed: zeros,
    failed_over: zeros,
    failed: zeros,
    cut: zeros,
    cancelled: zeros,
    refused: zeros,
    attempts: zeros,
    attempt_failures: zeros,
    input: zeros,
    cache_read: zeros,
    output: zeros,
    cost_micro_usd: zeros,
    requests_unpriced: zeros,
    first_content_us_p50: nulls,
    first_content_us_p99: nulls,
    duration_us_p50: nulls,
    duration_us_p99: nulls,
    ...change,
  };
};
const series = (of: Points, group: Record<string, string | null> = {}): SeriesAnswer => ({
  from_ms: 0,
  to_ms: 180_000,
  step_ms: 60_000,
  starts_ms: [0, 60_000, 120_000],
  tz: "UTC",
  source: "periods",
  unknown: [],
  requests_merged: 0,
  partial: false,
  complete_from_ms: 0,
  groups: [
    { group, points: of, whole: { first_content_us_p50: 500, first_content_us_p99: 4000, duration_us_p50: null, duration_us_p99: null } },
  ],
  groups_omitted: 0,
});

test("the overview's figures are the sums of the series, and unknown ones stay unknown", () => {
  const some = points({
    requests: [10, 0, 20],
    completed: [8, 0, 18],
    failed_over: [2, 0, 3],
    failed: [1, 0, 0],
    cut: [0, 0, 2],
    cancelled: [1, 0, 0],
    input: [30, 0, 30],
    cache_read: [40, 0, 0],
    output: [600, 0, 300],
    first_content_us_p50: [400, null, 1000],
    first_content_us_p99: [900, null, 4000],
  });
  const head = headlineOf(series(some), 150_000);
  expect(head).toMatchObject({ requests: 30, failed: 3, left: 1, firstP50: 500, firstP99: 4000, firstBefore: 400 });
  expect([head.perSecond, head.errorShare, head.outputPerSecond, head.cacheShare]).toEqual([30 / 150, 0.1, 6, 0.4]);
  expect(headlineOf(series(points({})), 150_000)).toMatchObject({ errorShare: null, cacheShare: null });
  const stacked = outcomesOf(some);
  expect(stacked.map(({ name }) => name)).toEqual(["First target", "After failover", "Client left", "Cut off", "Failed"]);
  expect(some.requests.map((_, i) => stacked.reduce((sum, { values }) => sum + (values[i] ?? 0), 0))).toEqual(some.requests);
  expect(timesOf(series(some))).toEqual([0, 60_000, 120_000]);
  const ofHours = { ...some, failed: [3, 0, 2], failed_over: null, refused: null };
  expect(outcomesOf(ofHours).map(({ name, values }) => [name, values])).toContainEqual(["First target", [8, 0, 18]]);
  expect(limitsOf(series(some))).toBe("");
  expect(limitsOf({ ...series(some), unknown: ["refused"], requests_merged: 1 })).toMatch(/count as failed.*; 1 request of too many/);
  const lines = providerLines(series(points({ attempts: [3, 0, 5], attempt_failures: [1, 0, 0] }), { provider: "a" }));
  expect(lines).toMatchObject([{ id: "a", attempts: 8, failures: 1 }]);
  expect(providerLines(series(some, { provider: null }))).toEqual([]);
  expect(onCourse(50, 86_400_000 * 1.5)).toBe(100);
  expect(onCourse(50, 1000)).toBeNull();
});

test("a chart's labels stand at round moments, and a gap interrupts its line", () => {
  const minutes = Array.from({ length: 60 }, (_, i) => 7 * 60_000 + i * 60_000);
  expect(labelled(minutes, 4).map((i) => minutes[i])).toEqual([15, 30, 45, 60].map((n) => n * 60_000));
  const days = Array.from({ length: 7 }, (_, i) => i * 86_400_000);
  expect(labelled(days, 7)).toEqual([0, 1, 2, 3, 4, 5, 6]);
  expect(
    lineOf(
      [1, 2, null, 3],
      (i) => i,
      (v) => v,
    ),
  ).toBe("M0.0 1.0L1.0 2.0M1.0 3.0h4");
});

test("silent streams stand first among what is running", () => {
  const of = (id: string, change: Partial<Running>) =>
    ({
      request_id: id,
      started_at_ms: 0,
      stage: "streaming",
      last_piece_at_ms: 60_000,
      attempt: 1,
      provider: "p",
      output_tokens_estimate: 300,
      ...change,
    }) as Running;
  const old = of("old", { last_piece_at_ms: 59_000 });
  const silent = of("silent", { started_at_ms: 30_000, last_piece_at_ms: 38_000 });
  const waiting = of("waiting", { started_at_ms: 50_000, stage: "waiting", last_piece_at_ms: null });
  expect(ordered([waiting, old, silent], 60_000).map(({ request_id }) => request_id)).toEqual(["silent", "old", "waiting"]);
  expect(silenceOf(waiting, 60_000)).toBe(0);
  expect(stateOf(silent, 60_000)).toEqual(["warn", "Silent 22 s", "after 300 tokens"]);
  expect(stateOf(old, 60_000)).toEqual(["busy", "Streaming", "5 tokens/s"]);
  expect(stateOf(waiting, 60_000)).toEqual(["off", "Waiting", "p"]);
  expect(stateOf({ ...waiting, attempt: 2 }, 60_000)).toEqual(["off", "Waiting", "p, attempt 2"]);
});

test("what a chart covers has the marks of its changes, the oldest first", () => {
  const marks = [2, 1, 9].map((at) => ({ at, text: "" }));
  expect(marksWithin(marks, 1, 9).map(({ at }) => at)).toEqual([1, 2]);
});

test("a publication that follows an action is no change of its own", () => {
  const change = (at_ms: number, kind: string, audit_id: number | null) => ({ at_ms, kind, audit_id, object: "", text: "" });
  const all = [
    change(0, "publication", null),
    change(9_000, "endpoint.edit", 3),
    change(9_500, "publication", null),
    change(9_600, "reload", null),
  ];
  expect(ownChanges(all).map(({ at_ms }) => at_ms)).toEqual([0, 9_000, 9_600]);
});

test("the verdict has a sentence for each reason, and for what clients notice", () => {
  const reason = (code: string, object: string | null, figures: Record<string, number>) => ({ code, object, figures });
  expect(reasonWords(reason("requests_failing", "coding", { requests: 1204, failed: 494 }))).toEqual({
    title: "41 % of requests to coding get an error",
    text: "494 of 1,204 requests in five minutes failed for no fault of the client.",
  });
  expect(reasonWords(reason("provider_failing", "anthropic-main", { attempts: 1204, failed: 734 })).text).toBe(
    "61 % of its 1,204 attempts in five minutes failed.",
  );
  expect(reasonWords(reason("a_new_one", "x", {}))).toEqual({ title: "a new one", text: "x" });
  const verdict: Verdict = {
    state: "serving",
    since_ms: 0,
    change_before: null,
    reasons_omitted: 0,
    reasons: [reason("requests", null, { requests: 46302, failed: 2, cut: 1, failed_over: 7 })],
  };
  expect(noticed(verdict)).toBe("46,302 requests in the hour, 3 errors. 7 went to another target instead.");
});

test("a verdict of errors does not say that clients are being served", () => {
  const reason = (code: string, object: string | null) => ({ code, object, figures: {} });
  const of = (state: Verdict["state"], codes: [string, string | null][]): Verdict => ({
    state,
    since_ms: 0,
    change_before: null,
    reasons_omitted: 0,
    reasons: codes.map(([code, object]) => reason(code, object)),
  });
  const open: [string, string] = ["circuit_open", "openai-main"];
  expect(alsoWords(of("failing", [["requests_failing", "coding"], open, ["requests", null]]))).toBe("openai-main is failing");
  expect(
    alsoWords(
      of("failing", [
        ["no_eligible_target", "coding"],
        ["provider_failing", "a"],
      ]),
    ),
  ).toBe("a is failing");
  expect(alsoWords(of("degraded", [["first_content_slow", null], open]))).toBe("openai-main is failing, clients are being served");
  expect(reasonWords(reason(...open)).title).toBe("openai-main is failing, clients are being served");
  expect(alsoWords(of("serving", [["requests", null]]))).toBe("");
  expect(
    failingProviders(of("degraded", [open, ["circuit_open", "a/m"], ["provider_failing", "a"], ["first_content_slow", null]])),
  ).toEqual(["openai-main", "a"]);
  const twice: [string, string][] = [open, ["provider_failing", "openai-main"], ["provider_failing", "b"]];
  expect(alsoWords(of("degraded", twice))).toBe("b is failing, clients are being served");
});

test("the last change before has its day unless that is the day of the verdict", () => {
  const noon = Date.UTC(2026, 10, 23, 12);
  expect(momentBefore(noon - 3_600_000, noon)).toBe("11:00");
  expect(momentBefore(noon - 6 * 86_400_000, noon)).toContain("17 Nov");
});

test("a small line leaves out what is unknown, and does not draw it as zero", () => {
  expect(knownOf([null, 3, null, 0])).toEqual([
    [1, 3],
    [3, 0],
  ]);
});

test("the lines of a project's keys are one line of the project", () => {
  const line = (project: string | null, key: string, cost: number) =>
    ({
      group: { project, key },
      names: { project: "agents", key },
      requests: 2,
      requests_unpriced: 1,
      cost_micro_usd: cost,
      tokens: { total: 10 },
    }) as unknown as UsageLine;
  expect(folded([line("p", "a", 1), line("p", "b", 2), line(null, "c", 9)], "project")).toMatchObject([
    { id: null, cost_micro_usd: 9 },
    { id: "p", name: "agents", requests: 4, requests_unpriced: 2, cost_micro_usd: 3, tokens: 20 },
  ]);
});

test("the live stream keeps what changed, and begins again with each connection", () => {
  const live = new Live("live");
  const circuit = { state: "closed", open_since_ms: null, retry_in_ms: null, failures: 0, failures_max: 3 } as const;
  live.take("hello", { at_ms: 1, version: "1", generation: 1 });
  live.take("providers", [{ provider: "a", circuit, running: 0, attempts: 1, failures: 0 }]);
  live.take("providers", [{ provider: "b", circuit, running: 1, attempts: 2, failures: 1 }]);
  live.take("change", { at_ms: 2, audit_id: null, kind: "reload", object: "gateway/config", text: "Read." });
  expect([[...live.providers.value.keys()], live.changes.value.length, live.state.value]).toEqual([["a", "b"], 1, "open"]);
  const one = { request_id: "req_1" } as Running;
  live.take("running", { begun_or_changed: [one, { ...one, request_id: "req_2" }], ended: [], more: 0 });
  live.take("running", { begun_or_changed: [], ended: ["req_1"], more: 3 });
  expect([[...live.running.value.keys()], live.more.value]).toEqual([["req_2"], 3]);
  live.take("hello", { at_ms: 3, version: "1", generation: 1 });
  expect([live.providers.value.size, live.changes.value.length, live.running.value.size]).toEqual([0, 0, 0]);
});

test("labels of marks keep apart, and the last one stands before its mark if there is room", () => {
  expect(flagsOf([100, 500], 600).map((flag) => flag?.room)).toEqual([200, 84]);
  expect(flagsOf([100, 590], 600)).toEqual([
    { room: 200, isBefore: false },
    { room: 274, isBefore: true },
  ]);
  expect(flagsOf([100], 600)).toEqual([{ room: 280, isBefore: false }]);
  expect(flagsOf([300, 560, 590], 600).map((flag) => flag?.isBefore)).toEqual([false, undefined, true]);
  expect(flagsOf([300, 350, 380, 590], 600).filter((flag) => flag?.isBefore)).toEqual([]);
});

test("an axis has each label once, and an empty chart has only its base", () => {
  const count = (n: number): string => String(Math.round(n));
  expect(ticksOf(1, 1, 0.5, count)).toEqual([0, 1]);
  expect(ticksOf(9, 10, 5, count)).toEqual([0, 5, 10]);
  expect(ticksOf(0, 1, 0.5, count)).toEqual([0]);
});

test("a rate has the unit in which it is a number to read, and few failures are no trouble", () => {
  expect([12.94, 0.094, 0.000_5, 0, 5480].map(rateOf)).toEqual([
    ["12.9", "/s"],
    ["5.64", "/min"],
    ["1.80", "/h"],
    ["0", "/s"],
    ["5,480", "/s"],
  ]);
  const of = (failures: number, attempts: number) => standingOf({ failures, attempts })[1];
  expect([of(1, 100), of(5, 100), of(2, 8), of(20, 100), of(0, 0)]).toEqual([
    "working",
    "some failures",
    "some failures",
    "failing",
    "not used",
  ]);
});

test("an action is shown in words, without generated ids", () => {
  expect(actionWords({ action: "key.edit", object: "key/key_0a1b" })).toBe("key changed");
  expect(actionWords({ action: "endpoint.replace", object: "endpoint/coding" })).toBe("endpoint coding changed");
  expect(actionWords({ action: "catalog_override.create", object: "catalog_override/" })).toBe("catalog override created");
});
