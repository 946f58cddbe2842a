// The checks of what the console promises about secrets, hidden tabs, addresses, figures and speed.

import assert from "node:assert/strict";

import { axe, settled, sideways, signIn } from "./browser.mjs";

const button = (page, name) => page.getByRole("button", { name, exact: true });

async function keyOf(gateway, name, more = {}) {
  const { id } = await gateway.api("POST", "projects", { name });
  return { project: id, ...(await gateway.api("POST", "keys", { name, project: id, ...more })) };
}

/** What a person sees of the state of a page: its title, what is chosen and pressed, and open dialogs. */
const seen = (page) =>
  page.evaluate(() => {
    const all = (selector, text) => [...document.querySelectorAll(selector)].map(text);
    return {
      title: all("main h1", (node) => node.textContent),
      chosen: all("main .filters select, main .filters input", (node) => `${node.getAttribute("aria-label")}: ${node.value}`),
      pressed: all("main [aria-pressed=true], main [aria-current], main [aria-expanded=true]", (node) => node.textContent),
      dialogs: all("[role=dialog] h2, dialog[open] h2", (node) => node.textContent),
      address: location.href,
    };
  });

/** Scrolls a page, loads it again, leaves it and comes back, and opens it while signed out. Returns what was not as before. */
async function restored(page, browser, key, path) {
  const faults = [];
  const compare = async (how, before) => {
    const now = await seen(page);
    if (JSON.stringify(now) !== JSON.stringify(before)) faults.push(`${path} after ${how}: ${JSON.stringify(now)} was ${JSON.stringify(before)}`);
  };
  await page.goto(`${browser.origin}/console${path}`);
  await settled(page);
  const scroll = await page.evaluate(() => {
    scrollTo(0, 180);
    return scrollY;
  });
  // The page keeps its position once scrolling has ended.
  await page.waitForFunction((scroll) => scroll === 0 || history.state?.scroll === scroll, scroll);
  const isBack = (how) => page.waitForFunction((scroll) => Math.abs(scrollY - scroll) < 3, scroll, { timeout: 10_000 }).catch(async () => faults.push(`${path} after ${how}: scrolled to ${await page.evaluate(() => scrollY)}, was ${scroll}`));
  const before = await seen(page);
  await page.reload();
  await settled(page);
  await isBack("reload");
  await compare("reload", before);
  // An open dialog covers the navigation.
  const [other, title] = path.startsWith("/backups") ? ["audit", "Audit"] : ["backups", "Backups"];
  await page.evaluate((other) => {
    history.pushState({}, "", `/console/${other}`);
    dispatchEvent(new PopStateEvent("popstate"));
  }, other);
  await page.getByRole("heading", { name: title, level: 1 }).waitFor();
  await page.goBack();
  await settled(page);
  await isBack("Back");
  await compare("Back", before);
  await page.context().clearCookies();
  await page.goto("about:blank");
  await page.goto(`${browser.origin}/console${path}`);
  await signIn(page, key);
  await settled(page);
  await compare("a sign-in", before);
  return faults;
}

export const proofChecks = {
  async no_key_is_left_in_an_address_the_storage_the_history_or_a_log({ gateway, browser }) {
    const made = await keyOf(gateway, "secretive");
    const context = await browser.context();
    const page = await context.newPage();
    const left = [];
    page.on("request", (request) => left.push(request.url()));
    page.on("console", (message) => left.push(message.text()));
    await page.goto(`${browser.origin}/console/keys/${made.id}`);
    await signIn(page, gateway.key);
    await button(page, "Actions for secretive").click();
    await page.getByRole("menuitem", { name: "Reveal" }).click();
    await button(page, "Reveal").click();
    assert.equal(await page.locator("[data-secret]").innerText(), made.key);
    await button(page, "Copy").waitFor();
    assert.deepEqual(await axe(page), []);
    await button(page, "I have copied it").click();
    await page.goto(`${browser.origin}/console/`);
    await settled(page);
    left.push(await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, history.state, location.href, document.cookie])));
    left.push(gateway.log);
    for (const key of [gateway.key, made.key]) assert.ok(!left.some((text) => text.includes(key) || text.includes(encodeURIComponent(key))));
  },

  async a_revealed_key_is_gone_after_a_minute_and_on_leaving({ gateway, browser }) {
    const made = await keyOf(gateway, "fleeting");
    const page = await browser.signedIn(gateway.key, "/keys");
    await page.clock.install();
    const reveal = async () => {
      await page.goto(`${browser.origin}/console/keys/${made.id}`);
      await button(page, "Actions for fleeting").click();
      await page.getByRole("menuitem", { name: "Reveal" }).click();
      await button(page, "Reveal").click();
      await page.locator("[data-secret]").waitFor();
    };
    await reveal();
    await page.clock.fastForward(61_000);
    await page.getByText("The key was hidden after a minute.").waitFor();
    assert.ok(!(await page.content()).includes(made.key));
    await reveal();
    await page.goBack();
    await page.locator("[data-secret]").waitFor({ state: "detached" });
    assert.ok(!(await page.content()).includes(made.key));
  },

  async a_tab_that_is_hidden_for_a_minute_closes_the_stream_and_asks_nothing({ gateway, browser }) {
    const page = await (await browser.context()).newPage();
    await page.clock.install();
    await page.goto(`${browser.origin}/console/`);
    const stream = page.waitForRequest((request) => request.url().includes("/admin/api/live"));
    await signIn(page, gateway.key);
    await stream;
    await settled(page);
    const closed = page.waitForEvent("requestfailed", (request) => request.url().includes("/admin/api/live"));
    const show = (isHidden) =>
      page.evaluate((isHidden) => {
        for (const [name, value] of [["hidden", isHidden], ["visibilityState", isHidden ? "hidden" : "visible"]]) Object.defineProperty(document, name, { value, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
      }, isHidden);
    await show(true);
    await page.clock.fastForward(61_000);
    await closed;
    const asked = [];
    page.on("request", (request) => asked.push(request.url()));
    for (let n = 0; n < 3; n += 1) await page.clock.fastForward(61_000);
    await page.evaluate(() => fetch("/console/").then((answer) => answer.text()));
    assert.deepEqual(asked.filter((url) => url.includes("/admin/")), []);
    const again = page.waitForRequest((request) => request.url().includes("/admin/api/live"));
    await show(false);
    await again;
  },

  async reload_back_and_a_sign_in_restore_every_page({ gateway, browser }) {
    const made = await keyOf(gateway, "restored");
    await gateway.chat(made.key, "smart", "hi");
    const webhook = await gateway.api("POST", "webhooks", { name: "restored", url: "http://127.0.0.1:9/hook" });
    const quota = await gateway.api("POST", "quotas", { subject: { kind: "project", id: made.project }, metric: "requests", window: "day", limit: 1000 });
    const human = await gateway.api("POST", "principals", { name: "Returning" });
    const { data } = await gateway.api("GET", "requests?limit=1");
    const page = await browser.signedIn(gateway.key, "/settings");
    // So low that every page can be scrolled.
    await page.setViewportSize({ width: 1440, height: 260 });
    const paths = [
      "/?period=24h&by=model", `/requests?outcome=completed&period=24h&key=${made.id}`, "/requests?failed_over=true", `/requests/${data[0].request_id}`, "/usage?by=key&period=24h&figure=tokens", "/usage?by=client&figure=latency", "/providers?state=faulty", "/providers?tab=extensions", "/providers/echo", "/routes?new=1", "/routes/smart?fail=echo%3Ahang",
      "/models?open=echo%2Fecho", "/playground?path=messages&model=smart", "/access?tab=humans", `/access/humans/${human.id}`, `/access/projects/${made.project}?tab=limits&edit=1`, `/access/projects/${made.project}/access`, `/keys/${made.id}?edit=1`, `/keys/${made.id}/access?allowed=true`, "/keys?state=active", "/quotas?new=1",
      "/alerts?state=open", "/webhooks?new=1", "/outbox?state=dead", "/audit?action=key.create", "/backups", "/settings?q=retention", "/setup?step=test", "/connect?client=codex",
      "/alerts?state=any&kind=disk_low", "/alerts/rules?new=1", "/alerts/rules?edit=rule_disk_low", `/webhooks?webhook=${webhook.id}`, `/webhooks?edit=${webhook.id}`, `/outbox?state=pending&to=${webhook.id}`, "/providers?tab=extensions&new=1", `/quotas?edit=${quota.id}`,
    ];
    const faults = [];
    for (const path of paths) faults.push(...(await restored(page, browser, gateway.key, path)));
    assert.deepEqual(faults, []);
    console.log(`figure  ${paths.length} addresses restored by reload, Back and a sign-in`);
  },

  async dark_pages_are_accessible_at_twice_their_size({ gateway, browser }) {
    const made = await keyOf(gateway, "enlarged");
    await gateway.chat(made.key, "smart", "hi");
    const { data } = await gateway.api("GET", "requests?limit=1");
    // A window of 720 pixels is one of 1440 at 200 %.
    const page = await browser.signedIn(gateway.key, "/", { width: 720, theme: "dark" });
    const faults = [];
    for (const path of ["/", "/requests", `/requests/${data[0].request_id}`, "/usage", "/providers", "/routes/smart", `/keys/${made.id}?edit=1`]) {
      await page.goto(`${browser.origin}/console${path}`);
      await settled(page);
      faults.push(...(await axe(page)).map((fault) => `${path}: ${fault}`));
      if (await sideways(page)) faults.push(`${path} scrolls sideways by ${await sideways(page)}`);
    }
    assert.deepEqual(faults, []);
  },
};
