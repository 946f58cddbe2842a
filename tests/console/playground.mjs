// The checks of the playground.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";

import { axe, settled, sideways } from "./browser.mjs";

const button = (page, name) => page.getByRole("button", { name, exact: true });

/** An upstream that streams one answer. */
async function upstream() {
  const server = createServer((request, response) => {
    request.resume();
    request.on("end", () => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      const chunk = (delta, finish_reason = null) =>
        response.write(`data: ${JSON.stringify({ id: "c1", object: "chat.completion.chunk", created: 1, model: "m", choices: [{ index: 0, delta, finish_reason }] })}\n\n`);
      chunk({ role: "assistant", content: "from the " });
      chunk({ content: "upstream" });
      chunk({}, "stop");
      response.end("data: [DONE]\n\n");
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return server;
}

export const playgroundChecks = {
  async a_request_is_run_as_a_key_and_both_sides_are_shown({ gateway, browser }) {
    const server = await upstream();
    const { id } = await gateway.api("POST", "projects", { name: "players" });
    const made = await gateway.api("POST", "keys", { name: "player", project: id });
    const base_url = `http://127.0.0.1:${server.address().port}/v1`;
    await gateway.api("POST", "providers", { id: "scripted", type: "compatible", base_url, api_key: "sk-of-the-upstream", models: ["m"] });
    const page = await browser.signedIn(gateway.key, `/playground?as=${made.id}&model=scripted%2Fm`);
    await settled(page);
    assert.deepEqual(await axe(page), []);
    await page.getByText("It counts for the key player and its limits.").waitFor();
    await page.getByLabel("Message", { exact: true }).fill("hello");
    await page.keyboard.press("Control+Enter");
    await page.locator(".result .answer", { hasText: "from the upstream" }).waitFor();
    await page.getByRole("list", { name: "Conversation" }).getByText("hello").waitFor();
    assert.deepEqual(await axe(page), []);
    await button(page, "Route trace").click();
    await page.getByText("Accepted, authorised, planned").waitFor();
    await button(page, "What was sent").click();
    const compared = page.getByRole("group", { name: "To the upstream, attempt 1" });
    await compared.waitFor();
    await compared.locator(".changed").first().waitFor();
    assert.ok(!(await page.content()).includes("sk-of-the-upstream"), "the credential is not shown");
    assert.deepEqual(await axe(page), []);
    await button(page, "Raw stream").click();
    await page.getByRole("region", { name: "To the client" }).getByText("[DONE]").waitFor();
    await page.getByRole("region", { name: "From the upstream, attempt 1" }).getByText(/^\d+ pieces? at /).waitFor();
    assert.deepEqual(await axe(page), []);
    const { data } = await gateway.api("GET", `requests?key=${made.id}`);
    assert.equal(data.length, 1, "it counts for the key");
    await gateway.api("DELETE", "providers/scripted");
    server.close();
  },

  async every_operation_of_the_playground_is_sent_and_answered_or_refused_in_words({ gateway, browser }) {
    const { id } = await gateway.api("POST", "projects", { name: "operators" });
    const made = await gateway.api("POST", "keys", { name: "operator", project: id });
    const page = await browser.signedIn(gateway.key, `/playground?as=${made.id}&model=smart`);
    const strange = "<img src=x onerror=alert(1)>";
    for (const name of ["Chat", "Responses", "Messages"]) {
      await button(page, name).click();
      await page.getByLabel("Message", { exact: true }).fill(strange);
      await button(page, "Send Ctrl Enter").click();
      await page.locator(".result .answer", { hasText: strange }).waitFor();
      assert.equal(await page.locator("main img").count(), 0, "an answer is text");
      await button(page, "New conversation").click();
    }
    await page.goto(`${browser.origin}/console/playground?as=${made.id}&model=voice%2Fpico&path=speech`);
    await page.getByLabel("Text to speak").fill("Hello.");
    await button(page, "Send Ctrl Enter").click();
    await page.getByLabel("The model's speech").waitFor();
    assert.match(await page.getByLabel("The model's speech").getAttribute("src"), /^blob:/);
    assert.deepEqual(await axe(page), []);
    for (const [path, field] of [["embeddings", "Input"], ["image", "Prompt"], ["video", "Prompt"]]) {
      await page.goto(`${browser.origin}/console/playground?as=${made.id}&model=smart&path=${path}`);
      await page.getByLabel(field, { exact: true }).fill("a fox");
      await button(page, "Send Ctrl Enter").click();
      await page.locator(".result [role=alert], .result .code").first().waitFor();
    }
    await page.goto(`${browser.origin}/console/playground?as=${made.id}&model=smart&path=transcription`);
    await button(page, "Send Ctrl Enter").click();
    await page.getByText("Choose a recording to transcribe.").waitFor();
    await page.getByLabel("Recording").setInputFiles({ name: "a.wav", mimeType: "audio/wav", buffer: Buffer.from("RIFF") });
    await button(page, "Send Ctrl Enter").click();
    await page.locator(".result [role=alert]").filter({ hasText: /^\d{3}: / }).waitFor();
  },

  async the_playground_fits_a_small_and_an_enlarged_window({ gateway, browser }) {
    const faults = [];
    // A window of 720 pixels is one of 1440 at 200 %.
    for (const view of [{ width: 390, theme: "light" }, { width: 720, theme: "dark" }]) {
      const page = await browser.signedIn(gateway.key, "/playground?path=speech", view);
      await settled(page);
      faults.push(...(await axe(page)).map((fault) => `${view.width}: ${fault}`));
      if (await sideways(page)) faults.push(`${view.width} scrolls sideways by ${await sideways(page)}`);
    }
    assert.deepEqual(faults, []);
  },

  async two_targets_are_compared_and_the_route_is_seen_while_it_runs({ gateway, browser }) {
    const { id } = await gateway.api("POST", "projects", { name: "comparing" });
    const made = await gateway.api("POST", "keys", { name: "comparing", project: id });
    await gateway.api("POST", "providers", { id: "slow", type: "echo", models: ["echo"], echo: { delay_ms: 4000 } });
    await gateway.api("POST", "providers", { id: "quick", type: "echo", models: ["echo"] });
    await gateway.api("POST", "endpoints", { name: "pair", failover: [{ provider: "slow", model: "echo" }, { provider: "quick", model: "echo" }] });
    const page = await browser.signedIn(gateway.key, `/playground?as=${made.id}&model=pair`);
    await settled(page);
    await page.getByLabel("Message", { exact: true }).fill("which of you?");
    await page.keyboard.press("Control+Shift+Enter");
    const [slow, quick] = ["slow/echo", "quick/echo"].map((name) => page.getByRole("region", { name, exact: true }));
    await quick.locator(".answer", { hasText: "which of you?" }).waitFor();
    await button(slow, "Route trace").click();
    const route = slow.getByRole("list", { name: "The route so far" });
    await route.getByText(/^slow attempt 1$/).waitFor();
    await route.getByText(/^waiting for the head of the answer, .* so far$/).waitFor();
    await slow.getByText("Accepted, authorised, planned").waitFor();
    await button(slow, "Answer").click();
    await slow.locator(".answer", { hasText: "which of you?" }).waitFor();
    assert.deepEqual(await axe(page), []);
    const { data } = await gateway.api("GET", `requests?key=${made.id}`);
    assert.deepEqual(data.map(({ provider }) => provider).sort(), ["quick", "slow"]);
    await page.getByLabel("Message", { exact: true }).fill("again");
    await page.getByRole("button", { name: "Send Ctrl Enter" }).click({ modifiers: ["Shift"] });
    await quick.locator(".answer", { hasText: "again" }).waitFor();
    await page.getByRole("button", { name: "Stop" }).click();
    assert.equal(await sideways(page), 0);
    await gateway.api("DELETE", "endpoints/pair");
    for (const name of ["slow", "quick"]) await gateway.api("DELETE", `providers/${name}`);
  },
};
