// The checks of alerts, their rules, webhooks and the outbox.

import assert from "node:assert/strict";
import { createServer } from "node:http";

import { axe } from "./browser.mjs";

const button = (page, name) => page.getByRole("button", { name, exact: true });

/** A receiver that answers every message with `status`. */
async function receiver(status) {
  const seen = [];
  const at = { seen, status };
  at.server = createServer((request, response) => {
    let body = "";
    request.on("data", (piece) => (body += piece));
    request.on("end", () => {
      seen.push({ type: JSON.parse(body).type, signatures: request.headers["webhook-signature"].split(" ").length });
      response.writeHead(at.status).end();
    });
  });
  await new Promise((done) => at.server.listen(0, "127.0.0.1", done));
  at.url = `http://127.0.0.1:${at.server.address().port}/hook-of-the-checks`;
  return at;
}

/** Waits until `is` is true of what the receiver has seen. */
async function until(is, what) {
  for (let tries = 0; !is(); tries += 1) {
    assert.ok(tries < 600, what);
    await new Promise((done) => setTimeout(done, 50));
  }
}

const act = async (page, name, action) => {
  await button(page, `Actions for ${name}`).last().click();
  await page.getByRole("menuitem", { name: action }).click();
};

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
    await button(dialog, "Only these").click();
    for (const kind of ["backup_failed", "disk_low"]) {
      await dialog.getByRole("combobox", { name: "Kinds of events" }).fill(kind);
      await dialog.getByRole("option", { name: kind }).click();
    }
    await button(dialog, "Create").click();
    const shown = page.getByRole("dialog", { name: "Secret of the webhook" });
    assert.match(await shown.locator("[data-secret]").innerText(), /^whsec_/);
    assert.deepEqual(await axe(page), []);
    await button(shown, "I have copied it").click();
    await page.getByRole("row", { name: /on call.*Backup failed, Disk nearly full/ }).waitFor();
    assert.ok(!(await page.content()).includes("hook-of-the-checks"), "the address is not shown");
    await page.getByRole("link", { name: "Rules" }).click();
    await page.getByRole("row", { name: /Backup failed/ }).waitFor();
    assert.deepEqual(await axe(page), []);
    await act(page, "Backup failed", "Send test");
    await page.getByText(/^Event \d+ is on its way/).waitFor();
    await page.getByRole("link", { name: "Outbox" }).click();
    const row = page.getByRole("row", { name: /backup_failed.*on call/ }).first();
    await row.waitFor();
    assert.deepEqual(await axe(page), []);
    await until(() => seen.length > 0, "no message arrived");
    assert.equal(seen[0].type, "backup_failed");
    server.close();
    const hooks = await gateway.api("GET", "webhooks");
    await gateway.api("DELETE", `webhooks/${hooks.data.find(({ name }) => name === "on call").id}`);
  },

  async a_webhook_is_changed_tested_rotated_paused_and_its_failures_retried({ gateway, browser }) {
    const at = await receiver(503);
    const made = await gateway.api("POST", "webhooks", { name: "pager", url: at.url, retry_seconds: 3600 });
    await gateway.api("POST", "alert-rules/rule_disk_low/test");
    await until(() => at.seen.length > 0, "no message arrived");
    const page = await browser.signedIn(gateway.key, `/webhooks?webhook=${made.id}`);
    const dialog = page.getByRole("dialog", { name: "Webhook pager" });
    await dialog.getByRole("row", { name: /pending.*disk_low.*503/i }).waitFor();
    assert.deepEqual(await axe(page), []);
    at.status = 204;
    await button(dialog, "Retry disk_low to pager").press("Enter");
    await until(() => at.seen.length > 1, "nothing was retried");
    await dialog.getByRole("row", { name: /delivered.*disk_low/i }).waitFor();
    await act(dialog, "pager", "Rotate the secret");
    const question = page.getByRole("dialog", { name: "Rotate the secret of pager?" });
    await question.getByText("messages carry two signatures").waitFor();
    assert.deepEqual(await axe(page), []);
    await button(question, "Rotate").click();
    const secret = await page.locator("[data-secret]").innerText();
    assert.match(secret, /^whsec_/);
    await button(page, "I have copied it").click();
    await dialog.getByText(/^two are valid until .*, then the new one alone$/).waitFor();
    assert.ok(!(await page.content()).includes(secret), "the secret is gone");
    await act(dialog, "pager", "Send a test");
    await page.getByText(/^pager answered with status 204/).waitFor();
    assert.deepEqual(at.seen.at(-1), { type: "test", signatures: 2 });
    await act(dialog, "pager", "Pause");
    await dialog.locator(".state", { hasText: "paused" }).waitFor();
    await page.goto(`${browser.origin}/console/webhooks?edit=${made.id}`);
    const form = page.getByRole("dialog", { name: "Change pager" });
    await form.getByLabel("Name").fill("pager of the night");
    await form.getByLabel("Format").selectOption("slack");
    await form.getByLabel("One event at a time, in order").check();
    await form.getByLabel("Longest pause after a failure (s)").fill("often");
    await button(form, "Save").click();
    await form.locator("[id$=wrong]", { hasText: "retry_seconds" }).waitFor();
    assert.deepEqual(await axe(page), []);
    await form.getByLabel("Longest pause after a failure (s)").fill("30");
    await button(form, "Save").click();
    await page.getByRole("row", { name: /pager of the night.*slack.*yes.*paused/i }).waitFor();
    const now = await gateway.api("GET", `webhooks/${made.id}`);
    assert.deepEqual([now.retry_seconds, now.url], [30, made.url], "the address is kept");
    await act(page, "pager of the night", "Delete");
    await button(page.getByRole("dialog", { name: "Delete pager of the night?" }), "Delete").click();
    await page.getByText("There is no webhook yet").waitFor();
    at.server.close();
  },

  async a_rule_is_made_with_its_scope_changed_and_deleted({ gateway, browser }) {
    const page = await browser.signedIn(gateway.key, "/alerts/rules?new=1");
    const dialog = page.getByRole("dialog", { name: "New rule" });
    await dialog.getByLabel("Kind").selectOption("credential_expiring");
    await dialog.getByLabel("Name").fill("token of echo");
    const hours = dialog.getByLabel("Hours before the end");
    assert.equal(await hours.inputValue(), "1");
    await hours.fill("9999");
    await button(dialog, "Only these").click();
    await dialog.getByRole("combobox", { name: "Applies to" }).fill("echo");
    await dialog.getByRole("option", { name: "echo" }).first().click();
    await button(dialog, "Create").click();
    await dialog.getByText("threshold of credential_expiring must be a number from 0.01 to 8760.").waitFor();
    assert.deepEqual(await axe(page), []);
    await hours.fill("6");
    await button(dialog, "Create").click();
    const row = page.getByRole("row", { name: /token of echo.*6 hours before/ });
    await row.getByRole("link", { name: "echo", exact: true }).waitFor();
    await row.getByRole("link", { name: "token of echo" }).press("Enter");
    const form = page.getByRole("dialog", { name: "Change token of echo" });
    await form.getByLabel("Hours before the end").fill("0.5");
    await form.getByLabel("Urgency").selectOption("bad");
    await button(form, "Save").click();
    await page.getByRole("row", { name: /token of echo.*0.5 hours before.*urgent/ }).waitFor();
    await act(page, "token of echo", "Delete");
    await button(page.getByRole("dialog", { name: "Delete token of echo?" }), "Delete").click();
    await page.getByRole("row", { name: /token of echo/ }).waitFor({ state: "detached" });
  },

  async an_alert_is_counted_in_the_navigation_seen_and_acknowledged({ gateway, browser }) {
    const rule = await gateway.api("POST", "alert-rules", { name: "soon", kind: "key_expiring", threshold: 3, severity: "bad" });
    const { id } = await gateway.api("POST", "projects", { name: "soon over" });
    const expires_at = Date.now() + 86_400_000;
    const key = await gateway.api("POST", "keys", { name: "ends tomorrow", project: id, expires_at });
    // The live stream of the overview counts without any action.
    const page = await browser.signedIn(gateway.key, "/");
    const entry = page.getByRole("navigation", { name: "Console", exact: true }).getByRole("link", { name: /^Alerts/ });
    const red = entry.locator(".count.bad");
    await red.waitFor();
    await page.getByRole("link", { name: "Key expires: ends tomorrow" }).first().waitFor();
    await entry.press("Enter");
    const rows = page.getByRole("row", { name: /Key expires.*ends tomorrow/ });
    await rows.nth(1).waitFor();
    assert.equal(await rows.count(), 2);
    await rows.filter({ hasText: "open, urgent" }).getByRole("link", { name: /^Key expires: ends tomorrow. .*expires in/ }).press("Enter");
    const dialog = page.getByRole("dialog", { name: "Key expires" });
    await dialog.getByText("Left days, when it opened").waitFor();
    await dialog.getByRole("link", { name: rule.id }).waitFor();
    assert.equal(await dialog.getByRole("link", { name: "ends tomorrow" }).getAttribute("href"), `/console/keys/${key.id}`);
    assert.deepEqual(await axe(page), []);
    await page.reload();
    await dialog.getByRole("button", { name: /^Acknowledge/ }).press("Enter");
    await dialog.getByText("by admin,").waitFor();
    await red.waitFor({ state: "detached" });
    await entry.getByText("1 open").waitFor();
    await page.keyboard.press("Escape");
    await rows.first().getByRole("button", { name: /^Acknowledge/ }).press("Enter");
    await page.getByText("Nothing needs you").waitFor();
    await entry.locator(".count").waitFor({ state: "detached" });
    await page.getByLabel("State").selectOption("acknowledged");
    await rows.nth(1).waitFor();
    assert.deepEqual(await axe(page), []);
    await gateway.api("DELETE", `alert-rules/${rule.id}`);
  },
};
