// The checks of the list of requests and of one request.

import assert from "node:assert/strict";

import { axe, settled } from "./browser.mjs";

const button = (page, name) => page.getByRole("button", { name, exact: true });

export const requestChecks = {
  async requests_are_found_by_what_happened_and_show_their_attempts({ gateway, browser }) {
    const { id } = await gateway.api("POST", "projects", { name: "tracked" });
    const made = await gateway.api("POST", "keys", { name: "tracked", project: id });
    await gateway.api("POST", "providers", { id: "shaky", type: "echo", models: ["echo"], echo: { fail_every: 1 } });
    const failover = [{ provider: "shaky", model: "echo" }, { provider: "echo", model: "echo" }];
    await gateway.api("POST", "endpoints", { name: "saved", failover });
    const agent = { "user-agent": "claude-cli/2.1.329 (external, cli)" };
    assert.equal(await gateway.chat(made.key, "saved", "hi", true, agent), 200);
    assert.equal(await gateway.chat(made.key, "default", "hi"), 200);
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
    await gateway.api("DELETE", "endpoints/saved");
    await gateway.api("DELETE", "providers/shaky");
  },
};
