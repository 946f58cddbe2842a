// The check of a gateway that a reverse proxy publishes below a path of a host: nothing asks for another path of that host.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { createServer, request as send } from "node:http";
import { join } from "node:path";

import { settled, signIn } from "./browser.mjs";
import { Gateway } from "./gateway.mjs";

const BASE = "/tools/llm";

/** A proxy that passes on what is below the path, and notes what else is asked of its host. */
async function publish(gateway, others) {
  const proxy = createServer((asked, answer) => {
    if (!asked.url.startsWith(`${BASE}/`)) {
      others.push(asked.url);
      answer.writeHead(404).end();
      return;
    }
    const { method, url: path, headers } = asked;
    const passed = send({ host: "127.0.0.1", port: gateway.port, method, path, headers }, (given) => given.pipe(answer.writeHead(given.statusCode, given.headers)));
    passed.on("error", () => answer.destroy());
    answer.on("close", () => passed.destroy());
    asked.pipe(passed);
  });
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  return proxy;
}

export const basePathChecks = {
  async below_a_path_of_a_shared_host_every_page_works_and_asks_for_nothing_else({ gateway, browser }) {
    const home = join(gateway.home, "below");
    mkdirSync(home);
    const below = new Gateway(gateway.binary, home, { LLMGW_BASE_PATH: BASE });
    await below.start();
    const others = [];
    const proxy = await publish(below, others);
    const origin = `http://127.0.0.1:${proxy.address().port}`;
    try {
      await browser.visit({ origin, stop: () => below.stop() }, async () => {
        const page = await (await browser.context()).newPage();
        await page.goto(`${origin}${BASE}/console/keys`);
        await signIn(page, below.key);
        await page.getByRole("heading", { name: "Keys", level: 1 }).waitFor();
        for (const name of ["Requests", "Usage", "Providers", "Models", "Overview"]) {
          await page.locator("nav[aria-label=Console]").getByRole("link", { name, exact: true }).click();
          await settled(page);
          assert.ok(new URL(page.url()).pathname.startsWith(`${BASE}/console/`), page.url());
        }
        await page.getByText("Live", { exact: true }).first().waitFor();
        await page.goto(`${origin}${BASE}/console/connect`);
        await settled(page);
        assert.ok((await page.locator("main").innerText()).includes(`${origin}${BASE}`), "clients are told the whole address");
        await page.reload();
        await page.getByRole("heading", { level: 1 }).waitFor();
        assert.equal(await page.evaluate(() => document.fonts.ready.then((fonts) => [...fonts].some((font) => font.status === "loaded"))), true, "fonts are loaded");
      });
      assert.deepEqual(others, []);
    } finally {
      proxy.closeAllConnections();
      proxy.close();
    }
  },
};
