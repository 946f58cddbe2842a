// The figures of the overview, out of the columns of a series. An unknown figure is null, never zero.
import type { Change, Points, SeriesAnswer } from "../../api/shapes";
import type { ChartMark, Series } from "../../part/chart";
import { moment, plural, short } from "../../part/format";
import type { MarkKind } from "../../part/icon";

const sum = (values: number[]): number => values.reduce((total, value) => total + value, 0);

/** The median of the known values of the first half of a time, to compare with. */
function before(values: (number | null)[]): number | null {
  const known = values
    .slice(0, Math.floor(values.length / 2))
    .filter((value) => value !== null)
    .sort((a, b) => a - b);
  return known[Math.floor(known.length / 2)] ?? null;
}

export type Headline = {
  requests: number;
  perSecond: number;
  /** The share of requests that failed or broke off for no fault of the client; null without requests. */
  errorShare: number | null;
  failed: number;
  left: number;
  /** Of the whole time. */
  firstP50: number | null;
  firstP99: number | null;
  /** The median of the first half of the time. */
  firstBefore: number | null;
  outputPerSecond: number;
  /** The share of the input that came from a cache; null without input. */
  cacheShare: number | null;
};

/** The start of each point. */
export const timesOf = ({ starts_ms }: Pick<SeriesAnswer, "starts_ms">): number[] => starts_ms;

/** What an answer lacks, in words; an empty text if it lacks nothing. */
export const limitsOf = ({ partial, complete_from_ms, unknown, requests_merged }: SeriesAnswer): string =>
  [
    partial ? `before ${moment(complete_from_ms)} requests are missing` : "",
    unknown.includes("refused") ? "refused requests count as failed, and times are unknown: too many records to read" : "",
    requests_merged ? `${plural(requests_merged, "request")} of too many names count as “other”` : "",
  ]
    .filter(Boolean)
    .join("; ");

/** Sums a series up. `now` bounds its last point, which is not over yet. */
export function headlineOf(series: SeriesAnswer, now: number): Headline {
  const points = series.groups[0]?.points;
  const seconds = Math.max(1, (Math.min(series.to_ms, now) - series.from_ms) / 1000);
  const requests = sum(points?.requests ?? []);
  const failed = sum(points?.failed ?? []) + sum(points?.cut ?? []);
  const cached = sum(points?.cache_read ?? []);
  const input = sum(points?.input ?? []) + cached;
  const p50 = points?.first_content_us_p50 ?? [];
  const whole = series.groups[0]?.whole;
  return {
    requests,
    perSecond: requests / seconds,
    errorShare: requests ? failed / requests : null,
    failed,
    left: sum(points?.cancelled ?? []),
    firstP50: whole?.first_content_us_p50 ?? null,
    firstP99: whole?.first_content_us_p99 ?? null,
    firstBefore: before(p50),
    outputPerSecond: sum(points?.output ?? []) / seconds,
    cacheShare: input ? cached / input : null,
  };
}

/** The outcomes that clients noticed, stacked: what is as it should be first. */
export function outcomesOf(points: Points | undefined): Series[] {
  if (!points) return [];
  const each = (value: (i: number) => number): number[] => points.requests.map((_, i) => value(i));
  // Unknown ones count as others: failovers as first targets, refused requests as failed.
  const [failedOver, refused] = [points.failed_over ?? each(() => 0), points.refused ?? each(() => 0)];
  const of = (values: number[], i: number): number => values[i] ?? 0;
  const all: Series[] = [
    { name: "First target", values: each((i) => of(points.completed, i) - of(failedOver, i)), className: "quiet" },
    { name: "After failover", values: failedOver, className: "warn" },
    { name: "Client left", values: points.cancelled, className: "series-6" },
    { name: "Refused", values: refused, className: "series-3" },
    { name: "Cut off", values: points.cut, className: "cut" },
    { name: "Failed", values: points.failed, className: "bad" },
  ];
  // What never occurred needs no place in the legend, but for the three that a reader looks for.
  return all.filter(({ name, values }) => !["Client left", "Refused", "Cut off"].includes(name) || values.some(Boolean));
}

/** A rate with the longest unit of time that it takes to be 0.1 or more: `12.9` and `/s`, `5.6` and `/min`, `0.3` and `/h`. */
export function rateOf(perSecond: number): [value: string, unit: string] {
  const units = [
    [1, "/s"],
    [60, "/min"],
    [3600, "/h"],
  ] as const;
  const [seconds, unit] = units.find(([seconds]) => perSecond * seconds >= 0.1) ?? ([1, "/s"] as const);
  const rate = perSecond * seconds;
  return [rate >= 100 ? short(rate) : rate === 0 ? "0" : rate.toFixed(rate < 10 ? 2 : 1), unit];
}

/** How a provider has done in a time: from 5 % of failures on they are named, from 20 % among at least ten attempts on it is failing. */
export function standingOf({ attempts, failures }: Pick<ProviderLine, "attempts" | "failures">): [MarkKind, string] {
  const share = attempts ? failures / attempts : 0;
  if (share >= FAILING_SHARE && attempts >= FAILING_ATTEMPTS) return ["bad", "failing"];
  if (share >= SOME_SHARE) return ["warn", "some failures"];
  return attempts ? ["ok", "working"] : ["off", "not used"];
}

const FAILING_SHARE = 0.2;
const FAILING_ATTEMPTS = 10;
const SOME_SHARE = 0.05;

/** One provider in the period. */
export type ProviderLine = {
  id: string;
  attempts: number;
  failures: number;
  firstP50: number | null;
  firstP99: number | null;
  failuresByPoint: number[];
};

export function providerLines(series: SeriesAnswer | null): ProviderLine[] {
  return (series?.groups ?? []).flatMap(({ group, points, whole }) => {
    const id = group.provider;
    if (!id) return [];
    return [
      {
        id,
        attempts: sum(points.attempts ?? []),
        failures: sum(points.attempt_failures ?? []),
        firstP50: whole.first_content_us_p50,
        firstP99: whole.first_content_us_p99,
        failuresByPoint: points.attempt_failures ?? [],
      },
    ];
  });
}

/** What follows an administrator's action by itself is not a change of its own. */
export function ownChanges(changes: Change[]): Change[] {
  const isAction = ({ audit_id }: Change): boolean => audit_id !== null;
  return changes.filter(
    (change) =>
      change.kind !== "publication" || !changes.some((other) => isAction(other) && Math.abs(change.at_ms - other.at_ms) < FOLLOWS_MS),
  );
}

const FOLLOWS_MS = 3_000;

/** The changes within a time, the oldest first. */
export function marksWithin<M extends ChartMark>(marks: M[], from: number, to: number): M[] {
  return marks.filter(({ at }) => at >= from && at < to).sort((a, b) => a.at - b.at);
}

/** What a day costs if it goes on as until now; null in its first ten minutes. */
export function onCourse(spent: number, now: number): number | null {
  const share = (now % DAY_MS) / DAY_MS;
  return share * DAY_MS < LEAST_MS ? null : spent / share;
}

const DAY_MS = 86_400_000;
const LEAST_MS = 600_000;
