// What needs a person: the alerts, one of them with its figures, and their acknowledgement.
import { at, call } from "../api/client";
import { useList } from "../api/list";
import { changed, useResource } from "../api/resource";
import type { Alert, AlertKind, Quota } from "../api/types";
import { href, param, setParams } from "../app/router";
import { Dialog } from "../part/dialog";
import { AddressedDialog } from "../part/edit";
import { notify } from "../part/feedback";
import { Select } from "../part/form";
import { moment, UNKNOWN } from "../part/format";
import { State } from "../part/icon";
import { amount, shareOf } from "../part/limits";
import { ListCard } from "../part/list";
import { asked as askedFor, orderOf } from "../part/order";
import { Facts, Page } from "../part/page";
import { Search } from "../part/search";
import type { Column } from "../part/table";
import { EmptyAction } from "./alerts/empty_action";
import { figureName, figureText, KIND_NAMES, KINDS } from "./alerts/kinds";
import { AlertObject, alertTitle } from "./alerts/object";
import { AlertTabs } from "./alerts/tabs";

/** The shape and word of an alert: failing only while somebody must act. */
export function standingOf({ state, severity }: Pick<Alert, "state" | "severity">): { kind: "ok" | "warn" | "bad"; word: string } {
  if (state === "resolved") return { kind: "ok", word: "resolved" };
  if (state === "acknowledged") return { kind: "warn", word: "acknowledged" };
  return { kind: severity, word: severity === "bad" ? "open, urgent" : "open" };
}

/** The state of the alerts that are listed at first. */
const OPEN = "open";
/** In the address it stands for alerts in any state. */
const ANY = "any";

/** An open alert has no such time. */
const RESOLVED: Column<Alert> = {
  head: "Resolved",
  width: 116,
  sort: "resolved",
  from: "desc",
  fold: 3,
  cell: ({ resolved_at_ms }) => moment(resolved_at_ms),
};

const URGENT_FIRST = { sort: "severity", order: "desc" } as const;

export function AlertsPage() {
  const state = param("state") || OPEN;
  const kind = param("kind");
  const q = param("q");
  const order = orderOf(["severity", "opened", "resolved", "times"], URGENT_FIRST);
  const list = useList<Alert>("alerts", { state: state === ANY ? "" : state, kind, q, ...askedFor(order) });
  const isFiltered = state !== OPEN || kind !== "" || q !== "";
  return (
    <Page title="Alerts" lead="A condition that needs a person has one alert, which is resolved once the condition is over.">
      <AlertTabs />
      <ListCard
        filters={
          <>
            <Search label="Search alerts" placeholder="Text, kind or object" />
            <Select
              aria-label="State"
              value={state}
              onValue={(state) => setParams({ state: state === OPEN ? null : state })}
              options={[
                [OPEN, "Open"],
                ["acknowledged", "Acknowledged"],
                ["resolved", "Resolved"],
                [ANY, "Any state"],
              ]}
            />
            <Select
              aria-label="Kind"
              value={kind}
              onValue={(kind) => setParams({ kind })}
              options={[["", "Any kind"], ...KIND_NAMES.map((name): [string, string] => [name, KINDS[name].title])]}
            />
          </>
        }
        list={list}
        label="Alerts"
        order={order}
        usual={URGENT_FIRST}
        rowKey={({ id }) => id}
        isFiltered={isFiltered}
        icon="circle-check"
        titles={["No alert fits the filter", "Nothing needs you"]}
        help="Rules watch limits, keys, providers, spending, the configuration, the disk and backups."
        action={<EmptyAction isFiltered={isFiltered} path="/alerts" />}
        columns={[
          { head: "State", width: 128, sort: "severity", from: "desc", fold: 5, cell: (alert) => <State {...standingOf(alert)} /> },
          { head: "Alert", width: "1fr", least: 320, cell: (alert) => <Text of={alert} title={alertTitle(alert)} /> },
          {
            head: "About",
            width: 160,
            fold: 2,
            cell: ({ kind, object, object_name }) => <AlertObject kind={kind} object={object} name={object_name} />,
          },
          { head: "Since", width: 116, sort: "opened", from: "desc", fold: 4, cell: ({ first_at_ms }) => moment(first_at_ms) },
          { head: "Times", width: 76, number: true, sort: "times", fold: 1, cell: ({ times }) => times },
          ...(state === OPEN ? [] : [RESOLVED]),
          { head: "Actions", width: 120, quiet: true, fold: 6, cell: (alert) => <Acknowledge of={alert} look="small" /> },
        ]}
      />
      {param("alert") && <OneAlert key={param("alert")} id={param("alert")} />}
    </Page>
  );
}

/** The sentence of an alert, which opens it over the list as it is filtered. */
function Text({ of, title }: { of: Alert; title: string }) {
  return (
    <a
      class="row-link clip"
      title={of.text}
      href={href("/alerts", {
        state: param("state"),
        kind: param("kind"),
        q: param("q"),
        sort: param("sort"),
        order: param("order"),
        alert: of.id,
      })}
    >
      {title}. {of.text}
    </a>
  );
}

function Acknowledge({ of, look }: { of: Alert; look: "small" | "primary" }) {
  if (of.state !== "open") return <span class="faint">{of.acked_by ?? UNKNOWN}</span>;
  const acknowledge = async (): Promise<void> => {
    await call("POST", `${at("alerts", of.id)}/ack`, { body: {} });
    changed("alerts", "state");
  };
  return (
    <button
      type="button"
      class={`btn ${look}`}
      aria-label={`Acknowledge: ${of.text}`}
      onClick={() => void acknowledge().catch((error: Error) => notify(error.message))}
    >
      Acknowledge
    </button>
  );
}

function OneAlert({ id }: { id: string }) {
  const close = (): void => setParams({ alert: null });
  return (
    <AddressedDialog<Alert> path={at("alerts", id)} title="Alert" onClose={close}>
      {(alert) => (
        <Dialog title={KINDS[alert.kind as AlertKind]?.title ?? alert.kind} onClose={close} wide>
          <p class="prose wrap">{alert.text}</p>
          <AlertFacts of={alert} />
          <div class="dialog-foot">
            <a class="btn" href={href("/outbox", { kind: alert.kind })}>
              Deliveries
            </a>
            <Acknowledge of={alert} look="primary" />
          </div>
        </Dialog>
      )}
    </AddressedDialog>
  );
}

/** `28,200 of 30,000, 94 %`: what of a limit is used at this moment. */
const usedText = (quota: Quota): string =>
  `${amount(quota.metric, quota.used)} of ${amount(quota.metric, quota.limit)}, ${Math.floor(shareOf(quota) * 100)} %`;

function AlertFacts({ of }: { of: Alert }) {
  const quota = useResource<Quota>(of.object?.startsWith("quo_") ? at("quotas", of.object) : null).data.value;
  const isOpen = of.resolved_at_ms === null;
  const acknowledged = of.acked_at_ms === null ? null : `by ${of.acked_by}, ${moment(of.acked_at_ms)}`;
  return (
    <Facts
      rows={[
        ["State", <State key="s" {...standingOf(of)} />],
        ["About", <AlertObject key="o" kind={of.kind} object={of.object} name={of.object_name} />],
        [
          "Rule",
          <a key="r" class="mono wrap" href={href("/alerts/rules", { edit: of.rule })}>
            {of.rule}
          </a>,
        ],
        ["Now", quota && isOpen ? usedText(quota) : null],
        ["Since", moment(of.first_at_ms)],
        ["Began last", of.times > 1 ? `${moment(of.last_at_ms)}, ${of.times} times in all` : null],
        ["Acknowledged", acknowledged],
        ["Resolved", of.resolved_at_ms === null ? null : moment(of.resolved_at_ms)],
        ...Object.entries(of.figures).map(([name, value]): [string, string] => [
          `${figureName(name)}, when it opened`,
          quota && name !== "used_percent" ? amount(quota.metric, value) : figureText(name, value),
        ]),
      ]}
    />
  );
}
