// The checks of every page without a pointer: each control is reached by Tab, the focus is seen wherever it is and never lost,
// dialogs and menus give it back, and what is said aloud is said once.

import assert from "node:assert/strict";

import { settled } from "./browser.mjs";

const button = (page, name) => page.getByRole("button", { name, exact: true });

/** More stops than any page has. */
const STOPS_MAX = 400;

/** Presses Tab through the whole page. Returns what cannot be reached, and the stops whose focus is lost or not seen. */
async function walk(page) {
  await page.evaluate(() => {
    const isSeen = (node) => node.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && node.getClientRects().length > 0;
    const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")].filter((node) => node.tabIndex >= 0 && !node.disabled && isSeen(node));
    globalThis.unreached = new Set(all);
    globalThis.nameOf = (node) => `${node.nodeName.toLowerCase()} ${(node.getAttribute("aria-label") || node.textContent || node.getAttribute("name") || node.id || node.className).trim().slice(0, 50)}`;
    // The way begins before everything, though a field has the focus as the page appears.
    const start = document.createElement("span");
    start.tabIndex = -1;
    document.body.prepend(start);
    start.focus();
    start.remove();
  });
  const faults = [];
  let first = null;
  for (let n = 0; n < STOPS_MAX; n += 1) {
    await page.keyboard.press("Tab");
    const stop = await page.evaluate(() => {
      const node = document.activeElement;
      if (!node || node === document.body) return { isOut: true };
      // Radio buttons are one stop: arrows move between them.
      if (node.type === "radio") for (const other of document.getElementsByName(node.name)) globalThis.unreached.delete(other);
      globalThis.unreached.delete(node);
      node.dataset.stop ??= String(Math.random());
      const style = getComputedStyle(node);
      const box = node.getBoundingClientRect();
      const marks = [node, node.parentElement, node.closest("label")].filter(Boolean).map((one) => getComputedStyle(one));
      const isMarked = style.outlineStyle !== "none" || marks.some((of) => of.boxShadow !== "none" || (of.outlineStyle !== "none" && of.outlineWidth !== "0px"));
      const isInSight = box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
      return { id: node.dataset.stop, name: globalThis.nameOf(node), isMarked, isInSight };
    });
    if (stop.isOut) {
      if (n > 0) break;
      continue;
    }
    if (stop.id === first) break;
    first ??= stop.id;
    if (!stop.isMarked) faults.push(`the focus on ${stop.name} is not seen`);
    if (!stop.isInSight) faults.push(`${stop.name} has the focus out of sight`);
  }
  faults.push(...(await page.evaluate(() => [...globalThis.unreached].filter((node) => node.isConnected).map((node) => `Tab does not reach ${globalThis.nameOf(node)}`))));
  return faults;
}

/** Records what live regions say from now on. */
const listen = (page) =>
  page.evaluate(() => {
    globalThis.said = [];
    const regions = "[role=status], [role=alert], [aria-live=polite], [aria-live=assertive]";
    const say = (region) => {
      const text = region.textContent.trim();
      if (text && region.spoken !== text) globalThis.said.push(text);
      region.spoken = text;
    };
    for (const region of document.querySelectorAll(regions)) region.spoken = region.textContent.trim();
    new MutationObserver((changes) => {
      const found = new Set();
      for (const { target, addedNodes } of changes) {
        const node = target instanceof Element ? target : target.parentElement;
        if (node?.closest(regions)) found.add(node.closest(regions));
        for (const added of addedNodes) if (added instanceof Element) for (const region of [added, ...added.querySelectorAll(regions)]) if (region.matches(regions)) found.add(region);
      }
      for (const region of found) say(region);
    }).observe(document.body, { subtree: true, childList: true, characterData: true });
  });

async function objects(gateway) {
  const project = await gateway.api("POST", "projects", { name: "typist" });
  const human = await gateway.api("POST", "principals", { name: "Typist" });
  await gateway.api("PUT", `projects/${project.id}/members/${human.id}`, { role: "owner" });
  const key = await gateway.api("POST", "keys", { name: "typist", project: project.id });
  await gateway.api("POST", "quotas", { subject: { kind: "key", id: key.id }, metric: "requests", window: "day", limit: 100 });
  await gateway.api("POST", "providers", { id: "typed", type: "echo", models: ["echo"] });
  await gateway.api("POST", "endpoints", { name: "typing", failover: [{ provider: "typed", model: "echo" }, { provider: "echo", model: "echo" }] });
  await gateway.api("POST", "webhooks", { name: "typist", url: "http://127.0.0.1:9/hook" });
  await gateway.chat(key.key, "typing", "hi", true);
  const { data } = await gateway.api("GET", `requests?key=${key.id}`);
  return { project: project.id, human: human.id, key: key.id, request: data[0].request_id };
}

/** Runs work on things in two pages at once and returns the faults. */
async function inTwo(browser, key, things, visit) {
  const work = async (own) => {
    const page = await browser.signedIn(key, "/settings");
    const faults = [];
    for (const thing of own) faults.push(...(await visit(page, thing)));
    return faults;
  };
  return (await Promise.all([0, 1].map((half) => work(things.filter((_, i) => i % 2 === half))))).flat();
}

let made;
/** The objects of these checks, which are made once. */
const objectsOf = (gateway) => (made ??= objects(gateway));

export const keyboardChecks = {
  async every_control_of_every_page_is_reached_and_seen_by_keyboard({ gateway, browser }) {
    const of = await objectsOf(gateway);
    const paths = [
      "/", `/requests?key=${of.key}`, `/requests/${of.request}`, "/usage?by=key&period=24h", "/providers", "/providers/typed", "/routes", "/routes/typing", "/models?provider=typed", "/playground", "/access", "/access?tab=humans",
      `/access/projects/${of.project}`, `/access/projects/${of.project}?tab=keys`, `/access/projects/${of.project}?tab=limits`, `/access/humans/${of.human}`, `/keys?project=${of.project}`, `/keys/${of.key}`, `/keys/${of.key}/access`, "/quotas", "/connect", "/alerts", "/alerts/rules", "/webhooks", "/outbox", "/providers?tab=extensions", "/audit?action=key.create", "/backups", "/settings?q=port", "/setup?step=providers",
    ];
    const faults = await inTwo(browser, gateway.key, paths, async (page, path) => {
      await page.goto(`${browser.origin}/console${path}`);
      await settled(page);
      return (await walk(page)).map((fault) => `${path}: ${fault}`);
    });
    assert.deepEqual(faults, []);
  },

  async dialogs_and_menus_open_by_keyboard_and_give_the_focus_back({ gateway, browser }) {
    const of = await objectsOf(gateway);
    const dialogs = [
      ...["/keys", "/access", "/access?tab=humans", "/quotas", "/routes", "/providers", "/alerts/rules", "/webhooks", "/providers?tab=extensions"].map((path) => [path, null]),
      [`/keys/${of.key}`, "Actions for typist"], ["/providers/typed", "Actions for typed"], ["/routes/typing", "Actions for typing"], ["/routes/typing", "Test now"], ["/providers/typed", "Test echo"],
      ["/alerts/rules", "Actions for Backup failed"], ["/webhooks", "Actions for typist"],
    ];
    const faults = await inTwo(browser, gateway.key, dialogs, async (page, [path, name]) => {
      await page.goto(`${browser.origin}/console${path}`);
      await settled(page);
      const opener = name ? button(page, name).first() : page.locator("[data-new]");
      await opener.focus();
      await page.keyboard.press("Enter");
      await page.locator("dialog[open], [role=menu]:popover-open").first().waitFor();
      const isInside = await page.evaluate(() => document.activeElement.closest("dialog[open], [role=menu]") !== null);
      await page.keyboard.press("Escape");
      await page.locator("dialog[open], [role=menu]:popover-open").first().waitFor({ state: "detached" });
      const isBack = await opener.evaluate((node) => node === document.activeElement);
      return [...(isInside ? [] : [`${path}: ${name ?? "its dialog"} does not take the focus`]), ...(isBack ? [] : [`${path}: the focus does not return to ${name ?? "its button"}`])];
    });
    assert.deepEqual(faults, []);
  },

  async keys_lead_to_every_page_and_do_what_the_list_of_keys_says({ gateway, browser }) {
    await objectsOf(gateway);
    const page = await browser.signedIn(gateway.key, "/");
    await settled(page);
    const pages = { r: "Requests", u: "Usage", p: "Providers", t: "Routes", m: "Models", y: "Playground", a: "Access", k: "API keys", q: "Quotas", c: "Connect a client", l: "Alerts", d: "Audit", b: "Backups", s: "Settings", o: "Overview" };
    for (const [key, title] of Object.entries(pages)) {
      await page.keyboard.press("g");
      await page.keyboard.press(key);
      await page.getByRole("heading", { level: 1, name: title, exact: true }).waitFor();
      await page.waitForFunction(() => document.activeElement?.id === "content");
    }
    await page.goto(`${browser.origin}/console/requests`);
    await settled(page);
    await page.keyboard.press("f");
    assert.ok(await page.evaluate(() => document.activeElement.matches("[data-filter]")));
    await page.evaluate(() => document.activeElement.blur());
    await page.keyboard.press("t");
    assert.ok(await page.evaluate(() => document.activeElement.matches("[data-period]")));
    await page.evaluate(() => document.activeElement.blur());
    for (const key of ["j", "j", "k"]) await page.keyboard.press(key);
    const row = await page.evaluate(() => [...document.querySelectorAll("a.row-link")].indexOf(document.activeElement));
    assert.equal(row, 0);
    await page.keyboard.press("Enter");
    await page.waitForURL(/\/requests\/./);
    await page.goto(`${browser.origin}/console/keys`);
    await settled(page);
    await page.keyboard.press("n");
    await page.getByRole("dialog", { name: "Mint a project key" }).waitFor();
  },

  async what_is_done_is_said_aloud_once({ gateway, browser }) {
    const { key: id } = await objectsOf(gateway);
    const page = await browser.signedIn(gateway.key, "/access?tab=humans&new=1");
    await settled(page);
    await listen(page);
    const once = async (text, what) => {
      await page.waitForFunction((text) => globalThis.said.some((said) => said.includes(text)), text);
      await page.waitForTimeout(1_200);
      const said = await page.evaluate((text) => globalThis.said.filter((one) => one.includes(text)), text);
      assert.equal(said.length, 1, `${what} is said ${said.length} times: ${JSON.stringify(said)}`);
    };
    await page.getByLabel("E-mail").fill("no address");
    await page.getByLabel("Name", { exact: true }).fill("Spoken");
    await page.getByLabel("Name", { exact: true }).press("Enter");
    await page.locator(".help.bad").waitFor();
    await page.getByLabel("E-mail").fill("");
    await page.getByLabel("Name", { exact: true }).press("Enter");
    await page.getByRole("heading", { name: "Spoken", level: 1 }).waitFor();
    await page.goto(`${browser.origin}/console/keys/${id}`);
    await settled(page);
    await listen(page);
    await button(page, "Actions for typist").press("Enter");
    await page.getByRole("menuitem", { name: "Disable" }).press("Enter");
    await button(page, "Disable").press("Enter");
    await page.locator(".state", { hasText: "disabled" }).waitFor();
    const said = await page.evaluate(() => globalThis.said);
    for (const text of new Set(said)) assert.equal(said.filter((one) => one === text).length, 1, `${text} is said more than once`);
    await page.goto(`${browser.origin}/console/providers/typed`);
    await settled(page);
    await listen(page);
    await button(page, "Test echo").press("Enter");
    await button(page.getByRole("dialog"), "Test completion").press("Enter");
    await once("answered “", "the answer of a test");
    await gateway.api("DELETE", "endpoints/typing");
    await gateway.api("DELETE", "providers/typed");
  },
};
