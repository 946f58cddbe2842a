// The filters of the list of requests. All of them stand in the address.
import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { List } from "../../api/list";
import { FOUND_MAX } from "../../api/objects";
import type { FullRecord } from "../../api/shapes";
import type { Page as PageOf, Suggestion as SuggestedName } from "../../api/types";
import { go, href, param, query, setParams } from "../../app/router";
import { Combobox, type Suggested, type Suggestion } from "../../part/combobox";
import { Select, Text } from "../../part/form";
import { count } from "../../part/format";
import { Icon } from "../../part/icon";
import { STEP_RESULTS } from "../../part/outcome";
import { ALL_TIME, chosenPeriod, PERIODS } from "../requests";

/** Filters by an exact value: the name of the parameter, its name on the page, and the field whose names the gateway suggests. */
const EXACT: [name: string, title: string, field?: string][] = [
  ["key", "Key", "key"],
  ["project", "Project", "project"],
  ["principal", "Human", "principal"],
  ["model", "Model", "model"],
  ["provider", "Provider", "provider"],
  ["endpoint", "Endpoint", "endpoint"],
  ["operation", "Operation", "operation"],
  ["client", "Client", "client"],
  ["session", "Session"],
  ["chosen_by", "Chosen by"],
  ["attempted", "Tried at", "provider"],
  ["credential", "Tried with key"],
  ["result", "With a step"],
  ["status_class", "Status class"],
  ["error", "Error", "error"],
  ["end_user", "End user"],
  ["status", "Status"],
  ["cost_micro_usd_min", "Cost from (µ$)"],
];

const FILTERS = [
  "q",
  "failed",
  "failed_over",
  "outcome",
  "duration_us_min",
  "first_content_us_min",
  "request_id_prefix",
  ...EXACT.map(([name]) => name),
];

const VIEWS: [string, Record<string, string>][] = [
  ["Failed", { failed: "true" }],
  ["After failover", { failed_over: "true" }],
  ["Slow", { duration_us_min: "10000000" }],
  ["Expensive", { cost_micro_usd_min: "100000" }],
  ["Refused", { status: "429" }],
];

/** The filters by tag that the address has. */
const tagFilters = (): string[] => [...query.value.keys()].filter((name) => name.startsWith("tag."));

/** The filters of the address. */
export const chosenFilters = (): Record<string, string> =>
  Object.fromEntries([...FILTERS, ...tagFilters()].map((name) => [name, param(name)]));

/** The parameters of the list that the page of one request keeps, for its neighbours and the way back. */
export const keptParams = (): Record<string, string> =>
  Object.fromEntries([...FILTERS, ...tagFilters(), "period", "from", "to", "sort", "order"].map((name) => [name, param(name)]));

export function Filters({ list }: { list: List<FullRecord> }) {
  const [text, setText] = useState(param("q"));
  const tags = tagFilters().map((name): [string, string] => [name, `Tag ${name.slice("tag.".length)}`]);
  const exact = [...EXACT, ...tags].filter(([name]) => param(name));
  const current = query.value;
  return (
    <div class="filters">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          setParams({ q: text.trim() });
        }}
      >
        <Text
          type="search"
          data-filter
          value={text}
          onValue={setText}
          placeholder="Id, key, model, provider…"
          aria-label="A request ID, or a part of the name of a key, project, human, model, provider or endpoint"
        />
      </form>
      <Select
        aria-label="Period"
        data-period
        value={param("from") ? "" : chosenPeriod()}
        onValue={(period) => setParams({ period, from: null, to: null })}
        options={[
          ...(param("from") ? [["", "Chosen period"] as [string, string]] : []),
          [ALL_TIME, "All time"],
          ...Object.entries(PERIODS).map(([id, [name]]): [string, string] => [id, name]),
        ]}
      />
      <Select
        aria-label="Outcome"
        value={param("outcome")}
        onValue={(outcome) => setParams({ outcome })}
        options={[
          ["", "Any outcome"],
          ["completed", "completed"],
          ["failed", "failed"],
          ["cancelled", "client left"],
          ["cut", "cut off"],
          ["interrupted", "interrupted"],
        ]}
      />
      <Select
        aria-label="Slower than"
        value={param("duration_us_min")}
        onValue={(duration_us_min) => setParams({ duration_us_min })}
        options={[
          ["", "Any duration"],
          ["1000000", "1 s or more"],
          ["10000000", "10 s or more"],
          ["60000000", "1 min or more"],
        ]}
      />
      <AddFilter />
      <span class="seg" role="group" aria-label="Views">
        {VIEWS.map(([name, wanted]) => {
          const isOn = Object.entries(wanted).every(([field, value]) => current.get(field) === value);
          const toggle = Object.fromEntries(Object.entries(wanted).map(([field, value]) => [field, isOn ? null : value]));
          return (
            <button key={name} type="button" aria-pressed={isOn} onClick={() => setParams(toggle)}>
              {name}
            </button>
          );
        })}
      </span>
      {param("request_id_prefix") && <span class="tag accent">Id begins with {param("request_id_prefix")}</span>}
      {exact.map(([name, title]) => (
        <span key={name} class="tag accent">
          {title}: <span class="clip">{shownName(list, name)}</span>
          <button type="button" class="tag-x" aria-label={`Remove the filter ${title}`} onClick={() => setParams({ [name]: null })}>
            <Icon name="x" small />
          </button>
        </span>
      ))}
      {[...FILTERS, ...tagFilters()].some((name) => param(name)) && (
        <button type="button" class="btn plain small" onClick={() => go(href("/requests", { period: param("period") }))}>
          Clear
        </button>
      )}
    </div>
  );
}

/** The value of a filter, by its name where a row of the list has it. */
function shownName(list: List<FullRecord>, filter: string): string {
  const value = param(filter);
  const row = list.row(0);
  const names: Record<string, string | null | undefined> = {
    key: row?.key_name,
    project: row?.project_name,
    principal: row?.principal_name,
  };
  const isOfRow = filter in names && row?.[filter as "key" | "project" | "principal"] === value;
  return (isOfRow && names[filter]) || value;
}

/** Chooses a filter, and then its value from the names that occur. */
function AddFilter() {
  const [chosen, choose] = useState("");
  const found = EXACT.find(([name]) => name === chosen);
  return (
    <>
      <Select
        aria-label="Add a filter"
        value={chosen}
        onValue={choose}
        options={[["", "+ filter"], ...EXACT.map(([name, title]): [string, string] => [name, title])]}
      />
      {found && (
        <span class="filter-value">
          <Combobox
            key={chosen}
            label={found[1]}
            placeholder={found[1]}
            autoFocus
            suggest={(text) => suggest(found, text)}
            onPick={(value) => {
              choose("");
              setParams({ [chosen]: value });
            }}
          />
        </span>
      )}
    </>
  );
}

const FIXED: Record<string, string[]> = {
  result: STEP_RESULTS,
  status_class: ["2", "3", "4", "5"],
  status: ["400", "401", "403", "404", "429", "500", "503"],
};

async function suggest([name, , field]: (typeof EXACT)[number], text: string): Promise<Suggested> {
  const wanted = text.trim();
  const plain = (value: string): Suggestion => ({ value, text: value, title: value });
  if (!field) {
    const fixed = (FIXED[name] ?? []).filter((value) => value.includes(wanted)).map(plain);
    return { found: fixed.length || !wanted ? fixed : [plain(wanted)], more: false };
  }
  // One more than is shown, to see whether there are others.
  const search = new URLSearchParams({ field, limit: String(FOUND_MAX + 1), ...(wanted ? { q: wanted } : {}) });
  const { data } = await call<PageOf<SuggestedName>>("GET", `suggest?${search}`);
  const found = data.data.slice(0, FOUND_MAX).map(({ value, name, requests }) => ({
    value,
    text: name ?? value,
    title: name ?? value,
    note: `${count(requests)} in 30 d`,
  }));
  return { found, more: data.data.length > FOUND_MAX };
}
