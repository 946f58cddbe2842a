// The checks of the usage page: groups, comparison, filters by a click, latency and outcomes, and repricing.

import assert from "node:assert/strict";

import { axe, settled } from "./browser.mjs";

const button = (page, name) => page.getByRole("button", { name, exact: true });

export const usageChecks = {
  async usage_is_grouped_by_two_compared_filtered_by_a_bar_and_shown_as_a_table({ gateway, browser }) {
    const { id } = await gateway.api("POST", "projects", { name: "measured" });
    const keys = [];
    for (const name of ["first meter", "second meter"]) keys.push(await gateway.api("POST", "keys", { name, project: id }));
    for (const [n, { key }] of keys.entries()) for (let i = 0; i <= n; i += 1) await gateway.chat(key, "smart", "hi", true);
    const page = await browser.signedIn(gateway.key, `/usage?by=key&period=24h&project=${id}&figure=requests`);
    await settled(page);
    await page.getByLabel("And by").selectOption("Model");
    await page.getByRole("row", { name: /^second meter · echo .*reprice 2 / }).waitFor();
    await page.getByLabel("Compare with the time before").check();
    await page.getByRole("columnheader", { name: "Before" }).waitFor();
    await page.getByRole("row", { name: /^second meter · echo .*reprice 2 .*0 requests new$/ }).waitFor();
    assert.deepEqual(await axe(page), []);
    await button(page, "Show as table").press("Enter");
    const numbers = page.getByRole("group", { name: "Requests by key and model. As a table." });
    assert.match(await numbers.getByRole("row").nth(1).innerText(), /2\s+1$/);
    for (const figure of ["Outcomes", "Latency"]) {
      await button(page, figure).click();
      await settled(page);
      assert.deepEqual(await axe(page), [], figure);
    }
    await page.getByText("First token, p99").waitFor();
    await button(page.getByRole("group", { name: "Figure" }), "Requests").click();
    // The last bar: the part of the second key is the larger one and lies below.
    const plot = page.getByRole("group", { name: /^Requests by key and model\. Left/ });
    await plot.waitFor();
    const box = await plot.boundingBox();
    await page.mouse.click(box.x + box.width - 16, box.y + box.height - 30);
    await page.waitForURL(new RegExp(`key=${keys[1].id}`));
    await settled(page);
    await page.getByRole("row", { name: /^first meter/ }).waitFor({ state: "detached" });
    await page.goBack();
    await button(page, "first meter · echo").last().press("Enter");
    await page.waitForURL(new RegExp(`key=${keys[0].id}`));
    await page.getByRole("row", { name: /^second meter/ }).waitFor({ state: "detached" });
    await page.getByRole("row", { name: /^first meter/ }).getByRole("link", { name: "1", exact: true }).first().click();
    await page.getByRole("heading", { name: "Requests", level: 1 }).waitFor();
    await settled(page);
    assert.equal(await page.locator("a.row-link").count(), 1, "a number opens the requests behind it");
    await page.goto(`${browser.origin}/console/usage?by=key&project=${id}`);
    await page.getByLabel("Period").selectOption("Chosen days");
    await page.getByLabel("From (UTC)").fill("2020-01-01");
    await page.getByLabel("To, inclusive (UTC)").fill("2020-01-02");
    await page.getByText("Nothing fits the filter in this time").waitFor();
  },

  async runs_are_compared_by_the_tags_of_their_keys_and_lead_to_their_requests({ gateway, browser }) {
    const { id } = await gateway.api("POST", "projects", { name: "runs" });
    for (const [run, requests] of [["slow-cooker", 1], ["oven", 2]]) {
      const { key } = await gateway.api("POST", "keys", { name: run, project: id, tags: { meal: run } });
      for (let i = 0; i < requests; i += 1) await gateway.chat(key, "smart", "hi");
    }
    const page = await browser.signedIn(gateway.key, "/usage", { width: 1024 });
    await page.getByRole("link", { name: "Compare runs" }).click();
    await page.getByLabel("Tag").fill("meal");
    await button(page, "Compare").click();
    await page.getByRole("row", { name: /^oven 2 of 2 / }).waitFor();
    await page.getByRole("checkbox", { name: "slow-cooker" }).check();
    await page.getByRole("row", { name: /^oven 2 of 2 \+100 % / }).waitFor();
    assert.deepEqual(await axe(page), []);
    const beyond = await page.locator(".table-wrap").evaluate((wrap) => wrap.scrollWidth - wrap.clientWidth);
    assert.equal(beyond, 0, "at 1024 px no column is out of sight");
    await page.getByRole("link", { name: "1 of 1" }).click();
    await page.getByText("Tag meal:").waitFor();
    await settled(page);
    assert.equal(await page.locator("a.row-link").count(), 1);
    // The tags of a key are edited as text.
    const [key] = (await gateway.api("GET", `keys?project=${id}&q=oven`)).data;
    await page.goto(`${browser.origin}/console/keys/${key.id}?edit=1`);
    await page.getByLabel("Tags").fill("meal=oven, chef");
    await button(page, "Save").click();
    await page.getByText("the value of the tag 'chef' must be").waitFor();
    await page.getByLabel("Tags").fill("meal=oven, chef=ada");
    await button(page, "Save").click();
    await page.getByText("chef=ada, meal=oven").waitFor();
  },

  async a_price_is_set_and_what_was_used_before_is_recalculated({ gateway, browser }) {
    await gateway.api("POST", "providers", { id: "costly", type: "echo", models: ["echo"] });
    const { id } = await gateway.api("POST", "projects", { name: "billed" });
    const made = await gateway.api("POST", "keys", { name: "billed", project: id });
    for (let n = 0; n < 2; n += 1) await gateway.chat(made.key, "costly/echo", "hi");
    const page = await browser.signedIn(gateway.key, "/usage?by=provider&and=model&period=7d");
    await page.getByRole("row", { name: /^costly · echo/ }).getByText("2 unpriced").waitFor();
    await button(page, "Set a price and reprice").press("Enter");
    const dialog = page.getByRole("dialog", { name: "Set a price and reprice" });
    await dialog.getByLabel("Model").selectOption("costly/echo");
    await dialog.getByLabel("Input ($ per million)").fill("1000");
    await dialog.getByLabel("Output ($ per million)").fill("2000");
    assert.deepEqual(await axe(page), []);
    await button(dialog, "Set price and go on").click();
    await dialog.getByText(/^Recalculates 2 requests from \d+ \w+ \d+ to \d+ \w+ \d+\.$/).waitFor();
    assert.deepEqual(await axe(page), []);
    await button(dialog, "Recalculate").click();
    await dialog.getByText(/^2 requests changed: \$0 became \$/).waitFor();
    await button(dialog, "Done").click();
    await page.getByRole("row", { name: /^costly · echo/ }).getByText(/^\$0\.\d+$/).waitFor();
    const { data } = await gateway.api("GET", `requests?key=${made.id}`);
    assert.ok(data.every(({ cost_micro_usd }) => cost_micro_usd > 0));
    await gateway.api("DELETE", "providers/costly");
  },
};
