// What a person without the administrators' group does in the console.

import { strict as assert } from "node:assert";
import { axe, settled } from "../console/browser.mjs";

/** The checks; `signedIn` opens a page of a person, and `api` calls the admin API from one. */
export const checksOf = ({ gateway, apache, provider, signedIn, api, pages }) => {
  const open = async (page, path) => {
    await page.goto(`${apache.origin}/console/${path}`);
    await page.locator("main h1").waitFor();
    await settled(page);
  };
  const idOf = async (page) => (await api(page, "GET", "session")).data.human.id;
  const join = async (project, page, role) =>
    gateway.api("PUT", `projects/${project.id}/members/${await idOf(page)}`, { role });

  return {
    async "a person opens every page of their navigation, and nothing is refused"() {
      const dora = await signedIn("dora");
      const project = await gateway.api("POST", "projects", { name: "of dora" });
      await join(project, dora, "member");
      const refused = [];
      dora.on("response", (answer) => answer.status() >= 400 && refused.push(`${answer.status()} ${answer.url()}`));
      await open(dora, "keys");
      const all = ["Requests", "Usage", "Connections", "Playground", "Access", "API keys", "Quotas", "Connect a client"];
      assert.deepEqual(await pages(dora), all);
      const navigation = dora.getByRole("navigation", { name: "Console", exact: true });
      for (const title of all) {
        await navigation.getByRole("link", { name: title, exact: true }).click();
        await settled(dora);
        assert.notEqual(await dora.locator("main h1").innerText(), "There is no such page", title);
        assert.deepEqual(await axe(dora), [], title);
      }
      for (const path of [`access/projects/${project.id}`, `access/projects/${project.id}?tab=limits`, `access/humans/${await idOf(dora)}`]) {
        await open(dora, path);
        assert.deepEqual(await axe(dora), [], path);
      }
      assert.deepEqual(refused, []);
      await dora.context().close();
    },

    async "a person mints a key that acts as them, tries it in the playground, reveals, rotates and revokes it"() {
      const dora = await signedIn("dora");
      await gateway.api("POST", "providers", { id: "lab", type: "echo", models: ["m"] });
      await open(dora, "keys?new=1");
      const dialog = dora.getByRole("dialog");
      await dialog.getByLabel("Name").fill("laptop");
      await dialog.getByRole("button", { name: "Mint key" }).click();
      await dora.getByRole("button", { name: "I have copied it" }).click();
      const [key] = (await api(dora, "GET", "keys")).data.data;
      assert.equal(key.acts_as, await idOf(dora));
      await open(dora, "playground?model=lab/m");
      await dora.getByLabel("Message").fill("hello of dora");
      await dora.getByRole("button", { name: /^Send/ }).click();
      await dora.locator("main").getByText("hello of dora").nth(1).waitFor();
      await open(dora, `keys/${key.id}`);
      const act = async (item) => {
        await dora.getByRole("button", { name: "Actions for laptop" }).click();
        await dora.getByRole("menuitem", { name: item }).click();
        await dora.getByRole("dialog").getByRole("button", { name: item, exact: true }).click();
      };
      await act("Reveal");
      await dora.getByRole("button", { name: "I have copied it" }).click();
      await act("Rotate");
      await dora.getByRole("button", { name: "I have copied it" }).click();
      // The key was used today, so its name is typed to confirm.
      await dora.getByRole("button", { name: "Actions for laptop" }).click();
      await dora.getByRole("menuitem", { name: "Revoke" }).click();
      await dora.getByRole("dialog").getByRole("textbox").fill("laptop");
      await dora.getByRole("dialog").getByRole("button", { name: "Revoke", exact: true }).click();
      await dora.getByRole("dialog").waitFor({ state: "detached" });
      assert.equal((await api(dora, "GET", `keys/${key.id}`)).data.state, "revoked");
      assert.equal((await api(dora, "GET", "keys?state=active")).data.data.length, 1);
      await dora.context().close();
    },

    async "an owner of a project adds a member, changes the role and removes them; a member only sees it"() {
      const [olga, emil] = [await signedIn("olga"), await signedIn("emil")];
      const project = await gateway.api("POST", "projects", { name: "shared" });
      await join(project, olga, "owner");
      await open(olga, `access/projects/${project.id}`);
      await olga.getByRole("button", { name: "Add member" }).click();
      const dialog = olga.getByRole("dialog");
      await dialog.getByLabel("ID of the human").fill(await idOf(emil));
      await dialog.getByLabel("Role").selectOption("member");
      await dialog.getByRole("button", { name: "Add", exact: true }).click();
      await olga.getByRole("link", { name: "Person emil" }).or(olga.getByText("Person emil", { exact: true })).first().waitFor();
      await open(emil, `access/projects/${project.id}`);
      await emil.getByText("Person olga", { exact: true }).waitFor();
      assert.equal(await emil.getByRole("button", { name: "Add member" }).count(), 0);
      assert.equal(await emil.getByRole("combobox", { name: /^Role of/ }).count(), 0);
      await olga.getByRole("combobox", { name: "Role of Person emil" }).selectOption("viewer");
      await olga.getByText("Person emil is viewer of shared.").waitFor();
      await olga.getByRole("button", { name: "Remove Person emil" }).click();
      await olga.getByRole("dialog").getByRole("button", { name: "Remove", exact: true }).click();
      await olga.getByRole("dialog").waitFor({ state: "detached" });
      assert.equal((await api(olga, "GET", `projects/${project.id}/members`)).data.data.length, 1);
      assert.equal((await api(emil, "GET", `projects/${project.id}`)).status, 404);
      for (const page of [olga, emil]) await page.context().close();
    },

    async "a person connects their own account with a code that they type on another device"() {
      const dora = await signedIn("dora");
      assert.equal((await api(dora, "GET", "session")).data.administrator, false);
      const oauth = { ...provider.partnerAddresses(), scopes: ["openid", "email", "offline_access"] };
      const created = { id: "cabin", type: "oauth_partner", base_url: `${provider.origin}/v1`, models: ["m"], oauth };
      await gateway.api("POST", "providers", { ...created, owner: await idOf(dora) });
      await open(dora, "connections");
      // M-229
      await dora.getByRole("region", { name: "cabin" }).getByText("Experimental. Uses the OAuth client that you registered.").waitFor();
      await dora.getByRole("button", { name: "Use another device" }).click();
      const link = dora.getByRole("link", { name: "Open the vendor's page on any device" });
      const waiting = dora.getByRole("status").filter({ has: link });
      await waiting.waitFor();
      await dora.getByText("Waiting for consent", { exact: true }).waitFor();
      const code = await waiting.locator("b").innerText();
      assert.match(code, /^[A-Z]{4}-[A-Z]{4}$/);
      assert.deepEqual(await axe(dora), []);
      const address = new URL(await link.getAttribute("href"));
      const phone = await (await dora.context().browser().newContext()).newPage();
      phone.setDefaultTimeout(30_000);
      await phone.goto(`${address.origin}${address.pathname}`);
      await phone.locator("input[name=user_code]").fill(code);
      await phone.locator("button[type=submit]").click();
      await phone.locator("button[type=submit][autofocus]").click();
      await phone.locator("input[name=login]").fill("dora");
      await phone.locator("input[name=password]").fill("any");
      await phone.locator("button[type=submit]").click();
      await phone.getByRole("button", { name: "Continue" }).click();
      await phone.getByRole("heading", { name: "Sign-in Success" }).waitFor();
      await phone.context().close();
      // The page learns it by itself.
      const card = dora.getByRole("region", { name: "cabin" });
      await card.getByText("Connected", { exact: true }).waitFor();
      await card.getByText("dora@example.com", { exact: true }).waitFor();
      assert.equal(await link.count(), 0);
      assert.equal((await api(dora, "GET", "providers/cabin")).data.state, "ready");
      await gateway.api("DELETE", "providers/cabin");
      await dora.context().close();
    },

    async "a person connects their own account, sees its state and a denied consent, and disconnects it"() {
      const dora = await signedIn("dora");
      const oauth = { ...provider.partnerAddresses(), scopes: ["openid", "email", "offline_access"], authorize_params: { prompt: "consent" } };
      const created = { id: "house", type: "oauth_partner", base_url: `${provider.origin}/v1`, models: ["m"], oauth };
      await gateway.api("POST", "providers", { ...created, owner: await idOf(dora) });
      await open(dora, "connections");
      const begin = async (name) => {
        await dora.getByRole("button", { name, exact: true }).click();
        const link = dora.getByRole("link", { name: "Open the vendor's page and consent" });
        await link.waitFor();
        const there = await dora.context().newPage();
        await there.goto(await link.getAttribute("href"));
        return there;
      };
      const denied = await begin("Connect");
      await denied.getByRole("link", { name: /cancel/i }).click();
      await denied.getByRole("heading", { name: "Not connected" }).waitFor();
      await denied.close();
      // The page learns it by itself.
      await dora.getByText(/access_denied/).waitFor();
      await dora.getByText("Not connected", { exact: true }).waitFor();
      assert.equal(await dora.getByRole("link", { name: "Open the vendor's page and consent" }).count(), 0);
      const there = await begin("Connect");
      await there.getByRole("button", { name: "Continue" }).click();
      await there.getByRole("heading", { name: "Connected", exact: true }).waitFor();
      await there.close();
      await dora.getByText("Connected", { exact: true }).waitFor();
      assert.deepEqual(await axe(dora), []);
      const stranger = await signedIn("emil");
      assert.equal((await api(stranger, "GET", "providers/house")).status, 404);
      await stranger.context().close();
      await dora.getByRole("button", { name: "Disconnect" }).click();
      await dora.getByRole("dialog").getByRole("button", { name: "Disconnect", exact: true }).click();
      await dora.getByText("Not connected", { exact: true }).waitFor();
      await dora.context().close();
    },
  };
};
