// The form that connects a provider of an extension to which humans sign in.
import { useState } from "preact/hooks";
import { call } from "../api/client";
import { changed } from "../api/resource";
import type { ExtensionProvider, Provider } from "../api/types";
import { go, href } from "../app/router";
import { Dialog } from "../part/dialog";
import { Field, Form, FormButtons, FormFooterError, Text, useSubmission } from "../part/form";
import { OwnerField, useFirstHuman, words } from "./oauth";

export type SignInFields = { id: string; owner: string; models: string };

/** The body that creates the provider; an empty list of models is not sent. */
export function signInBody(extension: string, of: ExtensionProvider, { id, owner, models }: SignInFields): Record<string, unknown> {
  return {
    id,
    type: "extension",
    extension,
    extension_provider: of.id,
    protocols: of.protocols,
    auth: "oauth",
    owner,
    ...(words(models).length ? { models: words(models) } : {}),
  };
}

export function ConnectSignIn({ extension, of, onClose }: { extension: string; of: ExtensionProvider; onClose: () => void }) {
  const firstHuman = useFirstHuman();
  const [fields, setFields] = useState<SignInFields>({ id: of.id, owner: "", models: "" });
  const submission = useSubmission();
  const owner = fields.owner || firstHuman;
  const set = (change: Partial<SignInFields>): void => setFields({ ...fields, ...change });
  const submit = (): void => {
    const body = signInBody(extension, of, { ...fields, owner });
    void submission.run(body, async (repeatKey) => {
      const { data } = await call<Provider>("POST", "providers", { body, repeatKey });
      changed("providers", "extensions", "catalog", "health");
      go(href(`/providers/${data.id}`));
    });
  };
  return (
    <Dialog title={`Connect ${of.name ?? of.id}`} onClose={onClose}>
      <Form submission={submission} onSubmit={submit}>
        <p class="help">The extension {extension} signs the human in to its vendor, on the provider's page.</p>
        <Field label="Name" name="id" help="Models are called NAME/MODEL. Each human has a provider of their own.">
          <Text value={fields.id} onValue={(id) => set({ id })} autoFocus />
        </Field>
        <OwnerField owner={owner} onOwner={(owner) => set({ owner })} />
        <Field label="Models" name="models" optional help="Beside those that its own list has. Separated by commas.">
          <Text value={fields.models} onValue={(models) => set({ models })} />
        </Field>
        <FormFooterError />
        <FormButtons
          busy={submission.busy}
          submit="Create"
          submitting="Creating…"
          onCancel={onClose}
          lacks={!owner && "Choose its owner first."}
        />
      </Form>
    </Dialog>
  );
}
