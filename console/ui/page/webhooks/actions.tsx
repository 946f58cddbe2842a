// What can be done with a webhook: change, test, rotate its secret, pause, delete.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { call } from "../../api/client";
import { changed } from "../../api/resource";
import type { Webhook, WebhookTest, WebhookWithSecret } from "../../api/types";
import { setParams } from "../../app/router";
import { Confirm, Dialog } from "../../part/dialog";
import { WriteOutlook } from "../../part/effects";
import { notify } from "../../part/feedback";
import { Field, Form, FormButtons, FormFooterError, Select, useSubmission } from "../../part/form";
import { moment, zoneName } from "../../part/format";
import { type Item, Menu } from "../../part/menu";
import { OVERLAPS } from "../key_actions";
import { LOST, type OnSecret } from "./form";

type Props = { of: Webhook; onSecret: OnSecret };

export function WebhookMenu({ of, onSecret }: Props) {
  const [doing, setDoing] = useState<"rotate" | "delete" | null>(null);
  const close = (): void => setDoing(null);
  const path = `webhooks/${of.id}`;
  const test = async (): Promise<void> => {
    const { data } = await call<WebhookTest>("POST", `${path}/test`, { body: {} });
    notify(data.ok ? `${of.name} answered with status ${data.status} in ${data.duration_ms} ms` : (data.error ?? "The test failed"));
  };
  const turn = async (): Promise<void> => {
    await call("PATCH", path, { body: { disabled: !of.disabled }, ifMatch: of.version });
    changed("webhooks");
    notify(of.disabled ? `${of.name} receives events again` : `${of.name} is paused`);
  };
  const tell = (error: Error): void => notify(error.message);
  const items: Item[] = [
    { label: "Change", icon: "pencil", run: () => setParams({ edit: of.id }) },
    { label: "Send a test", icon: "play", run: () => void test().catch(tell) },
    { label: "Rotate the secret", icon: "rotate-cw", run: () => setDoing("rotate") },
    { label: of.disabled ? "Enable" : "Pause", icon: "power", run: () => void turn().catch(tell) },
    { label: "Delete", icon: "trash-2", danger: true, run: () => setDoing("delete") },
  ];
  return (
    <div class="actions">
      <Menu label={`Actions for ${of.name}`} items={items} />
      {doing === "rotate" && <Rotate of={of} onSecret={onSecret} onClose={close} />}
      {doing === "delete" && (
        <Confirm
          title={`Delete ${of.name}?`}
          action="Delete"
          run={async () => {
            await call("DELETE", path, { ifMatch: of.version });
            changed("webhooks", "outbox");
          }}
          onClose={close}
        >
          <p>It receives nothing more, and its secret is forgotten.</p>
          <WriteOutlook write={{ method: "DELETE", path, ifMatch: of.version }} />
        </Confirm>
      )}
    </div>
  );
}

function Rotate({ of, onSecret, onClose }: Props & { onClose: () => void }): JSX.Element {
  const [overlap, setOverlap] = useState("86400");
  const submission = useSubmission();
  const rotate = (): void => {
    const body = { overlap_seconds: Number(overlap) };
    void submission.run(body, async (repeatKey) => {
      const { data } = await call<WebhookWithSecret>("POST", `webhooks/${of.id}/rotate`, { body, repeatKey, ifMatch: of.version });
      changed("webhooks");
      onClose();
      onSecret(data.secret);
      if (data.secret === null) notify(LOST);
    });
  };
  const until = Date.now() + Number(overlap) * 1000;
  return (
    <Dialog title={`Rotate the secret of ${of.name}?`} onClose={onClose}>
      <Form submission={submission} onSubmit={rotate}>
        <Field label="The old secret signs as well for" name="overlap_seconds">
          <Select value={overlap} onValue={setOverlap} options={OVERLAPS} />
        </Field>
        <p class="help">
          {overlap === "0"
            ? "A receiver with the old secret rejects messages from now on."
            : `Until ${moment(until)} ${zoneName()} messages carry two signatures, and either secret verifies them.`}
        </p>
        <FormFooterError />
        <FormButtons busy={submission.busy} submit="Rotate" onCancel={onClose} saves={false} />
      </Form>
    </Dialog>
  );
}
