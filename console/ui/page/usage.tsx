// What was used and what it cost, by anything, over time.
import { useResource } from "../api/resource";
import type { ChargedFigures as Figures, Usage, UsageLine } from "../api/types";
import { href, param, setParams } from "../app/router";
import { Bars, type Series } from "../part/chart";
import { Empty, Loaded } from "../part/feedback";
import { Select } from "../part/form";
import { count, dollars, duration, plural, short, UNKNOWN } from "../part/format";
import { Icon } from "../part/icon";
import { Card, Page } from "../part/page";
import { Spend } from "./keys";
import { usePeriod } from "./requests";

const BY: [string, string][] = [
  ["model", "Model"],
  ["provider", "Provider"],
  ["key", "Key"],
  ["project", "Project"],
  ["principal", "Human"],
  ["endpoint", "Endpoint"],
  ["operation", "Operation"],
  ["outcome", "Outcome"],
];

const FIGURES: [string, string, (figures: Figures) => number, (n: number) => string][] = [
  ["cost", "Cost", ({ cost_micro_usd }) => cost_micro_usd, dollars],
  ["requests", "Requests", ({ requests }) => requests, count],
  ["tokens", "Tokens", ({ tokens }) => tokens.total, short],
];

const LENGTHS: [string, string][] = [
  ["24h", "Last 24 hours"],
  ["7d", "Last 7 days"],
  ["30d", "Last 30 days"],
];

const DAY_MS = 86_400_000;
const SERIES_MAX = 5;
const CLASSES = ["series-1", "series-2", "series-3", "series-4", "series-5", "series-6"];

/** The name of a line's group. */
export function nameOf(line: UsageLine, by: string): string {
  return line.names?.[by] ?? line.group[by] ?? "none";
}

/** Groups as stacked series over the buckets of a period; those beyond the largest become one series. */
export function seriesOf(lines: UsageLine[], by: string, value: (figures: Figures) => number, times: number[]): Series[] {
  const sums = new Map<string, number>();
  for (const line of lines) sums.set(nameOf(line, by), (sums.get(nameOf(line, by)) ?? 0) + value(line));
  const largest = [...sums].sort(([, a], [, b]) => b - a).map(([name]) => name);
  const own = largest.slice(0, largest.length > SERIES_MAX + 1 ? SERIES_MAX : SERIES_MAX + 1);
  const isRest = own.length < largest.length;
  const series = [...own, ...(isRest ? [`${largest.length - own.length} more`] : [])].map((name, i) => ({
    name,
    values: times.map(() => 0),
    className: CLASSES[i] ?? "series-6",
  }));
  for (const line of lines) {
    const at = times.indexOf(line.bucket_start_ms ?? 0);
    const place = own.indexOf(nameOf(line, by));
    const values = series[place < 0 ? series.length - 1 : place]?.values;
    if (values && at >= 0) values[at] = (values[at] ?? 0) + value(line);
  }
  return series;
}

/** The starts of the buckets from `from` on, in UTC. */
export function bucketsOf(from: number, to: number, length: number): number[] {
  const times: number[] = [];
  for (let at = Math.floor(from / length) * length; at < to; at += length) times.push(at);
  return times;
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

export function UsagePage() {
  const by = BY.some(([name]) => name === param("by")) ? param("by") : "model";
  const period = param("period") || "7d";
  const from = usePeriod(period);
  const isHourly = period === "24h";
  const filters: Record<string, string> = Object.fromEntries(
    BY.map(([name]): [string, string] => [name, param(name)]).filter(([, value]) => value),
  );
  const asked = (more: Record<string, string>): string => `usage?${new URLSearchParams({ group_by: by, from, ...filters, ...more })}`;
  const table = useResource<Usage>(asked({ sort: "cost", limit: "500" }));
  const chart = useResource<Usage>(asked({ bucket: isHourly ? "hour" : "day", limit: "10000" }));
  const [id, title, value, unit] = FIGURES.find(([name]) => name === param("figure")) ?? (FIGURES[0] as (typeof FIGURES)[0]);
  const exported = new URLSearchParams({ from, ...filters });
  const timeText = (at: number): string => {
    const date = new Date(at);
    return isHourly ? `${String(date.getUTCHours()).padStart(2, "0")}:00` : `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]}`;
  };
  return (
    <Page
      title="Usage"
      lead="Sums by hours and days in UTC. Unknown prices are not zero: they are counted apart."
      actions={
        <a class="btn" href={`/admin/api/usage/export?format=csv&${exported}`} download="llmgw-usage.csv">
          <Icon name="download" small />
          Export CSV
        </a>
      }
    >
      <div class="filters">
        <Select
          aria-label="By"
          data-filter
          value={by}
          onValue={(by) => setParams({ by })}
          options={BY.map(([name, title]): [string, string] => [name, `By ${title.toLowerCase()}`])}
        />
        <Select aria-label="Period" data-period value={period} onValue={(period) => setParams({ period })} options={LENGTHS} />
        <span class="seg" role="group" aria-label="Figure">
          {FIGURES.map(([name, title]) => (
            <button key={name} type="button" aria-pressed={name === id} onClick={() => setParams({ figure: name })}>
              {title}
            </button>
          ))}
        </span>
        {Object.entries(filters).map(([name, value]) => (
          <span key={name} class="tag accent">
            {BY.find(([id]) => id === name)?.[1]}: <span class="clip">{value}</span>
            <button type="button" class="tag-x" aria-label={`Remove the filter ${name}`} onClick={() => setParams({ [name]: null })}>
              <Icon name="x" small />
            </button>
          </span>
        ))}
      </div>
      <Loaded resource={chart} rows={6}>
        {(data) => {
          const length = isHourly ? DAY_MS / 24 : DAY_MS;
          const times = bucketsOf(data.from_ms, data.to_ms, length);
          return (
            <Card title={`${title} by ${isHourly ? "hour" : "day"}, UTC`}>
              {data.data.length === 0 ? (
                <Empty icon="chart-column" title="Nothing was used in this period" />
              ) : (
                <Bars
                  times={times}
                  series={seriesOf(data.data, by, value, times)}
                  unit={unit}
                  timeText={timeText}
                  summary={`${title} by ${by}.`}
                />
              )}
            </Card>
          );
        }}
      </Loaded>
      <Loaded resource={table} rows={6}>
        {(data) => <Lines of={data} by={by} from={from} filters={filters} />}
      </Loaded>
    </Page>
  );
}

type LinesProps = { of: Usage; by: string; from: string; filters: Record<string, string> };

function Lines({ of, by, from, filters }: LinesProps) {
  const title = BY.find(([name]) => name === by)?.[1] ?? by;
  return (
    <Card title={`By ${title.toLowerCase()}`} bare>
      <div class="table-wrap" role="group" aria-label="Sums" tabIndex={0}>
        <table class="table">
          <thead>
            <tr>
              <th scope="col">{title}</th>
              <th scope="col" class="num">
                Requests
              </th>
              <th scope="col" class="num">
                Input
              </th>
              <th scope="col" class="num">
                Output
              </th>
              <th scope="col" class="num">
                First token
              </th>
              <th scope="col" class="num">
                Cost
              </th>
            </tr>
          </thead>
          <tbody>
            {of.data.map((line) => (
              <Line
                key={line.group[by] ?? ""}
                name={nameOf(line, by)}
                figures={line}
                to={line.group[by] ? href("/requests", { ...filters, [by]: line.group[by], from }) : null}
              />
            ))}
            {of.totals && <Line name="Together" figures={of.totals} to={null} strong />}
          </tbody>
        </table>
      </div>
      {of.totals && of.totals.requests_unpriced > 0 && (
        <div class="table-foot">
          <span>{plural(of.totals.requests_unpriced, "attempt")} without a known price</span>
          <a href={href("/models", { priced: "false" })}>Set a price</a>
        </div>
      )}
    </Card>
  );
}

const INPUT = ["input", "cache_read", "cache_write", "cache_write_1h", "audio_input", "image_input"];

function Line({ name, figures, to, strong }: { name: string; figures: Figures; to: string | null; strong?: boolean }) {
  const input = INPUT.reduce((sum, kind) => sum + (figures.tokens[kind] ?? 0), 0);
  return (
    <tr>
      <td class="wrap">{strong ? <b>{name}</b> : name || UNKNOWN}</td>
      <td class="num">{to ? <a href={to}>{count(figures.requests)}</a> : count(figures.requests)}</td>
      <td class="num">{short(input)}</td>
      <td class="num">{short(figures.tokens.total - input)}</td>
      <td class="num">{duration(figures.first_content_us_avg)}</td>
      <td class="num">
        <Spend figures={figures} />
      </td>
    </tr>
  );
}
