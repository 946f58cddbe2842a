// The checks of lists with as many rows as a large organisation has: every order of every list over all its pages, the search for one row
// among all, and how long the answers take. The times are printed as a table.

import assert from "node:assert/strict";

import { settled } from "./browser.mjs";
import { longState, PROVIDERS, ROWS } from "./long_state.mjs";

const lower = (text) => text?.toLowerCase() ?? null;
const cost = ({ month }) => month.cost_micro_usd;
const tokens = (record) => Object.values(record.tokens).reduce((sum, one) => sum + one, 0);

/** Each list of the API: its rows, what is compared in a column, and a search that only one row fits. */
const LISTS = [
  { path: "keys", rows: ROWS, q: "key-09999", by: { name: (key) => lower(key.name), created: (key) => key.created_at_ms, last_used: (key) => key.last_used_hour_ms ?? 0, spend: cost, expires: (key) => key.expires_at_ms } },
  { path: "projects", rows: ROWS, q: "project-09999", by: { name: (project) => lower(project.name), created: (project) => project.created_at_ms, members: (project) => project.members, keys: (project) => project.keys, spend: cost } },
  { path: "principals", rows: ROWS, q: "09999@", by: { name: (human) => lower(human.name), email: (human) => lower(human.email), created: (human) => human.created_at_ms } },
  { path: "quotas", rows: ROWS, q: "key-09999", by: { share: (quota) => Math.floor((quota.used * 1e6) / quota.limit), used: (quota) => quota.used, limit: (quota) => quota.limit, name: (quota) => lower(quota.subject.name), resets: (quota) => quota.resets_at_ms } },
  { path: "alerts", rows: ROWS, q: "limit 09999", by: { severity: (alert) => Number(alert.severity === "bad"), opened: (alert) => alert.first_at_ms, resolved: (alert) => alert.resolved_at_ms, times: (alert) => alert.times } },
  { path: "outbox", rows: ROWS, by: { created: (delivery) => delivery.created_at_ms, tries: (delivery) => delivery.tries } },
  { path: "audit", rows: 4 * ROWS, by: { time: (record) => record.id } },
  { path: "endpoints", rows: ROWS, q: "endpoint-09999", id: "name", by: { name: (endpoint) => lower(endpoint.name), targets: (endpoint) => endpoint.failover.length } },
  { path: "providers", rows: PROVIDERS, by: { name: (provider) => lower(provider.id) } },
  { path: "catalog", rows: ROWS, q: "model-09999", by: { name: (model) => lower(model.id), context: (model) => model.context_window } },
  { path: "requests", rows: ROWS, q: "endpoint-09999", id: "request_id", by: { time: (record) => record.started_at_ms, cost: (record) => record.cost_micro_usd, duration: (record) => record.duration_us, first_token: (record) => record.first_content_us, tokens } },
];

/** Each page of the console, the headings that are pressed, and a search with the text of the row that it finds. */
const PAGES = [
  { path: "keys", heads: ["Name", "Spend this month", "Last used", "Expires"], q: "key-09999" },
  { path: "access", heads: ["Name", "Keys", "Spend this month", "Since"], q: "project-09999" },
  { path: "access?tab=humans", heads: ["Name", "E-mail", "Since"], q: "human-09999" },
  { path: "quotas", heads: ["Applies to", "Share", "Used", "Limit"], q: "key-09999" },
  { path: "alerts?state=any", heads: ["State", "Since", "Times"], q: "limit 09999" },
  { path: "outbox", heads: ["Tries", "Created"] },
  { path: "audit", heads: ["Time (UTC)"] },
  { path: "routes", heads: ["Name", "Requests, 24 h"], q: "endpoint-09999" },
  { path: "models", heads: ["Selector"], q: "model-09999" },
  { path: "requests?period=24h", heads: ["Cost", "Total", "Tokens"] },
];

const report = (...cells) => console.log(`figure  ${cells.map((cell, n) => String(cell).padEnd([22, 10, 22][n] ?? 8)).join(" ")}`);

/** Reads a page and returns it with the time that it took, in milliseconds. */
async function timed(gateway, path) {
  const began = performance.now();
  const page = await gateway.api("GET", path);
  return { ...page, took: Math.round(performance.now() - began) };
}

/** Reads all pages of a list. */
async function walk(gateway, path) {
  const rows = [];
  for (let cursor = ""; cursor !== null; ) {
    const page = await timed(gateway, `${path}&limit=500${cursor}`);
    rows.push(...page.data);
    cursor = page.next_cursor === null ? null : `&cursor=${encodeURIComponent(page.next_cursor)}`;
  }
  return rows;
}

/** The values of a column in an order; rows without one come last. */
function inOrder(rows, valueOf, order) {
  const values = rows.map(valueOf);
  const known = values.filter((value) => value !== null).sort((one, other) => (one < other ? -1 : Number(one > other)));
  return [...(order === "asc" ? known : known.reverse()), ...values.filter((value) => value === null)];
}

/** Reads all pages of each list once, and compares the first page of each order with the order of all rows. */
async function orders(gateway, slow) {
  const measure = async (list, what, path) => {
    const { data, took } = await timed(gateway, path);
    report(list.path, list.rows, what, `${took} ms`);
    if (took > API_MS_MAX) slow.push(`${path}: ${took} ms`);
    return data;
  };
  for (const list of LISTS) {
    const { path, rows, q, id = "id", by } = list;
    const [[firstColumn, firstValue]] = Object.entries(by);
    const all = await walk(gateway, `${path}?sort=${firstColumn}&order=asc`);
    assert.ok(all.length >= rows, `${path}: ${all.length} rows`);
    assert.equal(new Set(all.map((row) => row[id])).size, all.length, `${path}: a row comes twice`);
    assert.deepEqual(all.map(firstValue), inOrder(all, firstValue, "asc"), path);
    for (const [column, valueOf] of Object.entries(by)) {
      for (const order of ["asc", "desc"]) {
        const page = await measure(list, `${column} ${order}`, `${path}?sort=${column}&order=${order}&limit=100`);
        assert.deepEqual(page.map(valueOf), inOrder(all, valueOf, order).slice(0, page.length), `${path} by ${column} ${order}`);
      }
    }
    if (q) assert.equal((await measure(list, `search ${q}`, `${path}?q=${encodeURIComponent(q)}`)).length, 1, `${path}?q=${q}`);
  }
}

const first = (page) => page.locator(".table-place tbody tr:not(.gap)").first();

/** Presses each heading twice and searches, and measures until the page shows the answer. */
async function shown(browser, gateway) {
  const page = await browser.signedIn(gateway.key, "/settings", { timezone: "UTC" });
  for (const { path, heads, q } of PAGES) {
    await page.goto(`${browser.origin}/console/${path}`);
    await first(page).waitFor();
    await settled(page);
    for (const head of heads) {
      const seen = [];
      for (let press = 0; press < 2; press += 1) {
        const began = performance.now();
        await page.locator(".table-place th").getByRole("button", { name: head, exact: true }).click();
        await page.waitForURL(/sort=|\/console\/[a-z]+(\?(tab=humans|state=any|period=24h))?$/);
        await first(page).waitFor();
        // The old rows stay until the answer is there, so that only a page that is idle shows the new ones.
        await settled(page);
        report(path, ROWS, head, "", `${Math.round(performance.now() - began)} ms`);
        seen.push(await first(page).innerText());
      }
      assert.notEqual(seen[0], seen[1], `${path}: ${head} in both directions`);
    }
    if (!q) continue;
    const began = performance.now();
    await page.locator("main input[type=search]").fill(q);
    // The search of models takes what was typed as a whole.
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelectorAll(".table-place tbody tr:not(.gap)").length === 1);
    report(path, ROWS, `search ${q}`, "", `${Math.round(performance.now() - began)} ms`);
    assert.match(await first(page).innerText(), new RegExp(q), path);
  }
  await names(browser, page);
}

/** Names stand in place of IDs, however many objects there are. */
async function names(browser, page) {
  await page.goto(`${browser.origin}/console/keys`);
  await first(page).waitFor();
  await settled(page);
  const keys = await page.locator(".table-place tbody").innerText();
  assert.match(keys, /project-\d{5}/, "the project of a key");
  assert.doesNotMatch(keys, /prj_/);
  assert.match(keys, /\d %/, "the share of its limit");
  await page.goto(`${browser.origin}/console/quotas`);
  await first(page).waitFor();
  await settled(page);
  assert.doesNotMatch(await page.locator(".table-place tbody").innerText(), /key_/);
}

export const longListChecks = {
  async every_long_list_is_sorted_and_searched_over_all_its_pages({ gateway: { binary, home }, browser }) {
    const gateway = await longState(binary, home);
    await browser.visit(gateway, async () => {
      const slow = [];
      report("list", "rows", "order or search", "API", "browser");
      await orders(gateway, slow);
      await shown(browser, gateway);
      assert.deepEqual(slow, []);
    });
  },
};

/** The promise is 300 ms of a release build on a quiet machine. */
const API_MS_MAX = 1_500;
