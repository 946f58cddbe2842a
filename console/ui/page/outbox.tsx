// Deliveries of events to webhooks and workers, with their tries.
import { call } from "../api/client";
import { useList } from "../api/list";
import { changed, useResource } from "../api/resource";
import type { Delivery, DeliveryPage, ListedDelivery, Page as PageOf, Webhook } from "../api/types";
import { href, param, setParams } from "../app/router";
import { notify } from "../part/feedback";
import { Select } from "../part/form";
import { moment, plural, UNKNOWN } from "../part/format";
import { State } from "../part/icon";
import { ListCard } from "../part/list";
import { asked as askedFor, orderOf } from "../part/order";
import { Page } from "../part/page";
import { Search } from "../part/search";
import { EmptyAction } from "./alerts/empty_action";
import { KIND_NAMES } from "./alerts/kinds";
import { AlertObject } from "./alerts/object";
import { AlertTabs } from "./alerts/tabs";

const STANDING = { pending: "busy", leased: "busy", delivered: "ok", dead: "bad" } as const;

/** What stands in the address for deliveries to external workers. */
const WORKERS = "workers";
const NEWEST = { sort: "created", order: "desc" } as const;

export function DeliveryState({ of: { state } }: { of: Delivery }) {
  return <State kind={STANDING[state]} word={state} />;
}

export function OutboxPage() {
  const asked = { state: param("state"), kind: param("kind"), to: param("to"), q: param("q") };
  const isFiltered = Object.values(asked).some(Boolean);
  const order = orderOf(["created", "tries", "next_try"], NEWEST);
  const list = useList<ListedDelivery>("outbox", { ...asked, ...(order === NEWEST ? {} : askedFor(order)) });
  const dead = (list.first.value as DeliveryPage | null)?.unfinished.dead ?? 0;
  return (
    <Page title="Outbox" lead="Events are delivered at least once. After ten failures a delivery waits for you.">
      <AlertTabs />
      {dead > 0 && (
        <p class="alert bad" role="status">
          {plural(dead, "delivery", "deliveries")} failed ten times. Retry them when the receiver works again.
        </p>
      )}
      <Filters />
      <ListCard
        list={list}
        label="Deliveries"
        order={order}
        usual={NEWEST}
        rowKey={({ id }) => id}
        isFiltered={isFiltered}
        icon="archive"
        titles={["No delivery fits the filter", "There was no event yet"]}
        help="The beginning and the end of an alert are events."
        action={<EmptyAction isFiltered={isFiltered} path="/outbox" />}
        columns={[
          { head: "State", width: 112, cell: (delivery) => <DeliveryState of={delivery} /> },
          { head: "Event", width: "1fr", least: 150, cell: ({ event }) => event.kind },
          {
            head: "About",
            width: "1fr",
            fold: 3,
            cell: ({ event, object_name }) => <AlertObject kind={event.kind} object={event.object} name={object_name} />,
          },
          { head: "To", width: "1fr", fold: 5, cell: (delivery) => <Receiver of={delivery} /> },
          { head: "Tries", width: 76, number: true, sort: "tries", fold: 2, cell: ({ tries }) => tries },
          { head: "Next try", width: 116, sort: "next_try", from: "asc", fold: 4, cell: (delivery) => <NextTry of={delivery} /> },
          {
            head: "Last answer",
            width: "2fr",
            least: 200,
            fold: 0,
            cell: (delivery) => <span title={lastAnswer(delivery)}>{lastAnswer(delivery)}</span>,
          },
          { head: "Created", width: 116, sort: "created", from: "desc", fold: 1, cell: ({ created_at_ms }) => moment(created_at_ms) },
          { head: "Actions", width: 88, quiet: true, cell: (delivery) => <Retry of={delivery} /> },
        ]}
      />
    </Page>
  );
}

function Filters() {
  const webhooks = useResource<PageOf<Webhook>>("webhooks?limit=100").data.value?.data ?? [];
  return (
    <div class="filters">
      <Search label="Search deliveries" placeholder="Event, object or receiver" />
      <Select
        aria-label="State"
        value={param("state")}
        onValue={(state) => setParams({ state })}
        options={[["", "In any state"], ...Object.keys(STANDING).map((state): [string, string] => [state, state])]}
      />
      <Select
        aria-label="Event"
        value={param("kind")}
        onValue={(kind) => setParams({ kind })}
        options={[["", "Any event"], ...KIND_NAMES.map((kind): [string, string] => [kind, kind])]}
      />
      <Select
        aria-label="To"
        value={param("to")}
        onValue={(to) => setParams({ to })}
        options={[["", "To anyone"], [WORKERS, "To workers"], ...webhooks.map(({ id, name }): [string, string] => [id, `To ${name}`])]}
      />
    </div>
  );
}

function Receiver({ of: { webhook, webhook_name, worker } }: { of: Delivery }) {
  if (webhook === null) return <span class="clip">{worker ?? "workers"}</span>;
  return (
    <a class="clip" href={href("/webhooks", { webhook })}>
      {webhook_name ?? webhook}
    </a>
  );
}

/** Workers are not called: they ask for what is due. */
function NextTry({ of: { webhook, state, next_at_ms } }: { of: Delivery }) {
  if (webhook === null && state === "pending") return <span class="faint">on request</span>;
  return <>{moment(next_at_ms)}</>;
}

/** The status or error of the last try. */
export function lastAnswer({ last_error, last_status }: Pick<Delivery, "last_error" | "last_status">): string {
  return last_error ?? (last_status === null ? UNKNOWN : `status ${last_status}`);
}

/** The times after a retry at which deliveries are read again, to show its outcome. */
const READ_AFTER_MS = [0, 1_000, 4_000, 10_000];

/** The button that makes a delivery due again, if it was tried or is held. */
export function Retry({ of }: { of: Delivery }) {
  if (of.state === "delivered" || (of.state === "pending" && of.tries === 0)) return null;
  const retry = async (): Promise<void> => {
    await call("POST", `outbox/${of.id}/retry`, { body: {} });
    for (const later of READ_AFTER_MS) setTimeout(() => changed("outbox", "webhooks"), later);
  };
  return (
    <button
      type="button"
      class="btn small"
      aria-label={`Retry ${of.event.kind} to ${of.webhook_name ?? "workers"}`}
      onClick={() => void retry().catch((error: Error) => notify(error.message))}
    >
      Retry
    </button>
  );
}
