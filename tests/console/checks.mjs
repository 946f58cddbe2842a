// The checks, each named as a fact. They share one gateway: a check makes the objects it needs.

import assert from "node:assert/strict";

import { axe, choose, settled, sideways, signIn } from "./browser.mjs";

const button = (page, name) => page.getByRole("button", { name, exact: true });

async function project(gateway, name = "blue") {
  const { data } = await gateway.api("GET", "projects?limit=500");
  return data.find((known) => known.name === name) ?? gateway.api("POST", "projects", { name });
}

/** Fills the form of a new key. */
async function fillKey(page, name) {
  await page.getByLabel("Name", { exact: true }).fill(name);
  await choose(page, "Project", "blue");
  await settled(page);
}

export const checks = {
  async a_refused_sign_in_says_why({ gateway, browser }) {
    const { id } = await project(gateway);
    const { key } = await gateway.api("POST", "keys", { name: "a project's", project: id });
    const page = await (await browser.context()).newPage();
    await page.goto(`${browser.origin}/console/keys`);
    for (const [wrong, words] of [
      ["nonsense", "This is not an administrator key of this gateway."],
      [key, "This is a project key. Project keys cannot administer the gateway."],
    ]) {
      await page.getByLabel("Administrator key").fill(wrong);
      await button(page, "Sign in").click();
      await page.getByText(words).waitFor();
    }
    assert.deepEqual(await axe(page), []);
    assert.equal(await page.locator("nav").count(), 0, "nothing of the console is shown before");
  },

  async a_link_that_was_opened_while_signed_out_arrives_after_signing_in({ gateway, browser }) {
    const { id } = await project(gateway);
    const made = await gateway.api("POST", "keys", { name: "linked", project: id });
    const page = await (await browser.context()).newPage();
    await page.goto(`${browser.origin}/console/keys/${made.id}?edit=1`);
    await signIn(page, gateway.key);
    await page.getByRole("dialog", { name: "Edit linked" }).waitFor();
    const cookies = await page.context().cookies(`${browser.origin}/admin/api/state`);
    assert.deepEqual(cookies.map(({ httpOnly, sameSite, path }) => [httpOnly, sameSite, path]), [[true, "Strict", "/admin/api"]]);
    await page.keyboard.press("Escape");
    await button(page, "Sign out").click();
    await page.getByRole("heading", { name: "Sign in to llmgw" }).waitFor();
    assert.deepEqual(await page.context().cookies(`${browser.origin}/admin/api/state`), []);
  },

  async a_minted_key_is_shown_once_listed_and_opens_the_gateway({ gateway, browser }) {
    await project(gateway);
    const page = await browser.signedIn(gateway.key, "/keys");
    await button(page, "Mint key").click();
    assert.match(page.url(), /\?new=1$/);
    await button(page.getByRole("dialog"), "Mint key").click();
    await page.getByText("name must be").waitFor();
    await fillKey(page, "minted here");
    await button(page.getByRole("dialog"), "Mint key").click();
    const key = await page.locator("[data-secret]").innerText();
    assert.match(key, /^llmgw_[A-Za-z0-9]{49}$/);
    await page.keyboard.press("Escape");
    await page.mouse.click(5, 5);
    assert.equal(await page.locator("[data-secret]").innerText(), key, "only its button closes it");
    assert.deepEqual(await axe(page), []);
    await button(page, "I have copied it").click();
    await page.getByRole("link", { name: "minted here" }).waitFor();
    const kept = await page.evaluate(() => document.documentElement.outerHTML + JSON.stringify({ ...localStorage, ...sessionStorage }) + location.href);
    assert.ok(!kept.includes(key), "the key is gone");
    assert.equal(await gateway.chat(key, "smart", "hi"), 200);
    assert.equal(await gateway.chat(`${key.slice(0, -1)}${key.endsWith("x") ? "y" : "x"}`, "smart", "hi"), 401);
  },

  // M-055.
  async a_key_minted_to_act_as_a_human_resolves_to_that_human({ gateway, browser }) {
    const { id } = await project(gateway);
    const human = await gateway.api("POST", "principals", { name: "Hedy", email: "hedy@example.org" });
    await gateway.api("PUT", `projects/${id}/members/${human.id}`, { role: "member" });
    const page = await browser.signedIn(gateway.key, "/keys?new=1");
    await fillKey(page, "hedy's");
    await page.getByText("Choose a human where a target is that human's private OAuth connection.").waitFor();
    await choose(page, "Acts as", "hed", "Hedy");
    await button(page.getByRole("dialog"), "Mint key").click();
    const key = await page.locator("[data-secret]").innerText();
    assert.equal(await gateway.chat(key, "smart", "hi"), 200);
    const { data } = await gateway.api("GET", `requests?principal=${human.id}`);
    assert.deepEqual(data.map(({ principal_name, key_name }) => [principal_name, key_name]), [["Hedy", "hedy's"]]);
    await button(page, "I have copied it").click();
    await page.getByRole("row", { name: /hedy's/ }).getByText("Hedy").waitFor();
  },

  async an_ended_session_loses_nothing_and_the_request_is_repeated({ gateway, browser }) {
    await project(gateway);
    const page = await browser.signedIn(gateway.key, "/keys?new=1");
    await fillKey(page, "after the end");
    await page.context().clearCookies();
    await button(page.getByRole("dialog"), "Mint key").click();
    await page.getByText("Nothing you typed is lost.").waitFor();
    assert.equal(await page.getByLabel("Name", { exact: true }).inputValue(), "after the end");
    await signIn(page, gateway.key);
    await page.locator("[data-secret]").waitFor();
    const { data } = await gateway.api("GET", "keys?limit=500");
    assert.equal(data.filter(({ name }) => name === "after the end").length, 1);
  },

  async a_lost_race_shows_three_columns_and_loses_nothing({ gateway, browser }) {
    const { id } = await project(gateway);
    const made = await gateway.api("POST", "keys", { name: "contested", project: id });
    const page = await browser.signedIn(gateway.key, `/keys/${made.id}?edit=1`);
    await page.getByLabel("Name", { exact: true }).fill("mine");
    await gateway.api("PATCH", `keys/${made.id}`, { name: "theirs", endpoints: ["smart"] });
    await button(page, "Save").click();
    const dialog = page.getByRole("dialog", { name: "Edit contested: changed meanwhile" });
    await dialog.waitFor();
    assert.deepEqual(await dialog.locator("thead th").allInnerTexts(), ["Field", "Before", "Theirs", "Yours"]);
    assert.deepEqual(await dialog.locator("tbody th").allInnerTexts(), ["Name", "Endpoints"]);
    assert.deepEqual(await axe(page), []);
    await button(page, "Save these").click();
    await page.getByRole("heading", { name: "mine" }).waitFor();
    const now = await gateway.api("GET", `keys/${made.id}`);
    assert.deepEqual([now.name, now.endpoints], ["mine", ["smart"]]);
  },

  async a_key_is_rotated_revealed_disabled_revoked_and_deleted({ gateway, browser }) {
    const { id } = await project(gateway);
    const made = await gateway.api("POST", "keys", { name: "worn", project: id });
    assert.equal(await gateway.chat(made.key, "smart", "hi"), 200);
    const page = await browser.signedIn(gateway.key, `/keys/${made.id}`);
    const act = async (name) => {
      await button(page, "Actions for worn").click();
      await page.getByRole("menuitem", { name }).click();
    };
    await act("Reveal");
    await page.getByText("This is recorded in the audit.").waitFor();
    await button(page, "Reveal").click();
    assert.equal(await page.locator("[data-secret]").innerText(), made.key);
    await button(page, "I have copied it").click();
    await act("Rotate");
    await page.getByText("The old key works until").waitFor();
    await button(page, "Rotate").click();
    const rotated = await page.locator("[data-secret]").innerText();
    await button(page, "I have copied it").click();
    assert.deepEqual([await gateway.chat(rotated, "smart", "hi"), await gateway.chat(made.key, "smart", "hi")], [200, 200]);
    await act("Disable");
    await button(page, "Disable").click();
    await page.locator(".state", { hasText: "disabled" }).waitFor();
    assert.equal(await gateway.chat(made.key, "smart", "hi"), 401);
    await act("Enable");
    await page.locator(".state", { hasText: "active" }).waitFor();
    await act("Revoke");
    await page.getByText("It was used for").waitFor();
    await page.getByLabel("Type worn to go on").fill("worn");
    await button(page, "Revoke").click();
    await page.locator(".state", { hasText: "revoked" }).waitFor();
    await act("Delete");
    await button(page, "Delete").click();
    await page.getByRole("heading", { name: "API keys" }).waitFor();
    await assert.rejects(gateway.api("GET", `keys/${made.id}`), /404/);
  },

  async the_address_is_the_state({ gateway, browser }) {
    const { id } = await project(gateway);
    const made = await gateway.api("POST", "keys", { name: "resting", project: id });
    await gateway.api("PATCH", `keys/${made.id}`, { state: "disabled" });
    const page = await browser.signedIn(gateway.key, "/keys");
    await page.getByLabel("State").selectOption("disabled");
    await page.getByRole("link", { name: "resting" }).click();
    await page.getByRole("heading", { name: "resting" }).waitFor();
    await page.goBack();
    await page.getByRole("link", { name: "resting" }).waitFor();
    assert.equal(await page.getByLabel("State").inputValue(), "disabled");
    await page.reload();
    await settled(page);
    assert.equal(await page.getByLabel("State").inputValue(), "disabled");
    assert.equal(await page.locator("a.row-link").count(), 1);
    await page.goBack();
    await settled(page);
    assert.equal(await page.getByLabel("State").inputValue(), "");
  },

  async a_long_list_keeps_few_rows_in_the_document({ gateway, browser }) {
    const { id } = await project(gateway, "many");
    const make = (n) => gateway.api("POST", "keys", { name: `key ${n}`, project: id });
    for (let n = 0; n < 150; n += 10) await Promise.all(Array.from({ length: 10 }, (_, i) => make(n + i)));
    const { data } = await gateway.api("GET", `keys?project=${id}&limit=500`);
    const page = await browser.signedIn(gateway.key, `/keys?project=${id}`);
    await settled(page);
    const rows = () => page.locator("tbody tr:not(.gap)").count();
    assert.ok((await rows()) < 80, `${await rows()} rows`);
    const last = page.getByRole("link", { name: data.at(-1).name, exact: true });
    for (let n = 0; n < 40 && !(await last.count()); n += 1) {
      await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
      await page.waitForTimeout(100);
    }
    await last.waitFor();
    assert.ok((await rows()) < 80, `${await rows()} rows`);
  },

  async keys_do_everything({ gateway, browser }) {
    const { id } = await project(gateway);
    await gateway.api("POST", "keys", { name: "listed", project: id });
    const page = await browser.signedIn(gateway.key, "/keys");
    await settled(page);
    await page.keyboard.press("Control+k");
    await page.keyboard.type("mint");
    await page.keyboard.press("Enter");
    await page.getByRole("dialog", { name: "Mint a project key" }).waitFor();
    await page.keyboard.type("by keyboard");
    assert.equal(await page.getByLabel("Name", { exact: true }).inputValue(), "by keyboard");
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.keyboard.press("j");
    assert.ok(await page.evaluate(() => document.activeElement.matches("a.row-link")));
    await page.keyboard.press(".");
    await page.getByRole("menuitem", { name: "Rotate" }).waitFor();
    await page.keyboard.press("Escape");
    assert.ok(await page.evaluate(() => document.activeElement.matches("[data-menu]")), "the focus is back");
    await page.keyboard.press("Control+k");
    await page.keyboard.type("smart");
    await page.getByRole("option", { name: "smart endpoint" }).waitFor();
    assert.deepEqual(await axe(page), []);
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keys" }).waitFor();
    assert.deepEqual(await axe(page), []);
  },

  async a_provider_is_connected_proven_disabled_and_deleted({ gateway, browser }) {
    const page = await browser.signedIn(gateway.key, "/providers");
    await button(page, "Connect provider").click();
    await page.getByText("No model server answered on the usual ports").waitFor();
    assert.deepEqual(await axe(page), []);
    await page.getByLabel("Search by name").fill("groq");
    await button(page, "Groq").click();
    await page.getByText("Stored encrypted.").waitFor();
    await page.getByLabel("Name", { exact: true }).fill("not a name");
    await page.getByLabel("API key", { exact: true }).fill("gsk-secret-of-the-test");
    await page.getByLabel(/^Base URL/).fill("http://127.0.0.1:9/v1");
    await button(page, "Connect").click();
    await page.getByText("must be 1 to 64 letters").waitFor();
    await page.getByLabel("Name", { exact: true }).fill("groq");
    await button(page, "Connect").click();
    await page.getByRole("heading", { name: "groq", level: 1 }).waitFor();
    await settled(page);
    assert.ok(!(await page.content()).includes("gsk-secret-of-the-test"), "a credential is never shown");
    await page.goto(`${browser.origin}/console/providers?connect=echo`);
    await page.getByLabel("Name", { exact: true }).fill("trial");
    await button(page, "Connect").click();
    await page.getByRole("heading", { name: "trial", level: 1 }).waitFor();
    await button(page, "Test echo").click();
    assert.deepEqual(await axe(page), []);
    await button(page.getByRole("dialog"), "Test completion").click();
    await page.getByText("answered “").waitFor();
    await button(page.getByRole("dialog"), "Close").first().click();
    await page.getByText("by echo").waitFor();
    await gateway.api("POST", "endpoints", { name: "on-trial", failover: [{ provider: "trial", model: "echo" }] });
    await button(page, "Actions for trial").click();
    await page.getByRole("menuitem", { name: "Disable" }).click();
    await page.getByText("1 endpoint loses a target: on-trial").waitFor();
    await button(page, "Disable").click();
    await page.locator(".state", { hasText: "disabled" }).waitFor();
    await gateway.api("DELETE", "endpoints/on-trial");
    await button(page, "Actions for trial").click();
    await page.getByRole("menuitem", { name: "Delete" }).click();
    await page.getByText("Its credential is erased.").waitFor();
    const typed = page.getByLabel("Type trial to go on");
    if (await typed.count()) await typed.fill("trial");
    await button(page, "Delete").click();
    await page.getByRole("heading", { name: "Providers", level: 1 }).waitFor();
    await assert.rejects(gateway.api("GET", "providers/trial"), /404/);
  },

  // M-052.
  async a_test_of_a_hosted_provider_says_before_it_starts_that_it_may_be_billable({ gateway, browser }) {
    await gateway.api("POST", "providers", { id: "hosted", type: "openai", api_key: "sk-nothing-00000000", base_url: "http://127.0.0.1:9/v1", models: ["gpt-5"] });
    const page = await browser.signedIn(gateway.key, "/providers/hosted");
    await button(page, "Test gpt-5").click();
    await page.getByRole("dialog").getByText("Hosted test requests may be billable.").waitFor();
    const lastError = async () => (await gateway.api("GET", "providers/hosted")).evidence.inference.last_error;
    assert.equal(await lastError(), null, "nothing was sent yet");
    await button(page.getByRole("dialog"), "Test completion").click();
    await page.getByRole("dialog").getByText(/cannot be reached|connect/).first().waitFor();
    assert.ok(await lastError(), "now it was");
  },

  async an_endpoint_is_made_reordered_by_keyboard_and_published({ gateway, browser }) {
    for (const id of ["one", "two"]) await gateway.api("POST", "providers", { id, type: "echo", models: ["echo"] });
    const page = await browser.signedIn(gateway.key, "/routes");
    await button(page, "New endpoint").click();
    await page.getByLabel("Named endpoint").fill("claude-opus-5.5");
    for (const id of ["one", "two"]) {
      await page.getByRole("combobox", { name: "Targets" }).fill(`${id}/echo`);
      await page.getByRole("option", { name: `${id}/echo` }).click();
    }
    await button(page, "Create endpoint").click();
    await page.getByRole("heading", { name: "claude-opus-5.5", level: 1 }).waitFor();
    await settled(page);
    await button(page, "Move two/echo").focus();
    for (const key of [" ", "ArrowUp", " "]) await page.keyboard.press(key);
    await page.getByText("two/echo moved up to 1").waitFor();
    assert.deepEqual(await axe(page), []);
    const before = await gateway.api("GET", "endpoints/claude-opus-5.5");
    await gateway.api("PUT", "endpoints/claude-opus-5.5", { failover: before.failover, preamble: "Be brief." });
    await page.keyboard.press("Control+s");
    await page.getByRole("dialog", { name: "claude-opus-5.5 was changed meanwhile" }).waitFor();
    await button(page, "Save these").click();
    await page.getByText("claude-opus-5.5 is published").waitFor();
    const now = await gateway.api("GET", "endpoints/claude-opus-5.5");
    assert.deepEqual([now.failover.map(({ provider }) => provider), now.preamble], [["two", "one"], "Be brief."]);
    await button(page, "Test now").click();
    await page.getByText("Hosted test requests may be billable.").waitFor();
    await button(page.getByRole("dialog"), "Test now").click();
    await page.getByText("answered “").waitFor();
    await page.keyboard.press("Escape");
    await button(page, "Actions for claude-opus-5.5").click();
    await page.getByRole("menuitem", { name: "Delete" }).click();
    await page.getByLabel("Type claude-opus-5.5 to go on").fill("claude-opus-5.5");
    await button(page, "Delete").click();
    await page.getByRole("heading", { name: "Routes", level: 1 }).waitFor();
  },

  async a_human_becomes_the_owner_of_a_project({ gateway, browser }) {
    const page = await browser.signedIn(gateway.key, "/access?tab=humans&new=1");
    await page.getByLabel("Name", { exact: true }).fill("Ada");
    await page.getByLabel("E-mail").fill("not an address");
    await button(page, "Create").click();
    await page.locator(".help.bad").waitFor();
    await page.getByLabel("E-mail").fill("ada@example.org");
    await button(page, "Create").click();
    await page.getByRole("heading", { name: "Ada", level: 1 }).waitFor();
    await page.goto(`${browser.origin}/console/access?new=1`);
    await page.getByLabel("Name", { exact: true }).fill("agents");
    await button(page, "Create").click();
    await page.getByRole("heading", { name: "agents", level: 1 }).waitFor();
    await button(page, "Add member").click();
    await choose(page, "Human", "Ada");
    await page.getByLabel("Role", { exact: true }).selectOption("owner");
    await button(page, "Add").click();
    await page.getByText("Ada is owner of agents.").waitFor();
    await page.getByRole("link", { name: "Ada" }).click();
    await page.getByRole("link", { name: "agents" }).waitFor();
    await page.goBack();
    await button(page, "Remove Ada").click();
    await button(page, "Remove").click();
    await page.getByRole("dialog").getByRole("alert").waitFor();
  },

  async a_request_is_found_and_shows_where_its_time_went({ gateway, browser }) {
    const { id } = await project(gateway);
    const made = await gateway.api("POST", "keys", { name: "asker", project: id });
    await gateway.chat(made.key, "smart", "hi");
    await gateway.chat(made.key, "no-such-model", "hi");
    const page = await browser.signedIn(gateway.key, `/requests?key=${made.id}`);
    await settled(page);
    assert.equal(await page.locator("a.row-link").count(), 2);
    await page.getByLabel("Outcome").selectOption("cut");
    await page.getByRole("heading", { name: "No request in this time fits the filter" }).waitFor();
    await page.getByLabel("Outcome").selectOption("completed");
    await page.locator("a.row-link").click();
    await page.getByRole("heading", { name: "Answered by echo / echo" }).waitFor();
    await page.getByRole("heading", { name: "What happened" }).waitFor();
    await page.getByRole("link", { name: "asker" }).click();
    await page.getByRole("heading", { name: "asker", level: 1 }).waitFor();
    await page.goBack();
    const record = new URL(page.url()).pathname.split("/").at(-1);
    await page.keyboard.press("Control+k");
    await page.keyboard.type(record);
    await page.getByRole("option", { name: `Request ${record}` }).waitFor();
  },

  async quotas_prices_backups_settings_and_the_audit_work({ gateway, browser }) {
    await project(gateway, "bounded");
    const page = await browser.signedIn(gateway.key, "/quotas?new=1");
    await choose(page, "Applies to", "bounded");
    await button(page, "Create").click();
    await page.getByRole("dialog").getByRole("alert").waitFor();
    await page.getByLabel("Limit ($)").fill("5");
    await button(page, "Create").click();
    await page.getByRole("cell", { name: "$5.00" }).waitFor();
    await page.getByRole("row", { name: "bounded" }).getByRole("button").click();
    await page.getByRole("menuitem", { name: "Change" }).click();
    await page.getByLabel("Limit ($)").fill("7.5");
    await button(page, "Save").click();
    await page.getByRole("cell", { name: "$7.50" }).waitFor();
    await page.goto(`${browser.origin}/console/models?open=echo%2Fecho`);
    await page.getByLabel("Input ($ per million)").fill("0.5");
    await page.getByLabel("Output ($ per million)").fill("1");
    await button(page, "Set price").click();
    await page.getByText("The price of echo/echo is set").waitFor();
    await page.getByRole("cell", { name: "$0.50" }).waitFor();
    await page.goto(`${browser.origin}/console/backups`);
    await button(page, "Create backup").first().click();
    await page.locator(".state", { hasText: "whole" }).waitFor();
    await page.goto(`${browser.origin}/console/settings`);
    await button(page, "Dark").click();
    await page.getByLabel("Search the settings").fill("LLMGW_API_KEY");
    await page.getByRole("cell", { name: "••••" }).first().waitFor();
    await page.reload();
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
    const stored = await page.evaluate(() => Object.keys(localStorage));
    assert.deepEqual(stored, ["llmgw.console"]);
    await page.goto(`${browser.origin}/console/audit?action=quota.edit`);
    await settled(page);
    await page.locator("a.row-link").first().click();
    await page.getByRole("dialog").getByRole("cell", { name: "7500000" }).waitFor();
    assert.deepEqual(await axe(page), []);
  },

  async usage_is_summed_by_anything_and_leads_to_the_requests({ gateway, browser }) {
    const { id } = await project(gateway, "counted");
    const made = await gateway.api("POST", "keys", { name: "counter", project: id });
    for (let n = 0; n < 3; n += 1) await gateway.chat(made.key, "smart", "hi");
    const page = await browser.signedIn(gateway.key, `/usage?by=key&period=24h&project=${id}&figure=requests`);
    const row = page.getByRole("row", { name: "counter" });
    assert.equal(await row.locator("td").nth(1).innerText(), "3");
    await page.getByRole("group", { name: "Requests by key." }).press("End");
    await page.locator(".chart-tip b").getByText("3", { exact: true }).waitFor();
    await row.getByRole("link", { name: "3", exact: true }).first().click();
    await page.getByRole("heading", { name: "Requests", level: 1 }).waitFor();
    await settled(page);
    assert.equal(await page.locator("a.row-link").count(), 3);
  },

  async a_client_gets_its_text_with_the_address_and_the_endpoint({ gateway, browser }) {
    const page = await browser.signedIn(gateway.key, "/connect?client=claude-code");
    const code = page.getByRole("group", { name: "Text for Claude Code" });
    await code.getByText(`ANTHROPIC_BASE_URL=${browser.origin}`).waitFor();
    await code.getByText("claude --model smart").waitFor();
    await page.getByRole("link", { name: "Codex" }).click();
    await page.getByText("Write this to ~/.codex/config.toml:").waitFor();
  },

  async a_gateway_that_stops_is_noticed_and_its_return_continues_the_session({ gateway, browser }) {
    const { id } = await project(gateway);
    await gateway.api("POST", "keys", { name: "kept", project: id });
    const page = await browser.signedIn(gateway.key, "/keys");
    await settled(page);
    browser.isStopped = true;
    await gateway.stop();
    await page.getByLabel("State").selectOption("active");
    await page.getByText("No answer from the gateway since").waitFor();
    assert.deepEqual(await axe(page), []);
    await gateway.start();
    await page.locator("a.row-link").first().waitFor();
    browser.isStopped = false;
    await page.getByText("No answer from the gateway").waitFor({ state: "detached" });
    assert.equal(await page.getByText("You were signed out").count(), 0);
  },

  async every_page_is_accessible_narrow_and_wide_light_and_dark({ gateway, browser }) {
    const { id } = await project(gateway);
    const made = await gateway.api("POST", "keys", { name: "seen", project: id, limits: [{ metric: "requests", window: "day", limit: 4 }] });
    await gateway.chat(made.key, "smart", "hi");
    const ada = await gateway.api("POST", "principals", { name: "Grace", email: "grace@example.org" });
    await gateway.api("PUT", `projects/${id}/members/${ada.id}`, { role: "owner" });
    const webhook = await gateway.api("POST", "webhooks", { name: "seen", url: "http://127.0.0.1:9/hook", kinds: ["disk_low", "backup_failed"] });
    await gateway.api("POST", "alert-rules/rule_disk_low/test");
    const { data } = await gateway.api("GET", "requests?limit=1");
    const paths = [
      "/", "/?period=7d&by=model", "/requests", `/requests/${data[0].request_id}`, "/requests?outcome=cut", "/requests/none", "/usage", "/usage?by=key&period=24h", "/usage/runs", "/usage/runs?tag=none", "/models", "/models?open=echo%2Fecho", "/quotas", "/quotas?new=1",
      "/alerts", "/alerts?state=any", "/alerts?alert=none", "/alerts/rules", "/alerts/rules?new=1", "/alerts/rules?edit=rule_spend_anomaly", "/webhooks", "/webhooks?new=1", `/webhooks?webhook=${webhook.id}`, `/webhooks?edit=${webhook.id}`, "/outbox", "/outbox?state=dead",
      "/audit", "/nodes", "/nodes?node=2", "/backups", "/settings", "/setup", "/setup?step=keys", "/setup?step=client", "/connect", "/device", "/device?code=BCDF-GHJK", "/playground", "/providers", "/providers?state=faulty", "/providers?tab=extensions", "/providers?tab=extensions&new=1", "/providers?tab=extensions&extension=none", "/providers/echo", "/providers/none", "/routes", "/routes/smart", "/routes/smart?differences=messages-bedrock", "/routes?new=1", "/access", "/access?tab=humans&new=1",
      `/access/projects/${id}`, `/access/projects/${id}?tab=keys`, `/access/projects/${id}?tab=limits&edit=1`, `/access/projects/${id}/access`, `/access/humans/${ada.id}/access`, `/keys/${made.id}/access?allowed=true`, `/access/humans/${ada.id}`,
      "/keys", "/keys?new=1", "/keys?project=none", `/keys/${made.id}`, `/keys/${made.id}?edit=1`, "/keys/none", "/nothing/here",
    ];
    const halves = [0, 1].map((half) => paths.filter((_, i) => i % 2 === half));
    assert.deepEqual((await Promise.all(halves.map((own) => look(gateway, browser, own)))).flat(), []);
  },
};

/** Between the widest and the narrowest, a page has the same colours and controls: only its width is judged there. */
const VIEWS = [
  { colorScheme: "light", width: 1440 },
  { colorScheme: "light", width: 1024, isOnlyMeasured: true },
  { colorScheme: "dark", width: 390 },
];

/** Looks at pages in each view with axe-core and for sideways scrolling, and counts what each asks of the gateway. Returns the faults. */
async function look(gateway, browser, paths) {
  const page = await browser.signedIn(gateway.key, paths[0]);
  const faults = [];
  for (const path of paths) {
    const asked = [];
    // The frame around the pages asks for the first three once; the live stream is one connection.
    const count = (request) => /\/admin\/api\/(?!session|state|setup|live)/.test(request.url()) && asked.push(request.url());
    await page.goto("about:blank");
    page.on("request", count);
    await page.goto(`${browser.origin}/console${path}`);
    await settled(page);
    page.off("request", count);
    // A dialog asks for what it offers to choose from; the overview for alerts while some are open, and for the limits of who spends.
    const isDialog = /=1|=choose|differences=/.test(path);
    const further = [/\/alerts\?state=open/, /\/quotas\?(project|key)=.*limit=/];
    const most = 4 + further.filter((one) => path.startsWith("/?") || path === "/" ? asked.some((url) => one.test(url)) : false).length;
    if (!isDialog && asked.length > most) faults.push(`${path} asks ${asked.length} times: ${asked.join(" ")}`);
    for (const { colorScheme, width, isOnlyMeasured } of VIEWS) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 900 });
      if (!isOnlyMeasured) faults.push(...(await axe(page)).map((fault) => `${path} ${colorScheme} ${width}: ${fault}`));
      const over = await sideways(page);
      if (over) faults.push(`${path} ${width} scrolls sideways by ${over}`);
    }
  }
  return faults;
}
