// The time of a report: the last days, or what was chosen by dates or in the chart.
import { useMemo } from "preact/hooks";
import { dateOf, dateStart, zoned } from "../../part/moment";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

export const LENGTHS: [id: string, title: string, ms: number][] = [
  ["24h", "Last 24 hours", DAY_MS],
  ["7d", "Last 7 days", 7 * DAY_MS],
  ["30d", "Last 30 days", 30 * DAY_MS],
  ["90d", "Last 90 days", 90 * DAY_MS],
];

/** A time in whole hours, in milliseconds since the epoch, and the length of its buckets. */
export type Span = { from: number; to: number; bucket: "hour" | "day" };

/** Reads the address: `from` and `to` take precedence over `period`. */
export function spanOf(period: string, from: string, to: string, now: number): Span {
  const end = Math.ceil(now / HOUR_MS) * HOUR_MS;
  const length = LENGTHS.find(([id]) => id === period)?.[2] ?? 7 * DAY_MS;
  const given = { from: Number(from), to: to ? Number(to) : end };
  const isGiven = from !== "" && Number.isFinite(given.from) && Number.isFinite(given.to) && given.from < given.to;
  const span = isGiven
    ? { from: Math.floor(given.from / HOUR_MS) * HOUR_MS, to: Math.ceil(given.to / HOUR_MS) * HOUR_MS }
    : { from: end - length, to: end };
  return { ...span, bucket: span.to - span.from <= 2 * DAY_MS ? "hour" : "day" };
}

/** The time of the address. It does not move while the page is open. */
export const useSpan = (period: string, from: string, to: string): Span =>
  useMemo(() => spanOf(period, from, to, Date.now()), [period, from, to]);

/** The step of a series over a time, in seconds: hours would leave gaps where few requests come. */
export function seriesStep({ from, to }: Span): string {
  const days = (to - from) / DAY_MS;
  return days <= 2 ? "3600" : days <= 14 ? "21600" : "86400";
}

/** The time of the same length before. */
export const before = ({ from, to, bucket }: Span): Span => ({ from: from - (to - from), to: from, bucket });

/** The start of a day of a date field, or of the next day; an empty text if it is no date. */
export const dayStart = (date: string, days = 0): string => String(dateStart(date, days) ?? "");

/** The starts of the buckets of a time, as the server cuts it in the chosen time zone. */
export function bucketsOf(from: number, to: number, bucket: Span["bucket"]): number[] {
  const times: number[] = [];
  if (bucket === "day") {
    for (let day = 0; ; day += 1) {
      const at = dateStart(dateOf(from), day) ?? to;
      if (at >= to) return times;
      times.push(at);
    }
  }
  const first = from - (zoned(from).getTime() % HOUR_MS);
  for (let at = first; at < to; at += HOUR_MS) times.push(at);
  return times;
}
