// The effective settings with their layers, and what a person prefers in this browser.
import { useEffect, useState } from "preact/hooks";
import { useResource } from "../api/resource";
import type { Config, GatewayState, Policies, Policy, ReachedBound, Setting } from "../api/types";
import { preferences } from "../app/preferences";
import { href, param, setParams } from "../app/router";
import { Empty, Loaded } from "../part/feedback";
import { Select, Text } from "../part/form";
import { ago, capital, count, day, moment, plural, UNKNOWN, zoneName } from "../part/format";
import { Card, Facts, Page } from "../part/page";
import { JobsCard } from "./jobs";

export function SettingsPage() {
  const config = useResource<Config>("config");
  const state = useResource<GatewayState>("state").data.value;
  return (
    <Page title="Settings" lead="What the gateway runs with. Variables and the configuration file set it; secrets are dots.">
      <div class="cols main-side">
        <Loaded resource={config} rows={12}>
          {(data) => <Values of={data} />}
        </Loaded>
        <div class="page-stack">
          <Preferences />
          <Card title="Set-up">
            <p>
              The steps from an empty gateway to the first request of a client. <a href={href("/setup")}>Set up</a>
            </p>
          </Card>
          {state && <Gateway of={state} />}
          {config.data.value && <PolicyCard of={config.data.value.policies} />}
        </div>
      </div>
      {state && <JobsCard of={state.jobs} />}
    </Page>
  );
}

type Choice<T extends string> = { label: string; value: T; options: [T, string][]; onValue: (value: T) => void };

function Pick<T extends string>({ label, value, options, onValue }: Choice<T>) {
  return (
    <div class="split">
      <span>{label}</span>
      <span class="seg" role="group" aria-label={label}>
        {options.map(([id, name]) => (
          <button key={id} type="button" aria-pressed={value === id} onClick={() => onValue(id)}>
            {name}
          </button>
        ))}
      </span>
    </div>
  );
}

function Preferences() {
  const { theme, density, zone, keys } = preferences;
  return (
    <Card title="In this browser">
      <div class="stack-list">
        <Pick
          label="Theme"
          value={theme.value}
          options={[
            ["system", "System"],
            ["light", "Light"],
            ["dark", "Dark"],
          ]}
          onValue={(value) => {
            theme.value = value;
          }}
        />
        <Pick
          label="Rows"
          value={density.value}
          options={[
            ["comfortable", "Roomy"],
            ["compact", "Compact"],
          ]}
          onValue={(value) => {
            density.value = value;
          }}
        />
        <Pick
          label="Times"
          value={zone.value}
          options={[
            ["utc", "UTC"],
            ["local", "Local"],
          ]}
          onValue={(value) => {
            zone.value = value;
          }}
        />
        <Pick
          label="Single keys"
          value={keys.value}
          options={[
            ["on", "On"],
            ["off", "Off"],
          ]}
          onValue={(value) => {
            keys.value = value;
          }}
        />
      </div>
    </Card>
  );
}

function Gateway({ of }: { of: GatewayState }) {
  return (
    <Card bare>
      <Facts
        rows={[
          ["Version", of.version],
          [
            "Build",
            <span key="b" class="mono">
              {of.commit}
            </span>,
          ],
          ["Built", day(Date.parse(of.built_at))],
          ["Running", `since ${moment(of.started_at_ms)} ${zoneName()}`],
        ]}
      />
      <Facts
        rows={[
          ["File read", `${ago(of.reload.last_ok_at_ms)}`],
          ["Last fault", of.reload.last_error],
          ["Snapshot", `generation ${of.generation}`],
          ["Prices of", of.prices_as_of],
        ]}
      />
      {of.warnings.length > 0 && <Facts rows={[["Warnings", of.warnings.join(" ")]]} />}
      {of.bounds_reached.length > 0 && <Facts rows={of.bounds_reached.map(boundRow)} />}
    </Card>
  );
}

/** A bound that was reached: how often, what gave way, and what to do. */
export function boundRow({ bound, max, reached, last_at_ms, gives_way, remedy }: ReachedBound): [string, string] {
  const most = max === null ? "" : ` (${count(max)})`;
  return [`Bound ${bound}${most}`, `Reached ${plural(reached, "time")}, last ${ago(last_at_ms)}. ${gives_way} ${remedy}`];
}

const LAYERS: [string, string][] = [
  ["", "Any layer"],
  ["set", "Not the default"],
  ["environment", "Set by a variable"],
  ["file", "Set by the file"],
  ["default", "Default"],
];

/** True if a setting has the words of a search and the layer. */
export function settingFits(of: Setting, text: string, layer: string): boolean {
  const words = [of.name, of.path, of.value, of.doc].join(" ").toLowerCase();
  const isOfLayer = layer === "" || (layer === "set" ? of.source !== "default" : of.source === layer);
  return isOfLayer && words.includes(text.trim().toLowerCase());
}

function Values({ of }: { of: Config }) {
  const [text, setText] = useState(param("q"));
  const layer = param("layer");
  const wanted = location.hash.slice(1);
  const found = of.settings.filter((setting) => settingFits(setting, text, layer));
  useEffect(() => document.getElementById(wanted)?.scrollIntoView({ block: "center" }), [wanted]);
  return (
    <Card title="Settings" aside={<span class="faint mono wrap">{of.file}</span>} bare>
      <div class="card-body filters">
        <Text
          type="search"
          data-filter
          value={text}
          onValue={(text) => {
            setText(text);
            setParams({ q: text }, "replace");
          }}
          placeholder="Search"
          aria-label="Search the settings"
        />
        <Select aria-label="Layer" value={layer} onValue={(layer) => setParams({ layer }, "replace")} options={LAYERS} />
      </div>
      {found.length === 0 ? (
        <Empty
          icon="settings-2"
          title="No setting fits the filter"
          action={
            <button
              type="button"
              class="btn"
              onClick={() => {
                setText("");
                setParams({ q: null, layer: null });
              }}
            >
              Clear the filter
            </button>
          }
        />
      ) : (
        <Table of={found} wanted={wanted} />
      )}
    </Card>
  );
}

/** The groups of settings by their names, in the order of the page; the first that fits counts. */
const GROUPS: [title: string, names: RegExp][] = [
  ["Keys and secrets", /API_KEY|ENCRYPTION_KEY|UNAUTHENTICATED/],
  ["Address and files", /_(HOST|PORT|STATE_DIR|CONFIG|CONFIG_SEED|USAGE_DB)$/],
  ["TLS", /_TLS_|_CA_FILE|_ROOTS/],
  ["Single sign-on", /^LLMGW_SSO_/],
  ["OAuth sign-ins", /^LLMGW_(PARTNER|OAUTH)_/],
  ["Backups and retention", /_(BACKUP|RETENTION)_/],
  ["Telemetry", /^OTEL_|_METRICS_/],
  ["Logs and diagnosis", /^LLMGW_(LOG|CORE)/],
  ["Limits and times", /_MAX_|_WORKERS|_SECONDS$|_MS$|_QUOTA_/],
];
const REST = "Requests and providers";

/** The settings by group, without those that are empty. */
export function groupsOf(settings: Setting[]): [string, Setting[]][] {
  const titleOf = ({ name }: Setting): string => GROUPS.find(([, names]) => names.test(name))?.[0] ?? REST;
  const all = [...GROUPS.map(([title]) => title), REST];
  return all
    .map((title): [string, Setting[]] => [title, settings.filter((setting) => titleOf(setting) === title)])
    .filter(([, found]) => found.length > 0);
}

function Table({ of, wanted }: { of: Setting[]; wanted: string }) {
  return (
    <div class="table-wrap" role="group" aria-label="Values" tabIndex={0}>
      <table class="table settings">
        <thead>
          <tr>
            <th scope="col">Variable and path in the file</th>
            <th scope="col">Value</th>
            <th scope="col">Default</th>
            <th scope="col">Layer</th>
            <th scope="col">A change needs</th>
          </tr>
        </thead>
        {groupsOf(of).map(([group, settings]) => (
          <tbody key={group}>
            <tr class="group-row">
              <th colSpan={5} scope="rowgroup">
                {group}
              </th>
            </tr>
            {settings.map((setting) => (
              <Row key={setting.name} of={setting} isWanted={setting.name === wanted} />
            ))}
          </tbody>
        ))}
      </table>
    </div>
  );
}

function Row({ of, isWanted }: { of: Setting; isWanted: boolean }) {
  const { name, path, value, source, line, applies, doc } = of;
  return (
    <tr id={name} class={isWanted ? "wanted" : undefined}>
      <td>
        <span class="two-line">
          <a class="mono wrap" href={`${href("/settings")}#${name}`}>
            {name}
          </a>
          {path && path !== name && <span class="mono help wrap">{path}</span>}
          <span class="help wrap">{doc}</span>
        </span>
      </td>
      <td class="conflict-cell">{value ?? <span class="faint">{UNKNOWN}</span>}</td>
      <td class="conflict-cell faint">{of.default ?? UNKNOWN}</td>
      <td>
        {source === "default" ? (
          <span class="faint">default</span>
        ) : (
          <span class="tag accent">{source === "file" ? `file${line === null ? "" : `, line ${line}`}` : "variable"}</span>
        )}
      </td>
      <td class="faint">{applies === "start" ? "a restart" : "nothing"}</td>
    </tr>
  );
}

/** How often a target is tried again, and when a circuit opens. */
function PolicyCard({ of }: { of: Policies }) {
  const lines = (policy: Policy): [string, string][] =>
    Object.entries(policy).map(([name, value]) => [capital(name.replace(/_/g, " ")), String(value)]);
  return (
    <Card title="Retries and circuits" aside={<span class="faint mono">policies</span>} bare>
      <Facts rows={lines(of.defaults)} />
      {Object.entries(of.overrides).map(([provider, policy]) => (
        <Facts key={provider} rows={[["Provider", provider], ...lines(policy)]} />
      ))}
    </Card>
  );
}
