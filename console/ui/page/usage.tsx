// What was used and what it cost, by anything, over time; and how fast and how well it was answered.
import { useRef } from "preact/hooks";
import { gatewayPath } from "../api/base";
import { may } from "../api/client";
import { type Resource, useResource } from "../api/resource";
import type { SeriesAnswer } from "../api/shapes";
import type { ChargedFigures as Figures, Usage } from "../api/types";
import { href, param, setParams } from "../app/router";
import { Bars, Lines as LineChart } from "../part/chart";
import { Empty, ErrorBox, isSettled, Skeleton } from "../part/feedback";
import { Figure, Figures as FigureRow } from "../part/figures";
import { Labelled, Select, Text } from "../part/form";
import { clock, count, dollars, duration, moment, short, UNKNOWN, zoneId } from "../part/format";
import { Icon } from "../part/icon";
import { dateOf, zoned } from "../part/moment";
import { asked, orderOf } from "../part/order";
import { Card, Page } from "../part/page";
import { limitsOf, outcomesOf, timesOf } from "./overview/figures";
import { BY, changeWords, filtersOf, seriesOf } from "./usage/groups";
import { Reprice } from "./usage/reprice";
import { before, bucketsOf, dayStart, LENGTHS, type Span, seriesStep, useSpan } from "./usage/span";
import { BY_COST, inputOf, Lines, SORTED } from "./usage/table";

type Shown = { id: string; title: string } & (
  | { value: (figures: Figures) => number; unit: (n: number) => string }
  | { value: null; unit: null }
);

const FIGURES: Shown[] = [
  { id: "cost", title: "Cost", value: ({ cost_micro_usd }) => cost_micro_usd, unit: dollars },
  { id: "requests", title: "Requests", value: ({ requests }) => requests, unit: count },
  { id: "tokens", title: "Tokens", value: ({ tokens }) => tokens.total, unit: short },
  { id: "outcomes", title: "Outcomes", value: null, unit: null },
  { id: "latency", title: "Latency", value: null, unit: null },
];
const COST = FIGURES[0] as Shown;

/** What the page shows, with the answers for it. */
type View = {
  figure: Shown;
  by: string;
  span: Span;
  filters: Record<string, string>;
  table: Resource<Usage>;
  chart: Resource<Usage> | null;
  series: Resource<SeriesAnswer> | null;
  before: Resource<Usage> | null;
};

const partsOf = ({ table, chart, series, before }: View): Resource<unknown>[] =>
  [table, chart, series, before].filter((part) => part !== null);

/** Reads what the address asks for. What was shown stays until the answers are there, so that nothing moves. */
function useView(): View {
  const known = (name: string, other: string): string => (BY.some(([id]) => id === param(name)) ? param(name) : other);
  const first = known("by", "model");
  const second = known("and", "");
  const by = second && second !== first ? `${first},${second}` : first;
  const span = useSpan(param("period"), param("from"), param("to"));
  const filters = Object.fromEntries(BY.map(([name]): [string, string] => [name, param(name)]).filter(([, value]) => value));
  const figure = FIGURES.find(({ id }) => id === param("figure")) ?? COST;
  const sums = (of: Span, more: Record<string, string>): string =>
    `usage?${new URLSearchParams({ group_by: by, from: String(of.from), to: String(of.to), tz: zoneId(), ...filters, ...more })}`;
  const order = orderOf(SORTED, BY_COST);
  const isMoney = figure.value !== null;
  const search = new URLSearchParams({ from: String(span.from), to: String(span.to), step: seriesStep(span), tz: zoneId(), ...filters });
  const table = useResource<Usage>(sums(span, { ...asked(order), limit: "500" }));
  const chart = useResource<Usage>(isMoney ? sums(span, { bucket: span.bucket, limit: "10000" }) : null);
  const series = useResource<SeriesAnswer>(isMoney ? null : `series?${search}`);
  const earlier = useResource<Usage>(param("compare") ? sums(before(span), { sort: "cost", limit: "500" }) : null);
  const view: View = {
    figure,
    by,
    span,
    filters,
    table,
    chart: isMoney ? chart : null,
    series: isMoney ? null : series,
    before: param("compare") ? earlier : null,
  };
  const shown = useRef(view);
  if (partsOf(view).every(isSettled)) shown.current = view;
  return partsOf(shown.current).every(isSettled) ? shown.current : view;
}

export function UsagePage() {
  const view = useView();
  const { span, filters } = view;
  const exported = new URLSearchParams({ from: String(span.from), to: String(span.to), ...filters });
  return (
    <Page
      title="Usage"
      lead={`Sums by hours and days, ${zoneId()}. Unknown prices are not zero: they are counted apart.`}
      actions={
        <>
          <a class="btn" href={href("/usage/runs")}>
            <Icon name="chart-column" small />
            Compare runs
          </a>
          <a class="btn" href={gatewayPath(`/admin/api/usage/export?format=csv&${exported}`)} download="llmgw-usage.csv">
            <Icon name="download" small />
            Export CSV
          </a>
        </>
      }
    >
      <Choices span={span} filters={filters} />
      {partsOf(view).every(isSettled) ? (
        <Report of={view} />
      ) : (
        <div class="card">
          <Skeleton rows={8} />
        </div>
      )}
      {may("administer") && param("reprice") && <Reprice wanted={param("reprice")} span={span} />}
    </Page>
  );
}

function Choices({ span, filters }: { span: Span; filters: Record<string, string> }) {
  const by = BY.some(([id]) => id === param("by")) ? param("by") : "model";
  const figure = FIGURES.find(({ id }) => id === param("figure")) ?? COST;
  const isGiven = param("from") !== "";
  return (
    <div class="filters">
      <Labelled label="Group by">
        <Select aria-label="By" data-filter value={by} onValue={(by) => setParams({ by })} options={BY} />
      </Labelled>
      <Labelled label="and">
        <Select
          aria-label="And by"
          value={param("and")}
          onValue={(and) => setParams({ and })}
          options={[["", "Nothing else"], ...BY.filter(([name]) => name !== by)]}
        />
      </Labelled>
      <Labelled label="Period">
        <Select
          aria-label="Period"
          data-period
          value={isGiven ? "chosen" : param("period") || "7d"}
          onValue={(period) =>
            setParams(period === "chosen" ? { from: String(span.from), to: String(span.to) } : { period, from: null, to: null })
          }
          options={[...LENGTHS.map(([id, title]): [string, string] => [id, title]), ["chosen", "Chosen days"]]}
        />
      </Labelled>
      {isGiven && (
        <>
          <Text
            type="date"
            aria-label={`From (${zoneId()})`}
            value={dateOf(span.from)}
            onValue={(date) => dayStart(date) && setParams({ from: dayStart(date) }, "replace")}
          />
          <Text
            type="date"
            aria-label={`To, inclusive (${zoneId()})`}
            value={dateOf(span.to - 1)}
            onValue={(date) => dayStart(date) && setParams({ to: dayStart(date, 1) }, "replace")}
          />
        </>
      )}
      <span class="seg" role="group" aria-label="Figure">
        {FIGURES.map(({ id, title }) => (
          <button key={id} type="button" aria-pressed={id === figure.id} onClick={() => setParams({ figure: id })}>
            {title}
          </button>
        ))}
      </span>
      <label class="pick">
        <input
          type="checkbox"
          checked={param("compare") !== ""}
          onChange={(e) => setParams({ compare: e.currentTarget.checked ? "1" : null })}
        />
        <span>Compare with the time before</span>
      </label>
      {Object.entries(filters).map(([name, value]) => (
        <span key={name} class="tag accent">
          {BY.find(([id]) => id === name)?.[1]}: <span class="clip">{value}</span>
          <button type="button" class="tag-x" aria-label={`Remove the filter ${name}`} onClick={() => setParams({ [name]: null })}>
            <Icon name="x" small />
          </button>
        </span>
      ))}
    </div>
  );
}

function Report({ of }: { of: View }) {
  const { table, by, span, filters } = of;
  const data = table.data.value;
  return (
    <>
      {data?.totals && <Totals of={data.totals} />}
      <Chart of={of} />
      {data ? (
        <Lines of={data} before={of.before?.data.value ?? null} by={by} span={span} filters={filters} order={orderOf(SORTED, BY_COST)} />
      ) : (
        table.error.value && <ErrorBox error={table.error.value} retry={() => table.load()} />
      )}
    </>
  );
}

/** The sums of the whole time, before any chart. */
function Totals({ of }: { of: Figures }) {
  const unpriced = of.requests_unpriced;
  const input = inputOf(of);
  return (
    <FigureRow label="In this time">
      <Figure
        name="Cost"
        value={of.cost_micro_usd === 0 && unpriced > 0 ? UNKNOWN : dollars(of.cost_micro_usd)}
        sub={unpriced ? `+ ${count(unpriced)} unpriced` : "by known prices"}
      />
      <Figure name="Requests" value={count(of.requests)} sub="of all outcomes" />
      <Figure name="Tokens" value={short(of.tokens.total)} sub={`${short(input)} in, ${short((of.tokens.total ?? 0) - input)} out`} />
      <Figure name="First token" value={duration(of.first_content_us_avg)} sub="on average" />
      <Figure name="Total time" value={duration(of.duration_us_avg)} sub="on average" />
    </FigureRow>
  );
}

const choosePeriod = (from: number, to: number): void => setParams({ from: String(from), to: String(to), period: null });
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

function Chart({ of }: { of: View }) {
  const error = of.chart?.error.value ?? of.series?.error.value;
  if (error) return <ErrorBox error={error} retry={() => (of.chart ?? of.series)?.load()} />;
  const series = of.series?.data.value;
  if (series) return <Answers of={series} figure={of.figure.id} />;
  const sums = of.chart?.data.value;
  return sums ? <Sums of={of} sums={sums} /> : null;
}

/** Money, requests or tokens, stacked by groups. */
function Sums({ of, sums }: { of: View; sums: Usage }) {
  const { figure, by, span } = of;
  if (figure.value === null) return null;
  const times = bucketsOf(sums.from_ms, sums.to_ms, span.bucket);
  const series = seriesOf(sums.data, by, figure.value, times);
  const timeText = (at: number): string => {
    const date = zoned(at);
    const day = `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]}`;
    if (span.bucket === "day") return day;
    const hour = `${String(date.getUTCHours()).padStart(2, "0")}:00`;
    return date.getUTCHours() === 0 ? day : hour;
  };
  const earlier = of.before?.data.value?.totals;
  const now = of.table.data.value?.totals;
  const isFiltered = Object.keys(of.filters).length > 0;
  return (
    <Card
      title={`${figure.title} by ${span.bucket}, ${zoneId()}`}
      aside={
        earlier &&
        now && (
          <span class="faint">
            {figure.unit(figure.value(now))}
            {figure.value(earlier) === 0
              ? ", nothing before"
              : `, before ${figure.unit(figure.value(earlier))} ${changeWords(figure.value(now), figure.value(earlier))}`}
          </span>
        )
      }
    >
      {sums.data.length === 0 ? (
        <Empty
          icon="chart-column"
          title={isFiltered ? "Nothing fits the filter in this time" : "Nothing was used in this time"}
          action={
            isFiltered ? (
              <a class="btn" href={href("/usage")}>
                Clear the filter
              </a>
            ) : (
              <a class="btn primary" href={href("/connect")}>
                Connect a client
              </a>
            )
          }
        >
          {isFiltered ? null : "Sums of requests, tokens and cost appear here with the first request."}
        </Empty>
      ) : (
        <Bars
          times={times}
          series={series}
          unit={figure.unit}
          timeText={timeText}
          summary={`${figure.title} by ${by.replace(",", " and ")}.`}
          onPeriod={choosePeriod}
          onSeries={(i) => {
            const line = series[i]?.line;
            const filters = line && filtersOf(line, by);
            if (filters) setParams(filters);
          }}
        />
      )}
    </Card>
  );
}

/** How requests ended, or how long they took. */
function Answers({ of, figure }: { of: SeriesAnswer; figure: string }) {
  const times = timesOf(of);
  const points = of.groups[0]?.points;
  const isLong = of.to_ms - of.from_ms > 2 * 86_400_000;
  const timeText = (at: number): string => (isLong ? moment(at) : clock(at));
  const aside = limitsOf(of) && <span class="faint">{limitsOf(of)}</span>;
  if (figure === "outcomes") {
    return (
      <Card title={`Requests by outcome, ${of.tz}`} aside={aside}>
        <Bars
          times={times}
          series={outcomesOf(points)}
          unit={count}
          timeText={timeText}
          summary="Requests by outcome."
          onPeriod={choosePeriod}
        />
      </Card>
    );
  }
  return (
    <Card title={`Time to first token, and until the end, ${of.tz}`} aside={aside}>
      <LineChart
        times={times}
        series={[
          { name: "First token, p50", values: points?.first_content_us_p50 ?? [], className: "series-1" },
          { name: "First token, p99", values: points?.first_content_us_p99 ?? [], className: "series-1 dashed" },
          { name: "Total, p50", values: points?.duration_us_p50 ?? [], className: "series-3" },
          { name: "Total, p99", values: points?.duration_us_p99 ?? [], className: "series-3 dashed" },
        ]}
        unit={(us) => (us === 0 ? "0" : duration(us))}
        timeText={timeText}
        summary="Latency: median and slowest hundredth of the time to the first token and of the whole answer."
        onPeriod={choosePeriod}
      />
    </Card>
  );
}
