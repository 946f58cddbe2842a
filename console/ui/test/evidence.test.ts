import { expect, test } from "vitest";
import type { Evidence } from "../api/types";
import { isByTraffic, provenAt, reachedAt } from "../part/evidence";

test("an answer to a client is evidence as a test is, and the later one counts", () => {
  const table: [proven: number | null, answered: number | null, at: number | null, byTraffic: boolean][] = [
    [null, null, null, false],
    [7, null, 7, false],
    [null, 7, 7, true],
    [9, 8, 9, false],
    [8, 9, 9, true],
    [8, 8, 8, false],
  ];
  for (const [proven_at_ms, last_answered_at_ms, at, byTraffic] of table) {
    const of = { proven_at_ms, last_answered_at_ms };
    expect([of, provenAt(of), isByTraffic(of)]).toEqual([of, at, byTraffic]);
  }
});

test("a provider that answered a client was reached, also without a check", () => {
  const evidence = (at_ms: number | null, last_answered_at_ms: number | null) =>
    ({ reachable: { at_ms }, inference: { last_answered_at_ms } }) as Evidence;
  expect([reachedAt(evidence(null, null)), reachedAt(evidence(null, 7)), reachedAt(evidence(9, 7))]).toEqual([null, 7, 9]);
});
