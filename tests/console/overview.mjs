// The checks of the overview.

import assert from "node:assert/strict";

import { axe, settled, sideways } from "./browser.mjs";

/** The value and the explanation of a figure. */
async function figure(page, name) {
  const box = page.locator(".figure", { has: page.getByText(name) });
  return [await box.locator("b").innerText(), await box.locator(".sub").innerText()];
}

export const overviewChecks = {
  async the_overviews_figures_are_the_sums_over_the_records({ gateway, browser }) {
    const { id } = await gateway.api("POST", "projects", { name: "overseen" });
    const made = await gateway.api("POST", "keys", { name: "overseen", project: id });
    await gateway.api("POST", "providers", { id: "unsteady", type: "echo", models: ["echo"], echo: { fail_every: 1 } });
    const failover = [{ provider: "unsteady", model: "echo" }, { provider: "echo", model: "echo" }];
    await gateway.api("POST", "endpoints", { name: "steadied", failover });
    for (let n = 0; n < 4; n += 1) assert.equal(await gateway.chat(made.key, n < 2 ? "steadied" : "default", "hi", true), 200);
    assert.equal(await gateway.chat(made.key, "unsteady/echo", "hi"), 503);
    const page = await browser.signedIn(gateway.key, "/?period=24h");
    await settled(page);
    const { data } = await gateway.api("GET", "requests?limit=500");
    const failed = data.filter(({ outcome, status }) => outcome === "cut" || (outcome === "failed" && status >= 500)).length;
    assert.match((await figure(page, "Requests"))[1], new RegExp(`^${data.length} in 24 hours`));
    assert.match((await figure(page, "Client errors"))[1], new RegExp(`^${failed} failed`));
    const row = page.getByRole("row", { name: /^unsteady/ });
    const attempts = data.reduce((sum, record) => sum + (record.trace ?? []).filter(({ provider, result }) => provider === "unsteady" && result === "status").length, 0);
    if (attempts) assert.equal(await row.locator("td").nth(2).innerText(), String(attempts));
    assert.equal(await row.locator("td").nth(3).innerText(), "100 %");
    const spent = page.getByRole("row", { name: /^overseen/ });
    assert.equal(await spent.locator("td").nth(1).innerText(), "5");
    await page.getByRole("group", { name: "Requests by outcome in 24 hours." }).press("End");
    await page.locator(".chart-tip").getByText("After failover").waitFor();
    await page.getByRole("button", { name: "Key", exact: true }).click();
    await page.getByRole("columnheader", { name: "Key" }).first().waitFor();
    assert.match(page.url(), /by=key/);
    await page.getByRole("link", { name: "overseen" }).click();
    await page.getByRole("heading", { name: "overseen", level: 1 }).waitFor();
    await page.goBack();
    assert.equal(await page.getByRole("button", { name: "24 h", exact: true }).getAttribute("aria-pressed"), "true");
  },

  async the_overview_is_accessible_narrow_wide_and_enlarged({ gateway, browser }) {
    const faults = [];
    // A window of 720 pixels is one of 1440 at 200 %.
    for (const view of [{ width: 1440, theme: "light" }, { width: 1440, theme: "dark" }, { width: 720, theme: "light" }, { width: 390, theme: "light" }]) {
      const page = await browser.signedIn(gateway.key, "/", view);
      await settled(page);
      const at = `${view.width} ${view.theme}`;
      faults.push(...(await axe(page)).map((fault) => `${at}: ${fault}`));
      if (await sideways(page)) faults.push(`${at} scrolls sideways by ${await sideways(page)}`);
    }
    assert.deepEqual(faults, []);
  },
};
