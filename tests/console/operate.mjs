// The checks of backups, the audit and the settings.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { axe, settled } from "./browser.mjs";

const button = (page, name) => page.getByRole("button", { name, exact: true });

export const operateChecks = {
  async an_archive_is_made_verified_downloaded_and_deleted({ gateway, browser }) {
    const page = await browser.signedIn(gateway.key, "/backups");
    await page.getByText("Not in an archive: encryption key, administrator key, config.yaml.").waitFor();
    await button(page, "Create backup").first().click();
    await page.locator("tr", { hasText: ".tar" }).first().locator(".state", { hasText: "whole" }).waitFor();
    await page.getByText(/The last good archive is of .*, (now|\d+ s ago)/).waitFor();
    const { data } = await gateway.api("GET", "backups");
    const name = data.map((archive) => archive.name).sort().at(-1);
    assert.deepEqual(await axe(page), []);
    await button(page, `Verify ${name}`).press("Enter");
    await page.getByText(`${name} is whole`).waitFor();
    const refused = { status: 409, json: { error: { message: "Another check runs.", type: "conflict", code: "conflict", param: null, request_id: "r" } } };
    await page.route("**/verify", (route) => route.fulfill(refused), { times: 1 });
    await button(page, `Verify ${name}`).press("Enter");
    await page.getByRole("alert").getByText("Another check runs.").waitFor();
    const download = page.waitForEvent("download");
    await page.getByRole("link", { name: `Download ${name}` }).press("Enter");
    const file = readFileSync(await (await download).path());
    assert.equal(file.length, data.find((archive) => archive.name === name).bytes);
    await button(page, `Delete ${name}`).press("Enter");
    const dialog = page.getByRole("dialog", { name: "Delete the archive?" });
    await dialog.getByText("It cannot be restored afterwards.").waitFor();
    assert.deepEqual(await axe(page), []);
    const typed = dialog.getByLabel(`Type ${name} to go on`);
    if (await typed.count()) await typed.fill(name);
    await button(dialog, "Delete").click();
    await dialog.waitFor({ state: "detached" });
    assert.ok(!(await gateway.api("GET", "backups")).data.some((archive) => archive.name === name));
  },

  async the_chain_of_the_audit_is_verified_and_a_record_has_an_address({ gateway, browser }) {
    const { id, version } = await gateway.api("POST", "projects", { name: "audited" });
    assert.ok(version);
    await gateway.api("PATCH", `projects/${id}`, { name: "audited anew" });
    const page = await browser.signedIn(gateway.key, `/audit?object=project%2F${id}`);
    await button(page, "Verify chain").press("Enter");
    await page.getByText(/^[\d,]+ records, unbroken since \d+ \w+ \d+$/).waitFor();
    assert.deepEqual(await axe(page), []);
    await page.locator("a.row-link").first().press("Enter");
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("row", { name: "name audited audited anew" }).waitFor();
    await dialog.locator("dd a").first().click();
    await page.waitForURL(/\/audit\/\d+$/);
    await page.getByRole("row", { name: "name audited audited anew" }).waitFor();
    assert.deepEqual(await axe(page), []);
    await page.setViewportSize({ width: 390, height: 900 });
    const [shown, whole] = await page.locator(".table-wrap").evaluate((place) => [place.clientWidth, place.scrollWidth]);
    assert.equal(whole, shown, "a phone shows what was there before and after without scrolling");
    const record = new URL(page.url()).pathname.split("/").at(-1);
    await page.goto(`${browser.origin}/console/audit?action=key.create&open=${record}`);
    await page.getByRole("dialog").getByRole("row", { name: "name audited audited anew" }).waitFor();
    await page.goto(`${browser.origin}/console/audit/999999999`);
    await page.getByRole("heading", { name: "There is no such record" }).waitFor();
  },

  async every_setting_has_its_layer_its_default_and_its_place_in_the_file({ gateway, browser }) {
    const page = await browser.signedIn(gateway.key, "/settings?q=port");
    const row = page.getByRole("row", { name: /^LLMGW_PORT/ });
    await row.waitFor();
    const cells = await row.locator("td").allInnerTexts();
    assert.match(cells[0], /server\.port/);
    assert.deepEqual(cells.slice(2), ["8787", "variable", "a restart"]);
    await page.getByLabel("Search the settings").fill("");
    await page.getByLabel("Layer").selectOption("environment");
    await row.waitFor();
    assert.equal(await page.getByRole("row", { name: /^LLMGW_WORKERS/ }).count(), 0);
    await page.reload();
    await row.waitFor();
    assert.equal(await page.getByLabel("Layer").inputValue(), "environment", "the address keeps the filter");
    const { jobs } = await gateway.api("GET", "state");
    const listed = page.getByRole("group", { name: "Periodic jobs" }).locator("tbody td:first-child");
    await listed.first().waitFor();
    assert.deepEqual(await listed.allInnerTexts(), jobs.map((job) => job.name));
    const { settings } = await gateway.api("GET", "config");
    await page.goto(`${browser.origin}/console/backups`);
    await page.getByRole("link", { name: "LLMGW_BACKUP_KEEP" }).click();
    await page.locator("tr.wanted", { hasText: "LLMGW_BACKUP_KEEP" }).waitFor();
    await settled(page);
    assert.equal(await page.locator("table.settings tbody tr:not(.group-row)").count(), settings.length);
    assert.ok(!(await page.content()).includes(gateway.key), "secrets are dots");
    assert.deepEqual(await axe(page), []);
    // The link to the content works on every page.
    await page.evaluate(() => document.querySelector(".skip").focus());
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => location.hash === "#content");
  },
};
