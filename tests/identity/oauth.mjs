// A human connects a provider with an account of a real authorization server, in a real browser.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, readdirSync, statSync } from "node:fs";
import { createServer } from "node:net";
import { once } from "node:events";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Browser, axe, choose, settled, signIn } from "../console/browser.mjs";
import { Gateway } from "../console/gateway.mjs";
import { ReferenceExtension } from "./extension.mjs";
import { CLIENT, Vendor } from "./vendor.mjs";

const [binary, home, chromium] = process.argv.slice(2);
const ACCESS_SECONDS = 8;
let passed = 0;

async function freePort() {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

async function eventually(what, probe, seconds = 30) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const found = await probe();
    if (found) return found;
    assert.ok(Date.now() < end, `not in time: ${what}`);
    await pause(100);
  }
}

async function check(name, run) {
  await run();
  passed += 1;
  console.log(`ok ${name}`);
}

const port = await freePort();
const origin = `http://127.0.0.1:${port}`;
const vendor = new Vendor();
await vendor.start(`${origin}/oauth/callback/partner`, ACCESS_SECONDS);
const gateway = new Gateway(binary, home, {
  LLMGW_PARTNER_CLIENT_ID: CLIENT.id,
  LLMGW_PARTNER_CLIENT_SECRET: CLIENT.secret,
  LLMGW_OAUTH_PUBLIC_BASE_URL: origin,
});
gateway.port = String(port);
await gateway.start();
assert.equal(gateway.origin, origin);
const ada = await gateway.api("POST", "principals", { name: "Ada" });
const project = await gateway.api("POST", "projects", { name: "home" });
await gateway.api("PUT", `projects/${project.id}/members/${ada.id}`, { role: "owner" });
const { key } = await gateway.api("POST", "keys", { name: "hers", project: project.id, acts_as: ada.id });
const other = await gateway.api("POST", "projects", { name: "other" });
const strange = await gateway.api("POST", "keys", { name: "strange", project: other.id });
await gateway.api("POST", "providers", { id: "partner", owner: ada.id, ...vendor.settings() });
const read = async () => gateway.api("GET", "providers/partner");
const chat = async (with_) => gateway.chat(with_, "partner/m", "hi");

const browser = new Browser();
await browser.start(chromium, origin);
const context = await browser.browser.newContext();
context.setDefaultTimeout(30_000);
const page = await context.newPage();
await page.goto(`${origin}/console/providers/partner`);
await signIn(page, gateway.key);
const card = page.locator("section, .card").filter({ hasText: "Experimental. Uses the OAuth client that you registered." }).first();

/** Presses Connect and opens the vendor's page as the link on the console's page does. */
async function begin(name) {
  await page.getByRole("button", { name, exact: true }).click();
  const link = page.getByRole("link", { name: "Open the vendor's page and consent" });
  await link.waitFor();
  return link.getAttribute("href");
}

async function login(there) {
  await there.locator('input[name="login"]').fill("ada");
  await there.locator('input[name="password"]').fill("any");
  await there.locator('button[type="submit"]').click();
}

await check("the page of a provider that waits for its human has no violation of axe-core's rules, and asks five times at most, once for the name of its owner", async () => {
  await settled(page);
  const asked = [];
  // The frame around the pages asks for the first three once; the live stream is one connection.
  page.on("request", (request) => /\/admin\/api\/(?!session|state|setup|live)/.test(request.url()) && asked.push(request.url()));
  await page.reload();
  await settled(page);
  page.removeAllListeners("request");
  assert.ok(asked.length > 0 && asked.length <= 5, asked.join(" "));
  assert.deepEqual(await axe(page), []);
});

await check("a denied consent connects nothing", async () => {
  const there = await context.newPage();
  await there.goto(await begin("Connect"));
  await there.getByRole("link", { name: /cancel/i }).click();
  await there.getByRole("heading", { name: "Not connected" }).waitFor();
  assert.match(await there.locator("p").first().innerText(), /access_denied/);
  await there.close();
  assert.equal((await read()).state, "not_connected");
});

await check("a state that another browser received is refused", async () => {
  const address = await begin("Connect");
  const thief = await browser.browser.newContext();
  const there = await thief.newPage();
  await there.goto(address);
  await login(there);
  await there.locator('button[type="submit"]').click();
  await there.getByRole("heading", { name: "Not connected" }).waitFor();
  assert.match(await there.locator("p").first().innerText(), /Another browser/);
  await thief.close();
  assert.equal((await read()).state, "not_connected");
});

await check("a human signs in, consents and is connected; the code cannot be replayed", async () => {
  const there = await context.newPage();
  await there.goto(await begin("Connect"));
  await login(there);
  await there.locator('button[type="submit"]').click();
  await there.getByRole("heading", { name: "Connected", exact: true }).waitFor();
  assert.match(await there.locator("p").first().innerText(), /ada@vendor\.example/);
  const callback = there.url();
  assert.ok(callback.startsWith(`${origin}/oauth/callback/partner?`), callback);
  await there.reload();
  await there.getByRole("heading", { name: "Not connected" }).waitFor();
  await there.close();
  // The page of the console has learnt it without a reload.
  await card.getByText("ada@vendor.example").waitFor();
  await card.getByText("Connected", { exact: true }).waitFor();
  const shown = await read();
  assert.equal(shown.state, "ready");
  assert.equal(shown.sign_in.redirect_uri, `${origin}/oauth/callback/partner`);
});

await check("requests carry the token, for its owner alone until it is shared", async () => {
  assert.equal(await chat(key), 200);
  assert.equal(await chat(strange.key), 403);
  await card.getByText("Only keys that act as its owner may use it").click();
  await card.getByRole("combobox", { name: "Share with a project" }).fill("other");
  await card.getByRole("option", { name: "other" }).click();
  await card.getByText("Shared with the keys of 1 project").waitFor();
  await card.getByRole("button", { name: "Stop sharing with other" }).waitFor();
  assert.deepEqual(await axe(page), []);
  assert.equal(await chat(strange.key), 200);
});

await check("the token is renewed ahead of its expiry, and the earlier refresh token is replaced", async () => {
  const before = vendor.accepted.size;
  await eventually("a renewal", async () => (await read()).sign_in.refreshed_at_ms, 4 * ACCESS_SECONDS);
  assert.equal(await chat(key), 200);
  assert.equal(vendor.accepted.size, before + 1);
  const first = (await read()).sign_in.refreshed_at_ms;
  await eventually("a second renewal, with the rotated token", async () => (await read()).sign_in.refreshed_at_ms > first, 4 * ACCESS_SECONDS);
  assert.equal(await chat(key), 200);
});

await check("kill -9 at any time: it works after the restart, or states that it is not connected", async () => {
  gateway.child.removeAllListeners("exit");
  const ended = once(gateway.child, "exit");
  gateway.child.kill("SIGKILL");
  await ended;
  await gateway.start();
  const status = await chat(key);
  const { state } = await read();
  assert.ok((status === 200 && state === "ready") || state === "not_connected", `${status} ${state}`);
});

await check("disconnecting revokes at the vendor", async () => {
  const tokens = [...vendor.accepted];
  const ended = await gateway.api("DELETE", "providers/partner/oauth");
  assert.equal(ended.revoked, true, JSON.stringify(ended));
  for (const token of tokens) assert.equal(await vendor.provider.AccessToken.find(token), undefined);
  assert.equal(await chat(key), 503);
  assert.equal((await read()).sign_in.state, "none");
});

await check("a sign-in on another device connects too", async () => {
  const started = await gateway.api("POST", "providers/partner/oauth/start", { method: "device" });
  const there = await (await browser.browser.newContext()).newPage();
  await there.goto(started.authorize_url);
  await there.locator('button[type="submit"]').first().click();
  await login(there);
  await there.locator('button[type="submit"]').click();
  await eventually("the sign-in", async () => (await read()).state === "ready", 60);
  assert.equal(await chat(key), 200);
});

const extension = new ReferenceExtension(await freePort());
await extension.start();
await gateway.api("POST", "extensions", { name: "companion", url: extension.origin, secret: extension.secret });
await gateway.api("POST", "extensions/companion/probe", {});

await check("an administrator creates a provider of an extension for the human who signs in", async () => {
  await page.goto(`${origin}/console/providers?tab=extensions&extension=companion`);
  const details = page.getByRole("dialog", { name: "Extension companion" });
  await details.getByText("Needs the account of a human, who signs in.").waitFor();
  await details.getByRole("button", { name: "Connect", exact: true }).click();
  const form = page.getByRole("dialog", { name: "Connect Repeats words" });
  await form.getByLabel("Name").fill("no name");
  await settled(page);
  await choose(form, "Owner", "Ada");
  await form.getByLabel("Models").fill("echo");
  await form.getByRole("button", { name: "Create" }).click();
  await form.getByText(/must be 1 to 64 letters/).waitFor();
  assert.deepEqual(await axe(page), []);
  await form.getByLabel("Name").fill("hers");
  await form.getByRole("button", { name: "Create" }).click();
  await page.waitForURL(/\/providers\/hers$/);
  const { auth, owner, sign_in, models } = await gateway.api("GET", "providers/hers");
  assert.deepEqual([auth, owner, sign_in.state, models], ["oauth", ada.id, "none", ["echo"]]);
});

await check("the extension signs the human in, and the disconnection is revoked through it", async () => {
  await page.getByText("The extension companion signs in to its vendor.").waitFor();
  const there = await context.newPage();
  await there.goto(await begin("Connect"));
  await there.getByRole("heading", { name: "Connected", exact: true }).waitFor();
  await there.close();
  await page.getByText("guest", { exact: true }).waitFor();
  assert.deepEqual(await axe(page), []);
  assert.equal(await gateway.chat(key, "hers/echo", "hi"), 200);
  assert.equal(await gateway.chat(strange.key, "hers/echo", "hi"), 403);
  await page.getByRole("button", { name: "Disconnect" }).click();
  const ended = page.waitForResponse((answer) => answer.request().method() === "DELETE");
  await page.getByRole("dialog").getByRole("button", { name: "Disconnect", exact: true }).click();
  assert.deepEqual(await (await ended).json(), { revoked: true, error: null });
  await page.getByText("hers is disconnected").waitFor();
  assert.equal(await gateway.chat(key, "hers/echo", "hi"), 503);
});
extension.stop();

await check("without the operator's client the tile is greyed, with the reason and the redirect URI", async () => {
  const bare = new Gateway(binary, mkdtempSync(join(home, "bare-")));
  await bare.start();
  const there = await (await browser.browser.newContext()).newPage();
  await there.goto(`${bare.origin}/console/providers?connect=choose`);
  await signIn(there, bare.key);
  assert.ok(await there.getByRole("button", { name: "Connect with OAuth" }).isDisabled());
  await there.getByText("LLMGW_PARTNER_CLIENT_ID is not set.").waitFor();
  await there.getByText("/oauth/callback/partner").waitFor();
  bare.child.removeAllListeners("exit");
  await bare.stop();
});

await check("no token and no secret is in the log or in a file", async () => {
  const planted = [CLIENT.secret, extension.secret, ...vendor.accepted];
  const files = readdirSync(home, { recursive: true }).map((name) => join(home, String(name)));
  const texts = files.filter((file) => statSync(file).isFile()).map((file) => [file, readFileSync(file)]);
  for (const [place, bytes] of [["the log", Buffer.from(gateway.log)], ...texts]) {
    for (const secret of planted) assert.ok(!bytes.includes(secret), `${place} contains a secret`);
  }
});

await browser.browser.close();
gateway.child.removeAllListeners("exit");
await gateway.stop();
vendor.stop();
console.log(`identity: ${passed} checks passed`);
process.exit(0);
