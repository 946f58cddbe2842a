// Reports as groups: their names, the series of a chart, and the comparison with the time before.
import type { ChargedFigures as Figures, UsageLine } from "../../api/types";
import type { Series } from "../../part/chart";
import { clientName } from "../../part/client_name";

/** What a report can be grouped by. */
export const BY: [string, string][] = [
  ["model", "Model"],
  ["provider", "Provider"],
  ["key", "Key"],
  ["project", "Project"],
  ["principal", "Human"],
  ["endpoint", "Endpoint"],
  ["operation", "Operation"],
  ["outcome", "Outcome"],
  ["client", "Client"],
];

const SERIES_MAX = 5;
const CLASSES = ["series-1", "series-2", "series-3", "series-4", "series-5", "series-6"];

/** What an id of a group without a name of its own is called. */
const wordsOf = (name: string, id: string | null | undefined): string | null | undefined => (name === "client" ? clientName(id) : id);

/** What has no such name. */
const NONE: Record<string, string> = {
  model: "no model",
  provider: "no provider",
  key: "no key",
  project: "no project",
  principal: "no human",
  endpoint: "no endpoint: an exact model",
  client: "unknown client",
};

/** The name of a line's group; two names are joined. */
export const nameOf = (line: UsageLine, by: string): string =>
  by
    .split(",")
    .map((name) => line.names?.[name] ?? wordsOf(name, line.group[name]) ?? NONE[name] ?? "none")
    .join(" · ");

/** The values of a line's group as filters of the list of requests; null if one is empty, which no filter finds. */
export function filtersOf(line: UsageLine, by: string): Record<string, string> | null {
  const pairs = by.split(",").map((name) => [name, line.group[name] ?? ""] as const);
  return pairs.every(([, value]) => value) ? Object.fromEntries(pairs) : null;
}

/** A series of a chart and the line that names its group; null for the rest of the groups. */
export type GroupSeries = Series & { line: UsageLine | null };

/** Groups as stacked series over the buckets of a period; those beyond the largest become one series. */
export function seriesOf(lines: UsageLine[], by: string, value: (figures: Figures) => number, times: number[]): GroupSeries[] {
  const sums = new Map<string, number>();
  for (const line of lines) sums.set(nameOf(line, by), (sums.get(nameOf(line, by)) ?? 0) + value(line));
  const largest = [...sums].sort(([, a], [, b]) => b - a).map(([name]) => name);
  const own = largest.slice(0, largest.length > SERIES_MAX + 1 ? SERIES_MAX : SERIES_MAX + 1);
  const isRest = own.length < largest.length;
  const series = [...own, ...(isRest ? [`${largest.length - own.length} more`] : [])].map((name, i) => ({
    name,
    values: times.map(() => 0),
    className: CLASSES[i] ?? "series-6",
    line: i < own.length ? (lines.find((line) => nameOf(line, by) === name) ?? null) : null,
  }));
  for (const line of lines) {
    const at = times.indexOf(line.bucket_start_ms ?? 0);
    const place = own.indexOf(nameOf(line, by));
    const values = series[place < 0 ? series.length - 1 : place]?.values;
    if (values && at >= 0) values[at] = (values[at] ?? 0) + value(line);
  }
  return series;
}

/** `+12 %`; an empty text if there is nothing to compare with. */
export function changeWords(now: number, before: number): string {
  if (before === 0) return now === 0 ? "" : "new";
  const change = Math.round((now / before - 1) * 100);
  return `${change > 0 ? "+" : change < 0 ? "−" : "±"}${Math.abs(change)} %`;
}
