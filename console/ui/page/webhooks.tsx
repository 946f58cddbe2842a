// Receivers of events: their addresses, secrets and tests.
import { useState } from "preact/hooks";
import { call } from "../api/client";
import { useList } from "../api/list";
import { changed } from "../api/resource";
import type { NewWebhook, Webhook, WebhookTest, WebhookWithSecret } from "../api/types";
import { param, setParams } from "../app/router";
import { CopyButton } from "../part/copy";
import { Confirm, Dialog } from "../part/dialog";
import { Empty, notify } from "../part/feedback";
import { Check, Field, Form, FormButtons, FormFooterError, Select, Text, useSubmission } from "../part/form";
import { moment } from "../part/format";
import { Icon } from "../part/icon";
import { Menu } from "../part/menu";
import { Card, Page } from "../part/page";
import { Table } from "../part/table";
import { AlertTabs } from "./alerts";

export function WebhooksPage() {
  const list = useList<Webhook>("webhooks", {});
  const [secret, setSecret] = useState<string | null>(null);
  return (
    <Page
      title="Webhooks"
      lead="Messages are signed as Standard Webhooks defines it."
      actions={
        <button type="button" class="btn primary" data-new onClick={() => setParams({ new: "1" })}>
          <Icon name="plus" small />
          New webhook
        </button>
      }
    >
      <AlertTabs />
      <Card bare>
        <Table
          list={list}
          label="Webhooks"
          rowKey={({ id }) => id}
          least={800}
          empty={
            <Empty
              icon="link"
              title="There is no webhook yet"
              action={
                <button type="button" class="btn" onClick={() => setParams({ new: "1" })}>
                  New webhook
                </button>
              }
            >
              Without one, alerts are seen here and in the metrics alone.
            </Empty>
          }
          columns={[
            { head: "Name", width: "1fr", cell: ({ name }) => name },
            { head: "Address", width: "2fr", cell: ({ url }) => <span class="mono clip">{url}</span> },
            { head: "Format", width: 72, cell: ({ format }) => format },
            { head: "Kinds", width: "2fr", cell: ({ kinds }) => (kinds ? kinds.join(", ") : "all") },
            { head: "In order", width: 80, cell: ({ in_order }) => (in_order ? "yes" : "no") },
            { head: "State", width: 88, cell: ({ disabled }) => (disabled ? "disabled" : "enabled") },
            { head: "Old secret until", width: 128, cell: ({ secret_before_until_ms }) => moment(secret_before_until_ms) },
            { head: "Actions", width: 56, quiet: true, cell: (webhook) => <WebhookMenu of={webhook} onSecret={setSecret} /> },
          ]}
        />
      </Card>
      {param("new") && <Create onSecret={setSecret} />}
      {secret !== null && <Secret secret={secret} onClose={() => setSecret(null)} />}
    </Page>
  );
}

type OnSecret = (secret: string | null) => void;

function WebhookMenu({ of, onSecret }: { of: Webhook; onSecret: OnSecret }) {
  const [doing, setDoing] = useState<"rotate" | "delete" | null>(null);
  const close = (): void => setDoing(null);
  const test = async (): Promise<void> => {
    const { data } = await call<WebhookTest>("POST", `webhooks/${of.id}/test`, { body: {} });
    notify(data.ok ? `${of.name} answered with status ${data.status}` : (data.error ?? "The test failed"));
  };
  const turn = async (): Promise<void> => {
    await call("PATCH", `webhooks/${of.id}`, { body: { disabled: !of.disabled }, ifMatch: of.version });
    changed("webhooks");
  };
  const tell = (error: Error): void => notify(error.message);
  return (
    <div class="actions">
      <Menu
        label={`Actions for ${of.name}`}
        items={[
          { label: "Send a test", icon: "play", run: () => void test().catch(tell) },
          { label: "Rotate the secret", icon: "refresh-cw", run: () => setDoing("rotate") },
          { label: of.disabled ? "Enable" : "Disable", icon: "power", run: () => void turn().catch(tell) },
          { label: "Delete", icon: "trash-2", danger: true, run: () => setDoing("delete") },
        ]}
      />
      {doing === "rotate" && (
        <Confirm
          title={`Rotate the secret of ${of.name}?`}
          action="Rotate"
          danger={false}
          run={async () => {
            const { data } = await call<WebhookWithSecret>("POST", `webhooks/${of.id}/rotate`, { body: {} });
            changed("webhooks");
            onSecret(data.secret);
          }}
          onClose={close}
        >
          <p>For a day messages carry the signatures of both secrets.</p>
        </Confirm>
      )}
      {doing === "delete" && (
        <Confirm
          title={`Delete ${of.name}?`}
          action="Delete"
          run={async () => {
            await call("DELETE", `webhooks/${of.id}`, { ifMatch: of.version });
            changed("webhooks", "outbox");
          }}
          onClose={close}
        >
          <p>Events that wait for it are not delivered to it.</p>
        </Confirm>
      )}
    </div>
  );
}

function Create({ onSecret }: { onSecret: OnSecret }) {
  const [name, setName] = useState("");
  const [url, setUrl] = useState("");
  const [format, setFormat] = useState<"json" | "slack">("json");
  const [inOrder, setInOrder] = useState(false);
  const submission = useSubmission();
  const close = (): void => setParams({ new: null });
  const create = (): void => {
    const body = { name, url, format, in_order: inOrder } satisfies Partial<NewWebhook>;
    void submission.run(body, async (repeatKey) => {
      const { data } = await call<WebhookWithSecret>("POST", "webhooks", { body, repeatKey });
      changed("webhooks");
      close();
      onSecret(data.secret);
    });
  };
  return (
    <Dialog title="New webhook" onClose={close}>
      <Form submission={submission} onSubmit={create}>
        <Field label="Name" name="name">
          <Text value={name} onValue={setName} autoFocus />
        </Field>
        <Field label="Address" name="url" help="Stored encrypted. It can be replaced, never shown.">
          <Text value={url} onValue={setUrl} inputMode="url" />
        </Field>
        <Field label="Format" name="format">
          <Select
            value={format}
            onValue={(value) => setFormat(value === "slack" ? "slack" : "json")}
            options={[
              ["json", "JSON"],
              ["slack", "Slack"],
            ]}
          />
        </Field>
        <Check label="One event at a time, in order" checked={inOrder} onChange={setInOrder} />
        <FormFooterError />
        <FormButtons busy={submission.busy} submit="Create" submitting="Creating…" onCancel={close} />
      </Form>
    </Dialog>
  );
}

function Secret({ secret, onClose }: { secret: string; onClose: () => void }) {
  return (
    <Dialog title="Secret of the webhook">
      <p>The receiver verifies messages with this secret. Copy it now: it will not be shown again.</p>
      <p class="secret" data-secret>
        {secret}
      </p>
      <div class="dialog-foot">
        <CopyButton text={secret} />
        <button type="button" class="btn primary" onClick={onClose}>
          I have copied it
        </button>
      </div>
    </Dialog>
  );
}
