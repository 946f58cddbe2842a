// The checks of how fast pages appear, and that nothing moves while they do. Times are printed, and bounded only so far as a
// loaded machine allows.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { brotliCompressSync, constants } from "node:zlib";

import { settled } from "./browser.mjs";

/** The promise is 400 ms on a quiet machine. */
const PAINT_MS_MAX = 2_000;
/** The promise is 100 ms on a quiet machine. */
const NEXT_MS_MAX = 1_000;
/** A page that moves on each of so many loads moves; once it may have waited for a loaded machine. */
const LOADS = 4;

/** Loads a page. Returns the first contentful paint in milliseconds and the layout shift of its first second. */
async function load(page, url) {
  await page.goto(url);
  await settled(page);
  return page.evaluate(
    () =>
      new Promise((resolve) => {
        let shift = 0;
        const add = (list) => {
          for (const entry of list.getEntries()) if (!entry.hadRecentInput) shift += entry.value;
        };
        new PerformanceObserver(add).observe({ type: "layout-shift", buffered: true });
        setTimeout(() => resolve([performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0, shift]), 100);
      }),
  );
}

/** The pages of the navigation and one of each object. */
async function pathsOf(gateway) {
  const { id } = await gateway.api("POST", "projects", { name: "swift" });
  const made = await gateway.api("POST", "keys", { name: "swift", project: id });
  for (let n = 0; n < 3; n += 1) await gateway.chat(made.key, "smart", "hi", n > 0);
  const { data } = await gateway.api("GET", "requests?limit=1");
  return [
    "/", "/requests", `/requests/${data[0].request_id}`, "/usage", "/usage?by=key&period=24h", "/providers", "/providers/echo", "/routes", "/routes/smart", "/models",
    "/playground", "/access", "/access?tab=humans", `/access/projects/${id}`, "/keys", `/keys/${made.id}`, `/keys/${made.id}/access`, "/quotas", "/connect", "/alerts", "/alerts/rules", "/webhooks", "/outbox", "/audit", "/backups", "/settings", "/setup",
  ];
}

export const speedChecks = {
  async pages_appear_early_and_nothing_moves_while_they_do({ gateway, browser }) {
    const paths = await pathsOf(gateway);
    const faults = [];
    const work = async (own) => {
      const page = await browser.signedIn(gateway.key, "/settings");
      for (const path of own) {
        let [paint, shift] = [Infinity, Infinity];
        for (let n = 0; n < LOADS && shift > 0; n += 1) {
          const loaded = await load(page, `${browser.origin}/console${path}`);
          [paint, shift] = [Math.min(paint, loaded[0]), Math.min(shift, loaded[1])];
        }
        console.log(`figure  ${path}: first contentful paint ${Math.round(paint)} ms, layout shift ${shift.toFixed(4)}`);
        if (paint > PAINT_MS_MAX) faults.push(`${path}: ${paint} ms to the first paint`);
        if (shift > 0) faults.push(`${path} moves by ${shift} on each of ${LOADS} loads`);
      }
    };
    await Promise.all([work(paths.filter((_, i) => i % 2 === 1)), work(paths.filter((_, i) => i % 2 === 0))]);
    assert.deepEqual(faults, []);
  },

  async the_next_page_appears_at_once({ gateway, browser }) {
    const page = await browser.signedIn(gateway.key, "/");
    const times = [];
    for (const title of ["Requests", "Usage", "Providers", "Routes", "Models", "API keys", "Audit", "Settings", "Overview"]) {
      await settled(page);
      const took = await page.evaluate(
        (title) =>
          new Promise((resolve) => {
            const began = performance.now();
            const look = () => {
              if (document.querySelector("main h1")?.textContent === title) requestAnimationFrame(() => resolve(performance.now() - began));
              else requestAnimationFrame(look);
            };
            [...document.querySelectorAll("nav[aria-label=Console] a")].find((link) => link.textContent.trim() === title).click();
            look();
          }),
        title,
      );
      times.push(Math.round(took));
    }
    console.log(`figure  next page: ${times.join(", ")} ms`);
    assert.ok(Math.min(...times) <= NEXT_MS_MAX, `${times} ms`);
  },

  async the_files_are_as_small_as_promised() {
    const folder = new URL("../../console/dist/", import.meta.url);
    const sizes = { js: 0, css: 0, woff2: 0, all: 0 };
    for (const name of readdirSync(folder, { recursive: true })) {
      const extension = /\.(\w+)$/.exec(name)?.[1];
      if (!extension) continue;
      const bytes = readFileSync(new URL(name, folder));
      const packed = extension === "woff2" ? bytes : brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } });
      sizes[extension] = (sizes[extension] ?? 0) + packed.length;
      sizes.all += packed.length;
    }
    console.log(`figure  compressed bytes: ${JSON.stringify(sizes)}`);
    for (const [kind, max] of [["js", 120_000], ["css", 14_000], ["woff2", 32_000], ["all", 300_000]]) assert.ok(sizes[kind] <= max, `${kind}: ${sizes[kind]} of ${max} bytes`);
  },
};
