// The three texts that a page can be broken with most easily (NUL, an override of the text's direction, 10,000 characters) in every
// field that somebody else sets and a page shows. A field that cannot hold one refuses it or keeps it cut; none is shown so that it
// changes what stands beside it.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";

import { settled, sideways } from "./browser.mjs";

/** Each begins with a word by which it is found on a page. */
const TEXTS = { nul: "nulled \u0000 text", override: "turned \u202e txet", long: `long${"W".repeat(10_000)}` };
const KINDS = Object.keys(TEXTS);

/** An upstream that answers with such texts: the first word of the user's message says which. */
async function hostile() {
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const send = (status, body) => {
      response.writeHead(status, { "content-type": "application/json", "x-request-id": `up${"W".repeat(3000)}` });
      response.end(JSON.stringify(body));
    };
    if (request.method === "GET") return send(200, { object: "list", data: [{ id: "plain", object: "model" }, ...KINDS.map((kind) => ({ id: TEXTS[kind], object: "model", display_name: TEXTS[kind], name: TEXTS[kind] }))] });
    if (request.url.includes("/audio/")) return send(200, { text: "heard" });
    const { messages } = JSON.parse(Buffer.concat(chunks).toString());
    const [what, kind] = String(messages.at(-1).content).split(" ");
    const text = TEXTS[kind] ?? "ok";
    if (what === "error") return send(503, { error: { message: text, type: text, code: text, param: text } });
    const usage = { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7 };
    send(200, { id: text, object: "chat.completion", created: 1, model: text, system_fingerprint: text, service_tier: text, choices: [{ index: 0, message: { role: "assistant", content: text }, finish_reason: text }], usage });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return server;
}

/** The UTF-8 bytes of a text as a header's value; NUL cannot be in one. */
const header = (text) => Buffer.from(text.replaceAll("\u0000", "")).toString("latin1").slice(0, 6_000);

/** Every field by name: sets it to a text. Returns the status if the gateway refuses it. */
function fieldsOf(gateway, key, project) {
  const chat = (content, more = {}, headers = {}) =>
    fetch(`${gateway.origin}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json", ...headers },
      body: JSON.stringify({ model: "hostile/plain", messages: [{ role: "user", content }], ...more }),
    }).then(async (answer) => {
      await answer.text();
      return answer.status;
    });
  const create = (path, body) =>
    gateway.api("POST", path, body).then(
      () => 201,
      (error) => Number(/: (\d{3}) /.exec(error.message)?.[1]),
    );
  return {
    "model that a client asks for": (text) => chat("hi", { model: text }),
    "user agent": (text) => chat("hi", {}, { "user-agent": header(text) }),
    "session of an agent": (text) => chat("hi", {}, { "x-claude-code-session-id": header(text) }),
    "affinity key": (text) => chat("hi", { affinity_key: text }),
    "end user": (text) => chat("hi", { user: text }),
    "tags": (text) => chat("hi", {}, { "x-llmgw-tags": `job=${header(text).replace(/[^\x20-\xff]/g, "")}` }),
    "request id": (text) => chat("hi", {}, { "x-request-id": header(text) }),
    "unknown member": (text) => chat("hi", { [text]: 1 }),
    // Errors come last: they open the circuit.
    "answer, model, id, tier and finish of an upstream": (_, kind) => chat(`answer ${kind}`),
    "error of an upstream": (_, kind) => chat(`error ${kind}`),
    "name of a project": (name) => create("projects", { name }),
    "name of a human": (name) => create("principals", { name, email: `${name}@example.org` }),
    "name of a key": (name) => create("keys", { name, project }),
    "name of an endpoint": (name) => create("endpoints", { name, failover: [{ provider: "hostile", model: "plain" }], preamble: name }),
    "name of a provider": (id) => create("providers", { id, type: "compatible", base_url: "http://127.0.0.1:9/v1" }),
    "address of a provider": (text) => create("providers", { id: "addressed", type: "compatible", base_url: `http://127.0.0.1:9/${text}` }),
    "name of a webhook": (name) => create("webhooks", { name, url: "https://hooks.example.org/x", kinds: ["provider_down"] }),
    "name of an extension": (name) => create("extensions", { name, url: "http://127.0.0.1:9", secret: "0123456789abcdef0123456789abcdef" }),
    "model of a catalog correction": (model) => create("catalog/overrides", { provider: "hostile", model, facts: { display_name: model } }),
    "administrator key of a sign-in": (key) => fetch(`${gateway.origin}/admin/api/session`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ key }) }).then(({ status }) => status),
  };
}

/** The pages that show what others set. */
async function pagesOf(gateway, project) {
  const { data } = await gateway.api("GET", `requests?project=${project}&limit=200`);
  const { data: providers } = await gateway.api("GET", "providers?limit=200");
  return [
    "/", "/?by=model", "/requests", ...data.map(({ request_id }) => `/requests/${encodeURIComponent(request_id)}`), ...["model", "key", "endpoint", "outcome", "client"].map((by) => `/usage?by=${by}&period=24h`), "/providers", ...providers.filter(({ id }) => id !== "echo").map(({ id }) => `/providers/${encodeURIComponent(id)}`),
    "/providers?tab=extensions", "/routes", "/models", "/models?provider=hostile", "/models?open=hostile%2Fplain", "/access", "/access?tab=humans", `/access/projects/${project}`, "/keys", "/quotas", "/webhooks", "/outbox", "/alerts", "/audit", "/audit?action=access.refuse",
  ];
}

/** What of such texts harms the page: characters that turn or end other text, or an element that a text stretches. */
const harmed = (page) =>
  page.evaluate(() => {
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      if (node.data.endsWith("\u0000")) found.push(`a NUL ends ${node.parentElement.outerHTML.slice(0, 80)}`);
      if (!/[\u202a-\u202e\u2066-\u2069]/.test(node.data)) continue;
      // An override ends with the block or the isolate that it is in: nothing else may stand there.
      let isolate = node.parentElement;
      while (getComputedStyle(isolate).display.startsWith("inline") && !/isolate|plaintext/.test(getComputedStyle(isolate).unicodeBidi)) isolate = isolate.parentElement;
      const beside = isolate.textContent.replace(node.data, "").trim();
      if (beside) found.push(`an override turns "${beside.slice(0, 60)}" in ${isolate.outerHTML.slice(0, 120)}`);
    }
    for (const row of document.querySelectorAll("main tr:not([aria-hidden]), main li")) if (row.getBoundingClientRect().height > 400) found.push(`a row of ${row.getBoundingClientRect().height} px: ${row.innerText.slice(0, 60)}`);
    return found;
  });

export const hostileChecks = {
  async nul_overrides_and_ten_thousand_characters_are_harmless_in_every_field({ gateway, browser }) {
    const server = await hostile();
    await gateway.api("POST", "providers", { id: "hostile", type: "compatible", base_url: `http://127.0.0.1:${server.address().port}/v1`, models: ["plain"] });
    await gateway.api("POST", "providers/hostile/sync").catch(() => {});
    const { id: project } = await gateway.api("POST", "projects", { name: "hosts" });
    const { key } = await gateway.api("POST", "keys", { name: "host", project });
    for (const [field, set] of Object.entries(fieldsOf(gateway, key, project))) {
      const statuses = [];
      for (const kind of KINDS) statuses.push(`${kind} ${await set(TEXTS[kind], kind).catch((error) => error.cause?.code ?? error.message)}`);
      console.log(`figure  ${field}: ${statuses.join(", ")}`);
    }
    const paths = await pagesOf(gateway, project);
    const faults = [];
    const look = async (width) => {
      const page = await browser.signedIn(gateway.key, "/settings", { width });
      for (const path of paths) {
        await page.goto(`${browser.origin}/console${path}`);
        await settled(page);
        faults.push(...(await harmed(page)).map((fault) => `${path}: ${fault}`));
        const over = await sideways(page);
        if (over) faults.push(`${path} at ${width} scrolls sideways by ${over}`);
      }
    };
    await Promise.all([look(1440), look(390)]);
    assert.deepEqual(faults, []);
    await names_of_files_are_harmless(gateway, browser);
    console.log(`figure  ${paths.length} pages with NUL, overrides and 10,000 characters`);
    server.close();
  },
};

/** The name of a file that is sent to be transcribed stands in both sides of the run. */
async function names_of_files_are_harmless(gateway, browser) {
  const page = await browser.signedIn(gateway.key, "/playground?path=transcription&model=hostile%2Fplain", { width: 390 });
  for (const name of ["turned \u202e txet.wav", `${"W".repeat(240)}.wav`]) {
    await page.goto(`${browser.origin}/console/playground?path=transcription&model=hostile%2Fplain`);
    await settled(page);
    await page.getByLabel("Recording").setInputFiles({ name, mimeType: "audio/wav", buffer: Buffer.from("RIFF") });
    await page.getByRole("button", { name: "Send Ctrl Enter", exact: true }).click();
    await page.locator(".result .answer, .result .code, .result [role=alert]").first().waitFor();
    for (const tab of ["Route trace", "What was sent", "Raw stream"]) {
      await page.getByRole("button", { name: tab, exact: true }).click();
      await settled(page);
      assert.equal(await sideways(page), 0, tab);
    }
  }
}
