// The checks of the page of nodes: gateways that share a real PostgreSQL, one that differs, one that stops, and one that is killed and forgotten.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { appendFileSync, cpSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { axe, settled, sideways } from "./browser.mjs";
import { press } from "./by_keyboard.mjs";
import { Gateway } from "./gateway.mjs";

const POSTGRES = fileURLToPath(new URL("../sdk/postgres.py", import.meta.url));
/** The secrets and the configuration file, which quickstart makes for the first node and the others have as well. */
const ALIKE = [".llmgw.secrets", ".llmgw/config.yaml"];

const button = (within, name) => within.getByRole("button", { name, exact: true });
const dialogOf = (page, name) => page.getByRole("dialog", { name, exact: true });
const fileOf = (node) => join(node.home, ".llmgw/config.yaml");
const digestOf = (node) => createHash("sha256").update(readFileSync(fileOf(node))).digest("hex");
/** The row of a node, as it is read: name, number, standing and what follows. */
const row = (page, name, what = "") => page.getByRole("row", { name: new RegExp(`^${name} ${what}`, "i") });

/** Starts a PostgreSQL of its own; its `end` waits until it has removed its data. */
async function startPostgres() {
  const child = spawn("python3", [POSTGRES], { stdio: ["pipe", "pipe", "inherit"] });
  const ended = once(child, "exit");
  const printed = once(child.stdout, "data").then(([line]) => String(line).trim());
  const url = await Promise.race([printed, ended.then(([code]) => Promise.reject(new Error(`PostgreSQL ended with ${code}`)))]);
  const end = async () => {
    child.stdin.end();
    await ended;
  };
  return { url, end };
}

/** Gateways that share a database. */
class Cluster {
  nodes = [];

  constructor({ binary, home }, name) {
    this.binary = binary;
    this.home = join(home, name);
  }

  async start() {
    this.postgres = await startPostgres();
  }

  /** Starts the next node; `line` is added to its configuration file. */
  async join(line = "") {
    const name = `n${this.nodes.length + 1}`;
    const home = join(this.home, name);
    mkdirSync(join(home, ".llmgw"), { recursive: true });
    const node = new Gateway(this.binary, home, { LLMGW_DATABASE_URL: this.postgres.url, LLMGW_NODE_NAME: name });
    const [first] = this.nodes;
    for (const file of first ? ALIKE : []) cpSync(join(first.home, file), join(home, file));
    if (line) appendFileSync(fileOf(node), line);
    await node.start();
    this.nodes.push(node);
    return node;
  }

  /** Kills a node, as a machine that loses its power. */
  async kill(node) {
    const ended = once(node.child, "exit");
    node.child.kill("SIGKILL");
    await ended;
  }

  async end() {
    for (const node of this.nodes) if (node.child.exitCode === null && node.child.signalCode === null) await node.stop();
    await this.postgres.end();
  }
}

/** Runs a check at the first node of a new cluster. */
async function withCluster({ gateway, browser }, name, check) {
  const cluster = new Cluster(gateway, name);
  await cluster.start();
  try {
    const first = await cluster.join();
    const stop = () => {};
    await browser.visit({ origin: first.origin, stop }, () => check(cluster, first));
  } finally {
    await cluster.end();
  }
}

/** Serves a request of a limited caller at a node, which takes a share of the limit for it. */
async function takeShare(first, node) {
  const { id: project } = await first.api("POST", "projects", { name: "blue" });
  await first.api("POST", "quotas", { subject: { kind: "project", id: project }, metric: "requests", window: "day", limit: 1_000 });
  const { key } = await first.api("POST", "keys", { name: "blue key", project });
  const statuses = [];
  // The key may be in force at the other node a moment later.
  while (statuses.at(-1) !== 200) {
    assert.ok(statuses.length < 50, `the node serves the key: ${statuses}`);
    statuses.push(await node.chat(key, "smart", "hi"));
    if (statuses.at(-1) !== 200) await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** What is wrong with the page as it stands, wide and light, then narrow and dark. */
async function faultsOf(page) {
  const faults = [];
  for (const [width, colorScheme] of [[1440, "light"], [390, "dark"]]) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width, height: 900 });
    faults.push(...(await axe(page)).map((fault) => `${width}: ${fault}`));
    const over = await sideways(page);
    if (over) faults.push(`${width}: scrolls sideways by ${over}`);
  }
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 1440, height: 900 });
  return faults;
}

/** The cells that are narrower than their text. */
const cut = (page) =>
  page.evaluate(() => [...document.querySelectorAll(".table-place td, .table-place th")].filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.textContent));

/** What a page in the background asks of the gateway in a minute. It goes on when it is seen again. */
async function askedInBackground(context, url) {
  const page = await context.newPage();
  await page.clock.install();
  await page.goto(url);
  await page.getByText("nodes are live").waitFor();
  await settled(page);
  const asked = [];
  const note = (request) => asked.push(request.url());
  const hide = (isHidden) => page.evaluate((value) => Object.defineProperty(document, "hidden", { value, configurable: true }), isHidden);
  await hide(true);
  page.on("request", note);
  await page.clock.runFor(60_000);
  page.off("request", note);
  await hide(false);
  const again = page.waitForRequest("**/admin/api/nodes");
  await page.clock.runFor(5_000);
  await again;
  await page.close();
  return asked;
}

export const nodesChecks = {
  async a_killed_node_is_noticed_without_a_reload_and_forgotten_by_keyboard({ gateway, browser }) {
    await withCluster({ gateway, browser }, "killed", async (cluster, first) => {
      const second = await cluster.join();
      await takeShare(first, second);
      const { version } = await first.api("GET", "state");
      const page = await browser.signedIn(first.key, "/");
      await page.locator("nav[aria-label=Console]").getByRole("link", { name: "Nodes", exact: true }).click();
      const alike = `current stored in step ${version} ${digestOf(first).slice(0, 10)}`;
      await row(page, "n1", `1, answers live now ${alike}$`).waitFor();
      await row(page, "n2", `2 live now ${alike}$`).waitFor();
      await page.getByText("2 of 2 nodes are live", { exact: true }).waitFor();
      assert.deepEqual(await faultsOf(page), []);

      const link = page.getByRole("link", { name: "n2 2" });
      await press(page, link);
      const details = dialogOf(page, "Node n2");
      for (const text of [digestOf(second), "It is heard of.", "1,000 requests a day"]) await details.getByText(text).waitFor();
      assert.equal(await button(details, "Forget the node…").count(), 0, "a live node cannot be forgotten");
      await page.evaluate(() => Object.assign(globalThis, { wasReloaded: false }));

      await cluster.kill(second);
      const killed = performance.now();
      await details.getByText("It was not heard of for some seconds, and may still serve by an earlier state.").waitFor();
      console.log(`figure  a killed node is shown as silent after: ${((performance.now() - killed) / 1000).toFixed(1)} s`);
      assert.deepEqual(await faultsOf(page), []);
      await page.keyboard.press("Escape");
      await details.waitFor({ state: "detached" });
      await row(page, "n2", String.raw`2 silent \d+ s ago`).waitFor();
      await page.getByText("1 of 2 nodes is live", { exact: true }).waitFor();
      assert.equal(await page.evaluate(() => globalThis.wasReloaded), false, "without a reload");
      assert.deepEqual(await faultsOf(page), []);

      await press(page, link);
      await press(page, button(details, "Forget the node…"));
      const question = dialogOf(page, "Forget the node n2?");
      await question.getByText("Usage that it has not stored is lost.").waitFor();
      const choices = question.getByRole("group", { name: "What it has unused of limits" }).getByRole("button");
      assert.deepEqual(await choices.allInnerTexts(), ["Count as used", "Give back"]);
      assert.equal(await choices.first().getAttribute("aria-pressed"), "true");
      await question.getByText("No limit is exceeded.").waitFor();
      assert.deepEqual(await faultsOf(page), []);
      await press(page, choices.last());
      await question.getByText("Others may use it now. A limit is exceeded by what the node has used and not stored").waitFor();
      assert.equal(await choices.first().getAttribute("aria-pressed"), "false");
      await press(page, button(question, "Forget"));
      await page.getByText("n2 is forgotten, and 1 limit got back what it had unused").waitFor();
      await question.waitFor({ state: "detached" });
      await row(page, "n2").waitFor({ state: "detached" });
      await page.getByText("1 of 1 node is live", { exact: true }).waitFor();
      assert.deepEqual((await first.api("GET", "nodes")).data.map(({ name }) => name), ["n1"]);

      await page.locator("nav[aria-label=Console]").getByRole("link", { name: "Audit", exact: true }).click();
      const change = page.getByRole("row").filter({ hasText: "node.forget" }).filter({ hasText: "done" });
      await press(page, change.locator("a.row-link"));
      const record = dialogOf(page, "node.forget");
      for (const [field, value] of [["name", "n2"], ["unused", "release"], ["released_limits", "1"]]) {
        await record.getByRole("row", { name: new RegExp(`^${field} .*${value}$`) }).waitFor();
      }
    });
  },

  async a_node_with_another_file_is_marked_and_one_that_has_stopped_is_not_called_lost({ gateway, browser }) {
    await withCluster({ gateway, browser }, "differing", async (cluster, first) => {
      await cluster.join();
      const page = await browser.signedIn(first.key, "/nodes");
      await page.getByText("2 of 2 nodes are live", { exact: true }).waitFor();
      assert.equal(await page.getByText("differs").count(), 0);
      const third = await cluster.join("# Another file.\n");
      assert.notEqual(digestOf(third), digestOf(first));
      await row(page, "n3", `3 live .*differs: ${digestOf(third).slice(0, 10)}$`).waitFor();
      assert.equal(await page.getByText("differs").count(), 1, "most nodes have the usual file");
      assert.deepEqual(await cut(page), []);
      assert.deepEqual(await faultsOf(page), []);

      await third.stop();
      await row(page, "n3", `3 stopped .*${digestOf(third).slice(0, 10)}$`).waitFor();
      await page.getByText("2 of 3 nodes are live", { exact: true }).waitFor();
      await press(page, page.getByRole("link", { name: "n3 3" }));
      const details = dialogOf(page, "Node n3");
      await details.getByText("It has stopped in order, and given back what it had of limits.").waitFor();
      await press(page, button(details, "Forget the node…"));
      const question = dialogOf(page, "Forget the node n3?");
      await question.getByText("It has stopped in order, so nothing is lost.").waitFor();
      assert.equal(await question.getByRole("group").count(), 0, "it has nothing unused to decide about");
      assert.deepEqual(await faultsOf(page), []);
      // Escape leads back to the node, then to its row.
      await page.keyboard.press("Escape");
      await details.waitFor();
      await page.keyboard.press("Escape");
      await details.waitFor({ state: "detached" });
      assert.ok(await page.getByRole("link", { name: "n3 3" }).evaluate((link) => link === document.activeElement), "the row has the focus again");
      await settled(page);
      assert.deepEqual((await first.api("GET", "nodes")).data.map(({ name }) => name), ["n1", "n2", "n3"], "nothing is forgotten");
      assert.deepEqual(await askedInBackground(page.context(), `${browser.origin}/console/nodes`), []);
    });
  },
};
