// The shapes of the admin API's answers, as far as the console reads them. Names and units are those of docs/admin-api.md.

/** Milliseconds since the Unix epoch. */
export type Ms = number;
/** Microseconds. */
export type Us = number;
/** A millionth of a dollar, with up to three decimals. */
export type MicroUsd = number;

export type Page<T> = { data: T[]; next_cursor: string | null };

export type GatewayState = {
  version: string;
  commit: string;
  built_at: string;
  started_at_ms: Ms;
  uptime_seconds: number;
  generation: number;
  counts: { providers: number; endpoints: number; models: number; keys: number };
  prices_as_of: string;
  reload: { reloads: number; last_ok_at_ms: Ms; last_error_at_ms: Ms | null; last_error: string | null };
  usage: { failing_since_ms: Ms | null; failing_error: string | null; lost: number; has_room: boolean; stored: number };
  warnings: string[];
};

export type Metric = "requests" | "concurrent_requests" | "input_tokens" | "output_tokens" | "total_tokens" | "cost_micro_usd";
export type Period = "minute" | "hour" | "day" | "week" | "month" | "total";

/** A limit of a key as it is sent with a new key. */
export type KeyLimit = {
  model?: string | null;
  endpoint?: string | null;
  metric: Metric;
  window: Period | null;
  limit: number;
  enforcement?: "hard" | "warn";
};

export type Subject = { kind: "key" | "project" | "principal" | "provider" | "gateway"; id: string };

export type Quota = {
  id: string;
  subject: Subject;
  model: string | null;
  endpoint: string | null;
  metric: Metric;
  window: Period | null;
  limit: number;
  enforcement: "hard" | "warn";
  used: number;
  reserved: number;
  remaining: number;
  exceeded: boolean;
  resets_at_ms: Ms | null;
  version: number;
};

export type Allowlist = { models: string[] | null; endpoints: string[] | null; routes: string[] | null };

export type Principal = {
  id: string;
  name: string;
  email: string | null;
  disabled: boolean;
  version: number;
  created_at_ms: Ms;
  updated_at_ms: Ms;
};

export type Project = Allowlist & {
  id: string;
  name: string;
  disabled: boolean;
  key_defaults: KeyLimit[];
  version: number;
  created_at_ms: Ms;
  updated_at_ms: Ms;
};

export type Role = "owner" | "admin" | "member" | "viewer";
export type Member = { project: string; principal: string; role: Role; created_at_ms: Ms };

export type Key = Allowlist & {
  id: string;
  name: string;
  project: string;
  acts_as: string | null;
  prefix: string;
  state: "active" | "expired" | "disabled" | "revoked";
  expires_at_ms: Ms | null;
  recoverable: boolean;
  /** The start of the hour in which it was used last. */
  last_used_hour_ms: Ms | null;
  rotated_from: string | null;
  /** The first of the keys that rotation has made from one; limits count for all of them. */
  family: string;
  version: number;
  created_at_ms: Ms;
  updated_at_ms: Ms;
};

/** The answer that contains a new or revealed key; null if the answer was lost and the key cannot be revealed. */
export type KeyWithSecret = Key & { key: string | null };

export type Endpoint = {
  name: string;
  source: "file" | "api";
  shadowed: boolean;
  failover: Target[];
  passed_over: (Target & { reason: string })[];
  preamble: string | null;
  version: number | null;
};

export type Target = { provider: string; model: string };

export type Figures = {
  requests: number;
  /** Attempts whose cost is unknown. They are not in the sum of the cost. */
  requests_unpriced: number;
  cost_micro_usd: MicroUsd;
  lost_micro_usd: MicroUsd;
  tokens: Record<string, number> & { total: number };
  duration_us_avg: Us | null;
  first_content_us_avg: Us | null;
};

export type UsageLine = Figures & {
  bucket_start_ms?: Ms;
  group: Record<string, string | null>;
  names?: Record<string, string | null>;
};

export type Usage = Page<UsageLine> & { from_ms: Ms; to_ms: Ms; totals: Figures | null };

export type Model = {
  id: string;
  provider: string;
  model: string;
  display_name: string | null;
  vision: boolean | null;
  tools: boolean | null;
  reasoning: boolean | null;
  audio: boolean | null;
  protocols: string[] | null;
  lacks: string[];
  context_window: number | null;
  max_output_tokens: number | null;
  prices: Record<string, unknown> | null;
  prices_from: unknown;
  owned_by: string | null;
  sources: string[];
};

export type Failure = { at_ms: Ms; status: number | null; message: string; hint: string | null };

export type Evidence = {
  reachable: { at_ms: Ms | null; by: string | null; last_error: Failure | null };
  catalog: { synced_at_ms: Ms | null; models: number; skipped: Record<string, number>; last_error: Failure | null };
  inference: { proven_at_ms: Ms | null; model: string | null; request_id: string | null; last_error: Failure | null };
};

export type ProviderState = "ready" | "disabled" | "not_connected" | "shadowed" | "faulty";

export type Provider = {
  id: string;
  type: string;
  source: "file" | "api";
  state: ProviderState;
  reason: string | null;
  shadowed: boolean;
  disabled: boolean;
  auth: "api_key" | "local" | "oauth" | null;
  owner: string | null;
  /** The projects that may use a private provider. */
  bindings?: string[];
  base_url: string | null;
  region: string | null;
  location: string | null;
  project: string | null;
  registry_id: string | null;
  protocols: string[];
  credential: { set: boolean; last_four?: string | null; reference?: string | null; updated_at_ms?: Ms | null };
  evidence?: Evidence;
  timeout: number;
  stream_idle_timeout: number;
  version: number | null;
};

export type RegistryEntry = {
  id: string;
  name: string;
  type: string;
  base_url?: string;
  api_key_env?: string;
  docs: string;
};

export type Detected = { registry_id: string; name: string; base_url: string; models: string[]; providers: string[] };

export type Circuit = {
  state: "closed" | "open" | "half_open";
  open_since_ms: Ms | null;
  retry_in_ms: number | null;
  failures: number;
  failures_max: number;
};

export type ProviderHealth = {
  provider: string;
  type: string;
  circuit: Circuit;
  last_failure: { at_ms: Ms; result: string; status: number | null } | null;
  models: { model: string; circuit: Circuit; last_failure: { at_ms: Ms; result: string; status: number | null } | null }[];
  recent: { since_ms: Ms; requests: number; duration_us_avg: Us | null; first_content_us_avg: Us | null };
};

export type SyncOutcome = {
  provider: string;
  ok: boolean;
  at_ms: Ms;
  models: number;
  added: number;
  removed: number;
  error: Failure | null;
};

export type Trial = {
  ok: boolean;
  status: number;
  request_id: string;
  latency_ms: number;
  first_content_ms: number | null;
  served_model: string | null;
  answer: string;
  error: string | null;
  hint: string | null;
  billable: boolean;
  record: { tokens: Record<string, number>; cost_micro_usd: MicroUsd | null } | null;
};

export type Outcome = "completed" | "failed" | "cancelled" | "cut" | "interrupted";

export type Step = Target & {
  result: string;
  status?: number;
  /** From the start of the attempt until the head of the answer. */
  head_us?: Us;
  /** From the start of the attempt until its failure or its first content; absent for a target that was passed over. */
  spent_us?: Us;
};

export type RequestRecord = {
  request_id: string;
  started_at_ms: Ms;
  duration_us: Us;
  operation: string;
  key: string;
  key_name: string | null;
  project: string | null;
  project_name: string | null;
  principal: string | null;
  principal_name: string | null;
  selector: string;
  endpoint: string | null;
  provider: string | null;
  model: string | null;
  stream: boolean;
  status: number;
  outcome: Outcome;
  error: string | null;
  tokens: Record<string, number>;
  units: Record<string, number>;
  provenance: "reported" | "measured" | "estimated" | "none";
  tier: string | null;
  cost_micro_usd: MicroUsd | null;
  /** The known cost of failed attempts. */
  lost_micro_usd: MicroUsd;
  /** The label of the prices that were used. */
  price: string | null;
  upstream_id: string | null;
  tags: Record<string, string>;
  end_user: string | null;
  head_us: Us | null;
  first_content_us: Us | null;
  trace?: Step[];
};

export type AuditRecord = {
  id: number;
  at_ms: Ms;
  actor: string;
  action: string;
  object_kind: string;
  object_id: string;
  outcome: "done" | "refused";
  address: string | null;
  request_id: string | null;
  detail: { before?: unknown; after?: unknown } | null;
};

export type Backup = { name: string; bytes: number; manifest?: { created_at: string; gateway_version: string }; error?: string };
export type Backups = Page<Backup> & { is_running: boolean; last_failure: { at_ms: Ms; message: string } | null; kept: number };

export type Config = {
  file: string;
  settings: { name: string; value: string | null; source: string }[];
  policies: { defaults: Record<string, number>; overrides: Record<string, Record<string, number>> };
};

export type CatalogOverride = {
  id: string;
  provider: string;
  model: string;
  effective_from_ms: Ms | null;
  facts: Record<string, unknown>;
  created_at_ms: Ms;
};
