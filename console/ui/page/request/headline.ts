// The headline of a request: the target that answered it, or the reason that none did.
import type { Quota, RequestRecord } from "../../api/types";
import { clock, moment } from "../../part/format";
import { limitName } from "../../part/limits";
import { isPassedOver, stepWords } from "../../part/outcome";
import { windowStart } from "../quotas";

/** Why a request failed, by the error of its record, whose names are not those of the codes that clients get. */
const REASONS: Record<string, string> = {
  unsupported_field: "no target takes one of its fields",
  unsupported_route: "no target serves such requests",
  invalid_request: "the request is invalid",
  not_allowed: "the key may not use the selector",
  private_provider: "the provider is private to another human",
  model_not_found: "there is no such model or endpoint",
  previous_response_not_found: "the response that it continues is not known",
  body_too_large: "the request is too large",
  quota_exceeded: "a limit is used up",
  rate_limited: "every target limits the rate of requests",
  no_eligible_target: "no target could be tried",
  budget_exhausted: "the time for failover ran out",
  overloaded: "the gateway was overloaded",
  database_unreachable: "the gateway could not reach its database",
  draining: "the gateway was stopping",
  upstream_unreachable: "the upstream could not be reached",
  upstream_timeout: "the upstream did not answer in time",
  upstream_invalid: "the upstream answered something invalid",
  upstream_status: "the upstream answered with an error",
  upstream_cut: "the upstream broke the answer off",
  cancelled: "the request was cancelled",
  internal: "the gateway failed",
};

/** The name of what a limit binds, as the record knows it. */
function subjectOf({ subject }: Quota, record: RequestRecord): string {
  const names: Record<string, string | null> = {
    key: record.key_name,
    project: record.project_name,
    principal: record.principal_name,
    provider: subject.id ?? null,
  };
  return names[subject.kind] ?? (subject.kind === "gateway" ? "the gateway" : (subject.id ?? "it"));
}

/** `tokens a day of load-test are used up until 00:00`. The end is named if the limit's present window is that of the request. */
export function usedUpWords(quota: Quota, record: RequestRecord): string {
  const name = limitName(quota);
  const start = windowStart(quota);
  const isOfWindow = start !== null && record.started_at_ms >= start;
  const end = quota.resets_at_ms ?? 0;
  const until = isOfWindow ? ` until ${end - record.started_at_ms < DAY_MS ? clock(end) : moment(end)}` : "";
  const verb = quota.metric === "cost_micro_usd" ? "is" : "are";
  return `${name[0]?.toLowerCase()}${name.slice(1)} of ${subjectOf(quota, record)} ${verb} used up${until}`;
}

const DAY_MS = 86_400_000;

/** One line about how a request ended. `quota` is the one that refused it, if that still exists. */
export function headlineOf(record: RequestRecord, quota: Quota | null = null): string {
  const target = record.provider ? `${record.provider} / ${record.model}` : null;
  if (record.outcome === "completed" && target) return `Answered by ${target}`;
  if (quota && record.error === "quota_exceeded") return `Refused: ${usedUpWords(quota, record)}`;
  const reason = record.error ? (REASONS[record.error] ?? record.error.replace(/_/g, " ")) : null;
  if (record.outcome === "cut") return `Cut off at ${target ?? "the upstream"}${reason ? `: ${reason}` : ""}`;
  if (record.outcome !== "failed")
    return `${record.outcome === "cancelled" ? "The client left" : "Interrupted"}${target ? ` at ${target}` : ""}`;
  const word = target === null && record.status < 500 ? "Refused" : "Failed";
  return reason ? `${word}: ${reason}` : `${word} with ${record.status}`;
}

/** One sentence about the way of a request: what it asked for, and what happened at its targets, like failures in one. */
export function sentenceOf(record: RequestRecord): string {
  const steps = record.trace ?? [];
  const passed = steps.filter(isPassedOver).length;
  const failed = new Map<string, number>();
  for (const step of steps) {
    if (isPassedOver(step) || step.result === "served") continue;
    const words = `${step.provider} ${stepWords(step)}`;
    failed.set(words, (failed.get(words) ?? 0) + 1);
  }
  const parts = record.selector ? [`Asked for ${record.selector}.`] : [];
  for (const [words, count] of [...failed].slice(0, FAILURES_MAX)) parts.push(count > 1 ? `${words}, ${count} times.` : `${words}.`);
  if (failed.size > FAILURES_MAX) parts.push(`${failed.size - FAILURES_MAX} more targets failed.`);
  if (passed) parts.push(`${passed} ${passed === 1 ? "target was" : "targets were"} skipped.`);
  if (record.outcome === "failed" && !record.message) parts.push(`The client got ${record.status}.`);
  return parts.join(" ");
}

const FAILURES_MAX = 3;

/** `The client got 503`, before the text of the error. A stream that was cut has sent its status long before. */
export const gotWords = ({ outcome, status }: RequestRecord): string =>
  outcome === "failed" ? `The client got ${status}` : "The answer ended with";

/** Output tokens a second after the first token; null where the time is too short to measure one. */
export function speedOf(record: RequestRecord, output: number): number | null {
  const streaming = record.first_content_us === null ? 0 : record.duration_us - record.first_content_us;
  return record.stream && streaming >= STREAMING_LEAST_US && output > 1 ? Math.round(output / (streaming / 1e6)) : null;
}

/** An answer that came at once, such as one out of a cache or of the echo, has no speed. */
const STREAMING_LEAST_US = 50_000;
