// The rules that raise alerts: their conditions, thresholds and scopes.
import { useState } from "preact/hooks";
import { call } from "../api/client";
import { changed, useResource } from "../api/resource";
import type { AlertRule, Page as PageOf, RuleTest } from "../api/types";
import { href, param, setParams } from "../app/router";
import { Confirm } from "../part/dialog";
import { WriteOutlook } from "../part/effects";
import { Loaded, notify } from "../part/feedback";
import { plural, secondsText, UNKNOWN } from "../part/format";
import { Icon, State } from "../part/icon";
import { Menu } from "../part/menu";
import { Card, Page } from "../part/page";
import { type Column, Rows } from "../part/table";
import { KINDS, thresholdText } from "./alerts/kinds";
import { AlertObject } from "./alerts/object";
import { EditRule, NewRule } from "./alerts/rule_form";
import { AlertTabs } from "./alerts/tabs";

export function RulesPage() {
  const rules = useResource<PageOf<AlertRule>>("alert-rules");
  const edited = param("edit");
  return (
    <Page
      title="Rules for alerts"
      lead="One rule of each kind is built in. A rule may concern all objects, or some."
      actions={
        <button type="button" class="btn primary" data-new onClick={() => setParams({ new: "1" })}>
          <Icon name="plus" small />
          New rule
        </button>
      }
    >
      <AlertTabs />
      <Loaded resource={rules}>{({ data }) => <Rules of={data} />}</Loaded>
      {param("new") && <NewRule onClose={() => setParams({ new: null })} />}
      {edited && <EditRule key={edited} id={edited} onClose={() => setParams({ edit: null })} />}
    </Page>
  );
}

const COLUMNS: Column<AlertRule>[] = [
  { head: "Rule", width: "1fr", least: 160, cell: (rule) => <Name of={rule} /> },
  { head: "Kind", width: 200, fold: 4, cell: ({ kind }) => KINDS[kind].title },
  { head: "Threshold", width: 216, fold: 3, cell: (rule) => thresholdText(rule) ?? UNKNOWN },
  { head: "About", width: 104, fold: 2, cell: (rule) => <Scope of={rule} /> },
  { head: "Urgency", width: 80, fold: 5, cell: ({ severity }) => (severity === "bad" ? "urgent" : "normal") },
  {
    head: "Opens, clears after",
    width: 144,
    fold: 0,
    cell: (rule) => `${secondsText(rule.hold_seconds)}, ${secondsText(rule.clear_seconds)}`,
  },
  { head: "State", width: 104, cell: ({ enabled }) => <State kind={enabled ? "ok" : "off"} word={enabled ? "enabled" : "disabled"} /> },
  { head: "Actions", width: 56, quiet: true, cell: (rule) => <RuleMenu of={rule} /> },
];

function Rules({ of }: { of: AlertRule[] }) {
  return (
    <Card bare>
      <Rows rows={of} label="Rules" rowKey={({ id }) => id} columns={COLUMNS} />
    </Card>
  );
}

function Name({ of }: { of: AlertRule }) {
  return (
    <a class="row-link" title={of.name} href={href("/alerts/rules", { edit: of.id })}>
      {of.name}
    </a>
  );
}

/** The objects that a rule concerns: one as a link, more as their number. */
function Scope({ of }: { of: AlertRule }) {
  const [first = null, ...more] = of.objects ?? [];
  if (of.objects === null) return <>all</>;
  if (more.length) return <>{plural(of.objects.length, "object")}</>;
  return <AlertObject kind={of.kind} object={first} name={of.object_names?.[0]} />;
}

function RuleMenu({ of }: { of: AlertRule }) {
  const [isDeleted, setDeleted] = useState(false);
  const path = `alert-rules/${of.id}`;
  const fire = async (): Promise<void> => {
    const { data } = await call<RuleTest>("POST", `${path}/test`, { body: {} });
    notify(`Event ${data.sequence} is on its way to webhooks and workers`);
    changed("outbox");
  };
  const turn = async (): Promise<void> => {
    await call("PATCH", path, { body: { enabled: !of.enabled }, ifMatch: of.version });
    changed("alert-rules");
  };
  const tell = (error: Error): void => notify(error.message);
  return (
    <div class="actions">
      <Menu
        label={`Actions for ${of.name}`}
        items={[
          { label: "Change", icon: "pencil", run: () => setParams({ edit: of.id }) },
          { label: "Send test", icon: "play", run: () => void fire().catch(tell) },
          { label: of.enabled ? "Disable" : "Enable", icon: "power", run: () => void turn().catch(tell) },
          { label: "Delete", icon: "trash-2", danger: true, run: () => setDeleted(true) },
        ]}
      />
      {isDeleted && (
        <Confirm
          title={`Delete ${of.name}?`}
          action="Delete"
          run={async () => {
            await call("DELETE", path, { ifMatch: of.version });
            changed("alert-rules", "alerts", "state");
          }}
          onClose={() => setDeleted(false)}
        >
          <p>This condition is no longer watched. Open alerts of the rule are resolved.</p>
          <WriteOutlook write={{ method: "DELETE", path, ifMatch: of.version }} />
        </Confirm>
      )}
    </div>
  );
}
