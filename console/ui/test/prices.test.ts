import { expect, test } from "vitest";
import { draftOf, pricesOf, unknownAfter } from "../page/models/price_draft";

const standing = {
  input: 1,
  output: 5,
  cached_input: 0.1,
  cache_write: 1.25,
  above: [{ input_tokens: 200_000, input: 2, output: 10 }],
  pictures: { "1024x1024": 0.04 },
  tiers: { flex: { input: 0.5, output: 2.5, above: [{ input_tokens: 200_000, input: 1 }] }, "geo:us": { times: 1.1 } },
};

test("a draft that nobody changes is the standing price", () => {
  expect(pricesOf(draftOf(standing))).toEqual(standing);
  expect(unknownAfter(draftOf(standing), draftOf(standing), ["cache_write", "cache_read"])).toEqual([]);
  expect(pricesOf(draftOf(null))).toEqual({});
});

test("what is no number is sent as it is typed", () => {
  const [base, ...rest] = draftOf({ input: 1 });
  expect(pricesOf([{ ...base, rates: { input: "1,5" } } as never, ...rest])).toEqual({ input: "1,5" });
});

test("what becomes unknown is named", () => {
  const before = draftOf(standing);
  const of = (prices: object, used: string[] = []) => unknownAfter(draftOf(prices), before, used);
  expect(of({ ...standing, cache_write: null })).toEqual(["written to cache, 5 min"]);
  expect(of({ ...standing, cached_input: null })).toEqual([]);
  expect(of({ ...standing, tiers: {} })).toEqual(["tier flex", "tier flex, prompts above 200,000 tokens", "tier geo:us"]);
  expect(of(standing, ["cache_write_1h", "audio_input"])).toEqual([
    "written to cache, 1 h (used in the last 30 days)",
    "audio in (used in the last 30 days)",
  ]);
  expect(of({ ...standing, pictures: {} })).toEqual(["sizes of images"]);
});
