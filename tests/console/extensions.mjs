// The check of extensions: the reference extension is added, probed, connected and used, all from the console.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { axe } from "./browser.mjs";

const EXAMPLE = fileURLToPath(new URL("../../docs/examples/extension.py", import.meta.url));
const SECRET = `whsec_${Buffer.alloc(32, 7).toString("base64")}`;
const button = (page, name) => page.getByRole("button", { name, exact: true });

/** Waits until the socket at `path` takes connections. */
async function listens(path) {
  for (;;) {
    const found = await new Promise((resolve) => {
      const line = connect(path, () => resolve(true)).on("error", () => resolve(false));
      line.on("connect", () => line.destroy());
    });
    if (found) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export const extensionChecks = {
  async an_extension_is_added_probed_connected_and_deleted({ gateway, browser }) {
    const folder = mkdtempSync(join(tmpdir(), "llmgw-extension-"));
    const socket = join(folder, "e.sock");
    const child = spawn("python3", [EXAMPLE, `unix:${socket}`], { env: { PATH: process.env.PATH, LLMGW_SECRET: SECRET }, stdio: "ignore" });
    try {
      await listens(socket);
      const page = await browser.signedIn(gateway.key, "/providers?tab=extensions");
      await page.getByText("There is no extension").waitFor();
      await page.locator("button[data-new]").press("Enter");
      await page.getByLabel("Name").fill("words");
      await page.getByLabel("URL").fill("no address");
      await button(page, "Make a secret").press("Enter");
      const made = await page.getByLabel("Shared secret").inputValue();
      assert.equal(Buffer.from(made.replace("whsec_", ""), "base64").length, 32);
      await page.getByText(made).waitFor();
      await page.getByLabel("Shared secret").fill(SECRET);
      await button(page, "Add and probe").press("Enter");
      await page.getByText(/url must be an address/).first().waitFor();
      assert.deepEqual(await axe(page), []);
      await page.getByLabel("URL").fill(`unix:${socket}`);
      await button(page, "Add and probe").press("Enter");
      const details = page.getByRole("dialog", { name: "Extension words" });
      await details.getByText("Words", { exact: true }).waitFor();
      await details.getByText("chat; 1 model: echo").waitFor();
      assert.deepEqual(await axe(page), []);
      assert.ok(!(await page.content()).includes(SECRET), "the secret is not shown");
      await button(details, "Connect").press("Enter");
      await page.waitForURL(/\/providers\/words$/);
      await gateway.api("POST", "providers/words/sync", {});
      const { answer } = await gateway.api("POST", "providers/words/test", { model: "echo" });
      assert.equal(answer, "Reply with the one word: pong");
      const list = await browser.signedIn(gateway.key, "/providers?tab=extensions");
      await list.getByRole("link", { name: "words" }).press("Enter");
      const again = list.getByRole("dialog", { name: "Extension words" });
      await again.getByRole("link", { name: "words" }).waitFor();
      await button(again, "Delete").press("Enter");
      const question = list.getByRole("dialog", { name: "Delete the extension?" });
      await button(question, "Delete").click();
      await question.getByText("Providers use it: words. Delete them first.").first().waitFor();
      await gateway.api("DELETE", "providers/words");
      await button(question, "Delete").click();
      await list.getByText("There is no extension").waitFor();
    } finally {
      child.kill();
      rmSync(folder, { recursive: true });
    }
  },
};
