// Receivers of events: how each is doing, and what was delivered to it.
import { useState } from "preact/hooks";
import { at } from "../api/client";
import { useList } from "../api/list";
import { useResource } from "../api/resource";
import type { AlertKind, DeliveryPage, ListedWebhook, Webhook } from "../api/types";
import { href, param, setParams } from "../app/router";
import { CopyButton } from "../part/copy";
import { Dialog } from "../part/dialog";
import { AddressedDialog } from "../part/edit";
import { Loaded } from "../part/feedback";
import { count, moment, secondsText, zoneName } from "../part/format";
import { State } from "../part/icon";
import { HeadNewButton, ListCard, NewButton } from "../part/list";
import { asked as askedFor, orderOf } from "../part/order";
import { Facts, Page } from "../part/page";
import { Search } from "../part/search";
import { KINDS } from "./alerts/kinds";
import { AlertTabs } from "./alerts/tabs";
import { DeliveryState, lastAnswer, Retry } from "./outbox";
import { WebhookMenu } from "./webhooks/actions";
import { EditWebhook, NewWebhook, type OnSecret } from "./webhooks/form";

const BY_NAME = { sort: "name", order: "asc" } as const;

export function WebhooksPage() {
  const q = param("q");
  const order = orderOf(["name", "created", "state"], BY_NAME);
  const list = useList<ListedWebhook>("webhooks", { q, ...askedFor(order) });
  const [secret, setSecret] = useState<string | null>(null);
  const [open, edited] = [param("webhook"), param("edit")];
  return (
    <Page title="Webhooks" lead="Messages are signed as Standard Webhooks defines it." actions={<HeadNewButton>New webhook</HeadNewButton>}>
      <AlertTabs />
      <ListCard
        filters={<Search label="Search webhooks" placeholder="Name or address" />}
        list={list}
        order={order}
        usual={BY_NAME}
        label="Webhooks"
        rowKey={({ id }) => id}
        isFiltered={q !== ""}
        icon="link"
        titles={["No webhook fits the search", "There is no webhook yet"]}
        help="Without one, alerts appear only in the console and in the metrics."
        action={<NewButton look="">New webhook</NewButton>}
        columns={[
          { head: "Name", width: "1fr", sort: "name", cell: (webhook) => <Name of={webhook} /> },
          { head: "Address", width: "2fr", least: 200, fold: 5, cell: ({ url }) => <span class="mono clip">{url}</span> },
          { head: "Format", width: 72, fold: 1, cell: ({ format }) => format },
          { head: "Alerts", width: "2fr", least: 200, fold: 4, cell: ({ kinds }) => kindsText(kinds) },
          { head: "In order", width: 80, fold: 2, cell: ({ in_order }) => (in_order ? "yes" : "no") },
          { head: "Health", width: 136, sort: "state", cell: (webhook) => <Health of={webhook} /> },
          { head: "Old secret until", width: 128, fold: 3, cell: ({ secret_before_until_ms }) => moment(secret_before_until_ms) },
          { head: "Actions", width: 56, quiet: true, cell: (webhook) => <WebhookMenu of={webhook} onSecret={setSecret} /> },
        ]}
      />
      {param("new") && <NewWebhook onSecret={setSecret} onClose={() => setParams({ new: null })} />}
      {edited && <EditWebhook key={edited} id={edited} onClose={() => setParams({ edit: null })} />}
      {open && <OneWebhook key={open} id={open} onSecret={setSecret} />}
      {secret !== null && <Secret secret={secret} onClose={() => setSecret(null)} />}
    </Page>
  );
}

const kindsText = (kinds: string[] | null): string =>
  kinds ? kinds.map((kind) => KINDS[kind as AlertKind]?.title ?? kind).join(", ") : "all";

function Name({ of }: { of: Webhook }) {
  return (
    <a class="row-link" href={href("/webhooks", { webhook: of.id })}>
      {of.name}
    </a>
  );
}

function Standing({ of }: { of: Webhook }) {
  return <State kind={of.disabled ? "off" : "ok"} word={of.disabled ? "paused" : "enabled"} />;
}

/** How a webhook is doing: its dead deliveries stand before that it is enabled. */
function Health({ of }: { of: ListedWebhook }) {
  if (of.dead === 0) return <Standing of={of} />;
  return (
    <a href={href("/outbox", { to: of.id, state: "dead" })}>
      <State kind="bad" word={`${count(of.dead)} failed`} />
    </a>
  );
}

/** One webhook with its last deliveries. */
function OneWebhook({ id, onSecret }: { id: string; onSecret: OnSecret }) {
  const close = (): void => setParams({ webhook: null });
  return (
    <AddressedDialog<Webhook> path={at("webhooks", id)} title="Webhook" onClose={close}>
      {(webhook) => (
        <Dialog title={`Webhook ${webhook.name}`} onClose={close} wide>
          <WebhookFacts of={webhook} />
          <Deliveries of={id} />
          <div class="dialog-foot">
            <a class="btn" href={href("/outbox", { to: id })}>
              All its deliveries
            </a>
            <WebhookMenu of={webhook} onSecret={onSecret} />
          </div>
        </Dialog>
      )}
    </AddressedDialog>
  );
}

function WebhookFacts({ of }: { of: Webhook }) {
  const until = of.secret_before_until_ms;
  return (
    <Facts
      rows={[
        ["State", <Standing key="s" of={of} />],
        [
          "Address",
          <span key="a" class="mono wrap">
            {of.url}
          </span>,
        ],
        ["Format", of.format],
        ["Alerts", kindsText(of.kinds)],
        ["“Resolved”", of.send_resolved ? "sent" : "not sent"],
        ["Order", of.in_order ? "one message at a time" : "any"],
        ["Pause after a failure", `${secondsText(of.retry_seconds)}, doubled with each`],
        ["Secrets", until === null ? "one" : `two are valid until ${moment(until)} ${zoneName()}, then the new one alone`],
      ]}
    />
  );
}

function Deliveries({ of }: { of: string }) {
  const page = useResource<DeliveryPage>(`outbox?${new URLSearchParams({ to: of, limit: "10" })}`);
  return (
    <>
      <h3 class="group-title">Last deliveries</h3>
      <Loaded resource={page} part>
        {({ data }) =>
          data.length === 0 ? (
            <p class="help">Nothing was sent to it yet.</p>
          ) : (
            <div class="table-wrap" role="group" aria-label="Last deliveries" tabIndex={0}>
              <table class="table">
                <thead>
                  <tr>
                    {["State", "Event", "Tries", "Last answer", "Created"].map((head) => (
                      <th key={head} scope="col">
                        {head}
                      </th>
                    ))}
                    <th scope="col">
                      <span class="sr">Actions</span>
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {data.map((delivery) => (
                    <tr key={delivery.id}>
                      <td>
                        <DeliveryState of={delivery} />
                      </td>
                      <td>{delivery.event.kind}</td>
                      <td>{delivery.tries}</td>
                      <td title={lastAnswer(delivery)}>{lastAnswer(delivery)}</td>
                      <td>{moment(delivery.created_at_ms)}</td>
                      <td>
                        <Retry of={delivery} />
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )
        }
      </Loaded>
    </>
  );
}

/** The dialog of a new secret. It closes by its button alone. */
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
