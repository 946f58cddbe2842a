// The overview: whether something is wrong, since when, who notices it, and what to do.
import { useEffect, useRef, useState } from "preact/hooks";
import { type Live, silentSince, useLive } from "../api/live";
import { type Resource, useResource } from "../api/resource";
import type { Change, LiveProvider, SeriesAnswer, Setup } from "../api/shapes";
import type { GatewayState, QuotaPage, Usage } from "../api/types";
import { href, param, setParams } from "../app/router";
import { actionWords } from "../part/action";
import { Bars, Lines, Spark } from "../part/chart";
import { Loaded } from "../part/feedback";
import { clock, count, dollars, duration, moment, plural, UNKNOWN, zoneName } from "../part/format";
import { State } from "../part/icon";
import { Ref } from "../part/links";
import { Card, Page } from "../part/page";
import { Rows } from "../part/table";
import {
  type Headline,
  headlineOf,
  marksWithin,
  onCourse,
  outcomesOf,
  ownChanges,
  type ProviderLine,
  providerLines,
  rateOf,
  standingOf,
  timesOf,
} from "./overview/figures";
import { NEAR_LIMITS, NeedsYou } from "./overview/needs";
import { RunningCard } from "./overview/running";
import { groupOf, SpendCard } from "./overview/spend";
import { auditOf, VerdictCard } from "./overview/verdict";
import { CircuitMark } from "./providers";
import { stepsLeft } from "./setup/steps";

type Length = { id: string; title: string; ms: number; step: number; words: string };

const LENGTHS: Length[] = [
  { id: "15m", title: "15 min", ms: 900_000, step: 10, words: "in 15 minutes" },
  { id: "1h", title: "1 h", ms: 3_600_000, step: 60, words: "in the hour" },
  { id: "24h", title: "24 h", ms: 86_400_000, step: 3600, words: "in 24 hours" },
  { id: "7d", title: "7 d", ms: 604_800_000, step: 21_600, words: "in 7 days" },
];
const HOUR = LENGTHS[1] as Length;
const DAY_MS = 86_400_000;
/** Figures are read again after this time while the page is seen. */
const REREAD_MS = 10_000;

/** A moment that moves on while the page is seen. */
function useTick(every: number): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) setNow(Date.now());
    }, every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

/** Reads an object again at each tick. */
function useReread<T>(resource: Resource<T>, tick: number): Resource<T> {
  const first = useRef(tick);
  useEffect(() => {
    if (tick !== first.current) void resource.load();
  }, [tick]);
  return resource;
}

/** The series of the last `length`. What was read stays until the next one is there. */
function useSeries(length: Length, tick: number, more: string): Resource<SeriesAnswer> {
  const step = length.step * 1000;
  const from = (Math.floor(tick / step) + 1) * step - length.ms;
  const resource = useReread(useResource<SeriesAnswer>(`series?from=${from}&step=${length.step}${more}`), tick);
  const shown = useRef({ resource, length });
  if (shown.current.length !== length || resource.data.value || resource.error.value) shown.current = { resource, length };
  return shown.current.resource;
}

export function OverviewPage() {
  const length = LENGTHS.find(({ id }) => id === param("period")) ?? HOUR;
  const by = groupOf(param("by"));
  const live = useLive();
  const tick = useTick(REREAD_MS);
  const series = useSeries(length, tick, "");
  const byProvider = useSeries(length, tick, "&group_by=provider");
  const today = Math.floor(tick / DAY_MS) * DAY_MS;
  // With the keys come their names, for what is running.
  const groups = by === "model" ? "model,key" : "project,key";
  const usage = useReread(useResource<Usage>(`usage?group_by=${groups}&from=${today}&sort=cost`), tick);
  const near = useResource<QuotaPage>(NEAR_LIMITS).data.value;
  const setup = useResource<Setup>("setup").data.value;
  const state = useReread(useResource<GatewayState>("state"), tick).data.value;
  // The gateway's clock, where it is known: it counts the age of requests.
  const now = live.figures.value?.at_ms ?? Date.now();
  const verdict = live.figures.value?.verdict ?? null;
  const changes = ownChanges(live.changes.value);
  const head = series.data.value ? headlineOf(series.data.value, now) : null;
  const names = namesOf(usage.data.value);
  return (
    <Page
      title="Overview"
      actions={
        <>
          <LiveMark live={live} />
          <span class="seg" role="group" aria-label="Period">
            {LENGTHS.map(({ id, title }) => (
              <button
                key={id}
                type="button"
                aria-pressed={id === length.id}
                onClick={() => setParams({ period: id === HOUR.id ? null : id }, "replace")}
              >
                {title}
              </button>
            ))}
          </span>
        </>
      }
    >
      {verdict ? <VerdictCard verdict={verdict} setup={setup} /> : <div class="verdict" aria-hidden="true" />}
      {head ? (
        <Figures of={head} length={length} usage={usage.data.value} running={live.figures.value?.running} now={now} series={series} />
      ) : (
        !series.error.value && <div class="card figures-place" aria-hidden="true" />
      )}
      <Charts series={series} length={length} changes={changes} />
      <div class="cols two-one">
        <ProvidersCard series={byProvider} live={live.providers.value} />
        <RunningCard live={live} names={names} now={now} />
      </div>
      <div class="cols two-one">
        <SpendCard usage={usage} by={by} />
        <NeedsYou
          state={state}
          isSetUp={setup !== null && stepsLeft(setup) === 0}
          limits={{ fullest: near?.data ?? [], near: near?.matching ?? 0 }}
          unpriced={usage.data.value?.totals?.requests_unpriced ?? 0}
          now={now}
        />
      </div>
    </Page>
  );
}

/** The names of the projects and keys that were used today, by their ids. */
function namesOf(usage: Usage | null): Map<string, string> {
  const names = new Map<string, string>();
  for (const line of usage?.data ?? []) {
    for (const [kind, id] of Object.entries(line.group)) {
      const name = line.names?.[kind];
      if (id && name) names.set(id, name);
    }
  }
  return names;
}

const LIVE_WORDS = { open: "Live", waiting: "Connecting…", closed: "Paused", too_many: "Too many pages watch" };

function LiveMark({ live }: { live: Live }) {
  const state = live.state.value;
  const since = silentSince.value;
  return (
    <span class={state === "open" && since === null ? "live" : "live off"} role="status">
      <i />
      {since === null ? LIVE_WORDS[state] : `No answer since ${clock(since, "second")}`}
    </span>
  );
}

type FiguresProps = {
  of: Headline;
  length: Length;
  usage: Usage | null;
  /** The number of requests that are being served; absent while it is not known. */
  running: number | undefined;
  now: number;
  series: Resource<SeriesAnswer>;
};

function percent(share: number | null): string {
  if (share === null) return UNKNOWN;
  const value = share * 100;
  return value === 0 || value === 100 ? String(value) : value < 1 ? value.toFixed(2) : value.toFixed(1);
}

/** `2.33 s` as its number and its unit. */
function split(text: string): [string, string] {
  const at = text.lastIndexOf(" ");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

function Figures({ of, length, usage, running, now, series }: FiguresProps) {
  const points = series.data.value?.groups[0]?.points;
  const times = series.data.value ? timesOf(series.data.value) : [];
  /** A point that is not over yet would look like a drop. */
  const whole = (list: number[] | undefined): number[] => (list ?? []).filter((_, i) => (times[i] ?? 0) + length.step * 1000 <= now);
  const errors = points?.failed.map((failed, i) => failed + (points.cut[i] ?? 0)) ?? [];
  const spent = usage?.totals?.cost_micro_usd ?? null;
  const unpriced = usage?.totals?.requests_unpriced ?? 0;
  // A sum of nothing but unknown prices is unknown.
  const isKnown = spent !== null && (spent > 0 || unpriced === 0);
  const course = spent ? onCourse(spent, now) : null;
  const isSlow = of.firstBefore !== null && of.firstP50 !== null && of.firstP50 > 2 * of.firstBefore;
  const [first, unit] = split(duration(of.firstP50));
  const [requests, per] = rateOf(of.perSecond);
  const [output, outputPer] = rateOf(of.outputPerSecond);
  return (
    <section class="card" aria-label={`Figures ${length.words}`}>
      <dl class="figures">
        <Figure name="Requests" value={requests} unit={per} spark={whole(points?.requests)}>
          {count(of.requests)} {length.words}
          {running !== undefined && ` · ${count(running)} running`}
        </Figure>
        <Figure
          name="First token, p50"
          value={first}
          unit={unit}
          spark={points?.first_content_us_p50 ?? []}
          kind={isSlow ? "warn" : "series-1"}
        >
          p99 {duration(of.firstP99)}
          {of.firstBefore !== null && <span class={isSlow ? "warn" : undefined}> · was {duration(of.firstBefore)}</span>}
        </Figure>
        <Figure
          name="Failed for clients"
          value={percent(of.errorShare)}
          unit={of.errorShare === null ? "" : "%"}
          spark={errors}
          kind={of.failed ? "bad" : "series-1"}
        >
          {count(of.failed)} failed · {plural(of.left, "client")} left
        </Figure>
        <Figure name="Output tokens" value={output} unit={outputPer} spark={whole(points?.output)}>
          {of.cacheShare === null ? "no input" : `${Math.round(of.cacheShare * 100)} % of input from cache`}
        </Figure>
        <Figure
          name="Spend today, since 00:00 UTC"
          value={isKnown ? dollars(spent) : UNKNOWN}
          unit=""
          spark={summed(points?.cost_micro_usd ?? [])}
        >
          {unpriced > 0 && `+ ${count(unpriced)} unpriced`}
          {unpriced > 0 && course !== null && " · "}
          {course !== null && `on course for ${dollars(course)}`}
        </Figure>
      </dl>
    </section>
  );
}

function summed(values: number[]): number[] {
  let total = 0;
  return values.map((value) => {
    total += value;
    return total;
  });
}

type FigureProps = {
  name: string;
  value: string;
  unit: string;
  spark: (number | null)[];
  kind?: string;
  children: preact.ComponentChildren;
};

function Figure({ name, value, unit, spark, kind = "series-1", children }: FigureProps) {
  return (
    <div class="figure">
      <dt>{name}</dt>
      <dd class="value">
        <span>
          <b>{value}</b>
          {unit && <small>{unit}</small>}
        </span>
        {spark.some(Boolean) && (
          <span>
            <Spark values={spark} kind={kind} />
          </span>
        )}
      </dd>
      <dd class="sub">{children}</dd>
    </div>
  );
}

const EACH: Record<number, string> = { 10: "per 10 seconds", 60: "per minute", 3600: "per hour", 21600: "per 6 hours" };

function Charts({ series, length, changes }: { series: Resource<SeriesAnswer>; length: Length; changes: Change[] }) {
  return (
    <Loaded resource={series} rows={8}>
      {(data) => {
        const times = timesOf(data);
        const points = data.groups[0]?.points;
        const all = changes.map((of) => ({
          at: of.at_ms,
          text: `${clock(of.at_ms)} ${of.audit_id === null ? of.text : actionWords({ action: of.kind, object: of.object })}`,
          href: auditOf(of),
        }));
        const marks = marksWithin(all, data.from_ms, data.to_ms);
        const timeText = (at: number): string => (length.ms > DAY_MS ? moment(at) : clock(at, length.step < 60 ? "second" : "minute"));
        return (
          <>
            <div class="cols two-one">
              <Card title="Requests by outcome" aside={<span class="faint">{EACH[length.step]}</span>}>
                <Bars
                  times={times}
                  series={outcomesOf(points)}
                  unit={count}
                  timeText={timeText}
                  summary={`Requests by outcome ${length.words}.`}
                  marks={marks}
                />
              </Card>
              <Card title="Time to first token">
                <Lines
                  times={times}
                  series={[
                    { name: "p50", values: points?.first_content_us_p50 ?? [], className: "series-1" },
                    { name: "p99", values: points?.first_content_us_p99 ?? [], className: "series-3 dashed" },
                  ]}
                  unit={(us) => (us === 0 ? "0" : duration(us))}
                  timeText={timeText}
                  summary={`Time to the first token ${length.words}: median and slowest hundredth.`}
                  marks={marks.map(({ at }) => ({ at, text: "" }))}
                />
              </Card>
            </div>
            {data.partial && (
              <p class="alert warn" role="status">
                Before {moment(data.complete_from_ms)} {zoneName()} records are missing from these figures.
              </p>
            )}
          </>
        );
      }}
    </Loaded>
  );
}

type ProvidersProps = { series: Resource<SeriesAnswer>; live: Map<string, LiveProvider> };

function ProvidersCard({ series, live }: ProvidersProps) {
  const used = providerLines(series.data.value);
  const unused = [...live.keys()].filter((id) => !used.some((line) => line.id === id));
  const lines = [...used, ...unused.map(unusedLine)].sort((a, b) => b.failures - a.failures || b.attempts - a.attempts);
  const attempts = lines.reduce((sum, line) => sum + line.attempts, 0);
  // One scale for all, so that a line shows how many failures there were.
  const highest = Math.max(...lines.flatMap(({ failuresByPoint }) => failuresByPoint), 0);
  const failing = lines.filter((line) => isFailing(line, live.get(line.id))).length;
  return (
    <Card
      title="Providers"
      aside={
        <>
          {failing > 0 && <span class="tag bad">{count(failing)} failing</span>} <a href={href("/providers")}>All providers</a>
        </>
      }
      bare
    >
      {lines.length === 0 ? (
        <p class="card-body muted">No provider was used.</p>
      ) : (
        <Rows
          rows={lines.slice(0, 8)}
          label="Providers"
          rowKey={({ id }) => id}
          columns={[
            { head: "Provider", width: "2fr", least: 110, cell: ({ id }) => <Ref kind="provider" id={id} name={id} /> },
            { head: "State", width: "3fr", least: 150, cell: (line) => <Standing of={line} live={live.get(line.id)} /> },
            { head: "Attempts", width: 96, number: true, fold: 3, cell: (line) => <Attempts of={line} all={attempts} /> },
            {
              head: "Failed",
              width: 76,
              number: true,
              cell: (line) => (line.attempts ? `${percent(line.failures / line.attempts)} %` : UNKNOWN),
            },
            { head: "First token, p50 and p99", width: 176, number: true, fold: 2, cell: (line) => <FirstToken of={line} /> },
            {
              head: "Failed, over time",
              width: 124,
              fold: 1,
              cell: (line) => line.failures > 0 && <Spark values={line.failuresByPoint} kind="bad" highest={highest} />,
            },
          ]}
        />
      )}
    </Card>
  );
}

const unusedLine = (id: string): ProviderLine => ({ id, attempts: 0, failures: 0, firstP50: null, firstP99: null, failuresByPoint: [] });

/** True if the circuit of a provider is open, or too many of its attempts have failed. */
const isFailing = (of: ProviderLine, live: LiveProvider | undefined): boolean =>
  (live !== undefined && live.circuit.state !== "closed") || standingOf(of)[0] === "bad";

function Standing({ of, live }: { of: ProviderLine; live: LiveProvider | undefined }) {
  const circuit = live?.circuit;
  const [kind, word] = standingOf(of);
  return (
    <>
      {circuit && circuit.state !== "closed" ? <CircuitMark circuit={circuit} /> : <State kind={kind} word={word} />}
      {live && live.running > 0 && <span class="faint num"> {count(live.running)} running</span>}
    </>
  );
}

/** The attempts at a provider, and their share of `all`. */
function Attempts({ of, all }: { of: ProviderLine; all: number }) {
  return (
    <>
      {count(of.attempts)} {of.attempts > 0 && <span class="faint">{Math.round((of.attempts / all) * 100)} %</span>}
    </>
  );
}

function FirstToken({ of }: { of: ProviderLine }) {
  return (
    <>
      {duration(of.firstP50)} <span class="faint">{of.firstP99 === null ? "" : duration(of.firstP99)}</span>
    </>
  );
}
