// The settings of one provider: its way, its TLS, and what one of its models changes in requests.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";

import { axe, settled } from "./browser.mjs";

const button = (page, name) => page.getByRole("button", { name, exact: true });

const SELF_SIGNED = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=one", "-keyout", "/dev/null"];

export const providerChecks = {
  async the_way_to_a_provider_and_its_tls_are_edited_and_no_key_is_stored({ gateway, browser }) {
    await gateway.api("POST", "providers", { id: "inside", type: "compatible", base_url: "https://models.example/v1", models: ["one"] });
    const page = await browser.signedIn(gateway.key, "/providers/inside");
    const open = async (item) => {
      await button(page, "Actions for inside").click();
      await page.getByRole("menuitem", { name: item, exact: true }).click();
    };
    const dialog = page.getByRole("dialog");
    const save = async () => {
      await button(dialog, "Save").click();
      await dialog.waitFor({ state: "detached" });
      await settled(page);
    };
    await open("Proxy and address");
    await page.getByLabel("Connect to").fill("169.254.169.254:80");
    await button(dialog, "Save").click();
    await page.getByText("link-local, multicast and metadata addresses are not allowed").waitFor();
    assert.deepEqual(await axe(page), []);
    await page.getByLabel("Connect to").fill("10.0.0.7:8443");
    await save();
    assert.equal((await gateway.api("GET", "providers/inside")).connect_to, "10.0.0.7:8443");
    await page.getByText("10.0.0.7:8443").waitFor();

    const pem = execFileSync("openssl", SELF_SIGNED, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
    await open("TLS");
    await page.getByLabel("Authorities").fill(pem);
    await page.getByLabel("Client certificate").fill(pem);
    await page.getByLabel("Private key").fill("-----BEGIN PRIVATE KEY-----");
    await button(dialog, "Save").click();
    await page.getByText("a private key is not stored").waitFor();
    assert.deepEqual(await axe(page), []);
    await page.getByLabel("Client certificate").fill("");
    await page.getByLabel("Private key").fill("");
    await save();
    assert.deepEqual((await gateway.api("GET", "providers/inside")).tls, { ca: pem.trim() });
    await page.getByText("authorities of its own").waitFor();
    await open("TLS");
    await page.getByLabel("Authorities").fill("");
    await save();
    assert.equal((await gateway.api("GET", "providers/inside")).tls, null);
    await gateway.api("DELETE", "providers/inside");
  },

  async a_model_gets_headers_and_members_of_its_own({ gateway, browser }) {
    const models = ["one", { id: "two", vision: true }];
    await gateway.api("POST", "providers", { id: "own", type: "compatible", base_url: "https://models.example/v1", models });
    const page = await browser.signedIn(gateway.key, "/providers/own");
    const dialog = page.getByRole("dialog");
    await button(page, "Requests to two").click();
    await page.getByLabel("Headers").fill('{"x-class": "slow"}');
    await page.getByLabel("Members of requests").fill("{");
    await button(dialog, "Save").click();
    await page.getByRole("alert").first().waitFor();
    assert.deepEqual(await axe(page), []);
    await page.getByLabel("Members of requests").fill('{"defaults": {"seed": 7}}');
    await button(dialog, "Save").click();
    await dialog.waitFor({ state: "detached" });
    // The value of a header is sealed. The dialog sends its mask back, which keeps it.
    const described = (seed) => ({ id: "two", vision: true, headers: { "x-class": "••••" }, body: { defaults: { seed } } });
    const modelsNow = async () => (await gateway.api("GET", "providers/own")).models;
    assert.deepEqual((await modelsNow()).find(({ id }) => id === "two"), described(7));
    await button(page, "Requests to two").click();
    await page.getByLabel("Members of requests").fill('{"defaults": {"seed": 8}}');
    await button(dialog, "Save").click();
    await dialog.waitFor({ state: "detached" });
    const saved = await modelsNow();
    assert.deepEqual(saved.find(({ id }) => id === "two"), described(8));
    assert.equal(saved.find((model) => model === "one" || model.id === "one") !== undefined, true, "the other model stays");
    await gateway.api("DELETE", "providers/own");
  },
};
