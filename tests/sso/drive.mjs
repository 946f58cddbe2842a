// usage: drive.mjs LLMGW HOME CHROMIUM   people sign in to the console through Apache and an OpenID Connect provider.

import { strict as assert } from "node:assert";
import { join } from "node:path";
import { Browser, axe, settled } from "../console/browser.mjs";
import { Gateway } from "../console/gateway.mjs";
import { Apache, freePort } from "./apache.mjs";
import { checksOf } from "./people.mjs";
import { IdentityProvider, PARTNER } from "./provider.mjs";

const [binary, home, chromium] = process.argv.slice(2);
const SECRET = "secret-of-the-proxy-in-the-test";

const provider = new IdentityProvider();
const apache = new Apache(join(home, "apache"), await freePort());
const gateway = new Gateway(binary, home, {
  LLMGW_SSO_ENABLED: "true",
  LLMGW_SSO_SHARED_SECRET: SECRET,
  LLMGW_SSO_PRESET: "mod_auth_openidc",
  LLMGW_SSO_AUTO_PROVISION: "true",
  LLMGW_PARTNER_CLIENT_ID: PARTNER.id,
  LLMGW_PARTNER_CLIENT_SECRET: PARTNER.secret,
  LLMGW_OAUTH_PUBLIC_BASE_URL: apache.origin,
  LLMGW_SSO_SIGN_OUT_URL: `/oidc/callback?logout=${encodeURIComponent(`${apache.origin}/signed-out`)}`,
});
const browser = new Browser();

/** Types a name into the forms of the provider. */
async function authenticate(page, name) {
  await page.locator("input[name=login]").fill(name);
  await page.locator("input[name=password]").fill("any");
  await page.locator("button[type=submit]").click();
  await page.getByRole("button", { name: "Continue" }).click();
}

/** A page of a person who has signed in at the provider and to the console. */
async function signedIn(name, options = {}) {
  const context = await browser.browser.newContext(options);
  context.setDefaultTimeout(30_000);
  const page = await context.newPage();
  await page.goto(`${apache.origin}/console/`);
  await authenticate(page, name);
  await page.getByRole("button", { name: `Continue as ${name}@example.com` }).click();
  await page.locator("main h1").waitFor();
  await settled(page);
  return page;
}

/** Calls the admin API from a page, with its session. */
const api = (page, method, path, body) =>
  page.evaluate(
    async ([method, path, body]) => {
      const { csrf_token } = await (await fetch("/admin/api/session")).json();
      const headers = { "x-csrf-token": csrf_token, "content-type": "application/json" };
      const answer = await fetch(`/admin/api/${path}`, { method, headers, ...(body ? { body: JSON.stringify(body) } : {}) });
      const text = await answer.text();
      return { status: answer.status, data: text ? JSON.parse(text) : null };
    },
    [method, path, body],
  );

const pages = (page) => page.getByRole("navigation", { name: "Console", exact: true }).getByRole("listitem").allTextContents();

const checks = {
  async "a person sees their own projects, keys and usage alone"() {
    const ada = await signedIn("ada");
    assert.deepEqual(await pages(ada), ["Requests", "Usage", "Connections", "Access", "API keys", "Quotas", "Connect a client"]);
    assert.deepEqual(await axe(ada), []);
    const { human } = (await api(ada, "GET", "session")).data;
    const own = await gateway.api("POST", "projects", { name: "own" });
    const other = await gateway.api("POST", "projects", { name: "other" });
    const foreign = await gateway.api("POST", "keys", { name: "foreign", project: other.id });
    await gateway.api("PUT", `projects/${own.id}/members/${human.id}`, { role: "member" });
    const minted = await api(ada, "POST", "keys", { name: "mine", project: own.id, acts_as: human.id });
    assert.equal(minted.status, 201);
    assert.equal((await api(ada, "POST", `keys/${minted.data.id}/reveal`, {})).data.key, minted.data.key);
    assert.equal((await api(ada, "POST", `keys/${foreign.id}/reveal`, {})).status, 404);
    for (const [path, status] of [["state", 403], ["config", 403], ["audit", 403], [`projects/${other.id}`, 404]])
      assert.equal((await api(ada, "GET", path)).status, status, path);
    for (const [path, word] of [["keys", "mine"], ["access", "own"]]) {
      await ada.goto(`${apache.origin}/console/${path}`);
      await ada.getByRole("link", { name: word, exact: true }).waitFor();
      await settled(ada);
      const text = await ada.locator("main").innerText();
      assert.ok(!text.includes("foreign") && !text.includes("other"), text);
      assert.deepEqual(await axe(ada), []);
    }
    await ada.context().close();
  },

  async "the administrators' group administers, until the provider removes it"() {
    provider.groups.boss = ["staff", "llmgw-admin"];
    const boss = await signedIn("boss");
    assert.ok((await pages(boss)).includes("Settings"));
    assert.equal((await api(boss, "GET", "state")).status, 200);
    await boss.context().close();
    provider.groups.boss = ["staff"];
    const later = await signedIn("boss");
    assert.equal((await api(later, "GET", "state")).status, 403);
    await later.context().close();
  },

  async "headers that a client forges give it no other identity and no group"() {
    const extraHTTPHeaders = { OIDC_CLAIM_groups: "llmgw-admin", OIDC_CLAIM_sub: "boss", "x-llmgw-sso-secret": "forged" };
    const eve = await signedIn("eve", { extraHTTPHeaders });
    const session = (await api(eve, "GET", "session")).data;
    assert.equal(session.human.email, "eve@example.com");
    assert.equal(session.administrator, false);
    const direct = await fetch(`${gateway.origin}/admin/api/state`, { headers: { OIDC_CLAIM_sub: "boss", OIDC_CLAIM_groups: "llmgw-admin" } });
    assert.equal(direct.status, 401);
    await eve.context().close();
  },

  async "a sign-out ends the sessions with the gateway, the proxy and the provider"() {
    const ada = await signedIn("ada");
    const cookies = await ada.context().cookies(`${apache.origin}/admin/api/session`);
    const session = cookies.find(({ name }) => name === "llmgw_session");
    await ada.getByRole("button", { name: "Sign out" }).first().click();
    await ada.getByRole("button", { name: /sign me out/i }).click();
    await ada.waitForURL(`${apache.origin}/signed-out`);
    await ada.goto(`${apache.origin}/console/`);
    await ada.locator("input[name=login]").waitFor();
    const replayed = await fetch(`${gateway.origin}/admin/api/projects`, {
      headers: { cookie: `llmgw_session=${session.value}`, "x-llmgw-sso-secret": SECRET, OIDC_CLAIM_sub: "ada" },
    });
    assert.equal(replayed.status, 401);
    await ada.context().close();
  },
};

let [passed, failed] = [0, 0];
await provider.start(apache.origin);
await gateway.start();
await apache.start(provider.origin, gateway.origin, SECRET);
await browser.start(chromium, apache.origin);
const ofPeople = checksOf({ gateway, apache, provider, signedIn, api, pages });
for (const [name, check] of Object.entries({ ...checks, ...ofPeople })) {
  try {
    await check();
    passed += 1;
  } catch (error) {
    failed += 1;
    console.log(`FAILED: ${name}\n${error.stack}`);
  }
}
await browser.stop();
await apache.stop();
await gateway.stop();
provider.stop();
console.log(`single sign-on: ${passed} passed, ${failed} failed, 0 skipped`);
process.exit(failed ? 1 : 0);
