import { expect, test } from "vitest";
import type { Provider, ProviderKey } from "../api/types";
import { keyName, keyState, withKey, withoutKey } from "../page/provider/keys";

const key = (id: string, more: Partial<ProviderKey> = {}): ProviderKey => ({
  id,
  last_four: null,
  reference: null,
  state: "ready",
  wait_ms: null,
  ...more,
});

const provider = (set: boolean, api_keys?: ProviderKey[]): Provider => ({ credential: { set }, api_keys }) as unknown as Provider;

test("a change of keys names those that stay and adds the new one", () => {
  const several = provider(true, [key("c1"), key("c4")]);
  expect(withKey(several, "new")).toEqual({ api_keys: [{ id: "c1" }, { id: "c4" }, { key: "new" }] });
  expect(withoutKey(several, "c1")).toEqual({ api_keys: [{ id: "c4" }] });
  expect(withKey(provider(true), "new")).toEqual({ api_keys: [{ id: "c1" }, { key: "new" }] });
  expect(withKey(provider(false), "new")).toEqual({ api_key: "new" });
});

test("a key is shown by its ID and end, and by its state in words", () => {
  expect(keyName(key("c2", { last_four: "aaaa" }))).toBe("c2, ends in aaaa");
  const reference = ["$", "{ENV:KEY}"].join("");
  expect(keyName(key("c2", { reference }))).toBe(`c2, ${reference}`);
  expect(keyName(key("c2"))).toBe("c2");
  expect(keyState(key("c2", { state: "rejected", wait_ms: 3_000 }))).toBe("rejected by the upstream, next try in 3.00 s");
  expect(keyState(key("c2"))).toBe("ready");
  expect(keyState(key("c2", { state: null }))).toBe("not in use");
});
