// Shapes of answers that api/types.ts does not have.
import type { Ms, RequestRecord, Step, Us } from "./types";

/** `GET setup`: which steps of the set-up are done, wherever they were done. */
export type Setup = {
  human: boolean;
  project: boolean;
  owner: boolean;
  provider: boolean;
  synced: boolean;
  proven: boolean;
  endpoint: boolean;
  key: boolean;
  /** The id of the first request that a project key has made; null while there is none. */
  first_request: string | null;
};

type Counts =
  | "requests"
  | "completed"
  | "failed_over"
  | "failed"
  | "cut"
  | "cancelled"
  | "refused"
  | "attempts"
  | "attempt_failures"
  | "input"
  | "cache_read"
  | "output"
  | "cost_micro_usd"
  | "requests_unpriced";
type Times = "first_content_us_p50" | "first_content_us_p99" | "duration_us_p50" | "duration_us_p99";

/** Columns: each list has one item for each point. */
export type Points = { [Name in Counts]: number[] } & { [Name in Times]: (Us | null)[] };

/** `GET series`. */
export type SeriesAnswer = {
  from_ms: Ms;
  to_ms: Ms;
  step_ms: number;
  partial: boolean;
  /** The moment from which no exchange is missing. */
  complete_from_ms: Ms;
  groups: { group: Record<string, string | null>; names?: Record<string, string | null>; points: Points }[];
  groups_omitted: number;
};

/** The selectors that a key loses or gains; at most 20 of them. */
export type KeyEffect = { key: string; key_name: string | null; selectors: string[]; selectors_total: number };

/** What a write would do: `effects` of its answer with `dry_run=true`. */
export type Effects = {
  loses: KeyEffect[];
  gains: KeyEffect[];
  keys_losing: number;
  keys_gaining: number;
  /** The endpoints that lose a target. */
  endpoints: string[];
  warnings: { code: string; param: string | null; message: string; objects: string[] }[];
  /** False if more keys may be affected. */
  complete: boolean;
};

/** A selector, and the caller's access to it. */
export type SelectorAccess = {
  selector: string;
  kind: "endpoint" | "model" | "alias";
  allowed: boolean;
  /** If `allowed` is true, they concern some of the targets only. */
  reasons: string[];
  targets: number;
  usable: number;
};

/** A step of a trace with its times from the request's head. Records of earlier releases lack them. */
export type TimedStep = Step & {
  start_us?: Us;
  first_content_us?: Us;
  /** Counted at its target, from 1. */
  attempt?: number;
  message?: string;
  /** The pause that the upstream asked for. */
  retry_after_ms?: number;
};

/** A record with what earlier releases did not record; what is absent or null is unknown. */
export type FullRecord = Omit<RequestRecord, "trace"> & {
  trace?: TimedStep[];
  client?: string | null;
  /** A pseudonym of the conversation. */
  session?: string | null;
  protocol?: string | null;
  /** The target's protocol, if it is not the client's. */
  adapted?: string | null;
  /** The members of the request that were left out for the target. */
  dropped?: string[];
  attempts?: number;
  passed_over?: number;
  failed_over?: boolean;
  /** The results of the last steps of the trace. */
  results?: string[];
  bytes_in?: number | null;
  bytes_out?: number | null;
  /** The gateway's own time until the first content. */
  gateway_us?: Us | null;
  /** The longest silence of a stream after its first content. */
  silence_us_max?: Us | null;
  /** The quota that refused the request. */
  refused_by?: string | null;
  cancelled_by?: "client" | "administrator" | null;
};
