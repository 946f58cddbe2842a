import { expect, test } from "vitest";
import { OBSTACLES } from "../page/effective_access";
import { keyWords } from "../part/effects";

test("an effect names the key and the first of what it loses", () => {
  const effect = { key: "key_1", key_name: "ci", selectors: ["a", "b", "c", "d"], selectors_total: 30 };
  expect(keyWords(effect, "loses")).toBe("ci loses a, b, c and 27 more");
  expect(keyWords({ ...effect, key_name: null, selectors: ["a"], selectors_total: 1 }, "gains")).toBe("key_1 gains a");
});

test("every obstacle comes with its remedy", () => {
  for (const [why, remedy] of Object.values(OBSTACLES)) expect([why.length > 0, remedy.endsWith(".")]).toEqual([true, true]);
});
