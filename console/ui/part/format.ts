// Figures, moments and durations as text. An unknown value is a dash, never a zero.
import { preferences } from "../app/preferences";

export const UNKNOWN = "–";

const pad = (n: number, digits = 2): string => String(n).padStart(digits, "0");
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

type Parts = { year: number; month: number; day: number; hour: number; minute: number; second: number; ms: number };

/** The parts of a moment in the chosen time zone. */
function partsOf(at: number): Parts {
  const date = new Date(preferences.zone.value === "utc" ? at : at - new Date(at).getTimezoneOffset() * 60_000);
  return {
    year: date.getUTCFullYear(),
    month: date.getUTCMonth(),
    day: date.getUTCDate(),
    hour: date.getUTCHours(),
    minute: date.getUTCMinutes(),
    second: date.getUTCSeconds(),
    ms: date.getUTCMilliseconds(),
  };
}

/** `03:04` or `03:04:17.214`. */
export function clock(at: number, detail: "minute" | "second" | "ms" = "minute"): string {
  const { hour, minute, second, ms } = partsOf(at);
  const short = `${pad(hour)}:${pad(minute)}`;
  if (detail === "minute") return short;
  return detail === "second" ? `${short}:${pad(second)}` : `${short}:${pad(second)}.${pad(ms, 3)}`;
}

/** `22 Nov 2026`. */
export function day(at: number): string {
  const { year, month, day } = partsOf(at);
  return `${day} ${MONTHS[month]} ${year}`;
}

/** `22 Nov 03:04`, with the year unless it is the present one. */
export function moment(at: number | null | undefined, now = Date.now()): string {
  if (at == null) return UNKNOWN;
  const { year, month, day } = partsOf(at);
  const date = `${day} ${MONTHS[month]}${year === partsOf(now).year ? "" : ` ${year}`}`;
  return `${date} ${clock(at)}`;
}

/** The IANA name of the chosen time zone, in which charts and reports cut days. */
export const zoneId = (): string => (preferences.zone.value === "utc" ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone);

/** The name of the chosen time zone, to stand after a moment. */
export const zoneName = (): string => (preferences.zone.value === "utc" ? "UTC" : "local");

const LONGEST = [0, 86_400, "d"] as const;

/** `3 min ago`, `in 2 d`. */
export function ago(at: number | null | undefined, now = Date.now()): string {
  if (at == null) return UNKNOWN;
  const seconds = Math.abs(now - at) / 1000;
  if (seconds < 5) return "now";
  const steps: [below: number, unit: number, name: string][] = [
    [60, 1, "s"],
    [3600, 60, "min"],
    [86_400, 3600, "h"],
  ];
  const [, unit, name] = steps.find(([below]) => seconds < below) ?? LONGEST;
  const text = `${Math.floor(seconds / unit)} ${name}`;
  return at > now ? `in ${text}` : `${text} ago`;
}

/** Dollars from millionths, with as many digits as it takes not to show zero. */
export function dollars(micro: number | null | undefined): string {
  if (micro == null) return UNKNOWN;
  const amount = micro / 1e6;
  if (amount === 0) return "$0";
  const size = Math.abs(amount);
  if (size >= 1) return `${amount < 0 ? "-" : ""}$${group(size.toFixed(2))}`;
  const digits = Math.min(9, Math.max(2, 2 - Math.floor(Math.log10(size))));
  return `${amount < 0 ? "-" : ""}$${size.toFixed(digits)}`;
}

/** A price in dollars per million tokens. */
export function price(amount: number | null | undefined): string {
  if (amount == null) return UNKNOWN;
  const text = amount.toFixed(4).replace(/0{1,2}$/, "");
  return `$${text}`;
}

function group(text: string): string {
  const [whole = "", rest] = text.split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return rest === undefined ? grouped : `${grouped}.${rest}`;
}

/** `46,302`. */
export const count = (n: number | null | undefined): string => (n == null ? UNKNOWN : group(String(Math.round(n))));

/** `38.9 k`, `1.2 M`. */
export function short(n: number | null | undefined): string {
  if (n == null) return UNKNOWN;
  if (n < 10_000) return count(n);
  const [unit, name] = n < 999_500 ? ([1e3, "k"] as const) : n < 999_500_000 ? ([1e6, "M"] as const) : ([1e9, "G"] as const);
  const value = n / unit;
  return `${value < 100 ? value.toFixed(1).replace(/\.0$/, "") : Math.round(value)} ${name}`;
}

/** A duration in microseconds: `0.19 ms`, `410 ms`, `2.33 s`, `3 min 12 s`. */
export function duration(us: number | null | undefined): string {
  if (us == null) return UNKNOWN;
  if (us < 10_000) return `${(us / 1000).toFixed(2)} ms`;
  if (us < 1_000_000) return `${Math.round(us / 1000)} ms`;
  if (us < 10_000_000) return `${(us / 1e6).toFixed(2)} s`;
  if (us < 120_000_000) return `${(us / 1e6).toFixed(1)} s`;
  return `${Math.floor(us / 60e6)} min ${Math.floor((us % 60e6) / 1e6)} s`;
}

/** A number of seconds: `20 s`, `5 min`, `1 h`, `90 s`. */
export function secondsText(seconds: number): string {
  const units = [
    [86_400, "d"],
    [3_600, "h"],
    [60, "min"],
  ] as const;
  const [unit, name] = units.find(([unit]) => seconds >= unit && seconds % unit === 0) ?? ([1, "s"] as const);
  return `${count(seconds / unit)} ${name}`;
}

/** `7.3 kB`. */
export function bytes(n: number | null | undefined): string {
  if (n == null) return UNKNOWN;
  if (n < 1000) return `${n} B`;
  const [unit, name] = n < 1e6 ? ([1e3, "kB"] as const) : n < 1e9 ? ([1e6, "MB"] as const) : ([1e9, "GB"] as const);
  return `${(n / unit).toFixed(1)} ${name}`;
}

/** `1 key`, `3 keys`. */
export const plural = (n: number, one: string, many = `${one}s`): string => `${count(n)} ${n === 1 ? one : many}`;

/** `completed` as `Completed`. */
export const capital = (word: string): string => `${word[0]?.toUpperCase() ?? ""}${word.slice(1)}`;

/** The name of one of several nodes; its number if it has none. */
export const nodeName = ({ node, name }: { node: number; name: string }): string => name || String(node);
