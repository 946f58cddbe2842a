// The checks of the route editor: who would serve what, the rehearsal of failures, and the picker.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { axe, settled, sideways } from "./browser.mjs";

const button = (page, name) => page.getByRole("button", { name, exact: true });

export const routeChecks = {
  async timeouts_are_set_and_explained_where_a_provider_and_a_rehearsal_are_shown({ gateway, browser }) {
    await gateway.api("POST", "providers", { id: "patient", type: "echo", models: ["echo"] });
    await gateway.api("POST", "endpoints", { name: "waiting", failover: [{ provider: "patient", model: "echo" }, { provider: "echo", model: "echo" }] });
    const page = await browser.signedIn(gateway.key, "/providers/patient");
    await settled(page);
    await page.getByRole("button", { name: "Timeouts", exact: true }).click();
    const dialog = page.getByRole("dialog", { name: "Timeouts of patient" });
    await dialog.getByText(/at most half of what is left/).waitFor();
    assert.deepEqual(await axe(page), []);
    await dialog.getByLabel("Until an answer begins (s)").fill("20");
    await dialog.getByRole("button", { name: "Save", exact: true }).click();
    await page.getByText("within 20 s", { exact: true }).waitFor();
    assert.equal((await gateway.api("GET", "providers/patient")).timeout, 20);
    await page.goto(`${browser.origin}/console/routes/waiting?fail=patient%3Ahang`);
    await page.getByText(/at most half of what is left/).waitFor();
    await gateway.api("DELETE", "endpoints/waiting");
    await gateway.api("DELETE", "providers/patient");
  },

  async a_draft_shows_who_would_serve_what_and_what_a_client_would_wait_for({ gateway, browser }) {
    for (const id of ["north", "south"]) await gateway.api("POST", "providers", { id, type: "echo", models: ["echo"], timeout: 30 });
    await gateway.api("POST", "providers/south/test", { model: "echo" });
    const target = (provider) => ({ provider, model: "echo" });
    await gateway.api("POST", "endpoints", { name: "compass", failover: [target("north")] });
    const { id } = await gateway.api("POST", "projects", { name: "sailors" });
    const made = await gateway.api("POST", "keys", { name: "northbound", project: id, models: ["north/*"], endpoints: [] });
    const page = await browser.signedIn(gateway.key, "/routes/compass");
    await settled(page);
    const matrix = page.getByRole("region", { name: "Who would serve what" });
    await matrix.getByRole("row", { name: /^Text through Chat serves/ }).waitFor();
    // The picker ranks what a test has proven first, and understands what is asked of a model.
    const picker = page.getByRole("combobox", { name: "Add a target" });
    await picker.fill("proven echo");
    await page.getByRole("option", { name: /^south\/echo/ }).waitFor();
    assert.equal(await page.getByRole("option", { name: /^north\/echo/ }).count(), 0);
    await picker.fill("images under $0.01");
    await page.getByText("Nothing fits.").waitFor();
    await picker.fill("echo");
    const first = page.getByRole("listbox", { name: "Add a target" }).getByRole("option").first();
    await page.getByRole("option", { name: /^south\/echo/ }).waitFor();
    assert.match(await first.innerText(), /proven/);
    await picker.fill("south/echo");
    await page.getByRole("option", { name: /^south\/echo/ }).waitFor();
    await page.keyboard.press("Enter");
    await matrix.getByRole("columnheader", { name: "2 south" }).waitFor();
    await matrix.getByRole("row", { name: /^Text through Chat serves serves/ }).waitFor();
    assert.equal((await gateway.api("GET", "endpoints/compass")).failover.length, 1, "nothing is kept");
    await matrix.getByRole("combobox", { name: "Add a key" }).fill("northb");
    await page.getByRole("option", { name: "northbound" }).click();
    await matrix.getByRole("row", { name: /^Key northbound .*serves not allowed/ }).waitFor();
    assert.match(page.url(), new RegExp(`keys=${made.id}`));
    const rehearsal = page.getByRole("region", { name: "Rehearse" });
    await rehearsal.getByText("north answers").waitFor();
    await rehearsal.getByLabel("north").selectOption("does not answer");
    await rehearsal.getByText(/^north, \d+ attempts?: did not answer in time/).waitFor();
    await rehearsal.getByText("south answers").waitFor();
    await rehearsal.getByText("A client that waits 60 s would have left.").waitFor();
    await rehearsal.getByLabel("south").selectOption("answers 429");
    await rehearsal.getByText("The client gets an error").waitFor();
    assert.match(page.url(), /fail=north%3Ahang%2Csouth%3A429/);
    assert.deepEqual(await axe(page), []);
    await page.reload();
    await rehearsal.getByText(/^north, \d+ attempts?: did not answer in time/).waitFor();
    await button(page, "Move north/echo").waitFor();
    assert.equal(await rehearsal.getByLabel("north").inputValue(), "hang", "the address has the faults");
    await page.setViewportSize({ width: 390, height: 900 });
    assert.equal(await sideways(page), 0);
    await gateway.api("DELETE", "endpoints/compass");
    for (const id of ["north", "south"]) await gateway.api("DELETE", `providers/${id}`);
  },

  async targets_that_an_operation_never_reaches_are_marked({ gateway, browser }) {
    for (const id of ["primary", "second"]) await gateway.api("POST", "providers", { id, type: "echo", models: ["echo"] });
    const failover = [{ provider: "primary", model: "echo" }, { provider: "second", model: "echo" }];
    await gateway.api("POST", "endpoints", { name: "vectors", failover });
    const { id } = await gateway.api("POST", "projects", { name: "embedders" });
    const made = await gateway.api("POST", "keys", { name: "embedder", project: id });
    const response = await fetch(`${gateway.origin}/v1/embeddings`, {
      method: "POST",
      headers: { authorization: `Bearer ${made.key}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "vectors", input: "hi" }),
    });
    await response.text();
    const page = await browser.signedIn(gateway.key, "/routes/vectors");
    await page.getByText("Embeddings: never used for these: they go to the first target alone").waitFor();
    assert.equal(await page.getByText("never used for these").count(), 1, "the first target is used");
    await page.getByRole("region", { name: "Who would serve what" }).getByRole("row", { name: /^Embeddings/ }).waitFor();
    assert.deepEqual(await axe(page), []);
    await gateway.api("DELETE", "endpoints/vectors");
    for (const id of ["primary", "second"]) await gateway.api("DELETE", `providers/${id}`);
  },

  async models_are_found_by_what_they_have_to_be_and_routes_show_their_use({ gateway, browser }) {
    await gateway.api("POST", "providers", { id: "sighted", type: "echo", models: ["echo"] });
    await gateway.api("POST", "catalog/overrides", { provider: "sighted", model: "echo", facts: { vision: true, prices: { input: 1, output: 1.5 } } });
    const { id } = await gateway.api("POST", "projects", { name: "seekers" });
    const made = await gateway.api("POST", "keys", { name: "seeker", project: id });
    await gateway.api("POST", "providers", { id: "blind", type: "echo", models: ["echo"], echo: { fail_every: 1 } });
    const failover = ["blind", "sighted"].map((provider) => ({ provider, model: "echo" }));
    await gateway.api("POST", "endpoints", { name: "seeing", failover });
    assert.equal(await gateway.chat(made.key, "seeing", "hi"), 200);
    const page = await browser.signedIn(gateway.key, "/models");
    await page.getByLabel("Search models").fill("images under $2");
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "blind/echo" }).waitFor({ state: "detached" });
    await page.getByRole("button", { name: "sighted/echo" }).press("Enter");
    await page.locator("dd").getByText("input $1.00, output $1.50").first().waitFor();
    assert.deepEqual(await axe(page), []);
    await page.getByRole("link", { name: "Try" }).press("Enter");
    assert.equal(await page.getByLabel("Model or endpoint", { exact: true }).inputValue(), "sighted/echo");
    await page.goto(`${browser.origin}/console/routes`);
    await page.getByRole("row", { name: /^seeing .* 0 % 1 / }).waitFor();
    assert.deepEqual(await axe(page), []);
    await gateway.api("DELETE", "endpoints/seeing");
    for (const name of ["sighted", "blind"]) await gateway.api("DELETE", `providers/${name}`);
  },

  async a_change_of_an_endpoint_of_the_file_is_copied_as_yaml({ gateway, browser }) {
    const file = join(gateway.home, ".llmgw", "config.yaml");
    const before = readFileSync(file, "utf8");
    writeFileSync(file, `${before}\nendpoints:\n  filed:\n    failover:\n      - {provider: echo, model: echo}\n`);
    gateway.child.kill("SIGHUP");
    while (!(await gateway.api("GET", "endpoints")).data.some(({ name }) => name === "filed"));
    const page = await browser.signedIn(gateway.key, "/routes/filed");
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await page.getByText("A change here is shown as YAML to copy into the file").waitFor();
    await page.getByRole("combobox", { name: "Add a target" }).fill("voice/");
    await page.getByRole("option", { name: /^voice\// }).click();
    assert.equal(await button(page, "Save and publish").count(), 0, "saving would fail");
    await page.locator("button", { hasText: "Copy YAML with this change" }).press("Enter");
    await page.getByText("Copied", { exact: true }).waitFor();
    const text = await page.evaluate(() => navigator.clipboard.readText());
    assert.match(text, /^endpoints:\n {2}filed:\n {4}failover:\n {6}- \{provider: echo, model: echo\}\n {6}- \{provider: voice, model: \w+\}\n$/);
    assert.deepEqual(await axe(page), []);
    writeFileSync(file, before);
    gateway.child.kill("SIGHUP");
  },

  async an_adaptation_shows_the_fate_of_each_field({ gateway, browser }) {
    await gateway.api("POST", "providers", { id: "chat-alone", type: "compatible", base_url: "http://127.0.0.1:9/v1", models: ["m"] });
    await gateway.api("POST", "endpoints", { name: "adapted", failover: [{ provider: "chat-alone", model: "m" }] });
    const page = await browser.signedIn(gateway.key, "/routes/adapted");
    // The catalog knows nothing of the model, and an adaptation to Chat carries files only to providers that read them.
    const matrix = page.getByRole("region", { name: "Who would serve what" });
    await matrix.getByRole("row", { name: /^PDF through Messages .*no PDF/ }).waitFor();
    await matrix.getByRole("row", { name: /^Long input, 100 k tokens \? not known/ }).waitFor();
    await page.getByRole("button", { name: "Serves as chat: what changes" }).first().click();
    const dialog = page.getByRole("dialog", { name: "Messages sent as chat" });
    const rows = () => dialog.locator("tbody tr").allInnerTexts();
    await dialog.getByText("translated", { exact: true }).first().waitFor();
    assert.ok((await rows()).some((row) => row.startsWith("max_tokens")) && !(await rows()).some((row) => row.startsWith("temperature")));
    await dialog.getByRole("button", { name: "Rejected" }).click();
    assert.ok((await rows()).every((row) => row.includes("rejected with 400")));
    await dialog.getByRole("button", { name: "All" }).click();
    assert.ok((await rows()).some((row) => row.startsWith("temperature")));
    assert.deepEqual(await axe(page), []);
    await page.goBack();
    await dialog.waitFor({ state: "detached" });
    await gateway.api("DELETE", "endpoints/adapted");
    await gateway.api("DELETE", "providers/chat-alone");
  },
};
