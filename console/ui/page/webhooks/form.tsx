// The form of a webhook, new or changed. The address of an existing one is not shown: only a new one can be written over it.
import { useState } from "preact/hooks";
import { at, call, Fault } from "../../api/client";
import { changed } from "../../api/resource";
import type { Webhook, WebhookWithSecret } from "../../api/types";
import { Allowed } from "../../part/choice";
import { fitting, type Suggested, type Suggestion } from "../../part/combobox";
import { Dialog } from "../../part/dialog";
import { AddressedDialog, EditDialog } from "../../part/edit";
import { notify } from "../../part/feedback";
import { Check, concerns, Field, Form, FormButtons, FormFooterError, Select, Text, useSubmission } from "../../part/form";
import { NumberField, type Typed } from "../../part/number";
import { KIND_NAMES, KINDS } from "../alerts/kinds";

type Fields = Pick<Webhook, "name" | "url" | "format" | "kinds" | "send_resolved" | "in_order"> & { retry_seconds: Typed };

const LABELS: Record<keyof Fields, string> = {
  name: "Name",
  url: "Address",
  format: "Format",
  kinds: "Kinds of events",
  send_resolved: "Send “resolved” as well",
  in_order: "One event at a time, in order",
  retry_seconds: "Longest pause after a failure (s)",
};

const NEW: Fields = { name: "", url: "", format: "json", kinds: null, send_resolved: false, in_order: false, retry_seconds: 5 };

/** Takes a new secret, which is shown once. */
export type OnSecret = (secret: string | null) => void;

/** An answer that was lost took the secret with it. */
export const LOST = "The secret was lost with an earlier answer. Rotate it.";

export function NewWebhook({ onSecret, onClose }: { onSecret: OnSecret; onClose: () => void }) {
  const [fields, setFields] = useState(NEW);
  const submission = useSubmission();
  const create = (): void =>
    void submission.run(fields, async (repeatKey) => {
      const { data } = await call<WebhookWithSecret>("POST", "webhooks", { body: fields, repeatKey });
      changed("webhooks");
      onClose();
      onSecret(data.secret);
      if (data.secret === null) notify(LOST);
    });
  return (
    <Dialog title="New webhook" onClose={onClose}>
      <Form submission={submission} onSubmit={create}>
        <WebhookFields fields={fields} set={(change) => setFields({ ...fields, ...change })} error={submission.error} />
        <FormFooterError />
        <FormButtons busy={submission.busy} submit="Create" submitting="Creating…" onCancel={onClose} />
      </Form>
    </Dialog>
  );
}

/** The form of the webhook that the address names. */
export function EditWebhook({ id, onClose }: { id: string; onClose: () => void }) {
  const path = at("webhooks", id);
  return (
    <AddressedDialog<Webhook> path={path} title="Webhook" onClose={onClose}>
      {(webhook) => (
        <EditDialog<Webhook, Fields>
          title={`Change ${webhook.name}`}
          path={path}
          of={webhook}
          etag={`"${webhook.version}"`}
          fieldsOf={({ name, format, kinds, send_resolved, in_order, retry_seconds }) => ({
            name,
            url: "",
            format,
            kinds,
            send_resolved,
            in_order,
            retry_seconds,
          })}
          labels={LABELS}
          onSaved={() => changed("webhooks", "outbox")}
          onClose={onClose}
        >
          {(mine, set, error) => <WebhookFields fields={mine} set={set} error={error} known={webhook.url} />}
        </EditDialog>
      )}
    </AddressedDialog>
  );
}

type FieldsProps = {
  fields: Fields;
  set: (change: Partial<Fields>) => void;
  error: Error | null;
  /** What is shown of the present address. */
  known?: string;
};

function WebhookFields({ fields, set, error, known }: FieldsProps) {
  return (
    <>
      <Field label={LABELS.name} name="name">
        <Text value={fields.name} onValue={(name) => set({ name })} autoFocus />
      </Field>
      <Field
        label={known === undefined ? LABELS.url : "New address"}
        name="url"
        optional={known !== undefined}
        help={known === undefined ? "Stored encrypted. It can be replaced, never shown." : `Without one it stays ${known}`}
      >
        <Text value={fields.url} onValue={(url) => set({ url })} inputMode="url" />
      </Field>
      <Field label={LABELS.format} name="format" help="Slack: one line of text, which Mattermost and others take as well.">
        <Select
          value={fields.format}
          onValue={(format) => set({ format: format as Fields["format"] })}
          options={[
            ["json", "JSON: the whole event"],
            ["slack", "Slack"],
          ]}
        />
      </Field>
      <Allowed
        label={LABELS.kinds}
        all="All kinds"
        value={fields.kinds}
        onValue={(kinds) => set({ kinds })}
        suggest={suggestKinds}
        placeholder="Add a kind"
        error={error instanceof Fault && concerns(error.param, "kinds") ? error.message : null}
      />
      <Check label={LABELS.send_resolved} checked={fields.send_resolved} onChange={(send_resolved) => set({ send_resolved })} />
      <Check
        label={LABELS.in_order}
        help="An event that fails holds the later ones back."
        checked={fields.in_order}
        onChange={(in_order) => set({ in_order })}
      />
      <NumberField
        label={LABELS.retry_seconds}
        name="retry_seconds"
        help="It doubles with each further failure, up to an hour. Ten failures end it."
        value={fields.retry_seconds}
        onValue={(retry_seconds) => set({ retry_seconds })}
      />
    </>
  );
}

const suggestKinds = (text: string): Suggested =>
  fitting(
    KIND_NAMES.map((name): Suggestion => ({ value: name, text: name, title: name, note: KINDS[name].title })),
    text,
  );
