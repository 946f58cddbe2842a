// The effective settings with their sources, and what a person prefers in this browser.
import { useState } from "preact/hooks";
import { useResource } from "../api/resource";
import type { Config, GatewayState } from "../api/types";
import { preferences } from "../app/preferences";
import { href } from "../app/router";
import { Loaded } from "../part/feedback";
import { Text } from "../part/form";
import { ago, day, moment, UNKNOWN, zoneName } from "../part/format";
import { Card, Facts, Page } from "../part/page";

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
          {state && <Gateway of={state} />}
          <Card title="Set-up">
            <p>
              The steps from an empty gateway to the first request of a client. <a href={href("/setup")}>Set up</a>
            </p>
          </Card>
        </div>
      </div>
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
    </Card>
  );
}

function Values({ of }: { of: Config }) {
  const [text, setText] = useState("");
  const wanted = text.trim().toLowerCase();
  const found = of.settings.filter(({ name, value }) => `${name} ${value ?? ""}`.toLowerCase().includes(wanted));
  return (
    <Card title="Settings" aside={<span class="faint mono wrap">{of.file}</span>} bare>
      <div class="card-body">
        <Text type="search" data-filter value={text} onValue={setText} placeholder="Search" aria-label="Search the settings" />
      </div>
      <div class="table-wrap" role="group" aria-label="Values" tabIndex={0}>
        <table class="table">
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col">Value</th>
              <th scope="col">Set by</th>
            </tr>
          </thead>
          <tbody>
            {found.map(({ name, value, source }) => (
              <tr key={name} id={name}>
                <td class="mono">{name}</td>
                <td class="conflict-cell">{value ?? <span class="faint">{UNKNOWN}</span>}</td>
                <td>{source === "default" ? <span class="faint">default</span> : <span class="tag accent">{source}</span>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {found.length === 0 && <p class="card-body muted">No setting fits.</p>}
    </Card>
  );
}
