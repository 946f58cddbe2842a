// What needs a person: the alerts that are open, and the rules that raise them.
import { useState } from "preact/hooks";
import { call } from "../api/client";
import { useList } from "../api/list";
import { changed, useResource } from "../api/resource";
import type { Alert, AlertRule, Page as PageOf, RuleTest } from "../api/types";
import { href, param, path, setParams } from "../app/router";
import { EditDialog } from "../part/edit";
import { Empty, Loaded, notify } from "../part/feedback";
import { Check, Field, Select, Text } from "../part/form";
import { moment, UNKNOWN } from "../part/format";
import { State } from "../part/icon";
import { Ref } from "../part/links";
import { Menu } from "../part/menu";
import { Card, Page } from "../part/page";
import { Table } from "../part/table";

const PAGES: [path: string, title: string][] = [
  ["/alerts", "Open"],
  ["/alerts/rules", "Rules"],
  ["/webhooks", "Webhooks"],
  ["/outbox", "Outbox"],
];

/** The pages about alerts and their events. */
export function AlertTabs() {
  return (
    <nav class="tabs" aria-label="Alerts">
      {PAGES.map(([to, title]) => (
        <a key={to} href={href(to)} aria-current={path.value === to ? "page" : undefined}>
          {title}
        </a>
      ))}
    </nav>
  );
}

/** The shape and word of an alert: failing only while somebody must act. */
export function standingOf({ state, severity }: Pick<Alert, "state" | "severity">): { kind: "ok" | "warn" | "bad"; word: string } {
  if (state === "resolved") return { kind: "ok", word: "resolved" };
  if (state === "acknowledged") return { kind: "warn", word: "acknowledged" };
  return { kind: severity, word: "open" };
}

export function AlertsPage() {
  const state = param("state");
  const list = useList<Alert>("alerts", { state });
  return (
    <Page title="Alerts" lead="A condition that needs a person has one alert, however often it comes and goes.">
      <AlertTabs />
      <div class="filters">
        <Select
          aria-label="State"
          data-filter
          value={state}
          onValue={(state) => setParams({ state })}
          options={[
            ["", "In any state"],
            ["open", "Open"],
            ["acknowledged", "Acknowledged"],
            ["resolved", "Resolved"],
          ]}
        />
      </div>
      <Card bare>
        <Table
          list={list}
          label="Alerts"
          rowKey={({ id }) => id}
          least={900}
          empty={
            <Empty icon="circle-check" title={state ? "No alert fits the filter" : "There was no alert yet"}>
              Rules watch limits, keys, providers, spending, the configuration, the disk and backups.
            </Empty>
          }
          columns={[
            { head: "State", width: 128, cell: (alert) => <State {...standingOf(alert)} /> },
            { head: "Kind", width: 160, cell: ({ kind }) => kind },
            { head: "About", width: 152, cell: (alert) => <About of={alert} /> },
            { head: "What", width: "1fr", cell: ({ text }) => <span title={text}>{text}</span> },
            { head: "Since", width: 112, cell: ({ first_at_ms }) => moment(first_at_ms) },
            { head: "Times", width: 64, number: true, cell: ({ times }) => times },
            { head: "Resolved", width: 112, cell: ({ resolved_at_ms }) => moment(resolved_at_ms) },
            { head: "Actions", width: 120, quiet: true, cell: (alert) => <Acknowledge of={alert} /> },
          ]}
        />
      </Card>
    </Page>
  );
}

function About({ of }: { of: Alert }) {
  if (of.object === null) return <>the gateway</>;
  if (of.kind === "key_expiring" || of.object.startsWith("key_")) return <Ref kind="key" id={of.object} name={null} />;
  if (of.object.startsWith("prj_")) return <Ref kind="project" id={of.object} name={null} />;
  if (of.kind.startsWith("provider_") || of.kind.startsWith("credential_")) return <Ref kind="provider" id={of.object} name={null} />;
  return <span class="mono clip">{of.object}</span>;
}

function Acknowledge({ of }: { of: Alert }) {
  if (of.state !== "open") return <span class="faint">{of.acked_by ?? UNKNOWN}</span>;
  const acknowledge = async (): Promise<void> => {
    await call("POST", `alerts/${of.id}/ack`, { body: {} });
    changed("alerts");
  };
  return (
    <button type="button" class="btn small" aria-label={`Acknowledge: ${of.text}`} onClick={() => void acknowledge().catch(tell)}>
      Acknowledge
    </button>
  );
}

const tell = (error: Error): void => notify(error.message);

export function RulesPage() {
  const rules = useResource<PageOf<AlertRule>>("alert-rules");
  return (
    <Page title="Rules for alerts" lead="One rule of each kind is built in.">
      <AlertTabs />
      <Loaded resource={rules}>
        {({ data }) => (
          <Card bare>
            <div class="table-wrap" role="group" aria-label="Rules" tabIndex={0}>
              <table class="table">
                <thead>
                  <tr>
                    <th scope="col">Rule</th>
                    <th scope="col">Kind</th>
                    <th scope="col" class="num">
                      Threshold
                    </th>
                    <th scope="col">About</th>
                    <th scope="col">Urgency</th>
                    <th scope="col" class="num">
                      Holds for
                    </th>
                    <th scope="col" class="num">
                      Clear for
                    </th>
                    <th scope="col">State</th>
                    <th scope="col">
                      <span class="sr">Actions</span>
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {data.map((rule) => (
                    <Rule key={rule.id} of={rule} />
                  ))}
                </tbody>
              </table>
            </div>
          </Card>
        )}
      </Loaded>
    </Page>
  );
}

function Rule({ of }: { of: AlertRule }) {
  return (
    <tr>
      <td>{of.name}</td>
      <td>{of.kind}</td>
      <td class="num">{of.threshold ?? UNKNOWN}</td>
      <td>{of.objects ? of.objects.join(", ") : "all"}</td>
      <td>{of.severity}</td>
      <td class="num">{of.hold_seconds} s</td>
      <td class="num">{of.clear_seconds} s</td>
      <td>{of.enabled ? "enabled" : "disabled"}</td>
      <td>
        <RuleMenu of={of} />
      </td>
    </tr>
  );
}

function RuleMenu({ of }: { of: AlertRule }) {
  const [isEdited, setEdited] = useState(false);
  const fire = async (): Promise<void> => {
    const { data } = await call<RuleTest>("POST", `alert-rules/${of.id}/test`, { body: {} });
    notify(`Event ${data.sequence} is on its way to webhooks and workers`);
    changed("outbox");
  };
  return (
    <div class="actions">
      <Menu
        label={`Actions for ${of.name}`}
        items={[
          { label: "Change", icon: "pencil", run: () => setEdited(true) },
          { label: "Test fire", icon: "play", run: () => void fire().catch(tell) },
        ]}
      />
      {isEdited && <EditRule of={of} onClose={() => setEdited(false)} />}
    </div>
  );
}

function EditRule({ of, onClose }: { of: AlertRule; onClose: () => void }) {
  return (
    <EditDialog
      title={`Change ${of.name}`}
      path={`alert-rules/${of.id}`}
      of={of}
      etag={`"${of.version}"`}
      fieldsOf={({ threshold, hold_seconds, clear_seconds, enabled }) => ({ threshold, hold_seconds, clear_seconds, enabled })}
      labels={{ threshold: "Threshold", hold_seconds: "Holds for (s)", clear_seconds: "Clear for (s)", enabled: "Enabled" }}
      onSaved={() => changed("alert-rules")}
      onClose={onClose}
    >
      {(mine, set) => (
        <>
          {of.threshold !== null && (
            <Field label="Threshold" name="threshold">
              <Text inputMode="decimal" value={String(mine.threshold ?? "")} onValue={(text) => set({ threshold: Number(text) })} />
            </Field>
          )}
          <Field label="Holds for (s)" name="hold_seconds" help="An alert opens when its condition has held for this time.">
            <Text inputMode="numeric" value={String(mine.hold_seconds)} onValue={(text) => set({ hold_seconds: Number(text) })} />
          </Field>
          <Field label="Clear for (s)" name="clear_seconds" help="An alert is resolved when its condition was absent for this time.">
            <Text inputMode="numeric" value={String(mine.clear_seconds)} onValue={(text) => set({ clear_seconds: Number(text) })} />
          </Field>
          <Check label="Enabled" checked={mine.enabled} onChange={(enabled) => set({ enabled })} />
        </>
      )}
    </EditDialog>
  );
}
