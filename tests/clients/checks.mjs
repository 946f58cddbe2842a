// Shared by the Node suites: packages from the cache, the gateway's address, the facts of the scripts, and the check
// runner.
// The environment is common.py's.

import assert from "node:assert/strict";
import crypto from "node:crypto";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

export const ORIGIN = process.env.LLMGW_TEST_ORIGIN;
export const KEY = process.env.LLMGW_TEST_KEY;
export const DIRECT = process.env.LLMGW_TEST_DIRECT === "1";
export const STATE = process.env.LLMGW_TEST_STATE;
const PACKAGES = process.env.LLMGW_TEST_NODE;

export const HELLO = "Hello, wörld 🌍!";
export const ODD = 'Zoë 👩‍👩‍👧 \u2028 "quoted" \\ back\u00e9';
export const WEATHER = { Paris: "Rain, 7 degrees.", Oslo: "Snow, -3 degrees." };
export const TOLD = "It says: Rain, 7 degrees. Snow, -3 degrees.";
export const PIXEL =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
export const PICTURE = `image/png ${crypto.createHash("sha256").update(Buffer.from(PIXEL, "base64")).digest("hex")}`;
export const PARAMETERS = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
export const CITY = {
  type: "object",
  properties: { name: { type: "string" }, large: { type: "boolean" } },
  required: ["name", "large"],
  additionalProperties: false,
};
export const OSLO = { name: "Oslo", large: true };
export const vector = (text) => [...crypto.createHash("sha256").update(text).digest().subarray(0, 8)].map((byte) => byte / 256);

const require = createRequire(path.join(PACKAGES, "package.json"));

/** A package of the cache folder that setup.sh made. */
export async function load(name) {
  // Resolved like an import: some packages have no entry for `require`.
  const folder = path.join(PACKAGES, "node_modules", name);
  const manifest = JSON.parse(fs.readFileSync(path.join(folder, "package.json"), "utf8"));
  let entry = manifest.exports?.["."] ?? manifest.module ?? manifest.main;
  while (entry && typeof entry === "object") entry = entry.import ?? entry.node ?? entry.default ?? Object.values(entry)[0];
  return import(pathToFileURL(entry ? path.join(folder, entry) : require.resolve(name)));
}

export const versionOf = (name) =>
  JSON.parse(fs.readFileSync(path.join(PACKAGES, "node_modules", name, "package.json"), "utf8")).version;

const state = async () => (await fetch(STATE)).json();
/** What the upstream was asked last. */
export const last = async () => (await state()).last;
export const idle = async () => (await state()).open === 0;

export async function collect(stream) {
  const items = [];
  for await (const item of stream) items.push(item);
  return items;
}

export async function eventually(what, probe, seconds) {
  const deadline = performance.now() + seconds * 1000;
  while (!(await probe())) {
    assert.ok(performance.now() < deadline, `not within ${seconds} s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Waits for the rejection of `promise`, which must be an instance of `kind`, and returns it. */
export async function rejection(kind, promise) {
  try {
    await promise;
  } catch (error) {
    assert.ok(error instanceof kind, `${error} is no ${kind.name}`);
    return error;
  }
  assert.fail(`no ${kind.name}`);
}

/** Runs each check of `checks` on each of `targets` (name to model), then each of `once`; ends the process. */
export async function run(title, targets, checks, once = {}) {
  const jobs = [];
  for (const [name, check] of Object.entries(checks)) {
    for (const [target, model] of Object.entries(targets)) {
      const native = target.startsWith("native");
      jobs.push({ name: `${name} [${target}]`, gatewayOnly: !native, check: () => check(DIRECT ? "m" : model, target) });
    }
  }
  for (const [name, check] of Object.entries(once)) jobs.push({ name, gatewayOnly: name.startsWith("gateway_"), check });
  const count = { passed: 0, failed: 0, skipped: 0 };
  for (const { name, gatewayOnly, check } of jobs) {
    const started = performance.now();
    if (DIRECT && gatewayOnly) {
      count.skipped += 1;
      continue;
    }
    try {
      await check();
      count.passed += 1;
      console.log(`ok ${title} ${name} (${((performance.now() - started) / 1000).toFixed(2)} s)`);
    } catch (error) {
      count.failed += 1;
      console.log(`not ok ${title} ${name}: ${error}`);
      console.error(error);
    }
  }
  console.log(`${title}: ${count.passed} passed, ${count.failed} failed, ${count.skipped} skipped`);
  process.exit(count.failed === 0 && count.passed > 0 ? 0 : 1);
}
