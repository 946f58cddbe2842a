// The texts of strangers, on every page that shows such texts: as names, models, errors, user agents, answers and request ids.
// They are seen as text; nothing of them runs, no policy is violated, and the layout holds.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";

import { settled, sideways } from "./browser.mjs";

/** A name is one line of at most 200 characters; other texts may be longer. */
const NAMES = [
  "<img src=x onerror=alert(1)>",
  "<script>alert(1)</script>",
  '"><svg onload=alert(1)>',
  "javascript:alert(1)",
  "{{7*7}} ${7*7}",
  "</title><h1>x</h1>",
  "שלום עולם",
  "🦊".repeat(99),
  "W".repeat(200),
];
/** The same as IDs of models: without spaces, at most 256 bytes. */
const MODELS = NAMES.map((name) => [...name.replaceAll(" ", "/")].slice(0, 60).join(""));
const LONG = [...NAMES, "W".repeat(10_000), "🦊".repeat(200), "a\u202eb\u202ec", "nul \u0000 nul"];

/** An upstream whose models, errors and answers are such texts. */
async function stranger() {
  const server = createServer((request, response) => {
    const chunks = [];
    request.on("data", (chunk) => chunks.push(chunk));
    request.on("end", () => {
      const send = (status, body) => {
        response.writeHead(status, { "content-type": "application/json" });
        response.end(JSON.stringify(body));
      };
      if (request.url === "/extension/v1/info") return send(200, extensionInfo());
      if (request.url === "/extension/v1/p1/models" || request.url === "/silent/v1/info") return send(400, { error: { message: LONG.join("\n") } });
      if (request.url === "/hook") return send(204, {});
      if (request.method === "GET") return send(200, { object: "list", data: MODELS.map((id) => ({ id, object: "model" })) });
      const { model } = JSON.parse(Buffer.concat(chunks).toString());
      const text = LONG.join("\n");
      if (model === MODELS[1]) return send(400, { error: { message: text, type: text, code: text, param: text } });
      const usage = { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7 };
      send(200, { id: NAMES[0], object: "chat.completion", created: 1, model: text, choices: [{ index: 0, message: { role: "assistant", content: text }, finish_reason: NAMES[0] }], usage });
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return server;
}

/** The description of an extension with such texts. */
const extensionInfo = () => ({
  protocol: 1,
  name: LONG.join("\n"),
  version: LONG.at(-2),
  providers: NAMES.map((name, n) => ({ id: `p${n}`, name, protocols: ["chat"], credential: n % 2 ? "required" : "none" })),
});

/** Makes rules, webhooks, deliveries and extensions with such texts. Returns the pages that show them, and those of the alerts about such keys. */
async function fillEvents(gateway, server) {
  const origin = `http://127.0.0.1:${server.address().port}`;
  const rules = [];
  const webhooks = [];
  for (const name of NAMES) {
    rules.push(await gateway.api("POST", "alert-rules", { name, kind: "provider_down", objects: [name] }));
    webhooks.push(await gateway.api("POST", "webhooks", { name, url: `${origin}/hook`, kinds: ["provider_down"] }));
  }
  // These are no names: they are refused, or are text like the others.
  for (const name of LONG.slice(NAMES.length)) await gateway.api("POST", "alert-rules", { name, kind: "disk_low", threshold: 1 }).catch(() => {});
  for (const { id } of rules) await gateway.api("POST", `alert-rules/${id}/test`);
  for (const worker of NAMES) {
    const { data, lease } = await gateway.api("POST", "outbox/claim", { worker, limit: 1 });
    for (const { id } of data) await gateway.api("POST", `outbox/${id}/failed`, { lease, error: worker, retry_after_seconds: 3600 });
  }
  const secret = `whsec_${"A".repeat(43)}=`;
  for (const name of ["extension", "silent"]) {
    await gateway.api("POST", "extensions", { name, url: `${origin}/${name}`, secret });
    await gateway.api("POST", `extensions/${name}/probe`);
  }
  const alerts = await alertsOf(gateway, NAMES.length);
  return [
    "/alerts", "/alerts?state=any", ...alerts.slice(0, 3).map(({ id }) => `/alerts?alert=${id}`), "/alerts/rules", ...rules.slice(0, 3).map(({ id }) => `/alerts/rules?edit=${id}`),
    "/webhooks", ...webhooks.slice(0, 3).map(({ id }) => `/webhooks?webhook=${id}`), `/webhooks?edit=${webhooks[0].id}`, "/outbox", "/outbox?to=workers",
    "/providers?tab=extensions", "/providers?tab=extensions&extension=extension", "/providers?tab=extensions&extension=silent",
  ];
}

/** Waits for alerts about keys that expire; they are measured every ten seconds. */
async function alertsOf(gateway, count) {
  for (let tries = 0; tries < 200; tries += 1) {
    const { data } = await gateway.api("GET", "alerts?kind=key_expiring&limit=100");
    if (data.length >= count) return data;
    await new Promise((done) => setTimeout(done, 200));
  }
  throw new Error("no alerts about keys");
}

/** Makes objects with such names and sends requests with such texts. Returns the pages that show them. */
async function fill(gateway, server) {
  const base_url = `http://127.0.0.1:${server.address().port}/v1`;
  await gateway.api("POST", "providers", { id: "strange", type: "compatible", base_url, models: MODELS });
  await gateway.api("POST", "providers/strange/sync").catch(() => {});
  await gateway.api("POST", "endpoints", { name: "strange-line", failover: [MODELS[1], MODELS[0]].map((model) => ({ provider: "strange", model })), preamble: LONG[9].slice(0, 300) });
  const paths = [];
  for (const [n, name] of NAMES.entries()) {
    const project = await gateway.api("POST", "projects", { name });
    const human = await gateway.api("POST", "principals", { name });
    await gateway.api("PUT", `projects/${project.id}/members/${human.id}`, { role: "owner" });
    const key = await gateway.api("POST", "keys", { name, project: project.id, acts_as: human.id, expires_at: Date.now() + 86_400_000 });
    await gateway.api("POST", "quotas", { subject: { kind: "project", id: project.id }, metric: "requests", window: "day", limit: 1000 });
    const headers = { "user-agent": /^[ -~]*$/.test(name) ? name : "x", "x-request-id": `<img-${n}>` };
    await gateway.chat(key.key, `strange/${MODELS[n]}`, "hi", false, headers);
    if (n < 2) await gateway.chat(key.key, "strange-line", "hi", false, headers);
    await gateway.chat(key.key, name, "hi", false, headers);
    const own = [`/access/projects/${project.id}`, `/access/humans/${human.id}`, `/keys/${key.id}`, `/keys/${key.id}/access`];
    paths.push(...(n < 3 ? own : [own[n % 4]]), `/playground?as=${key.id}&model=${encodeURIComponent(`strange/${MODELS[n]}`)}`);
  }
  const { data } = await gateway.api("GET", "requests?limit=100");
  const requests = data.filter(({ provider, selector }) => provider === "strange" || NAMES.includes(selector)).map(({ request_id }) => `/requests/${encodeURIComponent(request_id)}`);
  return [
    ...paths, ...requests.slice(0, 8), ...(await fillEvents(gateway, server)), "/", "/?by=model", "/?by=key", "/requests", `/requests?q=${encodeURIComponent(NAMES[0])}`, `/requests?client=${encodeURIComponent(NAMES[2])}`, "/usage?by=model&period=24h", "/usage?by=key&and=project&period=24h",
    "/usage?by=client&period=24h", "/providers", "/providers/strange", "/routes", "/routes/strange-line", "/models?provider=strange", `/models?open=${encodeURIComponent(`strange/${MODELS[0]}`)}`, "/access", "/access?tab=humans", "/keys", "/quotas", "/audit", "/connect",
    `/nothing/${encodeURIComponent(NAMES[0])}`, `/keys?new=${encodeURIComponent(NAMES[2])}`,
  ];
}

/** What of the strangers' texts is on the page as anything but text. */
const alive = (page) =>
  page.evaluate(() => {
    const found = [...document.querySelectorAll("img[onerror], [onload], [onerror], main script, title h1, h1 h1, a[href^='javascript:' i], a[href^='data:' i]")].map((node) => node.outerHTML.slice(0, 100));
    if (globalThis.alerted) found.push("a script ran");
    if (/\b49\b/.test(document.title)) found.push("a template was evaluated");
    return found;
  });

export const strangerChecks = {
  async texts_of_strangers_are_text_on_every_page({ gateway, browser }) {
    const server = await stranger();
    const paths = await fill(gateway, server);
    const faults = [];
    const seen = new Set();
    const work = async (own, width) => {
      const page = await browser.signedIn(gateway.key, "/settings", { width });
      for (const path of own) {
        await page.goto(`${browser.origin}/console${path}`);
        await page.locator("main h1").first().waitFor();
        await settled(page);
        const text = await page.locator("main").innerText();
        for (const name of NAMES) if (text.includes(name)) seen.add(name);
        faults.push(...(await alive(page)).map((fault) => `${path}: ${fault}`));
        const over = await sideways(page);
        if (over) faults.push(`${path} at ${width} scrolls sideways by ${over}`);
      }
    };
    await Promise.all([work(paths.filter((_, i) => i % 2 === 0), 1440), work(paths.filter((_, i) => i % 2 === 1), 390)]);
    assert.deepEqual(faults, []);
    assert.deepEqual(NAMES.filter((name) => !seen.has(name)), [], "each is seen as it is");
    console.log(`figure  ${paths.length} pages with texts of strangers`);
    await gateway.api("DELETE", "endpoints/strange-line");
    await gateway.api("DELETE", "providers/strange");
    server.close();
  },

  async long_answers_of_strangers_are_text_in_the_playground({ gateway, browser }) {
    const server = await stranger();
    const base_url = `http://127.0.0.1:${server.address().port}/v1`;
    await gateway.api("POST", "providers", { id: "talker", type: "compatible", base_url, models: MODELS.slice(0, 2) });
    const { id } = await gateway.api("POST", "projects", { name: "listeners" });
    const made = await gateway.api("POST", "keys", { name: "listener", project: id });
    const page = await browser.signedIn(gateway.key, "/settings", { width: 390 });
    for (const model of MODELS.slice(0, 2)) {
      await page.goto(`${browser.origin}/console/playground?as=${made.id}&model=${encodeURIComponent(`talker/${model}`)}`);
      await page.getByLabel("Message", { exact: true }).fill(LONG.join("\n").replaceAll("\u0000", ""));
      await page.keyboard.press("Control+Enter");
      await page.locator(".result .answer, .result [role=alert]").first().waitFor();
      for (const tab of ["Route trace", "What was sent", "Raw stream"]) {
        await page.getByRole("button", { name: tab, exact: true }).click();
        await settled(page);
        assert.deepEqual(await alive(page), [], `${model} ${tab}`);
        assert.equal(await sideways(page), 0, `${model} ${tab}`);
      }
    }
    await gateway.api("DELETE", "providers/talker");
    server.close();
  },
};
