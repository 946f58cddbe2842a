import { expect, test } from "vitest";
import type { Points, SeriesAnswer } from "../api/shapes";
import { headlineOf, onCourse, outcomesOf, providerLines, timesOf } from "../page/overview/figures";
import { labelled, lineOf } from "../part/chart";

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
  partial: false,
  complete_from_ms: 0,
  groups: [{ group, points: of }],
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
  expect(head).toMatchObject({ requests: 30, failed: 3, left: 1, firstP50: 1000, firstP99: 4000, firstBefore: 400, firstAt: 120_000 });
  expect([head.perSecond, head.errorShare, head.outputPerSecond, head.cacheShare]).toEqual([30 / 150, 0.1, 6, 0.4]);
  expect(headlineOf(series(points({})), 150_000)).toMatchObject({ errorShare: null, firstP50: null, cacheShare: null });
  const stacked = outcomesOf(some);
  expect(stacked.map(({ name }) => name)).toEqual(["First target", "After failover", "Client left", "Failed or cut off"]);
  expect(some.requests.map((_, i) => stacked.reduce((sum, { values }) => sum + (values[i] ?? 0), 0))).toEqual(some.requests);
  expect(timesOf(series(some))).toEqual([0, 60_000, 120_000]);
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
