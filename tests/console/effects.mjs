// The checks of what a change does before it is made, and of what a key, a project or a human can call.

import assert from "node:assert/strict";

import { axe, settled } from "./browser.mjs";

const button = (page, name) => page.getByRole("button", { name, exact: true });

export const effectChecks = {
  async a_change_shows_who_loses_what_before_it_is_made({ gateway, browser }) {
    const { id } = await gateway.api("POST", "projects", { name: "affected" });
    for (const name of ["first", "second"]) await gateway.api("POST", "providers", { id: name, type: "echo", models: ["echo"] });
    const target = (provider) => ({ provider, model: "echo" });
    await gateway.api("POST", "endpoints", { name: "narrow", failover: [target("first"), target("second")] });
    const made = await gateway.api("POST", "keys", { name: "bounded", project: id, endpoints: ["narrow", "default"] });
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
    assert.deepEqual((await gateway.api("GET", `keys/${made.id}`)).endpoints.sort(), ["default", "narrow"]);
    assert.deepEqual(await axe(page), []);
    await button(dialog, "Save").click();
    await dialog.waitFor({ state: "detached" });
    assert.deepEqual((await gateway.api("GET", `keys/${made.id}`)).endpoints, ["default"]);
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
    const made = await gateway.api("POST", "keys", { name: "curious key", project: id, endpoints: ["default"], models: [] });
    const page = await browser.signedIn(gateway.key, `/keys/${made.id}`);
    await page.getByRole("link", { name: "What can it call?" }).click();
    await page.getByRole("heading", { name: "What can curious key call?" }).waitFor();
    await settled(page);
    const yes = page.getByRole("row", { name: /^default endpoint yes/ });
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
};
