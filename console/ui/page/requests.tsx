// The records of requests, with filters that stand in the address.
import { useMemo } from "preact/hooks";
import { gatewayPath } from "../api/base";
import { may } from "../api/client";
import { useList } from "../api/list";
import { changed, useResource } from "../api/resource";
import type { FullRecord, SeriesAnswer } from "../api/shapes";
import type { RequestRecord, RequestRecordPage } from "../api/types";
import { href, param, setParams } from "../app/router";
import { Bars } from "../part/chart";
import { clientName } from "../part/client_name";
import { Empty, ErrorBox } from "../part/feedback";
import { capital, clock, count, day, dollars, duration, moment, short, UNKNOWN, zoneId, zoneName } from "../part/format";
import { Icon, Mark } from "../part/icon";
import { asked as askedFor, orderOf } from "../part/order";
import { AttemptMarks, outcomeOf } from "../part/outcome";
import { Card, Page } from "../part/page";
import { type Column, Table } from "../part/table";
import { limitsOf, outcomesOf, timesOf } from "./overview/figures";
import { chosenFilters, Filters, keptParams } from "./requests/filters";
import { Fresh } from "./requests/fresh";

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

/** The columns by which the gateway sorts requests. */
const SORTED = ["time", "cost", "duration", "first_token", "tokens"];
const NEWEST = { sort: "time", order: "desc" } as const;

export function RequestsPage() {
  const from = param("from") || usePeriod(chosenPeriod());
  const filters = chosenFilters();
  const asked = { ...filters, from, to: param("to") };
  const order = orderOf(SORTED, NEWEST);
  const list = useList<FullRecord>("requests", { ...asked, ...(order === NEWEST ? {} : askedFor(order)) });
  const since = (list.first.value as RequestRecordPage | null)?.sorted_since_ms ?? null;
  const readAgain = (): void => {
    void list.load();
    changed("series");
  };
  const zone = zoneName();
  const columns = useMemo(() => columnsOf(zone), [zone]);
  const isFiltered = Object.values({ ...filters, from: param("from"), to: asked.to }).some(Boolean);
  const exported = new URLSearchParams(Object.entries(asked).filter(([, value]) => value));
  return (
    <Page
      title="Requests"
      lead="Every exchange with a client, the newest first. Prompts and answers are not kept."
      actions={
        <>
          <button type="button" class="btn" onClick={readAgain} disabled={list.busy.value}>
            <Icon name="refresh-cw" small />
            Refresh
          </button>
          <a class="btn" href={gatewayPath(`/admin/api/usage/export?format=csv&${exported}`)} download="llmgw-usage.csv">
            <Icon name="download" small />
            Export CSV
          </a>
        </>
      }
    >
      <Filters list={list} />
      {from && <OverTime filters={filters} from={from} to={param("to")} />}
      <div>
        {since !== null && (
          <p class="alert" role="status">
            Sorted among the requests since {moment(since)}. Choose an earlier period to sort older ones.
          </p>
        )}
        {!asked.to && order === NEWEST && <Fresh list={list} onShow={readAgain} />}
        <Card bare>
          <Table
            list={list}
            label="Requests"
            order={order}
            usual={NEWEST}
            rowKey={(request) => request.request_id}
            empty={
              isFiltered ? (
                <Empty
                  icon="list"
                  title={from ? "No request in this time fits the filter" : "No request fits the filter"}
                  action={
                    <>
                      {from && (
                        <a class="btn" href={href("/requests", { ...keptParams(), from: null, to: null, period: ALL_TIME })}>
                          Search all time
                        </a>
                      )}
                      <a class="btn" href={href("/requests")}>
                        Clear the filter
                      </a>
                    </>
                  }
                />
              ) : (
                <None isOfAllTime={from === ""} />
              )
            }
            columns={columns}
          />
        </Card>
      </div>
    </Page>
  );
}

/** Shown in place of a list without filters. */
function None({ isOfAllTime }: { isOfAllTime: boolean }) {
  const mint = may("mint_keys") && (
    <a class="btn primary" href={href("/keys", { new: "1" })}>
      Mint key
    </a>
  );
  const all = (
    <a class="btn" href={href("/requests", { period: ALL_TIME })}>
      Show all time
    </a>
  );
  return (
    <Empty icon="list" title={isOfAllTime ? "There was no request yet" : "No request in this time"} action={isOfAllTime ? mint : all}>
      The first request of a client appears here as soon as it has ended.
    </Empty>
  );
}

const columnsOf = (zone: string): Column<FullRecord>[] => [
  { head: `Time (${zone})`, width: 136, sort: "time", from: "desc", cell: (request) => <Time of={request} /> },
  { head: "Key · client", width: "3fr", least: 150, fold: 0, cell: (request) => <Sender of={request} /> },
  { head: "Asked → served", width: "4fr", least: 220, fold: 5, cell: (request) => <Served of={request} /> },
  { head: "Attempts", width: 88, fold: 1, cell: (request) => <AttemptMarks of={request} /> },
  { head: "Outcome", width: 132, fold: 3, cell: (request) => <Trouble of={request} /> },
  { head: "First", width: 84, number: true, sort: "first_token", fold: 2, cell: (request) => duration(request.first_content_us) },
  { head: "Total", width: 84, number: true, sort: "duration", fold: 6, cell: (request) => duration(request.duration_us) },
  { head: "Tokens", width: 120, number: true, sort: "tokens", fold: 4, cell: (request) => <Tokens of={request} /> },
  { head: "Cost", width: 96, number: true, sort: "cost", cell: (request) => dollars(request.cost_micro_usd) },
];

const DAY_MS = 86_400_000;
/** What the address has for all time. */
export const ALL_TIME = "all";
const PERIOD_DEFAULT = "24h";
const PERIOD_FILTERED = "30d";

/** The period of the list and of the chart above it. Without a chosen one, filtered requests are those of the last 30 days. */
export const chosenPeriod = (): string =>
  param("period") || (Object.values(chosenFilters()).some(Boolean) ? PERIOD_FILTERED : PERIOD_DEFAULT);

/** The listed requests over time. A part of it can be chosen. */
function OverTime({ filters, from, to }: { filters: Record<string, string>; from: string; to: string }) {
  const given = Object.entries({ ...filters, from, to }).filter(([, value]) => value);
  const series = useResource<SeriesAnswer>(`series?${new URLSearchParams([...given, ["tz", zoneId()]])}`, { hasPlace: true });
  const data = series.data.value;
  const error = series.error.value;
  return (
    <div class="chart-place">
      <Card
        title={`${param("from") ? "The chosen time" : (PERIODS[chosenPeriod()]?.[0] ?? "The chosen time")}, ${zoneId()}`}
        aside={data && limitsOf(data) && <span class="faint">{limitsOf(data)}</span>}
      >
        {data ? <OutcomeBars of={data} /> : error && <ErrorBox error={error} retry={() => series.load()} />}
      </Card>
    </div>
  );
}

function OutcomeBars({ of }: { of: SeriesAnswer }) {
  // The first and the last step reach beyond the time.
  const isLong = of.to_ms - of.from_ms > 1.5 * DAY_MS;
  return (
    <Bars
      times={timesOf(of)}
      series={outcomesOf(of.groups[0]?.points)}
      unit={count}
      timeText={(at) => (isLong ? moment(at) : clock(at, of.step_ms < 60_000 ? "second" : "minute"))}
      summary="These requests over time."
      height={132}
      onPeriod={(from, to) => setParams({ from: String(from), to: String(to), period: null })}
    />
  );
}

function Time({ of }: { of: RequestRecord }) {
  const isToday = day(of.started_at_ms) === day(Date.now());
  return (
    <a class="row-link num" href={href(`/requests/${encodeURIComponent(of.request_id)}`, keptParams())} title={day(of.started_at_ms)}>
      {isToday ? "" : `${day(of.started_at_ms).replace(/ \d{4}$/, "")} `}
      {clock(of.started_at_ms, "ms").slice(0, isToday ? undefined : 8)}
    </a>
  );
}

function Sender({ of }: { of: FullRecord }) {
  const client = clientName(of.client);
  return (
    <>
      {of.key_name ?? <span class="muted">{of.key}</span>} {client && <span class="faint">{client}</span>}
    </>
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

/** How a request ended unless it was completed, with the reason; its marks say that it was. */
function Trouble({ of }: { of: RequestRecord }) {
  if (of.outcome === "completed") return null;
  const [kind, word] = outcomeOf(of);
  const reason = of.error ? `${of.status} ${of.error.replace(/_/g, " ")}` : word;
  return (
    <span class="state" title={`${capital(word)}: ${reason}`}>
      <Mark kind={kind} />
      <span class="sr">{word}: </span>
      <span class="clip">{reason}</span>
    </span>
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
