// The checks of lists with as many rows as a large organisation has: every order of every list over all its pages, the search for one row
// among all, and how long the answers take. The times are printed as a table.

import assert from "node:assert/strict";

import { choose, settled } from "./browser.mjs";
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

/** The objects that were made last: no list has them among its first 500 rows. */
async function lastOf(gateway) {
  const last = async (list) => {
    let rows = [];
    for (let cursor = ""; cursor !== null; ) {
      const page = await gateway.api("GET", `${list}limit=500${cursor}`);
      rows = page.data;
      cursor = page.next_cursor === null ? null : `&cursor=${encodeURIComponent(page.next_cursor)}`;
    }
    return rows.at(-1);
  };
  const [project, human, key, endpoint, provider] = await Promise.all(["projects?", "principals?", "keys?", "endpoints?source=api&", "providers?"].map(last));
  return { project, human, key, endpoint, provider };
}

/** The fields in which one object is chosen: the address, the label, what is typed, and what the field then holds. */
const fieldsOf = ({ project, human, key, endpoint, provider }) => [
  ["keys", "Project", project.name],
  ["keys?new=1", "Project", project.name],
  [`keys?new=1&project=${project.id}`, "Acts as", human.name],
  [`access/projects/${project.id}?member=new`, "Human", human.name],
  ["quotas?new=1&kind=key", "Applies to", key.name],
  ["quotas?new=1&kind=project", "Applies to", project.name],
  ["quotas?new=1&kind=principal", "Applies to", human.name],
  ["quotas?new=1&kind=provider", "Applies to", provider.id],
  ["playground", "Send as", key.name, `key ${key.name}`],
  ["playground", "Send as", human.name, `human ${human.name}`],
  ["connect", "Key", key.name],
  ["connect", "Model", endpoint.name],
  ["setup?step=access", "Human", human.name],
  ["setup?step=access", "Which project", project.name],
  ["setup?step=sync", "Provider", provider.id],
  [`setup?step=test&provider=wide`, "Model", "model-09999"],
  ["setup?step=routes", "Endpoint", endpoint.name],
  ["setup?step=keys", "Project", project.name],
  ["setup?step=client", "Key", key.name],
];

/** The fields that add to a list: the address, the label, what is typed, and how the suggestion begins. */
const listsOf = ({ project, key, endpoint }, quota) => [
  ["keys?new=1", "Endpoints", endpoint.name],
  [`access/projects/${project.id}?edit=1`, "Endpoints", endpoint.name],
  ["alerts/rules?new=1", "Applies to", key.name, "key_expiring"],
  ["alerts/rules?new=1", "Applies to", endpoint.name, "catalog_drift"],
  ["alerts/rules?new=1", "Applies to", quota.subject.name, "quota_warning"],
];

/** Addresses that name an object by its ID, the field that shows it, and its name there. */
const addressesOf = ({ project, key, human }) => [
  [`keys?project=${project.id}`, "Project", project.name],
  [`quotas?new=1&kind=key&of=${key.id}`, "Applies to", key.name],
  [`playground?as=${key.id}`, "Send as", `key ${key.name}`],
  [`playground?as=${human.id}`, "Send as", `human ${human.name}`],
  [`connect?key=${key.id}`, "Key", key.name],
];

const holds = async (page, label, text) => {
  const field = page.getByRole("combobox", { name: label, exact: true }).last();
  await page.waitForFunction(([node, text]) => node.value === text, [await field.elementHandle(), text]);
};

/** Runs each step and returns what went wrong, by the name of the step. */
async function faultsOf(steps) {
  const faults = [];
  for (const [name, step] of steps) await step().catch((error) => faults.push(`${name}: ${error.message.split("\n").slice(0, 3).join(" ")}`));
  return faults;
}

/** Returns the steps that choose the last objects in every field. */
function choices(page, open, last, quota) {
  const fields = fieldsOf(last).map(([path, label, typed, text = typed]) => [
    `${path}, ${label}: ${typed}`,
    async () => {
      await open(path);
      await choose(page, label, typed, text);
      await holds(page, label, text);
    },
  ]);
  const lists = listsOf(last, quota).map(([path, label, typed, kind]) => [
    `${path}, ${label}: ${typed}`,
    async () => {
      await open(path);
      if (kind) await page.getByLabel("Kind", { exact: true }).selectOption(kind);
      const group = page.getByRole("group", { name: label });
      await group.getByRole("button", { name: "Only these" }).click();
      await choose(page, label, typed);
      await group.locator(".chosen").getByText(typed).waitFor();
    },
  ]);
  const addresses = addressesOf(last).map(([path, label, text]) => [
    `${path} shows ${text}`,
    async () => {
      await open(path);
      await holds(page, label, text);
    },
  ]);
  return [...fields, ...lists, ...addresses];
}

/** Returns the steps that make objects with those that were made last, and look at their names on the pages. */
const made = (page, open, gateway, { project, human, key }) => [
  [
    "a member and a key",
    async () => {
      await open(`access/projects/${project.id}?member=new`);
      await choose(page, "Human", human.name);
      await button(page, "Add").click();
      await page.getByText(`${human.name} is member of ${project.name}.`).waitFor();
      await open("keys?new=1");
      await page.getByLabel("Name", { exact: true }).fill("of the last");
      await choose(page, "Project", project.name);
      await choose(page, "Acts as", human.name);
      await button(page.getByRole("dialog"), "Mint key").click();
      await button(page, "I have copied it").click();
      const { data } = await gateway.api("GET", "keys?q=of%20the%20last");
      assert.deepEqual(data.map((one) => [one.project, one.acts_as]), [[project.id, human.id]]);
    },
  ],
  [
    "a rule",
    async () => {
      await gateway.api("POST", "alert-rules", { name: "the last key", kind: "key_expiring", threshold: 3, objects: [key.id] });
      await open("alerts/rules");
      await page.getByRole("row", { name: "the last key" }).getByText(key.name).waitFor();
      await page.getByRole("link", { name: "the last key" }).click();
      await page.getByRole("dialog").locator(".chosen").getByText(key.name).waitFor();
    },
  ],
  [
    "deliveries",
    async () => {
      await open("outbox?q=key_");
      await first(page).waitFor();
      assert.doesNotMatch(await page.locator(".table-place tbody").innerText(), /key_0/, "a delivery shows the name of its key");
    },
  ],
  [
    "webhooks",
    async () => {
      await open("webhooks");
      await page.getByText(`${count(ROWS / 2)} failed`).waitFor();
    },
  ],
];

/** The overview names the fullest limits of all, and counts the others. */
async function fullest(page, open, gateway) {
  for (const rule of ["rule_quota_warning", "rule_quota_exhausted"]) await gateway.api("PATCH", `alert-rules/${rule}`, { enabled: false });
  const { data } = await gateway.api("GET", "projects?sort=spend&order=desc&limit=7");
  const used = data.filter(({ month }) => month.requests > 0);
  for (const { id } of used) {
    await gateway.api("POST", "quotas", { subject: { kind: "project", id }, metric: "cost_micro_usd", window: "month", limit: 1, enforcement: "warn" });
  }
  await open("");
  const needs = page.locator("section, .card", { has: page.getByRole("heading", { name: "Needs you" }) }).last();
  await needs.getByText(`${used[0].name}: Cost a month is used up`).waitFor();
  await needs.getByText(`${used.length - 5} more limits`).waitFor();
  await page.getByRole("group", { name: "Spend today" }).getByText(/^[1-9][\d,]* %$/).first().waitFor();
}

const button = (page, name) => page.getByRole("button", { name, exact: true });
const count = (number) => number.toLocaleString("en-US");

let built = null;

/** The gateway with long lists, which is made once. */
async function longGateway({ binary, home }) {
  if (built) await built.start();
  built ??= await longState(binary, home);
  return built;
}

export const longListChecks = {
  async every_long_list_is_sorted_and_searched_over_all_its_pages({ gateway: { binary, home }, browser }) {
    const gateway = await longGateway({ binary, home });
    await browser.visit(gateway, async () => {
      const slow = [];
      report("list", "rows", "order or search", "API", "browser");
      await orders(gateway, slow);
      await shown(browser, gateway);
      assert.deepEqual(slow, []);
    });
  },

  async every_field_finds_an_object_beyond_the_first_500_and_shows_its_name({ gateway: { binary, home }, browser }) {
    const gateway = await longGateway({ binary, home });
    await browser.visit(gateway, async () => {
      const last = await lastOf(gateway);
      await gateway.api("PUT", `projects/${last.project.id}/members/${last.human.id}`, { role: "member" });
      const [quota] = (await gateway.api("GET", `quotas?key=${last.key.id}`)).data;
      const page = await browser.signedIn(gateway.key, "/settings");
      page.setDefaultTimeout(10_000);
      const open = async (path) => {
        await page.goto(`${browser.origin}/console/${path}`);
        await settled(page);
      };
      await open("keys?new=1");
      await page.getByRole("combobox", { name: "Project", exact: true }).last().click();
      await page.getByText("More fit: type to narrow.").waitFor();
      const faults = await faultsOf([
        ...choices(page, open, last, quota),
        ...made(page, open, gateway, last),
        ["the overview", () => fullest(page, open, gateway)],
      ]);
      assert.deepEqual(faults, []);
    });
  },
};

/** The promise is 300 ms of a release build on a quiet machine. */
const API_MS_MAX = 1_500;
