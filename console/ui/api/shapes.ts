// Shapes of answers that api/types.ts does not have.
import type { Ms, Us } from "./types";

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
