// The checks of alerts, their rules, webhooks and the outbox.

import assert from "node:assert/strict";
import { createServer } from "node:http";

import { axe } from "./browser.mjs";

const button = (page, name) => page.getByRole("button", { name, exact: true });

/** A receiver that answers every message with `status`. */
async function receiver(status) {
  const seen = [];
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (piece) => (body += piece));
    request.on("end", () => {
      seen.push(JSON.parse(body));
      response.writeHead(status).end();
    });
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return { seen, server, url: `http://127.0.0.1:${server.address().port}/hook-of-the-checks` };
}

export const alertChecks = {
  async a_webhook_is_made_its_secret_shown_once_and_a_rule_fired({ gateway, browser }) {
    const { seen, server, url } = await receiver(204);
    const page = await browser.signedIn(gateway.key, "/webhooks?new=1");
    const dialog = page.getByRole("dialog", { name: "New webhook" });
    await dialog.getByLabel("Name").fill("on call");
    await dialog.getByLabel("Address").fill("http://169.254.169.254/");
    await button(dialog, "Create").click();
    await dialog.getByText(/metadata addresses are not allowed/).waitFor();
    await dialog.getByLabel("Address").fill(url);
    await button(dialog, "Create").click();
    const shown = page.getByRole("dialog", { name: "Secret of the webhook" });
    assert.match(await shown.locator("[data-secret]").innerText(), /^whsec_/);
    assert.deepEqual(await axe(page), []);
    await button(shown, "I have copied it").click();
    await page.getByRole("row", { name: /on call/ }).waitFor();
    assert.ok(!(await page.content()).includes("hook-of-the-checks"), "the address is not shown");
    await page.getByRole("link", { name: "Rules" }).click();
    await page.getByRole("row", { name: /Backup failed/ }).waitFor();
    assert.deepEqual(await axe(page), []);
    await button(page, "Actions for Backup failed").click();
    await page.getByRole("menuitem", { name: "Test fire" }).click();
    await page.getByText(/^Event \d+ is on its way/).waitFor();
    await page.getByRole("link", { name: "Outbox" }).click();
    const row = page.getByRole("row", { name: /backup_failed.*on call/ }).first();
    await row.waitFor();
    assert.deepEqual(await axe(page), []);
    for (let tries = 0; seen.length === 0 && tries < 200; tries += 1) await new Promise((done) => setTimeout(done, 50));
    assert.equal(seen[0].type, "backup_failed");
    server.close();
    const hooks = await gateway.api("GET", "webhooks");
    await gateway.api("DELETE", `webhooks/${hooks.data.find(({ name }) => name === "on call").id}`);
  },

  async an_alert_is_seen_and_acknowledged({ gateway, browser }) {
    const { id } = await gateway.api("POST", "projects", { name: "soon over" });
    const expires_at = Date.now() + 86_400_000;
    await gateway.api("POST", "keys", { name: "ends tomorrow", project: id, expires_at });
    const page = await browser.signedIn(gateway.key, "/alerts?state=open");
    const row = page.getByRole("row", { name: /key_expiring.*ends tomorrow/ });
    for (let tries = 0; (await row.count()) === 0 && tries < 40; tries += 1) {
      await page.reload();
      await page.getByRole("heading", { name: "Alerts", level: 1 }).waitFor();
      await row.waitFor({ timeout: 1_000 }).catch(() => undefined);
    }
    await row.getByRole("button", { name: /^Acknowledge/ }).press("Enter");
    await row.waitFor({ state: "detached" });
    await page.getByLabel("State").selectOption("acknowledged");
    await row.waitFor();
    assert.deepEqual(await axe(page), []);
  },
};
