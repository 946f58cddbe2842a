// The records of requests, with filters that stand in the address.
import { useMemo, useState } from "preact/hooks";
import { useList } from "../api/list";
import type { RequestRecord } from "../api/types";
import { go, href, param, query, setParams } from "../app/router";
import { Empty } from "../part/feedback";
import { Select, Text } from "../part/form";
import { clock, day, dollars, duration, short, UNKNOWN, zoneName } from "../part/format";
import { Icon } from "../part/icon";
import { OutcomeMark } from "../part/outcome";
import { Card, Page } from "../part/page";
import { Table } from "../part/table";

/** The lengths of the periods that can be chosen, in milliseconds. */
export const PERIODS: Record<string, [string, number]> = {
  "15m": ["Last 15 minutes", 900_000],
  "1h": ["Last hour", 3_600_000],
  "24h": ["Last 24 hours", 86_400_000],
  "7d": ["Last 7 days", 604_800_000],
  "30d": ["Last 30 days", 2_592_000_000],
};

/** The first moment of the chosen period, or an empty text for all time. It does not move while the page is open. */
export function usePeriod(period: string): string {
  return useMemo(() => {
    const length = PERIODS[period]?.[1];
    return length ? String(Math.floor((Date.now() - length) / 60_000) * 60_000) : "";
  }, [period]);
}

/** Filters by an exact value, with their names on the page. */
const EXACT: [string, string][] = [
  ["key", "Key"],
  ["project", "Project"],
  ["principal", "Human"],
  ["model", "Model"],
  ["provider", "Provider"],
  ["endpoint", "Endpoint"],
  ["operation", "Operation"],
  ["error", "Error"],
  ["end_user", "End user"],
  ["status", "Status"],
  ["cost_micro_usd_min", "Cost from (µ$)"],
];

const FILTERS = ["outcome", "duration_us_min", "request_id_prefix", ...EXACT.map(([name]) => name)];

const VIEWS: [string, Record<string, string>][] = [
  ["Failed", { outcome: "failed" }],
  ["Slow", { duration_us_min: "10000000" }],
  ["Dear", { cost_micro_usd_min: "100000" }],
  ["Refused", { status: "429" }],
];

export function RequestsPage() {
  const period = param("period");
  const from = param("from") || usePeriod(period);
  const filters = Object.fromEntries(FILTERS.map((name) => [name, param(name)]));
  const asked = { ...filters, from, to: param("to") };
  const list = useList<RequestRecord>("requests", asked);
  const isFiltered = Object.values(asked).some(Boolean);
  const exported = new URLSearchParams(Object.entries(asked).filter(([, value]) => value));
  return (
    <Page
      title="Requests"
      lead="Every exchange with a client, the newest first. Prompts and answers are not kept."
      actions={
        <>
          <button type="button" class="btn" onClick={() => list.load()} disabled={list.busy.value}>
            <Icon name="refresh-cw" small />
            Read again
          </button>
          <a class="btn" href={`/admin/api/usage/export?format=csv&${exported}`} download="llmgw-usage.csv">
            <Icon name="download" small />
            Export CSV
          </a>
        </>
      }
    >
      <Filters />
      <Card bare>
        <Table
          list={list}
          label="Requests"
          rowKey={(request) => request.request_id}
          least={1080}
          empty={
            <Empty
              icon="list"
              title={isFiltered ? "No request fits the filter" : "There was no request yet"}
              action={
                isFiltered ? (
                  <a class="btn" href={href("/requests")}>
                    Clear the filter
                  </a>
                ) : (
                  <a class="btn primary" href={href("/keys", { new: "1" })}>
                    Mint key
                  </a>
                )
              }
            >
              {isFiltered ? null : "The first request of a client appears here as soon as it has ended."}
            </Empty>
          }
          columns={[
            { head: `Time (${zoneName()})`, width: 148, cell: (request) => <Time of={request} /> },
            { head: "Key", width: "2fr", cell: (request) => request.key_name ?? <span class="muted">{request.key}</span> },
            { head: "Asked → served", width: "4fr", cell: (request) => <Served of={request} /> },
            { head: "Outcome", width: 132, cell: (request) => <OutcomeMark of={request} /> },
            { head: "First", width: 80, number: true, cell: (request) => duration(request.first_content_us) },
            { head: "Total", width: 80, number: true, cell: (request) => duration(request.duration_us) },
            { head: "Tokens", width: 136, number: true, cell: (request) => <Tokens of={request} /> },
            { head: "Cost", width: 96, number: true, cell: (request) => dollars(request.cost_micro_usd) },
          ]}
        />
      </Card>
    </Page>
  );
}

function Time({ of }: { of: RequestRecord }) {
  const isToday = day(of.started_at_ms) === day(Date.now());
  return (
    <a class="row-link num" href={href(`/requests/${encodeURIComponent(of.request_id)}`)} title={day(of.started_at_ms)}>
      {isToday ? "" : `${day(of.started_at_ms).replace(/ \d{4}$/, "")} `}
      {clock(of.started_at_ms, "ms").slice(0, isToday ? undefined : 8)}
    </a>
  );
}

function Served({ of }: { of: RequestRecord }) {
  const target = of.provider ? `${of.provider}/${of.model}` : null;
  if (target === of.selector) return <>{target}</>;
  return (
    <>
      {of.selector || UNKNOWN} <span class="faint">→</span> {target ?? <span class="faint">no target</span>}
    </>
  );
}

/** The sum of the classes that a client sends. */
export const inputOf = ({ tokens }: RequestRecord): number =>
  ["input", "cache_read", "cache_write", "cache_write_1h", "audio_input", "image_input"].reduce(
    (sum, name) => sum + (tokens[name] ?? 0),
    0,
  );

export const outputOf = ({ tokens }: RequestRecord): number =>
  ["output", "reasoning", "audio_output", "image_output"].reduce((sum, name) => sum + (tokens[name] ?? 0), 0);

function Tokens({ of }: { of: RequestRecord }) {
  if (of.provenance === "none") return <span class="faint">{UNKNOWN}</span>;
  return (
    <>
      {short(inputOf(of))} <span class="faint">→</span> {short(outputOf(of))}
    </>
  );
}

function Filters() {
  const [prefix, setPrefix] = useState(param("request_id_prefix"));
  const exact = EXACT.filter(([name]) => param(name));
  const current = query.value;
  return (
    <div class="filters">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          setParams({ request_id_prefix: prefix.trim() });
        }}
      >
        <Text
          type="search"
          data-filter
          value={prefix}
          onValue={setPrefix}
          placeholder="Request id, or its beginning"
          aria-label="Request id, or its beginning"
        />
      </form>
      <Select
        aria-label="Period"
        data-period
        value={param("period")}
        onValue={(period) => setParams({ period, from: null, to: null })}
        options={[
          ["", param("from") ? "Chosen period" : "All time"],
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
      {exact.map(([name, title]) => (
        <span key={name} class="tag accent">
          {title}: <span class="clip">{param(name)}</span>
          <button type="button" class="tag-x" aria-label={`Remove the filter ${title}`} onClick={() => setParams({ [name]: null })}>
            <Icon name="x" small />
          </button>
        </span>
      ))}
      {FILTERS.some((name) => param(name)) && (
        <button type="button" class="btn plain small" onClick={() => go(href("/requests", { period: param("period") }))}>
          Clear
        </button>
      )}
    </div>
  );
}
