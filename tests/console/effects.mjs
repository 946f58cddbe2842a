// The checks of what a change does before it is made, and of what a key, a project or a human can call.

import assert from "node:assert/strict";

import { axe, choose, settled } from "./browser.mjs";

const button = (page, name) => page.getByRole("button", { name, exact: true });

export const effectChecks = {
  async a_change_shows_who_loses_what_before_it_is_made({ gateway, browser }) {
    const { id } = await gateway.api("POST", "projects", { name: "affected" });
    for (const name of ["first", "second"]) await gateway.api("POST", "providers", { id: name, type: "echo", models: ["echo"] });
    const target = (provider) => ({ provider, model: "echo" });
    await gateway.api("POST", "endpoints", { name: "narrow", failover: [target("first"), target("second")] });
    const made = await gateway.api("POST", "keys", { name: "bounded", project: id, endpoints: ["narrow", "smart"] });
    const page = await browser.signedIn(gateway.key, "/routes/narrow");
    await button(page, "Remove second/echo").click();
    await page.getByText("1 endpoint loses a target: narrow").waitFor();
    assert.deepEqual((await gateway.api("GET", "endpoints/narrow")).failover.length, 2, "nothing is kept");
    assert.deepEqual(await axe(page), []);
    await button(page, "Discard").click();
    await page.goto(`${browser.origin}/console/keys/${made.id}?edit=1`);
    const dialog = page.getByRole("dialog", { name: "Edit bounded" });
    await dialog.getByRole("button", { name: "Remove narrow", exact: true }).click();
    await dialog.getByText("bounded loses narrow").waitFor();
    assert.deepEqual((await gateway.api("GET", `keys/${made.id}`)).endpoints.sort(), ["narrow", "smart"]);
    assert.deepEqual(await axe(page), []);
    await button(dialog, "Save").click();
    await dialog.waitFor({ state: "detached" });
    assert.deepEqual((await gateway.api("GET", `keys/${made.id}`)).endpoints, ["smart"]);
    await page.goto(`${browser.origin}/console/providers/first`);
    await button(page, "Actions for first").click();
    await page.getByRole("menuitem", { name: "Delete" }).click();
    await page.getByText("Endpoints use it: narrow. Remove it from them first.").waitFor();
    await page.keyboard.press("Escape");
    await gateway.api("DELETE", "endpoints/narrow");
    for (const name of ["first", "second"]) await gateway.api("DELETE", `providers/${name}`);
  },

  async a_key_lists_what_it_can_call_and_why_not({ gateway, browser }) {
    const { id } = await gateway.api("POST", "projects", { name: "curious" });
    const made = await gateway.api("POST", "keys", { name: "curious key", project: id, endpoints: ["smart"], models: [] });
    const page = await browser.signedIn(gateway.key, `/keys/${made.id}`);
    await page.getByRole("link", { name: "What can it call?" }).click();
    await page.getByRole("heading", { name: "What can curious key call?" }).waitFor();
    await settled(page);
    const yes = page.getByRole("row", { name: /^smart endpoint yes/ });
    await yes.waitFor();
    const no = page.getByRole("row", { name: /^echo\/echo model no/ });
    assert.match(await no.innerText(), /a list of the key or its project does not contain it/);
    assert.deepEqual(await axe(page), []);
    await button(page, "Can call").click();
    await no.waitFor({ state: "detached" });
    await page.reload();
    await yes.waitFor();
    assert.equal(await page.locator("a.row-link").count(), 1, "the address keeps the filter");
    await page.goto(`${browser.origin}/console/access/projects/${id}`);
    await page.getByRole("link", { name: "What can it call?" }).click();
    await page.getByRole("row", { name: /^echo\/echo model yes/ }).waitFor();
  },

  async disabling_and_deleting_say_who_loses_what_before({ gateway, browser }) {
    const { id } = await gateway.api("POST", "projects", { name: "doomed" });
    const human = await gateway.api("POST", "principals", { name: "Doomed Ada" });
    await gateway.api("PUT", `projects/${id}/members/${human.id}`, { role: "member" });
    const made = await gateway.api("POST", "keys", { name: "doomed key", project: id, acts_as: human.id, endpoints: ["smart"], models: [] });
    const other = await gateway.api("POST", "projects", { name: "without keys" });
    const page = await browser.signedIn(gateway.key, `/keys/${made.id}`);
    const act = async (name, action) => {
      await button(page, `Actions for ${name}`).click();
      await page.getByRole("menuitem", { name: action }).click();
      await page.getByRole("dialog", { name: `${action} ${name}?` }).waitFor();
    };
    const loses = async (path, name, action, isLost = true) => {
      await page.goto(`${browser.origin}/console${path}`);
      await act(name, action);
      const words = isLost ? page.getByText("doomed key loses smart") : page.getByRole("dialog").locator(".effects, .alert.warn");
      await words.first().waitFor();
      assert.deepEqual(await axe(page), [], `${action} ${name}`);
      await page.keyboard.press("Escape");
    };
    await loses(`/keys/${made.id}`, "doomed key", "Disable");
    await loses(`/keys/${made.id}`, "doomed key", "Revoke");
    await loses(`/access/projects/${id}`, "doomed", "Disable");
    await loses(`/access/humans/${human.id}`, "Doomed Ada", "Disable");
    await loses(`/access/humans/${human.id}`, "Doomed Ada", "Delete", false);
    await loses(`/access/projects/${other.id}`, "without keys", "Delete", false);
    assert.equal((await gateway.api("GET", `keys/${made.id}`)).state, "active", "nothing is kept");
    await page.goto(`${browser.origin}/console/access/projects/${id}`);
    await act("doomed", "Disable");
    await button(page, "Disable").click();
    await page.locator(".state", { hasText: "disabled" }).waitFor();
    assert.equal((await gateway.api("GET", `projects/${id}`)).disabled, true);
    await page.goto(`${browser.origin}/console/quotas?new=1`);
    await choose(page, "Applies to", "without keys");
    await page.getByLabel("Limit ($)").fill("5");
    await page.getByRole("dialog").locator(".effects").waitFor();
    assert.deepEqual(await axe(page), []);
    assert.equal((await gateway.api("GET", `quotas?project=${other.id}`).catch(() => ({ data: [] }))).data.length, 0, "nothing is kept");
  },
};
