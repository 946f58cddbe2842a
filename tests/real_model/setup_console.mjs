// usage: setup_console.mjs GATEWAY ADMINISTRATOR-KEY MODEL-SERVER CHROMIUM   does the set-up of the console at an empty gateway in
// Chromium, by keyboard alone, with a real model. Then the official OpenAI SDK runs the text that the page has copied, and the page ticks its check.

import assert from "node:assert/strict";

import { Browser, settled } from "../console/browser.mjs";
import { arrived, pointerEvents, press, tabTo, type, watchPointer } from "../console/by_keyboard.mjs";
import { runSnippet } from "../console/sdk.mjs";

const [origin, key, modelServer, chromium] = process.argv.slice(2);
/** A model server that shares the machine with other tests may be slow. */
const ANSWER_MS = 120_000;
const MODEL = "smollm2-135m";

const browser = new Browser();
await browser.start(chromium, origin);
const context = await browser.context();
await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin });
await watchPointer(context);
const page = await context.newPage();
const button = (name) => page.getByRole("button", { name, exact: true });
const field = (name) => page.getByLabel(name, { exact: true });

const began = performance.now();
await page.goto(`${origin}/console/setup`);
await type(page, field("Administrator key"), key);
await page.keyboard.press("Enter");
await page.locator("#step-access[aria-expanded=true]").waitFor();
await settled(page);

await type(page, field("Name").first(), "Ada");
await type(page, field("Name").last(), "pioneers");
await page.keyboard.press("Enter");
await page.getByText("Ada is owner of pioneers.").waitFor();
await arrived(page, "providers");

await press(page, button("llama.cpp server on a machine of yours"));
await type(page, field("Name"), "local");
await type(page, page.getByLabel(/^Base URL/), modelServer);
await page.keyboard.press("Enter");
await arrived(page, "sync");

await page.getByText(/^Read 1 model at /).waitFor();
await page.getByText("Catalog access alone does not prove inference entitlement.").waitFor();
await press(page, button("Go on"));
await arrived(page, "test");

await tabTo(page, field("Model"));
assert.equal(await field("Model").inputValue(), MODEL);
await press(page, button("Test completion"));
await page.getByText("answered “").waitFor({ timeout: ANSWER_MS });
await page.getByRole("list", { name: "Evidence" }).getByText(`Inference proven by ${MODEL}`).waitFor();
const proven = performance.now();
await press(page, button("Go on"));
await arrived(page, "routes");

await page.getByRole("button", { name: `Remove local/${MODEL}` }).waitFor();
await type(page, field("Named endpoint"), "main");
await page.keyboard.press("Enter");
await page.getByText("Clients can ask for main.").waitFor();
await arrived(page, "keys");

await type(page, field("Name"), "ada-laptop");
await press(page, button("Mint key"));
await page.getByText("This key opens the gateway. Copy it now.").waitFor();
await press(page, button("I have copied it"));
await arrived(page, "client");

await page.getByText("Give clients project keys, never the administrator key.").first().waitFor();
await page.getByText("Waiting for the first request with this key…").waitFor();
await press(page, page.getByRole("link", { name: "OpenAI SDK, Node" }));
await page.getByRole("group", { name: "Text for OpenAI SDK, Node" }).waitFor();
await press(page, page.locator("button", { hasText: /^Copy$/ }));
await page.getByText("Copied", { exact: true }).waitFor();
const text = await page.evaluate(() => navigator.clipboard.readText());
const ready = performance.now();
const answer = await runSnippet(text);
assert.ok(answer.trim().length > 0, "the model's answer is empty");
const check = page.getByRole("region", { name: "Check" });
await check.getByText("got its first answer in").waitFor({ timeout: ANSWER_MS });
for (const stage of ["Arrived", "Key accepted", "Model found", "Answered", "Streamed"]) await check.getByRole("listitem").getByText(`${stage}, yes`).waitFor();
await page.getByText("The gateway is set up.").waitFor();
const ended = performance.now();

assert.equal(await pointerEvents(page), 0, "a pointer was used");
assert.deepEqual(browser.faults, []);
await browser.stop();
const ms = (from, to) => `${Math.round(to - from)} ms`;
console.log(`figure  set-up by keyboard alone with a real model, from the page to the ticked check: ${ms(began, ended)} (to the proven model ${ms(began, proven)}, the SDK's request ${ms(ready, ended)})`);
