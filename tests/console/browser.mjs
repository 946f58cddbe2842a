// Chromium, and everything that a page of the console must not do: log errors, ask other origins, break its policy.

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const require = createRequire(new URL("../../console/ui/package.json", import.meta.url));
const { chromium } = require("playwright-core");
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

/** The roles of controls, whose names are what a screen reader says. */
const NAMED = new Set(["button", "checkbox", "combobox", "link", "menuitem", "option", "radio", "searchbox", "slider", "switch", "tab", "textbox"]);

export class Browser {
  /** What went wrong on any page. */
  faults = [];
  /** Faults of a gateway that does not answer are expected while it is stopped. */
  isStopped = false;

  async start(executablePath, origin = "") {
    this.origin = origin;
    const args = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--no-proxy-server"];
    this.browser = await chromium.launch({ executablePath, args });
  }

  async context({ width = 1440, theme = "light", timezone } = {}) {
    const context = await this.browser.newContext({ viewport: { width, height: 900 }, colorScheme: theme, timezoneId: timezone });
    context.setDefaultTimeout(30_000);
    const { origin: own } = this;
    context.on("request", (request) => {
      const url = new URL(request.url());
      if (url.origin !== own) this.faults.push(`a request to ${url.origin}`);
    });
    context.on("page", (page) => this.watch(page));
    await context.exposeBinding("reportPolicy", (_source, text) => this.faults.push(`policy: ${text}`));
    await context.addInitScript(() => {
      document.addEventListener("securitypolicyviolation", (event) => globalThis.reportPolicy(`${event.violatedDirective} ${event.blockedURI}`));
    });
    return context;
  }

  watch(page) {
    follow(page);
    page.on("pageerror", (error) => this.faults.push(`error: ${error.message}`));
    page.on("dialog", async (dialog) => {
      this.faults.push(`a dialog: ${dialog.message()}`);
      await dialog.dismiss();
    });
    page.on("console", (message) => {
      const { url } = message.location();
      // Chromium logs each answer that is an error; the checks cause these on purpose. A run has the data plane's status.
      const isAnswer = message.text().startsWith("Failed to load resource") && (this.isStopped || /status of (40[01349]|412|429)/.test(message.text()) || /\/admin\/api\/run\//.test(url));
      if (message.type() === "error" && !isAnswer) this.faults.push(`console: ${message.text()} ${url}`);
    });
  }

  /** A page that is signed in, at a path below /console. The session is opened without the form, which takes longer. */
  async signedIn(key, path, options) {
    const context = await this.context(options);
    const opened = await context.request.post(`${this.origin}/admin/api/session`, { data: { key } });
    if (!opened.ok()) throw new Error(`no session: ${opened.status()} ${await opened.text()}`);
    const page = await context.newPage();
    await page.goto(`${this.origin}/console${path}`);
    await page.locator("main h1").first().waitFor();
    return page;
  }

  /** Closes all pages; none asks a gateway that is about to stop. */
  async leave() {
    for (const context of this.browser.contexts()) await context.close().catch(() => {});
  }

  /** Runs a check against another gateway, and stops that. */
  async visit(gateway, check) {
    const before = this.origin;
    this.origin = gateway.origin;
    try {
      return await check();
    } finally {
      await this.leave();
      this.origin = before;
      await gateway.stop();
    }
  }

  stop() {
    return this.browser.close();
  }
}

export async function signIn(page, key) {
  await page.getByLabel("Administrator key").fill(key);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("dialog", { name: "Sign in to llmgw" }).waitFor({ state: "detached" });
}

/** Chooses an object in a field that searches on the server; `option` is how its name begins there. */
export async function choose(within, label, text, option = text) {
  await within.getByRole("combobox", { name: label, exact: true }).last().fill(text);
  const begins = new RegExp(`^${option.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}`);
  await within.getByRole("listbox", { name: `${label}: suggestions` }).getByRole("option", { name: begins }).first().click();
}

/** The requests of each page that have no answer yet, without live streams, and the time of the last change. */
const traffic = new WeakMap();

function follow(page) {
  const of = { open: new Set(), changedAt: performance.now() };
  traffic.set(page, of);
  const changed = () => (of.changedAt = performance.now());
  page.on("request", (request) => {
    if (request.resourceType() !== "eventsource") of.open.add(request);
    changed();
  });
  for (const end of ["requestfinished", "requestfailed"]) page.on(end, (request) => of.open.delete(request) && changed());
  return of;
}

/** A page that is idle asks for more within this time after an answer, if at all. */
const QUIET_MS = 120;

/** Waits until what the page reads is there. */
export async function settled(page) {
  const of = traffic.get(page) ?? follow(page);
  for (;;) {
    await page.waitForFunction(() => document.readyState === "complete" && document.querySelector("[aria-busy=true]") === null);
    // On a busy machine an answer is taken late: the page is idle only after that.
    await page.evaluate(() => new Promise((resolve) => requestIdleCallback(() => requestIdleCallback(resolve, { timeout: 1_000 }), { timeout: 1_000 })));
    const left = QUIET_MS - (performance.now() - of.changedAt);
    if (of.open.size === 0 && left <= 0) return;
    await page.waitForTimeout(Math.max(left, 20));
  }
}

/** The violations of axe-core's rules, and controls without a name in Chromium's accessibility tree, as lines. */
export async function axe(page) {
  const found = await violations(page);
  if (found.length === 0) return found;
  // A button that was changing its colour meanwhile, because an answer enabled it, has too little contrast until it has changed.
  await settled(page);
  return violations(page);
}

/** A dialog that still fades in would have too little contrast. */
async function violations(page) {
  await page.evaluate(() => Promise.allSettled(document.getAnimations().map((animation) => animation.finished)));
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(AXE);
  const broken = await page.evaluate(async (tags) => {
    const { violations } = await globalThis.axe.run(document, { runOnly: tags, resultTypes: ["violations"] });
    return violations.flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) => `${id} at ${target.join(" ")}: ${failureSummary}`));
  }, TAGS);
  return [...broken, ...(await nameless(page))];
}

/** Controls that a screen reader would announce without a name: axe-core takes names that Chromium does not. */
async function nameless(page) {
  const session = await page.context().newCDPSession(page);
  const { nodes } = await session.send("Accessibility.getFullAXTree");
  await session.detach();
  const controls = nodes.filter(({ ignored, role, name }) => !ignored && NAMED.has(role?.value) && !name?.value);
  return controls.map(({ role, properties }) => `a ${role.value} without a name in the accessibility tree: ${JSON.stringify(properties)}`);
}

/** How far the page scrolls sideways, in pixels. */
export const sideways = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
