import { expect, test } from "vitest";
import { reach, reachWords, seeReach } from "../api/reach";
import type { Node } from "../api/types";
import { behindWords, clockWords, usual } from "../page/nodes";

const node = (change: Partial<Node>): Node => ({
  node: 1,
  name: "n1",
  is_this: false,
  standing: "live",
  release: "1.0",
  file_digest: "d",
  seen_version: 7,
  alive_until_ms: 5000,
  heard_at_ms: 0,
  left_at_ms: null,
  clock_ahead_ms: 0,
  unstored_for_ms: null,
  ...change,
});

test("what most live nodes have is usual", () => {
  const release = ({ release }: Node): string => release;
  const old = node({ release: "0.9" });
  expect(usual([node({}), old, node({})], release)).toBe("1.0");
  expect(usual([old, { ...old, standing: "left" }, { ...old, standing: "silent" }, node({})], release)).toBe("1.0");
  expect(usual([node({ standing: "left" })], release)).toBeNull();
});

test("changes that a node has not seen are counted", () => {
  expect(behindWords(node({}), 7)).toBe("current");
  expect(behindWords(node({}), 9)).toBe("2 changes behind");
  expect(behindWords(node({ standing: "left" }), 9)).toBe("–");
});

test("a clock is far off from a second on", () => {
  expect(clockWords(99)).toEqual({ isFar: false, words: "in step" });
  expect(clockWords(-1000)).toEqual({ isFar: false, words: "1.00 s behind" });
  expect(clockWords(1500)).toEqual({ isFar: true, words: "1.50 s ahead" });
});

test("an answer tells which nodes may serve by the state before", () => {
  const seen = (headers: Record<string, string>): string | null => {
    seeReach(new Headers(headers));
    return reach.value && reachWords(reach.value, new Map([[2, "n2"]]));
  };
  expect(seen({ "x-llmgw-published": "true" })).toBeNull();
  expect(seen({})).toBeNull();
  expect(seen({ "x-llmgw-published": "true", "x-llmgw-silent-nodes": "2" })).toBe(
    "Saved. The node n2 is not heard of: it may still serve by the state before.",
  );
  expect(seen({ "x-llmgw-published": "false", "x-llmgw-silent-nodes": "2, 5" })).toBe(
    "Saved. It is not in force everywhere yet: the gateway goes on trying. The nodes n2, 5 are not heard of: they may still serve by the state before.",
  );
  expect(seen({ "x-llmgw-published": "false" })).toBe("Saved. It is not in force everywhere yet: the gateway goes on trying.");
});
