// Takes the pictures of docs/images: fills a gateway with a week of plausible traffic and visits its pages. With a second folder,
// every page goes there, empty and full, light and dark, wide and narrow, to be looked at.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { Browser, settled } from "./browser.mjs";
import { EMPTY, everyPage } from "./every_page.mjs";
import { Gateway } from "./gateway.mjs";
import { LONG, Upstream } from "./upstream.mjs";

const [binary, home, chromium, faketime, folder, allFolder] = process.argv.slice(2);
const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;
/** The charts of the overview show this time, and for the last part of it one provider fails. */
const SHOWN_MS = 62 * MINUTE_MS;
const OUTAGE_MS = 21 * MINUTE_MS;
/** The pause between two requests while the overview is taken, so that its last minute has as many as the others. */
const STEADY_MS = 6_000;

const upstream = new Upstream();
await upstream.start();
const clock = join(home, "clock");
/** Sets the gateway's clock back by so many milliseconds. */
const setBack = (ms) => writeFileSync(clock, ms > 0 ? `-${(ms / 1000).toFixed(1)}` : "+0");
setBack(6 * DAY_MS);
// Its minutes pass in a second, so circuits are closed again sooner than usual.
mkdirSync(join(home, ".llmgw"));
writeFileSync(join(home, ".llmgw", "config.yaml"), "policies:\n  defaults:\n    circuit_cooldown_seconds: 1\n");
const gateway = new Gateway(binary, home, {
  LD_PRELOAD: faketime,
  FAKETIME_TIMESTAMP_FILE: clock,
  FAKETIME_NO_CACHE: "1",
  FAKETIME_DONT_FAKE_MONOTONIC: "1",
  DONT_FAKE_MONOTONIC: "1",
  LLMGW_PARTNER_CLIENT_ID: "client-of-the-pictures",
  LLMGW_OAUTH_PUBLIC_BASE_URL: "https://gateway.example.org",
});
await gateway.start();
const browser = new Browser();
await browser.start(chromium, gateway.origin);

await picture("set-up", "/setup?step=providers");
if (allFolder) await takeEmpty();
const keys = await configure();
const askOnce = await fill(keys);
await takeShown();
if (allFolder) await addConnections();
if (allFolder) await takeEvery("full", await everyPage(gateway), gateway.key);

await browser.stop();
upstream.stop();
await gateway.stop();
if (browser.faults.length) throw new Error(browser.faults.join("\n"));

/** Makes projects, people, providers, endpoints, keys and limits. */
async function configure() {
  const { api } = gateway;
  const post = (path, body) => api.call(gateway, "POST", path, body);
  const ada = await post("principals", { name: "Ada", email: "ada@example.org" });
  const projects = {};
  for (const name of ["agents", "website", "research"]) {
    projects[name] = (await post("projects", { name })).id;
    await api.call(gateway, "PUT", `projects/${projects[name]}/members/${ada.id}`, { role: "owner" });
  }
  const provider = async (id, type, models, behaviour, more = {}) => {
    upstream.behaviour[id] = { models, ...behaviour };
    const path = type === "anthropic" ? "" : "/v1";
    upstream.behaviour[id].jitter = 0.4;
    await post("providers", { id, type, base_url: `${upstream.origin}/${id}${path}`, models, ...more });
    await post(`providers/${id}/sync`).catch(() => {});
    await post(`providers/${id}/test`, { model: models[0] });
  };
  await provider("openai-main", "openai", ["gpt-5.4", "gpt-5.4-mini"], { delay: 210, pace: 14, tokens: { input: 1810, cached: 2400, output: 420 } }, { api_key: "sk-of-the-pictures-0001" });
  await provider("anthropic-main", "anthropic", ["claude-opus-5-5", "claude-sonnet-5-5"], { delay: 320, pace: 11, tokens: { input: 1900, cached: 14_000, output: 420 } }, { api_key: "sk-ant-of-the-pictures-0002" });
  await provider("openai-eu", "openai", ["gpt-5.4", "gpt-5.4-mini"], { delay: 260, pace: 16, tokens: { input: 1790, cached: 900, output: 430 } }, { api_key: "sk-of-the-pictures-0003" });
  await provider("workstation", "local_server", ["llama3.2"], { delay: 90, pace: 9, tokens: { input: 640, output: 180 } });
  const target = (selector) => ({ provider: selector.split("/")[0], model: selector.split("/")[1] });
  const endpoints = {
    coding: ["anthropic-main/claude-opus-5-5", "openai-main/gpt-5.4", "openai-eu/gpt-5.4"],
    chat: ["openai-main/gpt-5.4-mini", "openai-eu/gpt-5.4-mini", "workstation/llama3.2"],
    drafts: ["workstation/llama3.2", "openai-eu/gpt-5.4-mini"],
  };
  for (const [name, targets] of Object.entries(endpoints)) await post("endpoints", { name, failover: targets.map(target) });
  const key = async (name, project, more = {}) => (await post("keys", { name, project: projects[project], ...more })).key;
  const limit = (project, dollars) => post("quotas", { subject: { kind: "project", id: projects[project] }, metric: "cost_micro_usd", window: "month", limit: dollars * 1_000_000 });
  await limit("agents", 60);
  await limit("website", 4).catch((error) => console.error(error.message));
  await post("webhooks", { name: "on-call", url: "https://hooks.example.org/llmgw", kinds: ["provider_down", "quota_warning"] }).catch((error) => console.error(error.message));
  return { agents: await key("ci-agents", "agents"), ada: await key("ada-laptop", "agents", { acts_as: ada.id }), widget: await key("chat-widget", "website"), notebooks: await key("notebooks", "research") };
}

/** One request as a client of a kind sends it. */
async function ask(key, model, { agent, isMessages = false }, content = "Which target answers?") {
  const response = await fetch(`${gateway.origin}/v1/${isMessages ? "messages" : "chat/completions"}`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json", "anthropic-version": "2023-06-01", "user-agent": agent },
    body: JSON.stringify({ model, stream: true, max_tokens: 1000, messages: [{ role: "user", content }] }),
  });
  await response.text();
}

/** What clients send, in turns. */
function turnsOf(keys) {
  const claude = { agent: "claude-cli/2.1.329 (external, cli)", isMessages: true };
  const python = { agent: "OpenAI/Python 2.8.1" };
  const script = { agent: "OpenAI/JS 6.9.0" };
  const kinds = [
    [keys.agents, "coding", claude],
    [keys.widget, "chat", script],
    [keys.widget, "chat", script],
    [keys.ada, "coding", claude],
    [keys.notebooks, "drafts", python],
    [keys.widget, "chat", script],
    [keys.notebooks, "coding", python],
  ];
  let turn = 0;
  return () => kinds[turn++ % kinds.length];
}

/**
 * A few requests on each day before, then an hour by the minute in which one provider begins to fail. Its clients are served by others, but for two
 * requests that name it. Returns a function that sends one more request.
 */
async function fill(keys) {
  const next = turnsOf(keys);
  const round = (count) => Promise.all(Array.from({ length: count }, () => ask(...next())));
  for (let day = 6; day > 0; day -= 1) {
    setBack(day * DAY_MS);
    await round(70 + ((day * 37) % 60));
  }
  const began = Date.now();
  let at = began - SHOWN_MS;
  // What passes meanwhile is filled too: the clock must be right in the end.
  for (let minute = 0; at < Date.now(); minute += 1, at += MINUTE_MS) {
    setBack(Date.now() - at);
    const left = Math.round((began - at) / MINUTE_MS);
    upstream.behaviour["openai-main"].status = at >= began - OUTAGE_MS ? 503 : 200;
    await round(8 + Math.round(4 * Math.sin(minute / 7)) + (minute % 3));
    if (left === 17 || left === 9) await ask(keys.notebooks, "openai-main/gpt-5.4", { agent: "OpenAI/Python 2.8.1" });
  }
  setBack(0);
  await gateway.api("POST", "backups", {});
  const claude = { agent: "claude-cli/2.1.329 (external, cli)", isMessages: true };
  for (const [key, model, kind] of [[keys.agents, "coding", claude], [keys.widget, "chat", { agent: "OpenAI/JS 6.9.0" }], [keys.ada, "coding", claude], [keys.notebooks, "drafts", { agent: "OpenAI/Python 2.8.1" }]])
    void ask(key, model, kind, LONG).catch(() => {});
  return () => ask(...next()).catch(() => {});
}

/** Connections that only the pages about them need. */
async function addConnections() {
  const { data } = await gateway.api("GET", "principals");
  const oauth = { authorize_url: "https://id.example.org/authorize", token_url: "https://id.example.org/token", scopes: ["openid", "offline_access"] };
  await gateway.api("POST", "providers", { id: "partner", type: "oauth_partner", base_url: "https://api.example.org/v1", owner: data[0].id, models: ["m"], oauth });
  await gateway.api("POST", "extensions", { name: "words", url: "https://words.example.org", secret: `whsec_${Buffer.alloc(32, 7).toString("base64")}` }).catch((error) => console.error(error.message));
}

/** Takes the pages of a gateway without data, whose clock is right. */
async function takeEmpty() {
  const fresh = new Gateway(binary, join(home, "empty"));
  mkdirSync(fresh.home);
  await fresh.start();
  browser.origin = fresh.origin;
  await takeEvery("empty", EMPTY, fresh.key);
  browser.origin = gateway.origin;
  await fresh.stop();
}

/** Takes pages in both themes and widths, whole. */
async function takeEvery(state, pages, key) {
  for (const [theme, width] of [1440, 1024, 390].flatMap((width) => [["light", width], ["dark", width]])) {
    const page = await browser.signedIn(key, "/settings", { theme, width });
    for (const [name, path] of Object.entries(pages)) {
      await page.setViewportSize({ width, height: 900 });
      await page.goto(`${browser.origin}/console${path}`);
      await settled(page);
      const height = await page.evaluate(() => document.documentElement.scrollHeight);
      await page.setViewportSize({ width, height: Math.min(Math.max(height, 700), 2400) });
      await page.screenshot({ path: join(allFolder, `${state}-${name}-${width}-${theme}.png`) });
    }
    await page.context().close();
  }
}

async function takeShown() {
  const { data } = await gateway.api("GET", "requests?failed_over=true&outcome=completed&limit=200");
  const told = data.toSorted((a, b) => (b.results?.length ?? 0) - (a.results?.length ?? 0))[0];
  const pages = { overview: "/", request: `/requests/${told.request_id}`, route: "/routes/coding?fail=anthropic-main%3Ahang", usage: "/usage?by=model", providers: "/providers" };
  const steady = setInterval(askOnce, STEADY_MS);
  await picture("overview-narrow", "/", { width: 390, themes: ["light"] });
  for (const [name, path] of Object.entries(pages)) await picture(name, path);
  clearInterval(steady);
  await picture("playground", "/playground?model=coding&path=messages&against=openai-eu%2Fgpt-5.4", { act: compare });
}

/** Sends a message to two targets and shows the route of the first. */
async function compare(page) {
  await page.getByLabel("Message", { exact: true }).fill("Which target answers?");
  await page.keyboard.press("Control+Shift+Enter");
  await page.locator(".result .answer", { hasText: "until one of them began to answer." }).nth(1).waitFor();
  await page.getByRole("button", { name: "Route trace" }).first().click();
  await page.getByText("Accepted, authorised, planned").waitFor();
}

async function picture(name, path, { width = 1440, themes = ["light", "dark"], act = async () => {} } = {}) {
  for (const theme of themes) {
    const page = await browser.signedIn(gateway.key, path, { width, theme });
    await settled(page);
    await act(page);
    await settled(page);
    await page.mouse.move(0, 0);
    await page.evaluate(() => document.activeElement?.blur());
    const height = await page.evaluate(() => document.documentElement.scrollHeight);
    await page.setViewportSize({ width, height: Math.min(Math.max(height, 700), width < 500 ? 1400 : 1150) });
    await page.screenshot({ path: join(folder, `${name}${theme === "dark" ? "-dark" : ""}.png`) });
    await page.context().close();
  }
}
