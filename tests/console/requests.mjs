// The checks of the list of requests and of one request.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";

import { axe, settled } from "./browser.mjs";
import { Gateway } from "./gateway.mjs";

const button = (page, name) => page.getByRole("button", { name, exact: true });

export const requestChecks = {
  async what_was_captured_is_shown_on_demand_and_the_switch_is_named_while_it_is_off({ gateway, browser }) {
    const home = join(gateway.home, "capturing");
    mkdirSync(home);
    const capturing = new Gateway(gateway.binary, home, { LLMGW_LOG_REQUEST_BODIES: "true" });
    await capturing.start();
    const opened = async (of) => {
      assert.equal(await of.chat(of.key, "echo/echo", "shown on demand"), 200);
      const { data } = await of.api("GET", "requests?limit=1");
      const page = await browser.signedIn(of.key, `/requests/${data[0].request_id}`);
      await settled(page);
      return page;
    };
    const without = await opened(gateway);
    await without.getByText("LLMGW_LOG_REQUEST_BODIES=true").waitFor();
    assert.equal(await button(without, "Show what was captured").count(), 0);
    await browser.visit(capturing, async () => {
      const page = await opened(capturing);
      await button(page, "Show what was captured").click();
      await page.getByText(/shown on demand/).first().waitFor();
      assert.deepEqual(await axe(page), []);
      const { data: reads } = await capturing.api("GET", "audit?action=request.exchange");
      assert.equal(reads.length, 1);
      await page.getByRole("region", { name: "From the client" }).getByText(/authorization: \[hidden\]/).waitFor();
    });
  },

  async requests_are_found_by_what_happened_and_show_their_attempts({ gateway, browser }) {
    const { id } = await gateway.api("POST", "projects", { name: "tracked" });
    const made = await gateway.api("POST", "keys", { name: "tracked", project: id });
    await gateway.api("POST", "providers", { id: "shaky", type: "echo", models: ["echo"], echo: { fail_every: 1 } });
    const failover = [{ provider: "shaky", model: "echo" }, { provider: "echo", model: "echo" }];
    await gateway.api("POST", "endpoints", { name: "saved", failover });
    const agent = { "user-agent": "claude-cli/2.1.329 (external, cli)" };
    assert.equal(await gateway.chat(made.key, "saved", "hi", true, agent), 200);
    assert.equal(await gateway.chat(made.key, "smart", "hi"), 200);
    const page = await browser.signedIn(gateway.key, `/requests?key=${made.id}`);
    await settled(page);
    assert.equal(await page.locator("a.row-link").count(), 2);
    await button(page, "After failover").click();
    await page.getByText("Claude Code 2.1.329").waitFor();
    assert.equal(await page.locator("a.row-link").count(), 1);
    assert.match(await page.locator("tbody tr:not(.gap)").innerText(), /answered an error.*, answered/s);
    assert.deepEqual(await axe(page), []);
    await page.getByRole("group", { name: "These requests over time." }).press("End");
    await page.keyboard.press("Enter");
    await page.waitForURL(/from=\d+&to=\d+|to=\d+/);
    await settled(page);
    assert.equal(await page.locator("a.row-link").count(), 1, "the chosen time holds the request");
    await page.goto(`${browser.origin}/console/requests?q=tracked`);
    await settled(page);
    assert.equal(await page.locator("a.row-link").count(), 2, "the search asks the gateway for the key's name");
    await page.locator("a.row-link").last().click();
    await page.getByRole("heading", { name: "Answered by echo / echo" }).waitFor();
    const story = page.getByRole("region", { name: "What happened" });
    for (const words of ["Accepted, authorised, planned", "Paused before the next attempt", "answered 503"]) await story.getByText(words).first().waitFor();
    await page.getByText("Claude Code 2.1.329").waitFor();
    assert.deepEqual(await axe(page), []);
    await button(page, "Explain again").click();
    await page.getByText(/Today (shaky|echo)\/echo would serve it first\./).waitFor();
    assert.deepEqual(await axe(page), []);
    await page.reload();
    await page.getByRole("dialog", { name: "Explain again" }).waitFor();
    assert.equal(await gateway.chat(made.key, "shaky/echo", "hi"), 503);
    await page.goto(`${browser.origin}/console/requests?key=${made.id}&outcome=failed`);
    await page.locator("a.row-link").first().click();
    const got = page.locator(".page-head", { hasText: "Failed: the upstream answered with an error" }).filter({ hasText: "The client got 503: " });
    await got.getByText("The echo provider 'shaky' is configured to answer with 503.").waitFor();
    assert.equal((await got.innerText()).match(/The client got/g).length, 1, "nothing is said twice");
    assert.deepEqual(await axe(page), []);
    await gateway.api("DELETE", "endpoints/saved");
    await gateway.api("DELETE", "providers/shaky");
  },

  async new_requests_are_announced_and_not_inserted({ gateway, browser }) {
    const { id } = await gateway.api("POST", "projects", { name: "arriving" });
    const made = await gateway.api("POST", "keys", { name: "arriving", project: id });
    for (let n = 0; n < 2; n += 1) await gateway.chat(made.key, "smart", "hi");
    const page = await browser.signedIn(gateway.key, `/requests?key=${made.id}`);
    await settled(page);
    const rows = () => page.locator("a.row-link").evaluateAll((links) => links.map((link) => new URL(link.href).pathname));
    const before = await rows();
    await page.locator("a.row-link").first().focus();
    for (let n = 0; n < 3; n += 1) await gateway.chat(made.key, "smart", "hi");
    const fresh = page.getByRole("button", { name: "3 new", exact: true });
    await fresh.waitFor();
    assert.deepEqual(await rows(), before, "nothing is inserted");
    assert.ok(await page.evaluate(() => document.activeElement.matches("a.row-link")), "the focus stays");
    assert.deepEqual(await axe(page), []);
    await fresh.press("Enter");
    await page.waitForFunction(() => document.querySelectorAll("a.row-link").length === 5);
    assert.deepEqual((await rows()).slice(3), before);
    assert.equal(await fresh.count(), 0);
  },

  async one_request_leads_to_its_neighbours_and_its_session_and_has_the_price_of_each_class({ gateway, browser }) {
    const { id } = await gateway.api("POST", "projects", { name: "talking" });
    const made = await gateway.api("POST", "keys", { name: "talking", project: id });
    await gateway.api("POST", "providers", { id: "priced", type: "echo", models: ["echo"] });
    await gateway.api("POST", "catalog/overrides", { provider: "priced", model: "echo", facts: { prices: { input: 2, output: 8 } } });
    const session = { "user-agent": "claude-cli/2.1.329 (external, cli)", "x-claude-code-session-id": "4b2b7d1e-6a52-4f0e-9d63-2f4f5a7c9b11" };
    for (let n = 0; n < 3; n += 1) await gateway.chat(made.key, "priced/echo", "hi", true, session);
    await gateway.chat(made.key, "smart", "hi");
    const page = await browser.signedIn(gateway.key, `/requests?key=${made.id}&model=echo&provider=priced`);
    await settled(page);
    const all = await page.locator("a.row-link").evaluateAll((links) => links.map((link) => new URL(link.href).pathname));
    assert.equal(all.length, 3);
    const here = () => new URL(page.url()).pathname;
    await page.locator("a.row-link").nth(1).click();
    await button(page, "Older request (J)").click();
    await page.waitForURL(`**${all[2]}?**`);
    await button(page, "Older request (J)").click();
    await page.getByText("There is no older request that fits the filter").waitFor();
    await page.keyboard.press("k");
    await page.waitForURL(`**${all[1]}?**`);
    await page.keyboard.press("k");
    await page.waitForURL(`**${all[0]}?**`);
    await settled(page);
    const tokens = page.getByRole("region", { name: "Tokens and cost" });
    const { data } = await gateway.api("GET", `requests?key=${made.id}&provider=priced&limit=1`);
    const row = tokens.getByRole("row", { name: /^Output/ });
    const cells = await row.locator("td").allInnerTexts();
    assert.deepEqual([cells[1], cells[4], cells[5]], [String(data[0].tokens.output), "$8.00", `$${((data[0].tokens.output * 8) / 1e6).toFixed(8)}`]);
    assert.match(cells[3], /reported|measured|estimated/);
    await page.getByRole("region", { name: "Its session" }).getByText(/^3 requests, /).waitFor();
    await page.getByText("stop", { exact: true }).waitFor();
    assert.deepEqual(await axe(page), []);
    assert.equal(here(), all[0]);
    await page.keyboard.press("Escape");
    await page.getByRole("heading", { name: "Requests", level: 1 }).waitFor();
    await settled(page);
    assert.equal(await page.locator("a.row-link").count(), 3, "the way back keeps the filters");
    await page.getByLabel("Add a filter").selectOption("Client");
    await page.getByRole("combobox", { name: "Client" }).fill("claude");
    await page.getByRole("option", { name: /^claude-cli/ }).click();
    await page.getByText("Client: claude-cli/2.1.329").waitFor();
    await settled(page);
    assert.equal(await page.locator("a.row-link").count(), 3);
    await gateway.api("DELETE", "providers/priced");
  },
};
