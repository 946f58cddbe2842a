// Runs the checks of the console, one after the other, and counts them. Each table of checks has its own gateway.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { amountChecks } from "./amounts.mjs";
import { Browser } from "./browser.mjs";
import { checks } from "./checks.mjs";
import { effectChecks } from "./effects.mjs";
import { extensionChecks } from "./extensions.mjs";
import { Gateway } from "./gateway.mjs";
import { keyboardChecks } from "./keyboard.mjs";
import { numberChecks } from "./numbers.mjs";
import { alertChecks } from "./alerts.mjs";
import { operateChecks } from "./operate.mjs";
import { overviewChecks } from "./overview.mjs";
import { playgroundChecks } from "./playground.mjs";
import { proofChecks } from "./proofs.mjs";
import { requestChecks } from "./requests.mjs";
import { routeChecks } from "./routes.mjs";
import { sessionChecks } from "./sessions.mjs";
import { setupChecks } from "./setup.mjs";
import { speedChecks } from "./speed.mjs";
import { stateChecks } from "./states.mjs";
import { strangerChecks } from "./strangers.mjs";
import { usageChecks } from "./usage.mjs";

const [binary, home, chromium, ...only] = process.argv.slice(2);
const browser = new Browser();
await browser.start(chromium);
let passed = 0;
let failed = 0;
const tables = [
  setupChecks,
  overviewChecks,
  effectChecks,
  requestChecks,
  routeChecks,
  alertChecks,
  operateChecks,
  extensionChecks,
  usageChecks,
  playgroundChecks,
  proofChecks,
  sessionChecks,
  speedChecks,
  stateChecks,
  keyboardChecks,
  strangerChecks,
  amountChecks,
  numberChecks,
  checks,
];
const isChosen = ([name]) => only.length === 0 || only.some((part) => name.includes(part));
for (const [number, table] of tables.entries()) {
  const chosen = Object.entries(table).filter(isChosen);
  if (chosen.length) await runTable(join(home, String(number)), chosen);
}

/** Runs checks against a gateway of their own, so that what they create is in no list of other tables. */
async function runTable(home, chosen) {
  mkdirSync(home);
  const gateway = new Gateway(binary, home);
  await gateway.start();
  browser.origin = gateway.origin;
  for (const [name, check] of chosen) {
    const started = performance.now();
    browser.faults.length = 0;
    try {
      await check({ gateway, browser });
      if (browser.faults.length) throw new Error([...new Set(browser.faults)].join("\n"));
      passed += 1;
      console.log(`ok      ${name} (${Math.round(performance.now() - started)} ms)`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED  ${name}: ${error.stack}`);
    }
    for (const context of browser.browser.contexts()) await context.close().catch(() => {});
  }
  await gateway.stop();
}

await browser.stop();
console.log(`console: ${passed} passed, ${failed} failed, 0 skipped`);
process.exit(failed ? 1 : 0);
