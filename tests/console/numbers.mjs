// The figures of the pages against sums over the export, which the checks compute on their own: counts, tokens, money and
// latencies, in UTC and in a time zone of half an hour.

import assert from "node:assert/strict";

import { settled } from "./browser.mjs";
import { Upstream } from "./upstream.mjs";

const ZONES = ["UTC", "Asia/Kolkata"];
const INPUT = ["input", "cache_read", "cache_write", "cache_write_1h", "audio_input", "image_input"];

const sum = (records, of) => records.reduce((total, record) => total + of(record), 0);
const inputOf = ({ tokens }) => sum(INPUT, (name) => tokens[name] ?? 0);
const tokensOf = ({ tokens }) => sum(Object.values(tokens), (count) => count);
const costOf = (record) => (record.cost_micro_usd ?? 0) + record.lost_micro_usd;
const unpricedOf = (records) => records.filter(({ cost_micro_usd }) => cost_micro_usd === null).length;
const hasFailed = ({ outcome, status, attempts }) => ["cut", "interrupted"].includes(outcome) || (outcome === "failed" && ![400, 413, 415, 422].includes(status) && (status >= 500 || attempts > 0));

/** Sends requests of every sort: priced and unpriced, streamed, from the cache, after a failover, failed and refused. */
async function traffic(gateway, upstream) {
  upstream.behaviour = {
    sums: { models: ["gpt-x"], tokens: { input: 1_200, cached: 300, output: 77 } },
    free: { models: ["unknown"], tokens: { input: 40, output: 9 } },
    broken: { models: ["gpt-x"], status: 503 },
  };
  for (const [id, { models }] of Object.entries(upstream.behaviour)) await gateway.api("POST", "providers", { id, type: "compatible", base_url: `${upstream.origin}/${id}/v1`, models });
  for (const id of ["sums", "broken"]) await gateway.api("POST", "catalog/overrides", { provider: id, model: "gpt-x", facts: { prices: { input: 3, cached_input: 0.3, output: 15 } } });
  const target = (provider) => ({ provider, model: "gpt-x" });
  await gateway.api("POST", "endpoints", { name: "after", failover: [target("broken"), target("sums")] });
  const { id } = await gateway.api("POST", "projects", { name: "summed" });
  const keys = [];
  for (const name of ["summed one", "summed two"]) keys.push(await gateway.api("POST", "keys", { name, project: id }));
  const asked = [["sums/gpt-x", false], ["sums/gpt-x", true], ["free/unknown", true], ["after", true], ["broken/gpt-x", false], ["no-such-model", false]];
  for (const [n, { key }] of keys.entries()) for (const [model, stream] of asked.slice(0, asked.length - n)) await gateway.chat(key, model, "hi", stream);
  return { project: id, keys };
}

async function exported(gateway, query) {
  const response = await fetch(`${gateway.origin}/admin/api/usage/export?format=jsonl&${query}`, { headers: { "x-api-key": gateway.key } });
  return (await response.text()).trim().split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

/** Compares an amount as the page shows it, with as many digits as it shows. */
function sameMoney(shown, micro, at) {
  const match = /^\$([\d,]+(?:\.(\d+))?)$/.exec(shown);
  assert.ok(match, `${at}: ${shown} is no amount`);
  const amount = Number(match[1].replaceAll(",", ""));
  assert.ok(Math.abs(amount - micro / 1e6) <= 0.501 * 10 ** -(match[2]?.length ?? 0), `${at}: ${shown} is not ${micro / 1e6}`);
}

/** Compares a duration as the page shows it: percentiles have two digits, and milliseconds from 100 on none behind the point. */
function sameDuration(shown, us, at) {
  const match = /^([\d.]+) (ms|s)$/.exec(shown);
  assert.ok(match, `${at}: ${shown} is no duration`);
  const value = Number(match[1]) * (match[2] === "s" ? 1e6 : 1e3);
  assert.ok(Math.abs(value - us) <= 0.012 * us + 600, `${at}: ${shown} is not ${us} µs`);
}

function percentile(values, percent) {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil((sorted.length * percent) / 100) - 1)];
}

const cells = (row) => row.locator("td").allInnerTexts();
const number = (text) => Number(text.replaceAll(",", ""));

async function usage(page, gateway, browser, { project, keys }, at) {
  const records = await exported(gateway, `project=${project}`);
  await page.goto(`${browser.origin}/console/usage?by=key&period=24h&project=${project}`);
  await settled(page);
  const lines = [["Total", records], ...keys.map(({ id, name }) => [name, records.filter(({ key }) => key === id)])];
  for (const [name, own] of lines) {
    const row = page.getByRole("row", { name: new RegExp(`^${name}`) }).last();
    const shown = await row.evaluate((node) => [...node.closest("table").querySelectorAll("thead th")].map((head, i) => [head.innerText.trim().toLowerCase(), node.children[i]?.innerText ?? ""]));
    const of = (title) => shown.find(([head]) => head === title.toLowerCase())?.[1];
    assert.deepEqual([of("Requests"), of("Input"), of("Output")].map(number), [own.length, sum(own, inputOf), sum(own, (record) => tokensOf(record) - inputOf(record))], `${at} ${name}`);
    const [money, unpriced] = of("Cost").split("\n");
    sameMoney(money.trim().split(" ")[0], sum(own, costOf), `${at} ${name}`);
    assert.match(unpriced ?? money, new RegExp(`${unpricedOf(own)} unpriced`), `${at} ${name}`);
    const firsts = own.map((record) => record.first_content_us).filter((us) => us !== null);
    sameDuration(of("First token"), sum(firsts, (us) => us) / firsts.length, `${at} ${name}`);
  }
}

async function figure(page, name) {
  const box = page.locator(".figure", { has: page.getByText(name) });
  return { value: await box.locator("b").innerText(), unit: await box.locator("small").allInnerTexts(), sub: await box.locator(".sub").innerText() };
}

async function overview(page, gateway, browser, { project }, at) {
  await page.goto(`${browser.origin}/console/?period=24h&by=project`);
  await settled(page);
  const records = await exported(gateway, "");
  const requests = await figure(page, "Requests");
  assert.match(requests.sub, new RegExp(`^${records.length} in 24 hours`), at);
  const failed = records.filter(hasFailed).length;
  const errors = await figure(page, "Failed for clients");
  assert.equal(errors.sub, `${failed} failed · ${records.filter(({ outcome }) => outcome === "cancelled").length} clients left`, at);
  const input = sum(records, inputOf);
  const output = await figure(page, "Output tokens");
  assert.equal(output.sub, `${Math.round((100 * sum(records, ({ tokens }) => tokens.cache_read)) / input)} % of input from cache`, at);
  const spend = await figure(page, "Spend today, since 00:00 UTC");
  const today = records.filter(({ started_at_ms }) => started_at_ms >= new Date().setUTCHours(0, 0, 0, 0));
  sameMoney(spend.value, sum(today, costOf), at);
  assert.match(spend.sub, new RegExp(`^\\+ ${unpricedOf(today)} unpriced`), at);
  const tried = records.filter(({ provider, results }) => provider === "broken" || (results ?? []).length > 1);
  assert.ok(tried.length > 0);
  const provider = await cells(page.getByRole("row", { name: /^broken/ }));
  assert.equal(provider[3], "100 %", at);
  const own = today.filter((record) => record.project === project);
  const row = await cells(page.getByRole("row", { name: /^summed/ }));
  assert.deepEqual([number(row[1]), number(row[2])], [own.length, sum(own, tokensOf)], at);
  sameMoney(row[3].trim().split(/\s/)[0], sum(own, costOf), at);
  const firsts = records.map((record) => record.first_content_us).filter((us) => us !== null);
  sameDuration(/p99 (.*?)( ·|$)/.exec((await figure(page, "First token, p50")).sub)[1], percentile(firsts, 99), `${at} p99`);
}

async function request(page, gateway, browser, { project }, at, timezone) {
  for (const record of (await exported(gateway, `project=${project}`)).filter(({ selector, outcome }) => outcome === "completed" && selector !== "smart")) {
    await page.goto(`${browser.origin}/console/requests/${record.request_id}`);
    await settled(page);
    const row = await cells(page.getByRole("row", { name: /^Total/ }));
    assert.equal(number(row[1]), tokensOf(record), `${at} ${record.request_id}`);
    if (record.cost_micro_usd !== null) sameMoney(row.at(-1).trim(), record.cost_micro_usd, `${at} ${record.request_id}`);
    const time = new Intl.DateTimeFormat("en-GB", { timeZone: timezone, hour: "2-digit", minute: "2-digit", second: "2-digit" }).format(record.started_at_ms);
    await page.getByText(time).first().waitFor();
  }
}

export const numberChecks = {
  async every_figure_equals_the_sum_over_the_export_in_every_time_zone({ gateway, browser }) {
    const upstream = new Upstream();
    await upstream.start();
    const made = await traffic(gateway, upstream);
    await Promise.all(
      ZONES.map(async (timezone) => {
        const page = await browser.signedIn(gateway.key, "/settings", { timezone });
        await page.evaluate(() => localStorage.setItem("llmgw.console", '{"zone": "local"}'));
        await usage(page, gateway, browser, made, `usage ${timezone}`);
        await overview(page, gateway, browser, made, `overview ${timezone}`);
        await request(page, gateway, browser, made, `request ${timezone}`, timezone);
      }),
    );
    await gateway.api("DELETE", "endpoints/after");
    for (const id of Object.keys(upstream.behaviour)) await gateway.api("DELETE", `providers/${id}`);
    upstream.stop();
  },
};
