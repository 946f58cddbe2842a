// The check of the sign-in of a client: its link leads to the page on which a person approves it, and the client gets its key.

import assert from "node:assert/strict";
import { appendFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";

import { axe, choose, settled, sideways, signIn } from "./browser.mjs";
import { Gateway } from "./gateway.mjs";

const GRANT = "urn:ietf:params:oauth:grant-type:device_code";

async function form(gateway, path, fields) {
  const response = await fetch(`${gateway.origin}${path}`, { method: "POST", body: new URLSearchParams(fields) });
  return response.json();
}

export const deviceChecks = {
  async a_client_signs_in_after_a_person_has_compared_its_code_and_approved({ gateway, browser }) {
    const home = join(gateway.home, "device");
    mkdirSync(home);
    const own = new Gateway(gateway.binary, home);
    await own.start();
    await own.stop();
    appendFileSync(join(home, ".llmgw", "config.yaml"), "\nclaude_code: {sign_in: true}\n");
    await own.start();
    await browser.visit(own, async () => {
      const begun = await form(own, "/oauth/device_authorization", { surface: "claude_code" });
      await own.api("POST", "projects", { name: "blue" });
      await own.api("POST", "projects", { name: "green" });
      const page = await (await browser.context()).newPage();
      await page.goto(begun.verification_uri_complete);
      await signIn(page, own.key);
      await page.getByRole("heading", { name: "Approve this sign-in?" }).waitFor();
      await page.getByText(begun.user_code, { exact: true }).waitFor();
      assert.deepEqual(await axe(page), []);
      assert.equal(await sideways(page), 0);
      assert.ok(await page.getByRole("button", { name: "Approve", exact: true }).isDisabled(), "without a project");
      await choose(page, "Project", "blue");
      await settled(page);
      await page.getByRole("button", { name: "Approve", exact: true }).click();
      await page.getByRole("heading", { name: "Approved" }).waitFor();
      const token = await form(own, "/oauth/token", { grant_type: GRANT, device_code: begun.device_code });
      assert.match(token.access_token, /^llmgw_/);

      const other = await form(own, "/oauth/device_authorization", {});
      await page.goto(`${own.origin}/device`);
      await page.getByLabel("Code", { exact: true }).fill(other.user_code.toLowerCase().replace("-", " "));
      await page.getByRole("button", { name: "Continue" }).click();
      await page.getByRole("button", { name: "Deny" }).click();
      await page.getByRole("heading", { name: "Denied" }).waitFor();
      assert.deepEqual(await axe(page), []);
      const denied = await form(own, "/oauth/token", { grant_type: GRANT, device_code: other.device_code });
      assert.equal(denied.error, "access_denied");
      await page.goto(`${own.origin}/console/device?code=BCDF-GHJK`);
      await page.getByText("There is no such sign-in").waitFor();
    });
  },
};
