// The checks of the overview.

import assert from "node:assert/strict";

import { axe, settled, sideways, signIn } from "./browser.mjs";

const button = (page, name) => page.getByRole("button", { name, exact: true });

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
    for (let n = 0; n < 4; n += 1) assert.equal(await gateway.chat(made.key, n < 2 ? "steadied" : "smart", "hi", true), 200);
    assert.equal(await gateway.chat(made.key, "unsteady/echo", "hi"), 503);
    const page = await browser.signedIn(gateway.key, "/?period=24h");
    await settled(page);
    const { data } = await gateway.api("GET", "requests?limit=500");
    const failed = data.filter(({ outcome, status }) => outcome === "cut" || (outcome === "failed" && status >= 500)).length;
    assert.match((await figure(page, "Requests"))[1], new RegExp(`^${data.length} in 24 hours`));
    assert.match((await figure(page, "Failed for clients"))[1], new RegExp(`^${failed} failed`));
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

  async a_gateway_that_hangs_is_known_by_the_absence_of_frames({ gateway, browser }) {
    const page = await browser.signedIn(gateway.key, "/");
    await page.getByText("Live", { exact: true }).waitFor();
    gateway.child.kill("SIGSTOP");
    try {
      await page.getByText(/^No answer from the gateway since /).waitFor();
      await page.getByText(/^No answer since /).waitFor();
      await page.locator("main.stale").waitFor();
    } finally {
      gateway.child.kill("SIGCONT");
    }
    await page.getByText("Live", { exact: true }).waitFor();
    await page.locator("main.stale").waitFor({ state: "detached" });
    assert.equal(await page.getByText("No answer").count(), 0);
  },

  async a_gateway_that_hangs_is_known_on_pages_without_a_stream({ gateway, browser }) {
    const { id } = await gateway.api("POST", "projects", { name: "hung" });
    const { key } = await gateway.api("POST", "keys", { name: "hung", project: id });
    assert.equal(await gateway.chat(key, "smart", "hi"), 200);
    const { data } = await gateway.api("GET", "requests?limit=1");
    const page = await browser.signedIn(gateway.key, `/requests/${data[0].request_id}`);
    await settled(page);
    assert.equal(await page.getByText("No answer").count(), 0);
    const asked = [];
    gateway.child.kill("SIGSTOP");
    try {
      await page.getByText(/^No answer from the gateway since /).waitFor();
      await page.locator("main.stale").waitFor();
      page.on("request", (request) => asked.push(new URL(request.url()).pathname));
      // A question that gets no answer is given up, and asked again.
      for (let n = 0; n < 2; n += 1) await page.waitForRequest((request) => request.url().endsWith("/health"));
    } finally {
      gateway.child.kill("SIGCONT");
    }
    assert.deepEqual(asked, ["/health", "/health"]);
    await page.locator("main.stale").waitFor({ state: "detached" });
    assert.equal(await page.getByText("No answer").count(), 0);
  },

  async a_network_that_is_taken_away_is_noticed_and_its_return_as_well({ gateway, browser }) {
    const page = await browser.signedIn(gateway.key, "/");
    await page.getByText("Live", { exact: true }).waitFor();
    browser.isStopped = true;
    await page.context().setOffline(true);
    try {
      await page.getByText(/^No answer from the gateway since /).waitFor();
      await page.locator("main.stale").waitFor();
    } finally {
      await page.context().setOffline(false);
    }
    await page.getByText("Live", { exact: true }).waitFor();
    await page.locator("main.stale").waitFor({ state: "detached" });
    await page.getByText(/^No answer/).first().waitFor({ state: "detached" });
    browser.isStopped = false;
  },

  async the_overview_shows_what_happens_as_it_happens({ gateway, browser }) {
    const { id } = await gateway.api("POST", "projects", { name: "live" });
    const made = await gateway.api("POST", "keys", { name: "live key", project: id });
    await gateway.api("POST", "providers", { id: "silent", type: "echo", models: ["echo"], echo: { hang: true } });
    await gateway.chat(made.key, "smart", "hi");
    // The names of keys are known whatever the day's spending is grouped by.
    const page = await browser.signedIn(gateway.key, "/?by=model");
    await page.getByText("Live", { exact: true }).waitFor();
    await page.getByRole("region", { name: "How the gateway is doing" }).waitFor();
    assert.deepEqual(await axe(page), []);
    const hanging = gateway.chat(made.key, "silent/echo", "hi", true);
    const row = page.getByRole("row", { name: /^live key silent\/echo/ });
    await row.getByText("Waiting").waitFor();
    await row.getByRole("button", { name: "Cancel the request of live key to silent/echo" }).click();
    await page.getByText("The client gets an error; what was relayed is billed.").waitFor();
    assert.deepEqual(await axe(page), []);
    await button(page, "Cancel request").click();
    assert.ok((await hanging) >= 400, "the client got an error");
    await row.waitFor({ state: "detached" });
    await gateway.api("DELETE", "providers/silent");
    const change = page.locator("a.chart-flag", { hasText: "silent" }).last();
    await change.waitFor();
    await change.click();
    await page.getByRole("heading", { name: "Audit", level: 1 }).waitFor();
    await page.getByRole("dialog").waitFor();
  },

  async a_rotated_key_shows_its_share_of_the_limit_that_it_has_from_the_key_before({ gateway, browser }) {
    const { id: project } = await gateway.api("POST", "projects", { name: "rotating" });
    const made = await gateway.api("POST", "keys", { name: "turned", project });
    const next = await gateway.api("POST", `keys/${made.id}/rotate`, {});
    assert.equal(await gateway.chat(next.key, "smart", "hi"), 200);
    // Under a limit on cost a key may not use a model without a price.
    const limit = { metric: "cost_micro_usd", window: "month", limit: 5_000_000 };
    await gateway.api("POST", "quotas", { subject: { kind: "key", id: made.id }, ...limit });
    const page = await browser.signedIn(gateway.key, "/?by=key");
    await page.getByRole("group", { name: "Spend today" }).getByRole("row", { name: /^turned/ }).getByText("0 %").waitFor();
  },

  async a_page_that_is_hidden_for_a_minute_closes_the_stream_and_asks_nothing({ gateway, browser }) {
    const context = await browser.context();
    const page = await context.newPage();
    await page.clock.install();
    await page.goto(`${browser.origin}/console/`);
    await signIn(page, gateway.key);
    await page.getByText("Live", { exact: true }).waitFor();
    await page.evaluate(() => {
      Object.defineProperty(document, "hidden", { configurable: true, get: () => globalThis.isHidden });
      globalThis.isHidden = true;
      document.dispatchEvent(new Event("visibilitychange"));
    });
    await page.clock.runFor(61_000);
    await page.getByText("Paused", { exact: true }).waitFor();
    const asked = [];
    page.on("request", (request) => asked.push(request.url()));
    await page.clock.runFor(60_000);
    assert.deepEqual(asked, []);
    await page.evaluate(() => {
      globalThis.isHidden = false;
      document.dispatchEvent(new Event("visibilitychange"));
    });
    await page.getByText("Live", { exact: true }).waitFor();
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
