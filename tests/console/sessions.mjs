// The checks of what survives: an ended session, a restart of the gateway, and a change that somebody else makes.

import assert from "node:assert/strict";

import { axe, choose, settled, signIn } from "./browser.mjs";

const button = (page, name) => page.getByRole("button", { name, exact: true });

/** Forms: their address, the field that is typed into, the button that sends them, whether the gateway has what they make, and what else they need. */
function forms(gateway, { project, key, quota }) {
  const named = (path, name) => async () => (await gateway.api("GET", path)).data.some((one) => one.name === name);
  const all = (path, name) => named(`${path}?limit=500`, name);
  const quotas = async () => (await gateway.api("GET", `quotas?project=${project}`)).data;
  const fill = (fields) => async (page) => {
    for (const [label, text] of Object.entries(fields)) await page.getByLabel(label, { exact: true }).last().fill(text);
  };
  return [
    ["/access?tab=humans&new=1", "Name", "Human in between", "Create", all("principals", "Human in between")],
    ["/access?new=1", "Name", "Project in between", "Create", all("projects", "Project in between")],
    [`/access/projects/${project}?edit=1`, "Name", "Renamed in between", "Save", all("projects", "Renamed in between")],
    [`/keys/${key}?edit=1`, "Name", "Key in between", "Save", all("keys", "Key in between")],
    ["/providers?connect=echo", "Name", "in-between", "Connect", async () => (await gateway.api("GET", "providers?limit=500")).data.some(({ id }) => id === "in-between")],
    ["/routes/interrupted", "Preamble", "Between the lines.", "Save and publish", async () => (await gateway.api("GET", "endpoints/interrupted")).preamble === "Between the lines."],
    ["/quotas?new=1", "Limit ($)", "7.5", "Create", async () => (await quotas()).some(({ limit }) => limit === 7_500_000), (page) => choose(page, "Applies to", project, "")],
    [`/quotas?edit=${quota}`, "Limit", "77", "Save", async () => (await quotas()).some(({ limit }) => limit === 77)],
    [`/playground?as=${key}&model=smart`, "Message", "Sent in between", "Send Ctrl Enter", async () => (await gateway.api("GET", `requests?key=${key}`)).data.length > 0],
    ["/alerts/rules?new=1", "Name", "Rule in between", "Create", named("alert-rules", "Rule in between")],
    ["/alerts/rules?edit=rule_backup_failed", "Name", "Backup rule in between", "Save", named("alert-rules", "Backup rule in between")],
    ["/webhooks?new=1", "Name", "Webhook in between", "Create", all("webhooks", "Webhook in between"), fill({ Address: "http://127.0.0.1:9/hook" })],
    ["/providers?tab=extensions&new=1", "Name", "in-between", "Add and probe", all("extensions", "in-between"), fill({ URL: "unix:/none/in-between.sock", "Shared secret": `whsec_${"A".repeat(43)}=` })],
  ];
}

export const sessionChecks = {
  async a_session_that_ends_in_the_middle_of_any_form_loses_nothing({ gateway, browser }) {
    const { id } = await gateway.api("POST", "projects", { name: "interrupted" });
    const made = await gateway.api("POST", "keys", { name: "interrupted", project: id });
    const quota = await gateway.api("POST", "quotas", { subject: { kind: "project", id }, metric: "requests", window: "day", limit: 1000 });
    await gateway.api("POST", "endpoints", { name: "interrupted", failover: [{ provider: "echo", model: "echo" }] });
    const work = async ([path, label, text, submit, exists, prepare = () => {}]) => {
      const page = await browser.signedIn(gateway.key, path);
      await prepare(page);
      const field = page.getByLabel(label, { exact: true }).last();
      await field.fill(text);
      await page.context().clearCookies();
      const send = button(page, submit).last();
      // The preview of an edit may have found the end of the session before.
      await send.click({ timeout: 3_000 }).catch(() => {});
      await page.getByText("Nothing you typed is lost.").waitFor();
      assert.equal(await field.inputValue(), text, path);
      await signIn(page, gateway.key);
      for (let n = 0; !(await exists()); n += 1) {
        assert.ok(n < 100, `${path}: ${text} was not saved`);
        if (n === 20 && (await send.isEnabled())) await send.click();
        await page.waitForTimeout(100);
      }
      await page.context().close();
    };
    const all = forms(gateway, { project: id, key: made.id, quota: quota.id });
    for (let n = 0; n < all.length; n += 2) await Promise.all(all.slice(n, n + 2).map(work));
    await gateway.api("DELETE", "providers/in-between");
  },

  async a_gateway_that_returns_with_another_version_offers_to_load_the_page_again({ gateway, browser }) {
    const page = await browser.signedIn(gateway.key, "/access?tab=humans&new=1");
    const name = page.getByLabel("Name", { exact: true });
    await name.fill("half typed");
    await settled(page);
    browser.isStopped = true;
    await gateway.stop();
    await button(page, "Create").click();
    await page.getByText("No answer from the gateway since").waitFor();
    await page.route("**/admin/api/state", async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: { ...(await response.json()), version: "99.0.0" } });
    });
    await gateway.start();
    browser.isStopped = false;
    await page.getByText("The gateway has version 99.0.0 now; this page is of an older one.").waitFor();
    assert.equal(await name.inputValue(), "half typed", "what was typed is there");
    assert.deepEqual(await axe(page), []);
    await page.keyboard.press("Escape");
    await page.unroute("**/admin/api/state");
    await button(page, "Reload").click();
    await page.getByRole("heading", { name: "Access", level: 1 }).waitFor();
    await settled(page);
    assert.equal(await page.getByText("this page is of an older one").count(), 0);
  },

  async two_browsers_that_edit_an_endpoint_lose_nothing({ gateway, browser }) {
    for (const id of ["left", "right"]) await gateway.api("POST", "providers", { id, type: "echo", models: ["echo"] });
    const target = (provider) => ({ provider, model: "echo" });
    await gateway.api("POST", "endpoints", { name: "shared", failover: [target("left"), target("right")] });
    const [mine, theirs] = await Promise.all([1, 2].map(() => browser.signedIn(gateway.key, "/routes/shared")));
    for (const page of [mine, theirs]) await button(page, "Move right/echo").waitFor();
    await button(theirs, "Remove left/echo").click();
    await theirs.keyboard.press("Control+s");
    await theirs.getByText("shared is published").waitFor();
    await button(mine, "Move right/echo").focus();
    for (const key of [" ", "ArrowUp", " "]) await mine.keyboard.press(key);
    await mine.keyboard.press("Control+s");
    const dialog = mine.getByRole("dialog", { name: "shared was changed meanwhile" });
    await dialog.waitFor();
    assert.deepEqual(await dialog.locator("thead th").allInnerTexts(), ["Field", "Before", "Theirs", "Yours"]);
    const row = await dialog.locator("tbody tr").first().locator("td").allInnerTexts();
    assert.match(row[0], /left\/echo.*right\/echo/s);
    assert.ok(!row[1].includes("left/echo") && row[1].includes("right/echo"), row[1]);
    assert.match(row[2], /right\/echo.*left\/echo/s);
    assert.deepEqual(await axe(mine), []);
    await button(dialog, "Save these").click();
    await mine.getByText("shared is published").waitFor();
    const { failover } = await gateway.api("GET", "endpoints/shared");
    assert.deepEqual(failover.map(({ provider }) => provider), ["right", "left"]);
    await gateway.api("DELETE", "endpoints/shared");
    for (const id of ["left", "right"]) await gateway.api("DELETE", `providers/${id}`);
  },
};
