// Deliveries of events to webhooks and workers, with their tries.
import { call } from "../api/client";
import { useList } from "../api/list";
import { changed } from "../api/resource";
import type { Delivery, DeliveryPage } from "../api/types";
import { param, setParams } from "../app/router";
import { Empty, notify } from "../part/feedback";
import { Select } from "../part/form";
import { moment, plural, UNKNOWN } from "../part/format";
import { State } from "../part/icon";
import { Card, Page } from "../part/page";
import { Table } from "../part/table";
import { AlertTabs } from "./alerts";

const STANDING = { pending: "off", leased: "off", delivered: "ok", dead: "bad" } as const;

export function OutboxPage() {
  const state = param("state");
  const list = useList<Delivery>("outbox", { state });
  const dead = (list.first.value as DeliveryPage | null)?.unfinished.dead ?? 0;
  return (
    <Page title="Outbox" lead="Events are delivered at least once. After ten failures a delivery waits for you.">
      <AlertTabs />
      {dead > 0 && (
        <p class="alert bad" role="status">
          {plural(dead, "delivery", "deliveries")} failed ten times. Retry them when the receiver works again.
        </p>
      )}
      <div class="filters">
        <Select
          aria-label="State"
          data-filter
          value={state}
          onValue={(state) => setParams({ state })}
          options={[["", "In any state"], ...Object.keys(STANDING).map((state): [string, string] => [state, state])]}
        />
      </div>
      <Card bare>
        <Table
          list={list}
          label="Deliveries"
          rowKey={({ id }) => id}
          least={900}
          empty={
            <Empty icon="archive" title={state ? "No delivery fits the filter" : "There was no event yet"}>
              The beginning and the end of an alert are events.
            </Empty>
          }
          columns={[
            { head: "State", width: 112, cell: ({ state }) => <State kind={STANDING[state]} word={state} /> },
            { head: "Event", width: 176, cell: ({ event }) => event.kind },
            { head: "About", width: "1fr", cell: ({ event }) => event.object ?? "the gateway" },
            { head: "To", width: "1fr", cell: ({ webhook, webhook_name, worker }) => webhook_name ?? webhook ?? worker ?? "workers" },
            { head: "Tries", width: 64, number: true, cell: ({ tries }) => tries },
            { head: "Next try", width: 112, cell: ({ next_at_ms }) => moment(next_at_ms) },
            { head: "Last answer", width: "2fr", cell: (delivery) => lastAnswer(delivery) },
            { head: "Created", width: 112, cell: ({ created_at_ms }) => moment(created_at_ms) },
            { head: "Actions", width: 88, quiet: true, cell: (delivery) => <Retry of={delivery} /> },
          ]}
        />
      </Card>
    </Page>
  );
}

/** The status or error of the last try. */
export function lastAnswer({ last_error, last_status }: Pick<Delivery, "last_error" | "last_status">): string {
  return last_error ?? (last_status === null ? UNKNOWN : `status ${last_status}`);
}

function Retry({ of }: { of: Delivery }) {
  if (of.state === "delivered" || (of.state === "pending" && of.tries === 0)) return null;
  const retry = async (): Promise<void> => {
    await call("POST", `outbox/${of.id}/retry`, { body: {} });
    changed("outbox");
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
