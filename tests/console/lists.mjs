// The checks of lists: the gateway sorts and searches all pages of each, and on narrow screens no cell is cut without a sign.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";

import { settled } from "./browser.mjs";
import { Gateway } from "./gateway.mjs";

const RECORDS = 10_000;
const KEYS = 120;

/** An event as the journal has it; its cost and its times tell it from others. */
const event = (key, n) => ({
  request_id: "", started_at_ms: 0, duration_us: 10_000 + n * 1_000, operation: "chat_completions", key, selector: n % 2 ? "smart" : "echo/echo",
  provider: "echo", model: n === 7 ? "rare-sonnet-model-with-a-long-name" : "echo", stream: true, status: 200, outcome: "completed",
  tokens: { input: 1_374_000 + n, output: 240 }, provenance: "reported", cost_nano_usd: 1_000_000 + n * 10_000, head_us: 90_000, first_content_us: 180_000,
  details: { client: "claude-cli/2.1.329", session: "s-1", bytes_in: 5_000, bytes_out: 3_000, gateway_us: 300 },
  trace: [{ provider: "echo", model: "echo", result: "served", start_us: 100, spent_us: 90_000 }],
});

/** Starts a gateway with many keys and records, and an object in each list. */
async function filled(binary, home) {
  const own = join(home, "lists");
  mkdirSync(own);
  const gateway = new Gateway(binary, own);
  await gateway.start();
  const { id: project } = await gateway.api("POST", "projects", { name: "a-project-with-a-long-name" });
  await gateway.api("POST", "projects", { name: "Zoo" });
  const keys = [];
  for (let n = 0; n < KEYS; n += 1) keys.push(await gateway.api("POST", "keys", { name: `key-${String((n * 37) % KEYS).padStart(3, "0")}`, project }));
  const limit = (id, limit) => gateway.api("POST", "quotas", { subject: { kind: "key", id }, metric: "total_tokens", window: "month", limit });
  await limit(keys[0].id, 1_000_000_000_000);
  await limit(keys[1].id, 1_000_000);
  await gateway.api("POST", "principals", { name: "Ada", email: "ada@example.com" });
  await gateway.api("POST", "webhooks", { name: "pager", url: "http://127.0.0.1:9/a/long/path/of/a/receiver" });
  await gateway.stop();
  const lines = Array.from({ length: 99 }, (_, n) => JSON.stringify(event(keys[n % 5].id, n))).join("\n");
  execFileSync(process.env.FILL_JOURNAL, [join(own, ".llmgw/journal"), String(RECORDS), "300"], { input: lines });
  await gateway.start();
  while ((await gateway.api("GET", "state")).usage.queued > 0) await new Promise((resolve) => setTimeout(resolve, 100));
  return gateway;
}

/** Each list, and one of its headings that sorts. */
const LISTS = [
  ["/requests", "Cost"],
  ["/usage", "Requests"],
  ["/providers", "Name"],
  ["/routes", "Name"],
  ["/models", "Selector"],
  ["/access", "Name"],
  ["/access?tab=humans", "Name"],
  ["/keys", "Name"],
  ["/quotas", "Share"],
  ["/alerts?state=any", null],
  ["/webhooks", "Name"],
  ["/alerts/rules", null],
  ["/outbox", null],
  ["/audit", "Time (UTC)"],
  ["/backups", null],
];
const SEARCHED = ["/requests", "/providers", "/routes", "/models", "/access", "/keys", "/quotas", "/alerts", "/webhooks", "/outbox", "/audit"];

/** The cells whose content is wider than they are and that show no ellipsis. A number must never be cut, with a sign or without. */
const cut = (page) =>
  page.evaluate(() => {
    const isCut = (node) => node.scrollWidth > node.clientWidth + 1;
    const hidesText = (node) => getComputedStyle(node).overflowX !== "visible" && getComputedStyle(node).textOverflow !== "ellipsis";
    const found = [];
    for (const cell of document.querySelectorAll(".table-place td, .table-place th, .table-place .folded-cell")) {
      if (!cell.textContent || cell.closest(".gap")) continue;
      const all = [cell, ...cell.querySelectorAll("*")].filter((node) => node instanceof HTMLElement && !node.closest(".sr, .meter"));
      if (all.some((node) => isCut(node) && (hidesText(node) || node.closest(".num")))) found.push(cell.textContent);
    }
    const wrap = document.querySelector(".table-place");
    const right = wrap?.getBoundingClientRect().right ?? 0;
    for (const cell of document.querySelectorAll(".table-place tr > *")) if (cell.getBoundingClientRect().right > right + 1) found.push(`beyond the edge: ${cell.textContent}`);
    return [...new Set(found)].slice(0, 5);
  });

const names = (page) => page.locator(".table-place tbody tr:not(.gap) .row-link").allTextContents();

async function sorts(page) {
  await page.getByRole("button", { name: "Name", exact: true }).click();
  await page.locator("th[aria-sort=ascending]").waitFor();
  await settled(page);
  assert.deepEqual((await names(page)).slice(0, 3), ["key-000", "key-001", "key-002"]);
  await page.getByRole("button", { name: "Name", exact: true }).click();
  await page.locator("th[aria-sort=descending]").waitFor();
  await settled(page);
  assert.deepEqual((await names(page)).slice(0, 3), ["key-119", "key-118", "key-117"], "the last page comes first");
  assert.match(page.url(), /sort=name&order=desc/);
  await page.reload();
  await page.locator("th[aria-sort=descending]").waitFor();
  await page.getByLabel("Search keys").fill("KEY-11");
  await page.waitForURL(/q=KEY-11/);
  await settled(page);
  assert.equal((await names(page)).length, 10);
}

async function finds_the_dearest_request(page) {
  await page.getByRole("button", { name: "Cost", exact: true }).click();
  await page.locator("th[aria-sort=descending]").waitFor();
  await settled(page);
  const [first] = await page.locator(".table-place tbody tr:not(.gap) td:last-child").allTextContents();
  const dearest = (await page.evaluate(() => fetch("/admin/api/requests?sort=cost&limit=1").then((answer) => answer.json()))).data[0];
  assert.equal(dearest.cost_micro_usd, 1_000 + 98 * 10);
  assert.match(first, /0\.00198/);
  await page.getByPlaceholder(/^Id, key/).fill("SONNET");
  await page.keyboard.press("Enter");
  await page.waitForURL(/q=SONNET/);
  await settled(page);
  assert.match(await page.locator(".table-place tbody tr").first().textContent(), /rare-sonnet-model/);
}

/** A browser prints what is in the document when its event has been handled: not only the rows in sight. */
async function prints_every_row_that_was_read(page) {
  await settled(page);
  const [shown, printed] = await page.evaluate(() => {
    const rows = () => document.querySelectorAll(".table-place tbody tr:not(.gap)").length;
    const shown = rows();
    dispatchEvent(new Event("beforeprint"));
    const printed = rows();
    dispatchEvent(new Event("afterprint"));
    return [shown, printed];
  });
  assert.ok(shown < 100 && printed >= 100, `${shown} rows are shown, ${printed} printed`);
  await page.waitForFunction((shown) => document.querySelectorAll(".table-place tbody tr:not(.gap)").length === shown, shown);
}

/** The tables that scroll sideways without a shade at their edges, and those that leave a part of their place empty. */
const unsigned = (page) =>
  page.evaluate(() => {
    const found = [];
    for (const wrap of document.querySelectorAll("main .table-wrap")) {
      const shades = getComputedStyle(wrap).backgroundImage.match(/gradient/g)?.length ?? 0;
      if (wrap.scrollWidth > wrap.clientWidth + 1 && shades < 4) found.push(`${wrap.ariaLabel} scrolls without a sign`);
    }
    for (const place of document.querySelectorAll("main .table-place")) {
      const last = [...place.querySelectorAll("thead th")].at(-1)?.getBoundingClientRect().right ?? 0;
      const empty = Math.round(place.getBoundingClientRect().right - last);
      if (empty > 8) found.push(`${place.ariaLabel} leaves ${empty} px empty`);
    }
    return found;
  });

export const listChecks = {
  async narrow_tables_fill_their_place_fold_or_show_that_they_scroll({ gateway, browser }) {
    const { id } = await gateway.api("POST", "projects", { name: "narrow" });
    const made = await gateway.api("POST", "keys", { name: "narrow", project: id });
    assert.equal(await gateway.chat(made.key, "smart", "hi"), 200);
    const { data } = await gateway.api("GET", "requests?limit=1");
    const page = await browser.signedIn(gateway.key, `/requests/${data[0].request_id}`, { width: 390 });
    await settled(page);
    const tokens = page.getByRole("group", { name: "Tokens", exact: true });
    assert.equal(await tokens.evaluate((node) => node.scrollWidth - node.clientWidth), 0, "price and cost are in sight");
    await page.goto(`${browser.origin}/console/keys/${made.id}`);
    await settled(page);
    assert.match(await page.getByRole("group", { name: "Last requests" }).locator("tbody tr").first().innerText(), /Attempts[^]*Total/);
    const faults = [];
    for (const path of ["/requests", "/routes/smart", "/settings", `/keys/${made.id}`]) {
      await page.goto(`${browser.origin}/console${path}`);
      await settled(page);
      faults.push(...(await unsigned(page)).map((fault) => `${path}: ${fault}`));
    }
    assert.deepEqual(faults, []);
  },

  async every_list_is_sorted_and_searched_and_none_is_cut_without_a_sign({ gateway: { binary, home }, browser }) {
    const gateway = await filled(binary, home);
    await browser.visit(gateway, async () => {
      await prints_every_row_that_was_read(await browser.signedIn(gateway.key, "/keys"));
      await sorts(await browser.signedIn(gateway.key, "/keys"));
      await finds_the_dearest_request(await browser.signedIn(gateway.key, "/requests"));
      const faults = [];
      for (const width of [1440, 1024, 390]) {
        const page = await browser.signedIn(gateway.key, "/keys", { width, timezone: "UTC" });
        for (const [path, head] of LISTS) {
          await page.goto(`${browser.origin}/console${path}`);
          await page.locator("main h1").first().waitFor();
          await settled(page);
          for (const text of await cut(page)) faults.push(`${width} ${path}: ${text}`);
          if (head && width === 1440) {
            await page.locator(".table-place").getByRole("button", { name: head, exact: true }).click();
            await page.locator("th[aria-sort$=ending]").waitFor();
            await settled(page);
          }
          if (width === 1440 && SEARCHED.includes(path.split("?")[0])) assert.equal(await page.locator("main input[type=search]").count() > 0, true, `${path} has no search`);
        }
      }
      assert.deepEqual(faults, []);
    });
  },
};
