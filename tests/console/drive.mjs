// Runs the checks of the console and counts them. Each table of checks has its own gateway; two tables run at a time, the long ones first.
// Those that measure times run alone, afterwards.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { amountChecks } from "./amounts.mjs";
import { basePathChecks } from "./base_path.mjs";
import { Browser } from "./browser.mjs";
import { checks } from "./checks.mjs";
import { deviceChecks } from "./device.mjs";
import { effectChecks } from "./effects.mjs";
import { extensionChecks } from "./extensions.mjs";
import { Gateway } from "./gateway.mjs";
import { hostileChecks } from "./hostile.mjs";
import { keyboardChecks } from "./keyboard.mjs";
import { listChecks } from "./lists.mjs";
import { longListChecks } from "./long_lists.mjs";
import { nodesChecks } from "./nodes.mjs";
import { numberChecks } from "./numbers.mjs";
import { alertChecks } from "./alerts.mjs";
import { operateChecks } from "./operate.mjs";
import { overviewChecks } from "./overview.mjs";
import { playgroundChecks } from "./playground.mjs";
import { priceChecks } from "./prices.mjs";
import { proofChecks } from "./proofs.mjs";
import { providerChecks } from "./provider.mjs";
import { requestChecks } from "./requests.mjs";
import { routeChecks } from "./routes.mjs";
import { sessionChecks } from "./sessions.mjs";
import { setupChecks } from "./setup.mjs";
import { speedChecks } from "./speed.mjs";
import { stateChecks } from "./states.mjs";
import { strangerChecks } from "./strangers.mjs";
import { usageChecks } from "./usage.mjs";

const [binary, home, chromium, ...only] = process.argv.slice(2);
/** The tables that run side by side, those that take longest first. */
const tables = [
  checks,
  stateChecks,
  keyboardChecks,
  proofChecks,
  strangerChecks,
  hostileChecks,
  setupChecks,
  alertChecks,
  playgroundChecks,
  overviewChecks,
  numberChecks,
  sessionChecks,
  effectChecks,
  requestChecks,
  routeChecks,
  operateChecks,
  usageChecks,
  priceChecks,
  providerChecks,
  listChecks,
  extensionChecks,
  nodesChecks,
  basePathChecks,
  deviceChecks,
];
/** The tables that measure times. */
const measured = [amountChecks, longListChecks, speedChecks];
const LANES = 2;
let passed = 0;
let failed = 0;
let gateways = 0;

const isChosen = ([name]) => only.length === 0 || only.some((part) => name.includes(part));
const chosen = (list) => list.map((table) => Object.entries(table).filter(isChosen)).filter((table) => table.length);
const started = performance.now();
const queue = chosen(tables);
await Promise.all(Array.from({ length: LANES }, () => runLane(queue)));
await runLane(chosen(measured));
console.log(`figure  all checks: ${seconds(started)} s`);
console.log(`console: ${passed} passed, ${failed} failed, 0 skipped`);
process.exit(failed ? 1 : 0);

/** Takes tables from the queue until it is empty, in a browser of its own. */
async function runLane(queue) {
  if (queue.length === 0) return;
  const browser = new Browser();
  await browser.start(chromium);
  for (let table = queue.shift(); table; table = queue.shift()) await runTable(browser, table);
  await browser.stop();
}

/** Runs checks against a gateway of their own, so that what they create is in no list of other tables. */
async function runTable(browser, table) {
  gateways += 1;
  const own = join(home, String(gateways));
  mkdirSync(own);
  const gateway = new Gateway(binary, own);
  await gateway.start();
  browser.origin = gateway.origin;
  for (const [name, check] of table) {
    const started = performance.now();
    browser.faults.length = 0;
    try {
      await check({ gateway, browser });
      if (browser.faults.length) throw new Error([...new Set(browser.faults)].join("\n"));
      passed += 1;
      console.log(`ok      ${name} (${seconds(started)} s)`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED  ${name}: ${error.stack}`);
    }
    await browser.leave();
  }
  await gateway.stop();
}

function seconds(since) {
  return ((performance.now() - since) / 1000).toFixed(1);
}
