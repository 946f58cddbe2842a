// The checks of prices: what the form keeps, what it warns of, and the way back to the catalog's price.

import assert from "node:assert/strict";

import { axe, settled } from "./browser.mjs";
import { Upstream } from "./upstream.mjs";

const button = (page, name) => page.getByRole("button", { name, exact: true });
const MODEL = "claude-haiku-4-5";

/** Sends a request that reads and writes the cache, and returns its record when it is stored. */
async function recordOf(gateway, key, n) {
  assert.equal(await gateway.chat(key.key, `cached/${MODEL}`, "hi"), 200);
  for (;;) {
    const { data } = await gateway.api("GET", `requests?key=${key.id}`);
    if (data.length === n) return data[0];
  }
}

export const priceChecks = {
  async a_new_price_keeps_every_class_of_the_old_one_and_its_deletion_brings_that_back({ gateway, browser }) {
    const upstream = new Upstream();
    await upstream.start();
    upstream.behaviour.cached = { models: [MODEL], tokens: { input: 100, cached: 1000, written: 200, output: 50 } };
    await gateway.api("POST", "providers", { id: "cached", type: "anthropic", base_url: `${upstream.origin}/cached`, api_key: "k", models: [MODEL] });
    const { id } = await gateway.api("POST", "projects", { name: "cached" });
    const key = await gateway.api("POST", "keys", { name: "cached", project: id });
    const [model] = (await gateway.api("GET", `catalog?provider=cached&q=${MODEL}`)).data;
    const before = await recordOf(gateway, key, 1);
    assert.ok(before.cost_micro_usd > 0, "the list knows the price of each class");
    const page = await browser.signedIn(gateway.key, `/models?open=cached%2F${MODEL}`);
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Output ($ per million)").first().fill("1000");
    assert.equal(await dialog.getByLabel("Written to cache, 1 h ($ per million)").first().inputValue(), String(model.prices.cache_write_1h));
    // A price that is taken away is named before it is saved.
    const write = dialog.getByLabel("Written to cache, 5 min ($ per million)").first();
    await write.fill("");
    await dialog.getByText(/^Unknown at this price: written to cache, 5 min \(used in the last 30 days\)\./).waitFor();
    await write.fill(String(model.prices.cache_write));
    await dialog.getByText(/^Unknown at this price/).waitFor({ state: "detached" });
    await settled(page);
    assert.deepEqual(await axe(page), []);
    await button(dialog, "Set price").click();
    await page.getByText(`The price of cached/${MODEL} is set`).waitFor();
    await dialog.getByText(/Set .* by admin/).waitFor();
    const [changed] = (await gateway.api("GET", `catalog?provider=cached&q=${MODEL}`)).data;
    assert.deepEqual(changed.prices, { ...model.prices, output: 1000 }, "tiers and all classes are kept");
    const after = await recordOf(gateway, key, 2);
    const more = ((1000 - model.prices.output) * 50).toFixed(3);
    assert.equal((after.cost_micro_usd - before.cost_micro_usd).toFixed(3), more, "only the output has another price");
    await dialog.getByRole("button", { name: /^Delete the override from / }).click();
    await button(page.getByRole("dialog", { name: "Delete the override" }), "Delete").click();
    await page.getByText(`The override of cached/${MODEL} is deleted`).waitFor();
    await dialog.getByText(/^price list of /).waitFor();
    await page.waitForFunction(
      ([label, amount]) => [...document.querySelectorAll("dialog .field")].find((field) => field.textContent.startsWith(label))?.querySelector("input").value === amount,
      ["Output ($ per million)", String(model.prices.output)],
    );
    assert.equal((await recordOf(gateway, key, 3)).cost_micro_usd, before.cost_micro_usd);
    await gateway.api("DELETE", "providers/cached");
    upstream.stop();
  },
};
