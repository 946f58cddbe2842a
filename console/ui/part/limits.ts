// The words of limits.
import type { Metric, Period, Quota } from "../api/types";
import { count, dollars } from "./format";

export const METRICS: [Metric, string][] = [
  ["cost_micro_usd", "Cost"],
  ["requests", "Requests"],
  ["input_tokens", "Input tokens"],
  ["output_tokens", "Output tokens"],
  ["total_tokens", "Tokens"],
  ["concurrent_requests", "Requests at a time"],
];

export const WINDOWS: [Period, string][] = [
  ["minute", "a minute"],
  ["hour", "an hour"],
  ["day", "a day"],
  ["week", "a week"],
  ["month", "a month"],
  ["total", "in total"],
];

export const metricName = (metric: Metric): string => METRICS.find(([name]) => name === metric)?.[1] ?? metric;
const windowName = (window: Period): string => WINDOWS.find(([name]) => name === window)?.[1] ?? window;

/** An amount in the unit of a metric. */
export const amount = (metric: Metric, value: number): string => (metric === "cost_micro_usd" ? dollars(value) : count(value));

/** `Cost a month`, `Requests a minute to openai/gpt-5`. */
export function limitName({
  metric,
  window,
  model,
  endpoint,
}: Pick<Quota, "metric" | "window"> & { model?: string | null; endpoint?: string | null }): string {
  const scope = model ?? endpoint;
  return `${metricName(metric)}${window ? ` ${windowName(window)}` : ""}${scope ? ` to ${scope}` : ""}`;
}

/** The used share of a limit, with what running requests hold. */
export const shareOf = (quota: Quota): number => (quota.limit > 0 ? (quota.used + quota.reserved) / quota.limit : quota.used > 0 ? 1 : 0);

export const kindOf = (share: number): "" | "warn" | "bad" => (share >= 1 ? "bad" : share >= 0.8 ? "warn" : "");
