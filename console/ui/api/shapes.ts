// Shapes of answers that api/types.ts does not have.
import type { Circuit, Ms, RequestRecord, Step, Us } from "./types";

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

export type VerdictState = "set_up" | "quiet" | "serving" | "degraded" | "failing" | "unrecorded" | "draining";
/** A reason of a verdict; the figures are counts, milliseconds or microseconds, as their names state. */
export type Reason = { code: string; object: string | null; figures: Record<string, number> };
export type Verdict = { state: VerdictState; since_ms: Ms; reasons: Reason[] };

/** The events of `GET live`, by their names. */
export type LiveEvents = {
  hello: { at_ms: Ms; version: string; generation: number };
  figures: { at_ms: Ms; span_ms: number; running: number; connections: number; verdict: Verdict };
  /** The providers that have changed. */
  providers: LiveProvider[];
  /** At most 200 are listed, those that have been silent longest. */
  running: { begun_or_changed: Running[]; ended: string[]; more: number };
  change: Change;
  seen: Watched;
  bye: { reason: "signed_out" | "draining" | "too_many" };
};

/** A provider with its attempts in the last five minutes. */
export type LiveProvider = { provider: string; circuit: Circuit; running: number; attempts: number; failures: number };
/** An action of an administrator, a publication, a reload, or a circuit that opened or closed. */
export type Change = { at_ms: Ms; audit_id: number | null; kind: string; object: string; text: string };

/** A request with the watched key, or one that was rejected and left no record. */
export type Watched = {
  at_ms: Ms;
  address: string;
  client: string;
  method: string;
  path: string;
  status: number;
  code: string | null;
  key_prefix: string | null;
  model: string | null;
  request_id: string;
};

/** A request that is being served. */
export type Running = {
  request_id: string;
  started_at_ms: Ms;
  key: string;
  client: string;
  operation: string;
  selector: string;
  provider: string | null;
  model: string | null;
  attempt: number;
  stage: "reading" | "waiting" | "paused" | "held" | "streaming";
  bytes_out: number;
  pieces: number;
  last_piece_at_ms: Ms | null;
  output_tokens_estimate: number;
};
