// The checks of every page in the states that are seen seldom: while it loads, empty, after an error, without an answer of the
// gateway, and with dialogs and menus open. Each is judged by axe-core in one of two views, by turns: light and narrow, dark and at
// 200 %. Empty pages are judged in both.

import assert from "node:assert/strict";

import { mkdirSync } from "node:fs";
import { join } from "node:path";

import { axe, settled, sideways } from "./browser.mjs";
import { Gateway } from "./gateway.mjs";

/** The pages of each gateway, once its objects are made. */
const made = new WeakMap();

/** Every page, with an object of each kind. */
function pathsOf(gateway) {
  if (!made.has(gateway)) made.set(gateway, withObjects(gateway));
  return made.get(gateway);
}

async function withObjects(gateway) {
  const { id: project } = await gateway.api("POST", "projects", { name: "states" });
  const human = await gateway.api("POST", "principals", { name: "Stately" });
  const key = await gateway.api("POST", "keys", { name: "state", project });
  await gateway.chat(key.key, "smart", "hi");
  const { data } = await gateway.api("GET", `requests?key=${key.id}&limit=1`);
  return [
    "/", "/requests", `/requests/${data[0].request_id}`, "/usage", "/usage?figure=latency", "/providers", "/providers?tab=extensions", "/providers/echo", "/routes", "/routes/smart", "/models", "/playground", "/access", "/access?tab=humans", `/access/projects/${project}`, `/access/projects/${project}/access`, `/access/humans/${human.id}`,
    "/keys", `/keys/${key.id}`, `/keys/${key.id}/access`, "/quotas", "/connect", "/alerts", "/alerts/rules", "/webhooks", "/outbox", "/audit", "/audit/1", "/backups", "/settings", "/setup",
  ];
}

/** The lists with a filter that finds nothing: each offers to clear it. */
const FILTERED = [
  "/requests?outcome=cut", "/requests?q=none", "/usage?key=none", "/providers?state=faulty", "/models?q=none", "/models?q=none&capability=vision&proven=true", "/keys?state=revoked", "/quotas?kind=key", "/alerts?state=acknowledged", "/alerts?kind=disk_low", "/outbox?state=dead", "/outbox?kind=disk_low",
  "/audit?action=none", "/audit?actor=nobody&outcome=done", "/settings?q=nothing-like-it",
];
/** The pages that can be empty. */
const EMPTY = [
  "/", "/requests", "/usage", "/usage?by=client&figure=outcomes", "/providers?tab=extensions", "/access", "/access?tab=humans", "/keys", "/quotas", "/connect", "/alerts", "/alerts?state=open", "/webhooks", "/outbox", "/backups",
];
/** Of them those whose content is more than a list. */
const SPOKEN = ["/", "/usage?by=client&figure=outcomes", "/connect"];

/** A window of 720 pixels is one of 1440 at 200 %. */
const VIEWS = [
  { colorScheme: "light", width: 390 },
  { colorScheme: "dark", width: 720 },
];

/** The faults of what a page shows now, in each of the views. */
async function faultsOf(page, at, views = VIEWS) {
  const faults = [];
  for (const { colorScheme, width } of views) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width, height: 900 });
    faults.push(...(await axe(page)).map((fault) => `${at} ${colorScheme} ${width}: ${fault}`));
    const over = await sideways(page);
    if (over) faults.push(`${at} ${width} scrolls sideways by ${over}`);
  }
  return faults;
}

/** One of the views, another for each neighbour. */
function byTurns(i) {
  return [VIEWS[i % VIEWS.length]];
}

/** Visits pages in two windows at once and returns the faults. `visit` is given the window, the page and its number. */
async function inTwo(browser, key, things, visit) {
  const work = async (own) => {
    const page = await browser.signedIn(key, "/settings");
    const faults = [];
    for (const [i, thing] of own.entries()) faults.push(...(await visit(page, thing, i)));
    return faults;
  };
  const halves = [0, 1].map((half) => work(things.filter((_, i) => i % 2 === half)));
  return (await Promise.all(halves)).flat();
}

/** Presses what an empty filter result offers, which must leave no filter in the address. */
async function clears(page, path) {
  const offer = page.locator("main .empty").locator("a, button", { hasText: "Clear the filter" });
  if ((await offer.count()) !== 1) return [`${path} does not offer to clear the filter`];
  await offer.press("Enter");
  await page.waitForURL((url) => url.search === "");
  return [];
}

/** All answers of the admin API but those of the frame around the pages. */
const PARTS = (url) => /\/admin\/api\/(?!session|state|setup|live)/.test(url.href);

export const stateChecks = {
  async pages_that_wait_or_fail_are_accessible({ gateway, browser }) {
    const error = { error: { code: "internal", message: "The database is busy. Try again.", param: null, request_id: "req_of_the_check", type: "server_error" } };
    const paths = await pathsOf(gateway);
    const faults = await inTwo(browser, gateway.key, paths, async (page, path, i) => {
      const found = [];
      const held = [];
      const hold = (route) => void held.push(route);
      await page.route(PARTS, hold);
      await page.goto(`${browser.origin}/console${path}`);
      await page.locator("main .skeleton.shown, main h1").first().waitFor();
      // The content is seen after 0.4 s, whatever is missing.
      await page.locator(".shell.arriving").waitFor({ state: "detached" });
      found.push(...(await faultsOf(page, `${path} while it loads`, byTurns(i))));
      await page.unroute(PARTS, hold);
      const fail = (route) => route.fulfill({ status: 500, json: error });
      await page.route(PARTS, fail);
      await Promise.all(held.map((route) => fail(route).catch(() => {})));
      await page.waitForTimeout(200);
      found.push(...(await faultsOf(page, `${path} after an error`, byTurns(i + 1))));
      await page.unroute(PARTS, fail);
      return found;
    });
    browser.faults = browser.faults.filter((fault) => !fault.includes("status of 500"));
    assert.deepEqual(faults, []);
    console.log(`figure  ${paths.length} pages while they load and after an error`);
  },

  async what_is_printed_is_light_whole_and_without_navigation({ gateway, browser }) {
    const page = await browser.signedIn(gateway.key, "/", { theme: "dark", width: 794 });
    const faults = [];
    for (const path of await pathsOf(gateway)) {
      await page.emulateMedia({ media: "screen" });
      await page.goto(`${browser.origin}/console${path}`);
      await settled(page);
      await page.emulateMedia({ media: "print" });
      const found = await page.evaluate(() => {
        const isSeen = (node) => node.getClientRects().length > 0;
        const [red] = getComputedStyle(document.querySelector("main h1")).color.match(/\d+/g).map(Number);
        const told = red > 90 ? ["its text is light"] : [];
        for (const node of document.querySelectorAll(".side, .bar, main .btn")) if (isSeen(node)) told.push(`${node.className} is printed`);
        for (const node of document.querySelectorAll("main .table-wrap")) if (getComputedStyle(node).overflowX !== "visible") told.push(`${node.ariaLabel} is cut`);
        return [...new Set(told)];
      });
      faults.push(...found.map((fault) => `${path}: ${fault}`));
    }
    assert.deepEqual(faults, []);
  },

  async forced_colours_mark_the_current_page_and_label_axes_like_text({ gateway, browser }) {
    const page = await browser.signedIn(gateway.key, "/", { theme: "dark" });
    await settled(page);
    await page.emulateMedia({ colorScheme: "dark", forcedColors: "active" });
    const seen = await page.evaluate(() => {
      const style = (selector) => getComputedStyle(document.querySelector(selector));
      return {
        isMarked: style(".side a[aria-current]").outlineStyle === "solid" && style(".side a:not([aria-current])").outlineStyle === "none",
        isAxisText: style("main .chart-y").fill === style("main h1").color,
      };
    });
    assert.deepEqual(seen, { isMarked: true, isAxisText: true });
  },

  async pages_without_an_answer_of_the_gateway_are_accessible({ gateway, browser }) {
    const paths = await pathsOf(gateway);
    browser.isStopped = true;
    const faults = await inTwo(browser, gateway.key, paths, async (page, path, i) => {
      await page.goto(`${browser.origin}/console${path}`);
      await settled(page);
      const silence = (route) => route.abort();
      for (const calls of ["**/admin/api/**", "**/health"]) await page.route(calls, silence);
      // Another page asks, finds nothing, and this one is shown again as it was.
      const other = path === "/backups" ? "Audit" : "Backups";
      await page.evaluate((other) => [...document.querySelectorAll("nav[aria-label=Console] a")].find((link) => link.textContent.trim() === other).click(), other);
      await page.getByText("No answer from the gateway since").waitFor();
      await page.goBack();
      const found = await faultsOf(page, `${path} without an answer`, byTurns(i));
      for (const calls of ["**/admin/api/**", "**/health"]) await page.unroute(calls, silence);
      return found;
    });
    browser.isStopped = false;
    assert.deepEqual(faults, []);
  },

  async empty_pages_are_accessible_and_say_what_to_do({ gateway, browser }) {
    const home = join(gateway.home, "empty");
    mkdirSync(home);
    const fresh = new Gateway(gateway.binary, home);
    await fresh.start();
    await browser.visit(fresh, async () => {
      await fresh.api("DELETE", "endpoints/smart").catch(() => {});
      const faults = await inTwo(browser, fresh.key, [...EMPTY, ...FILTERED], async (page, path) => {
        await page.goto(`${browser.origin}/console${path}`);
        await settled(page);
        const told = await page.evaluate(() => [...document.querySelectorAll("main .empty")].map((node) => `${node.querySelector("h1, h2")?.innerText}: ${node.querySelector("p, a, button")?.innerText}`));
        const found = await faultsOf(page, `${path} empty`);
        if (!SPOKEN.includes(path) && !told.some((text) => !text.includes("undefined"))) found.push(`${path} does not say why it is empty or what to do: ${told}`);
        if (await page.locator("main table:not(:has(tbody tr))").count()) found.push(`${path} has a table of headings alone`);
        if (FILTERED.includes(path)) found.push(...(await clears(page, path)));
        return found;
      });
      console.log(`figure  ${EMPTY.length} pages without content, ${FILTERED.length} filters that find nothing`);
      assert.deepEqual(faults, []);
    });
  },
};
