// Generated from the answers and bodies of the admin API: do not edit. `LLMGW_WRITE_REFERENCE=1 cargo test -p control reference` writes it.
// docs/admin-api/ shows which route has which shape. Times are in milliseconds (_ms) or microseconds (_us).

/** A page of a list. */
export type Page<T> = { data: T[]; next_cursor: string | null };

/** An adaptation of requests in a client's protocol to a target's. */
export type Adaptation = {
  /** The client's protocol. */
  client: string;
  /** The translations, in order: one, or two by way of another protocol. A field has a fate in each of them. */
  steps: AdaptationStep[];
  /** The target's protocol. */
  target: string;
};

/** One page of a list. */
export type AdaptationPage = {
  data: Adaptation[];
  /** The `cursor` of the next page; null on the last one. */
  next_cursor: string | null;
};

/** One translation of a request. */
export type AdaptationStep = {
  /** The fields with another fate at providers with `responses_fallback: agents`. */
  agents: AdaptedField[];
  fields: AdaptedField[];
  /** The protocol before it. */
  from: string;
  /** The protocol after it. */
  to: string;
};

/** The fate of one field. */
export type AdaptedField = {
  /** `exact`: kept as it is; `mapped`: translated; `hint`: translated or dropped, without another meaning; `rejected`: 400. */
  fate: string;
  /** The path: `*` is any element, `[kind]` one of that `type`, `=value` only that value. */
  field: string;
  /** The field's destination, or the reason why it has none. */
  note: string;
};

/** An alert, as stored and as the API shows it. */
export type Alert = {
  /** In milliseconds since the Unix epoch; null if it was not acknowledged. */
  acked_at_ms: number | null;
  /** The key or human that acknowledged it; null if it was not. */
  acked_by: string | null;
  /** The figures at its beginning, with units in their names. */
  figures: Record<string, number>;
  /** The time at which its condition began, in milliseconds since the Unix epoch. */
  first_at_ms: number;
  id: string;
  /** The kind, such as `provider_down`. */
  kind: string;
  /** The last time at which its condition began, in milliseconds since the Unix epoch. */
  last_at_ms: number;
  /** The object concerned, such as a provider; null for the gateway. */
  object: string | null;
  /** The name of the object, for a limit that of its subject; the ID if it has no name, null for the gateway. */
  object_name: string | null;
  /** In milliseconds since the Unix epoch; null while it is not resolved. */
  resolved_at_ms: number | null;
  /** The rule that raised it. */
  rule: string;
  severity: Severity;
  state: AlertState;
  text: string;
  /** The number of times that its condition began before it was resolved. */
  times: number;
};

/** The kind of an alert and of its events (ADM-5). */
export type AlertKind = "quota_warning" | "quota_exhausted" | "key_expiring" | "provider_down" | "provider_recovered" | "credential_expiring" | "credential_broken" | "certificate_expiring" | "spend_anomaly" | "catalog_drift" | "config_reload_failed" | "disk_low" | "backup_failed" | "node_lost" | "node_skew" | "shipping_behind";

/** One page of a list. */
export type AlertPage = {
  data: Alert[];
  /** The `cursor` of the next page; null on the last one. */
  next_cursor: string | null;
};

/** A rule, as the API shows it. */
export type AlertRule = {
  /** The time for which a condition must be absent before its alert is resolved. */
  clear_seconds: number;
  /** In milliseconds since the Unix epoch; 0 for a built-in rule. */
  created_at_ms: number;
  /** False if the rule raises no alerts; its open ones are resolved. */
  enabled: boolean;
  /** For `spend_anomaly`: spending of an hour up to this amount is never an anomaly, in micro-dollars. Null for other kinds. */
  floor_micro_usd: number | null;
  /** The time for which a condition must hold before an alert opens. */
  hold_seconds: number;
  id: string;
  kind: AlertKind;
  name: string;
  /** The names of `objects` in their order, for a limit that of its subject; the ID of one without a name. Null for all. */
  object_names: string[] | null;
  /** The objects that the rule concerns, as alerts name them; null for all. */
  objects: string[] | null;
  severity: Severity;
  /** Its meaning depends on the kind: per cent of a limit (`quota_warning`), days before the end (`key_expiring`, `certificate_expiring`), hours before the end (`credential_expiring`), times the upper bound of usual spending (`spend_anomaly`), per cent of free space (`disk_low`), minutes that usage waits (`shipping_behind`). Null for other kinds. */
  threshold: number | null;
  /** In milliseconds since the Unix epoch; 0 for a built-in rule that was never changed. */
  updated_at_ms: number;
  /** Grows with each change; the `ETag` of the object. */
  version: number;
};

/** One page of a list. */
export type AlertRulePage = {
  data: AlertRule[];
  /** The `cursor` of the next page; null on the last one. */
  next_cursor: string | null;
};

/** The state of an alert. */
export type AlertState = "open" | "resolved" | "acknowledged";

/** A curated provider and its automatic check. */
export type AnonymousProvider = {
  base_url: string;
  /** The date on which the entry was checked. */
  checked: string;
  /** The beginning of the last check, in milliseconds since the Unix epoch; null if there was none. */
  checked_at_ms: number | null;
  /** What was checked, and how. */
  checked_by: string;
  /** True if there is a provider of this ID that the automation connected, and that has no credential since. `GET providers/{id}` shows the evidence of its checks. */
  connected: boolean;
  /** True if an operator disabled it; it is not checked then. */
  disabled: boolean;
  /** The address of the vendor's documentation. */
  documentation: string;
  /** The ID that the provider gets. */
  id: string;
  /** The vendor's limits of anonymous use. */
  limits: string;
  /** The model to test; if the catalog lacks it, its first model that holds conversations is tested. */
  model: string;
  name: string;
  /** The address of the terms. */
  terms: string;
};

/** The curated providers. */
export type AnonymousProviders = {
  data: AnonymousProvider[];
  /** True if `LLMGW_ANONYMOUS_PROVIDER_AUTOMATION` is set: the gateway connects these providers, and checks each of them once a day. */
  enabled: boolean;
};

/** The approval of a sign-in. */
export type ApproveDeviceSignIn = {
  /** The ID of the project of the key, in which the caller may mint keys. */
  project: string;
};

/** The object of an audit record before and after the action. */
export type AuditDetail = {
  /** The object after the action, or what is known of the action; null if there is nothing. */
  after: unknown;
  /** The object before the action; null if it did not exist, or the action changed nothing. */
  before: unknown;
};

/** A page of audit records. */
export type AuditPage = {
  data: AuditRecord[];
  /** The `cursor` of the next page; null on the last one. */
  next_cursor: string | null;
};

/** An audit record. */
export type AuditRecord = {
  /** The action, such as `key.create`. */
  action: string;
  /** `admin`, `admin:NAME`, the ID of a human, `gateway` or `unknown`. */
  actor: string;
  /** The client's address; null for actions of the gateway. */
  address: string | null;
  /** In milliseconds since the Unix epoch. */
  at_ms: number;
  /** The object before and after, with secrets masked. */
  detail: AuditDetail;
  /** IDs ascend by one from record to record. */
  id: number;
  object_id: string;
  /** The kind of the object, such as `key`. */
  object_kind: string;
  /** `done` or `refused`. */
  outcome: string;
  /** Null for actions of the gateway. */
  request_id: string | null;
};

/** The result of verifying the chain of audit records. */
export type AuditVerification = {
  /** The ID of the first record that was changed, removed or inserted. Null if `ok`, and if the sealed ends of the chain were changed. */
  broken_at: number | null;
  /** A description of the first fault; null if `ok`. */
  fault: string | null;
  /** True if no record was changed, removed or inserted. */
  ok: boolean;
  /** The number of records that are kept. */
  rows: number;
  /** The time of the oldest record that is kept, in milliseconds since the Unix epoch; null if the audit is empty. */
  since_ms: number | null;
};

/** An archive in the default directory. */
export type Backup = {
  /** The length in bytes. */
  bytes: number;
  /** The time of the last full read, in milliseconds since the Unix epoch; null if there was none since the file changed. */
  checked_at_ms: number | null;
  /** A description of the damage; null if none is known. */
  fault: string | null;
  /** The manifest; null if it cannot be read. */
  manifest: BackupManifest | null;
  /** The file name. */
  name: string;
};

/** A backup that failed. */
export type BackupFailure = {
  /** In milliseconds since the Unix epoch. */
  at_ms: number;
  message: string;
};

/** A file of the archive. */
export type BackupFile = {
  /** The length in bytes. */
  bytes: number;
  /** The file name; one of the fixed names that an archive may contain. */
  name: string;
  /** The SHA-256 digest, in hex. */
  sha256: string;
};

/** The contents of an archive. */
export type BackupManifest = {
  /** The time of the backup, in RFC 3339 format. */
  created_at: string;
  /** The schema version of the database. */
  database_version: number;
  /** The other entries, in archive order. */
  files: BackupFile[];
  /** The version of the archive layout. */
  format: number;
  /** The gateway release that created the archive. */
  gateway_version: string;
  /** The number of rows in each table. */
  rows: Record<string, number>;
};

/** A backup that has begun. */
export type BackupStarted = {
  /** In milliseconds since the Unix epoch. */
  started_at_ms: number;
  /** Always `running`. */
  status: string;
};

/** The last backups of the state. */
export type BackupState = {
  /** The failure of the last backup; null if it succeeded, and if an archive made since it began is intact. */
  last_failure: BackupFailure | null;
  /** The time of the newest intact archive, in milliseconds since the Unix epoch; null if no archive is intact. */
  last_good_at_ms: number | null;
};

/** The archives of the gateway's state. */
export type Backups = {
  /** All archives. */
  data: Backup[];
  /** True while archives are being verified; until that ends, `fault` and `checked_at_ms` are those of the last check. */
  is_checking: boolean;
  /** True while a backup is being created. */
  is_running: boolean;
  /** The number of archives that are kept. */
  kept: number;
  /** The failure of the last backup; null if it succeeded. */
  last_failure: BackupFailure | null;
  /** Always null: the list has one page. */
  next_cursor: string | null;
};

/** A project that may use a private provider instance. */
export type Binding = {
  /** In milliseconds since the Unix epoch. */
  created_at_ms: number;
  /** The ID of the project. */
  project: string;
};

/** Changes of the top-level members of JSON requests. */
export type BodyMembers = {
  /** Values of members that a request lacks, or has as null. */
  defaults?: Record<string, unknown>;
  /** Members that are left out. */
  remove?: string[];
  /** Values of members, whatever a request has. */
  set?: Record<string, unknown>;
};

/** The reason for the end of a stream. */
export type ByeReason = "signed_out" | "draining" | "too_many";

/** The answer to a cancellation. */
export type CancelledRequest = {
  /** The node that ran it; absent for a gateway with its own database. */
  node?: NodeLabel;
  request_id: string;
};

/** An override, as stored and as the API shows it. */
export type CatalogOverride = {
  /** In milliseconds since the Unix epoch. */
  created_at_ms: number;
  /** The time from which they hold, in milliseconds since the Unix epoch. */
  effective_from_ms: number;
  facts: ModelFacts;
  id: string;
  /** The provider's name of the model. */
  model: string;
  /** The ID of the provider. */
  provider: string;
};

/** One page of a list. */
export type CatalogOverridePage = {
  data: CatalogOverride[];
  /** The `cursor` of the next page; null on the last one. */
  next_cursor: string | null;
};

/** The model list was read. */
export type CatalogReadEvidence = {
  /** The failure since then; null if there was none. */
  last_error: Failure | null;
  /** The number of models in the list. */
  models: number;
  skipped: SkippedEntries;
  /** The time of the last reading, in milliseconds since the Unix epoch; null if there was none. */
  synced_at_ms: number | null;
};

/** An action of an administrator. */
export type ChangeBefore = {
  /** Such as `endpoint.update`. */
  action: string;
  /** The key or human. */
  actor: string;
  /** In milliseconds since the Unix epoch. */
  at_ms: number;
  /** The audit record. */
  audit_id: number;
  /** The object as `kind/id`. */
  object: string;
};

/** A charge as the response shows it. */
export type Charge = {
  /** The ISO 4217 code. */
  currency: string;
  /** Added to the cost, in percent. */
  markup_percent: string;
  /** The price of a dollar in that currency. */
  rate: string;
};

/** Sums, with the charge for them. */
export type ChargedFigures = {
  /** The charge for the cost, in the report's currency; absent without a mark-up and a currency. */
  amount?: string;
  /** The known cost, including failed attempts. */
  cost_micro_usd: MicroUsd;
  /** In microseconds; null without requests. */
  duration_us_avg: number | null;
  /** The time to the first content, in microseconds; null if no request had content. */
  first_content_us_avg: number | null;
  /** The known cost of failed attempts. */
  lost_micro_usd: MicroUsd;
  requests: number;
  /** Attempts, failed ones included, whose cost is unknown and not in the sum. */
  requests_unpriced: number;
  tokens: UsageTokens;
  /** Other billed units by class. */
  units: Record<string, number>;
  /** The cost that vendors reported. */
  vendor_cost_micro_usd: MicroUsd;
};

/** An archive and the state of its verification. */
export type CheckedBackup = {
  /** The length in bytes. */
  bytes: number;
  /** The time of the last full read, in milliseconds since the Unix epoch; null if there was none since the file changed. */
  checked_at_ms: number | null;
  /** A description of the damage; null if none is known. */
  fault: string | null;
  /** True if the verification has not ended (202); `GET backups` shows its result later. */
  is_checking: boolean;
  /** The manifest; null if it cannot be read. */
  manifest: BackupManifest | null;
  /** The file name. */
  name: string;
};

/** The reason for which a target came first: the order of the endpoint, the session, the affinity key, or state of a provider. */
export type ChosenBy = "order" | "session" | "affinity" | "state";

/** The failure memory of a provider or model. It is lost at a restart. */
export type Circuit = {
  /** Consecutive failures. */
  failures: number;
  /** Consecutive failures that open the circuit; 0 disables it. */
  failures_max: number;
  /** The time at which the circuit left the closed state, in milliseconds since the Unix epoch; null if it is closed. */
  open_since_ms: number | null;
  /** The time until the probe is allowed, in milliseconds; null if it is closed. */
  retry_in_ms: number | null;
  /** `closed`, `open`, or `half_open`, in which the next request is the probe. */
  state: "closed" | "open" | "half_open";
};

/** A circuit that opened or closed. */
export type CircuitChange = {
  /** In milliseconds since the Unix epoch; exact to a second for a circuit that closed. */
  at_ms: number;
  /** The model whose circuit it is; null for the circuit of the provider instance itself. */
  model: string | null;
  provider: string;
  /** The result of the last failed attempt, such as `status` or `unreachable`; null for a circuit that closed. */
  result: string | null;
  /** `open` or `closed`. */
  state: string;
  /** The upstream's status in that attempt; null if it did not respond. */
  status: number | null;
};

/** A failed attempt. */
export type CircuitFailure = {
  /** In milliseconds since the Unix epoch. */
  at_ms: number;
  /** As in the trace of a request. */
  result: string;
  /** The status of the upstream's answer; null if there was none. */
  status: number | null;
};

/** The deliveries that a worker got. */
export type ClaimedDeliveries = {
  /** Oldest first; empty if nothing waits. */
  data: ClaimedDelivery[];
  /** The name of the lease, for `delivered` and `failed`; null if nothing was claimed. */
  lease: string | null;
  /** The end of the lease, in milliseconds since the Unix epoch; null if nothing was claimed. */
  lease_until_ms: number | null;
};

/** A delivery for a worker. */
export type ClaimedDelivery = {
  event: OutboxEvent;
  id: string;
  /** The failures so far. */
  tries: number;
};

/** The gateway's figures and those of the vendor. */
export type Compared = {
  /** Ours minus theirs. */
  difference: VendorFigures;
  ours: OurFigures;
  /** The figures of the vendor's export. */
  theirs: VendorFigures;
};

/** The effective configuration. */
export type Config = {
  /** The endpoints of the file and of the API, as `GET endpoints` shows them, but without targets that are passed over. */
  endpoints: Endpoint[];
  /** The path of the configuration file. */
  file: string;
  /** The retry and circuit settings; they apply from the start of the gateway. */
  policies: Policies;
  /** The providers of the file and of the API, as `GET providers` shows them, but without evidence. */
  providers: Provider[];
  settings: Setting[];
};

/** The sign-in method of a provider instance. */
export type ConnectionAuth = "api_key" | "oauth" | "local";

/** The credential of a provider, which is never shown. */
export type Credential = {
  /** Its last four characters; null if there is none, it is short, or it is a reference. */
  last_four?: string | null;
  /** The variable that contains it, as `${ENV:NAME}`; null if it is stored itself. */
  reference?: string | null;
  /** True if there is one. */
  set: boolean;
  /** The time at which it was last set, in milliseconds since the Unix epoch. */
  updated_at_ms?: number | null;
};

/** The use of a credential by a provider of an extension. */
export type CredentialUse = "none" | "optional" | "required" | "sign_in";

/** A declared model. Absent members are unknown. */
export type DeclaredModel = {
  /** The changes of the top-level members of JSON requests. */
  body?: BodyMembers | null;
  /** In tokens. */
  context_window?: number | null;
  display_name?: string | null;
  /** Additional headers by name. */
  headers?: Record<string, string>;
  id: string;
  /** Features of the Responses API that it lacks. */
  lacks?: string[];
  /** In tokens. */
  max_output_tokens?: number | null;
  prices?: Prices | null;
  /** The protocols that it speaks, if they are fewer than those of the provider. */
  protocols?: Protocol[] | null;
  /** True if it reasons before it answers. */
  reasoning?: boolean | null;
  /** Rules that it imposes on requests, where they differ from the built-in list. */
  rules?: ModelRules | null;
  /** True if it can call tools. */
  tools?: boolean | null;
  /** True if it accepts images. */
  vision?: boolean | null;
};

/** The numbers of objects that are deleted because the object to which they belong is. */
export type DeletedParts = {
  /** Private providers that were shared with a project; the providers stay. */
  bindings: number;
  keys: number;
  memberships: number;
  quotas: number;
};

/** A report of a delivered event. */
export type DeliveredReport = {
  /** The lease of the claim. */
  lease: string;
};

/** One delivery of an event. */
export type Delivery = {
  /** In milliseconds since the Unix epoch. */
  created_at_ms: number;
  event: OutboxEvent;
  id: string;
  /** The reason of the last failure; null after a success. */
  last_error: string | null;
  /** The status of the receiver's last answer; null if there was none. */
  last_status: number | null;
  /** The time of the next try, or the end of the lease, in milliseconds since the Unix epoch; null if neither follows. */
  next_at_ms: number | null;
  state: DeliveryState;
  /** The failed tries, plus the successful one. */
  tries: number;
  /** The time of the last change, in milliseconds since the Unix epoch. */
  updated_at_ms: number;
  /** The webhook; null for external workers. */
  webhook: string | null;
  /** The name of the webhook; null for external workers. */
  webhook_name: string | null;
  /** The worker that holds it, or held it last; null for webhooks, and before a worker claimed it. */
  worker: string | null;
};

/** One page of deliveries. */
export type DeliveryPage = {
  data: ListedDelivery[];
  /** The `cursor` of the next page; null on the last one. */
  next_cursor: string | null;
  /** The numbers of unfinished deliveries, regardless of filters. */
  unfinished: OutboxFigures;
};

/** The state of a delivery. */
export type DeliveryState = "delivered" | "pending" | "leased" | "dead";

/** A gateway that shares the database, with what it has of limits. */
export type DetailedNode = {
  /** The end of its sign of life, in milliseconds since the Unix epoch by the clock of the database; null if it has stopped. */
  alive_until_ms: number | null;
  /** By how much its clock is ahead of that of the database, in milliseconds; negative if it is behind. */
  clock_ahead_ms: number;
  /** SHA-256 of its configuration file as hexadecimal digits; `absent` or `unreadable` without one. */
  file_digest: string;
  /** The time at which it was last heard of, in milliseconds since the Unix epoch by the clock of the database; null if it has stopped, or never served. */
  heard_at_ms: number | null;
  /** True for the gateway that answers. */
  is_this: boolean;
  /** The time at which it stopped in order, in milliseconds since the Unix epoch by the clock of the database; null if it has not. */
  left_at_ms: number | null;
  /** `LLMGW_NODE_NAME`. */
  name: string;
  /** Its number, also in `X-LLMGW-Silent-Nodes`. */
  node: number;
  /** The version of the gateway. */
  release: string;
  /** The number of the newest change that it serves by. */
  seen_version: number;
  /** The limits of whose current window it has a share, by ID. */
  shares: NodeShare[];
  /** Whether it is heard of, and serves. */
  standing: NodeStanding;
  /** The age of its oldest usage record that is not in the database, in milliseconds; null if there is none. */
  unstored_for_ms: number | null;
};

/** A detected server, and the provider instances already configured for its address. */
export type Detected = {
  base_url: string;
  /** Its models. */
  models: string[];
  /** The number of further models. */
  models_omitted: number;
  name: string;
  /** Ids of the provider instances with this address. */
  providers: string[];
  /** Its entry in the registry. */
  registry_id: string;
};

/** One page of a list. */
export type DetectedPage = {
  data: Detected[];
  /** The `cursor` of the next page; null on the last one. */
  next_cursor: string | null;
};

/** The sign-in of a client that waits for a person. */
export type DeviceSignIn = {
  /** The address from which the client began the sign-in; null if it is unknown. Behind a proxy it is the proxy's. */
  address: string | null;
  /** In milliseconds since the Unix epoch. */
  created_at_ms: number;
  /** The time until which it must be approved and completed, in milliseconds since the Unix epoch. */
  ends_at_ms: number;
  /** The number of days until the key that the client gets expires. */
  key_days: number;
  state: DeviceSignInState;
  /** The code that the client shows. */
  user_code: string;
};

/** The state of a sign-in. */
export type DeviceSignInState = "pending" | "approved" | "denied";

/** The answer to a dry run. */
export type DryRun = {
  effects: Effects;
  /** The object as the write would have returned it; null if the write has no content. IDs of new objects differ from those of the write. A new key is null. */
  object: unknown;
};

/** The options of a provider of the kind `echo`. */
export type EchoSettings = {
  /** The pause before each chunk of a stream, in milliseconds. */
  chunk_delay_ms: number;
  /** The content chunks after which a stream breaks off; null if it does not. */
  cut_after_chunks: number | null;
  /** The pause before the response head, in milliseconds. */
  delay_ms: number;
  /** The content chunks after which a stream has an error event; null if it has none. */
  error_after_chunks: number | null;
  /** Every n-th request fails with 503; null if none does. */
  fail_every: number | null;
  /** True if there is never an answer. */
  hang: boolean;
  /** The content chunks after which a stream falls silent; null if it does not. */
  hang_after_chunks: number | null;
  /** True if nothing follows the response head. */
  hang_after_head: boolean;
  /** The `Retry-After` that accompanies `status`, in seconds; null for none. */
  retry_after: number | null;
  /** The status of each answer, with an error body; null for an answer. */
  status: number | null;
};

/** A consequence that does not prevent the change. */
export type EffectWarning = {
  /** `no_price`, `alias_replaced`, `alias_ambiguous`, `endpoint_without_target`, `key_without_selector`, `limit_reached`, `alerts_resolved` or `deliveries_deleted`. */
  code: string;
  message: string;
  /** The names of the models, endpoints or keys that the warning is about; at most 20. */
  objects: string[];
  /** The field of the request that causes it, if known. */
  param: string | null;
};

/** The effects of a change. */
export type Effects = {
  /** False if more keys may be affected: there are too many of them, or comparing them took too long. */
  complete: boolean;
  /** What is deleted with the object. */
  deletes: DeletedParts;
  /** The names of the endpoints that lose a target. */
  endpoints: string[];
  /** Keys that gain selectors, in the order of their ids; at most 100. */
  gains: KeyEffect[];
  /** The number of keys that gain selectors. */
  keys_gaining: number;
  /** The number of existing keys to which a hard limit applies newly, or becomes stricter. */
  keys_limited: number;
  /** The number of keys that lose selectors. */
  keys_losing: number;
  /** Keys that lose selectors, in the order of their ids; at most 100. */
  loses: KeyEffect[];
  warnings: EffectWarning[];
};

/** An endpoint. */
export type Endpoint = {
  /** Further names, and patterns that end in `*`. */
  also: string[];
  /** In milliseconds since the Unix epoch. Absent for an endpoint of the configuration file. */
  created_at_ms?: number;
  /** True to accept chat requests in the form of the Responses API, as Cursor sends them. */
  cursor_bodies: boolean;
  /** Its targets in the order in which they are tried. */
  failover: Target[];
  name: string;
  /** The order of its targets within a tier; `listed` by default. */
  order: TargetOrder;
  /** Targets that receive no requests at the moment. */
  passed_over: PassedOver[];
  /** The system text put before that of every request. */
  preamble: string | null;
  /** True if the configuration file has an endpoint or a provider of the same name. */
  shadowed: boolean;
  source: ObjectSource;
  /** True to keep a session at its target; null for the default, which is true unless `order` is `listed`. */
  sticky: boolean | null;
  /** In milliseconds since the Unix epoch. Absent for an endpoint of the configuration file. */
  updated_at_ms?: number;
  /** Null for an endpoint of the configuration file. */
  version: number | null;
  /** Settings that keep the endpoint from failing over, or from failing over in time, and further names that something else has. Empty in an answer to a write. */
  warnings: string[];
};

/** The content of an endpoint. */
export type EndpointContent = {
  /** Further names, and patterns that end in `*`. */
  also?: string[];
  /** True to accept chat requests in the form of the Responses API, as Cursor sends them. */
  cursor_bodies?: boolean;
  /** Its targets in the order in which they are tried. */
  failover: TargetBody[];
  /** The order of its targets within a tier; `listed` by default. */
  order?: TargetOrder;
  /** The system text put before that of every request. */
  preamble?: string | null;
  /** True to keep a session at its target; null for the default, which is true unless `order` is `listed`. */
  sticky?: boolean | null;
};

/** One page of a list. */
export type EndpointPage = {
  data: Endpoint[];
  /** The `cursor` of the next page; null on the last one. */
  next_cursor: string | null;
};

/** A test of an endpoint. */
export type EndpointTest = {
  /** The longest answer, in tokens; 128 by default. */
  max_tokens?: number | null;
  /** The conversation to send, instead of `prompt`. */
  messages?: unknown[] | null;
  /** The human on whose behalf the request is sent, for members with a private owner. */
  principal_id?: string | null;
  /** The text to send; a short question by default. */
  prompt?: string | null;
};

/** The treatment of a request that exceeds a limit. */
export type Enforcement = "hard" | "warn";

/** A rule for errors of an upstream. */
export type ErrorRule = {
  /** The text that the code, the type or the message contains; absent for any. */
  contains?: string;
  /** The status of the errors; absent for any. */
  status?: number;
  /** The step after such an error. */
  then: "next" | "retry" | "rest" | "stop";
};

/** The evidence about one connection. An error is kept until the same check succeeds. */
export type Evidence = {
  catalog: CatalogReadEvidence;
  inference: InferenceEvidence;
  reachable: ReachableEvidence;
};

/** One of several requests to explain. Without a key or human of its own, it is explained for that of the whole request. */
export type ExplainCase = {
  /** The body that a client would send. */
  body: unknown;
  key_id?: string | null;
  name: string;
  path: string;
  principal_id?: string | null;
};

/** An assumed failure. */
export type ExplainFault = {
  /** The text of the error, which rules of the provider and the built-in table read as its message; for the fault `status` only. */
  contains?: string | null;
  fault: FaultName;
  /** Absent for all models of the provider. */
  model?: string | null;
  provider: string;
  /** The error status, for the fault `status` only. */
  status?: number | null;
};

/** A request to explain. */
export type ExplainRequest = {
  /** The body that a client would send. */
  body?: unknown;
  /** Several requests to explain, instead of `path` and `body`. */
  cases?: ExplainCase[] | null;
  /** An endpoint that is assumed to be stored. */
  draft?: NewEndpoint | null;
  /** Providers and models that are assumed to fail. */
  faults?: ExplainFault[] | null;
  /** The project key to explain for. */
  key_id?: string | null;
  /** A path of the data plane. */
  path?: string | null;
  /** The human to explain for: a caller without lists, bound by the limits of the human. With neither field, the administrator who asks. */
  principal_id?: string | null;
};

/** The answer: an explanation, or several. */
export type Explained = Explanation | ExplainedCases;

/** The affinity of a request. */
export type ExplainedAffinity = {
  /** The affinity key. */
  key: string;
  /** The candidate that its requests start at. */
  starts_at: ExplainedTarget;
};

/** A target that would be tried. */
export type ExplainedCandidate = {
  /** The protocol to which the request would be adapted; absent if the target speaks the client's. */
  adapted?: string;
  /** The members that `body` of the provider or the model would change, as `temperature: set`. */
  body?: string[];
  /** The fields that the rules of the model would change, as `name=value`. */
  changed?: string[];
  /** The probable cost of the request, for the order `cheapest`; absent if a price is unknown. */
  cost_micro_usd?: number;
  /** The keys that would be tried, in order; absent if the provider has one. Without a session, ties are broken at random. */
  credentials?: ExplainedKey[];
  /** The fields that would be left out. */
  dropped?: string[];
  /** The average time to the first content of streams in microseconds, for the order `fastest`; absent if it is unknown. */
  first_content_us?: number;
  /** The attempts in flight; for the orders `least_busy` and `fastest`. */
  in_flight?: number | null;
  /** The provider's name of the model. */
  model: string;
  /** The ID of the provider. */
  provider: string;
  /** The share of the draws among the candidates of the tier, from 0 to 1; for the order `weighted`. */
  share?: number | null;
  /** The tier; absent for a plain list, like all members after it. */
  tier?: number;
  weight?: number | null;
};

/** The explanation of one of several requests. */
export type ExplainedCase = {
  /** The affinity of the request; null if it has none. */
  affinity: ExplainedAffinity | null;
  /** The time for all attempts, in milliseconds. */
  budget_ms: number | null;
  /** The targets in the order of the attempts. */
  candidates: ExplainedCandidate[];
  /** The choice of the first target; null unless the selector is an endpoint that is no plain list. */
  choice: ExplainedChoice | null;
  name: string;
  /** The properties that a target needs: its protocol, and `vision`. */
  needs: string[];
  /** The node by whose circuits and affinity it is planned. Absent for a gateway with its own database. */
  node?: NodeLabel;
  /** The operation of the path; null if the path has none. */
  operation: string | null;
  /** The targets that would not be tried, and those that would be tried after all others. */
  passed_over: PassedOverTarget[];
  /** The attempts, in order, if faults are assumed; else null. */
  path: RehearsedTarget[] | null;
  /** The error that the client would get instead of an answer; null if the request would be tried. */
  refusal: ExplainedRefusal | null;
  /** The meaning of the selector; null if it has none. */
  resolved: ResolvedSelector | null;
  /** The value of `model`. */
  selector: string | null;
  /** True if the client asks for a stream. */
  stream: boolean | null;
  /** The line of a quota in which the request would wait first; null if it would not wait. */
  would_wait: ExplainedWait | null;
};

/** The explanations of several requests, in their order. */
export type ExplainedCases = {
  cases: ExplainedCase[];
};

/** The choice of the first target. */
export type ExplainedChoice = {
  chosen_by: ChosenBy;
  order: TargetOrder;
};

/** One of several keys of a candidate. */
export type ExplainedKey = {
  /** The ID of the key, as `c2`. */
  credential: string;
  /** Attempts in flight. */
  in_flight: number;
  /** `resting` or `circuit_open`; null if it can serve. */
  reason: string | null;
  /** The time until then, in milliseconds; null if it can serve. */
  wait_ms: number | null;
};

/** An error instead of an answer. */
export type ExplainedRefusal = {
  code: string;
  message: string;
  /** The invalid field; null if the error concerns no single field. */
  param: string | null;
  /** The HTTP status. */
  status: number;
};

/** A target. */
export type ExplainedTarget = {
  /** The provider's name of the model. */
  model: string;
  /** The ID of the provider. */
  provider: string;
};

/** A wait in the line of a quota. */
export type ExplainedWait = {
  /** The expected wait in milliseconds; null if nothing is known about it. */
  expected_ms: number | null;
  /** The ID of the quota. */
  quota: string;
  /** The longest wait of this request in milliseconds. */
  wait_ms: number;
  /** The requests that wait in its line. */
  waiting: number;
};

/** The targets that would serve a request, and the reasons against the others. Members that are unknown because the request would be refused before its plan is made are null or empty. */
export type Explanation = {
  /** The affinity of the request; null if it has none. */
  affinity: ExplainedAffinity | null;
  /** The time for all attempts, in milliseconds. */
  budget_ms: number | null;
  /** The targets in the order of the attempts. */
  candidates: ExplainedCandidate[];
  /** The choice of the first target; null unless the selector is an endpoint that is no plain list. */
  choice: ExplainedChoice | null;
  /** The properties that a target needs: its protocol, and `vision`. */
  needs: string[];
  /** The node by whose circuits and affinity it is planned. Absent for a gateway with its own database. */
  node?: NodeLabel;
  /** The operation of the path; null if the path has none. */
  operation: string | null;
  /** The targets that would not be tried, and those that would be tried after all others. */
  passed_over: PassedOverTarget[];
  /** The attempts, in order, if faults are assumed; else null. */
  path: RehearsedTarget[] | null;
  /** The error that the client would get instead of an answer; null if the request would be tried. */
  refusal: ExplainedRefusal | null;
  /** The meaning of the selector; null if it has none. */
  resolved: ResolvedSelector | null;
  /** The value of `model`. */
  selector: string | null;
  /** True if the client asks for a stream. */
  stream: boolean | null;
  /** The line of a quota in which the request would wait first; null if it would not wait. */
  would_wait: ExplainedWait | null;
};

/** An extension: a service outside the process that provides models. */
export type Extension = {
  /** In milliseconds since the Unix epoch. */
  created_at_ms: number;
  /** False if its providers receive no requests. */
  enabled: boolean;
  /** The last probe; null if none has ended since the address or the secret was set. */
  last_check: ExtensionCheck | null;
  /** The name by which providers refer to it. */
  name: string;
  /** The providers that the last successful probe found. */
  providers: ExtensionProvider[];
  /** The time at which its secret was last set, in milliseconds since the Unix epoch. */
  secret_updated_at_ms: number;
  /** In milliseconds since the Unix epoch. */
  updated_at_ms: number;
  /** Its address: `http://`, `https://`, or `unix:` and the path of a socket. */
  url: string;
  /** The IDs of the gateway's providers that use it. */
  used_by: string[];
  /** Grows with each change, but not with a probe; the `ETag` of the object. */
  version: number;
};

/** The result of a probe of an extension. */
export type ExtensionCheck = {
  /** In milliseconds since the Unix epoch. */
  at_ms: number;
  /** The time until the last answer, in milliseconds. */
  duration_ms: number;
  /** The reason why the probe failed; null if it succeeded. */
  error: Failure | null;
  /** True if it answered with a valid description. */
  ok: boolean;
  /** The name that the extension reports; null if it reports none. */
  reported_name: string | null;
  /** The version that the extension reports; null if it reports none. */
  reported_version: string | null;
};

/** One page of a list. */
export type ExtensionPage = {
  data: Extension[];
  /** The `cursor` of the next page; null on the last one. */
  next_cursor: string | null;
};

/** Changes to an extension. Absent members are kept. */
export type ExtensionPatch = {
  /** False sends no requests to its providers. */
  enabled?: boolean | null;
  /** `whsec_`, followed by 24 to 64 bytes in base64. */
  secret?: string | null;
  /** `http://`, `https://`, or `unix:` and the absolute path of a socket. */
  url?: string | null;
};

/** A provider that an extension has. */
export type ExtensionProvider = {
  /** The use of a credential, which is the `api_key` of the gateway's provider. */
  credential: CredentialUse;
  /** The reason why its models could not be read; null if they were read. */
  error: Failure | null;
  /** Its ID within the extension. */
  id: string;
  /** The number of its models. */
  model_count: number;
  /** The IDs of its models, at most 200. */
  models: string[];
  /** Its name for people; null if the extension reports none. */
  name: string | null;
  /** The protocols that it speaks: `chat`, `responses`, `messages`. */
  protocols: Protocol[];
};

/** The extent of a permission in a project, or outside of projects. */
export type Extent = "nothing" | "own" | "free" | "all";

/** A source of facts about models, in order of precedence. */
export type FactSource = "override" | "config" | "upstream" | "list" | "built_in";

/** A report of a failure. */
export type FailedReport = {
  /** The reason, 1 to 200 characters on one line. */
  error?: string | null;
  /** The lease of the claim. */
  lease: string;
  /** The shortest pause before the next try, from 0 to 3,600 seconds. */
  retry_after_seconds?: number;
};

/** A model that the upstream does not serve. */
export type FailingModel = {
  circuit: Circuit;
  last_failure: CircuitFailure | null;
  model: string;
};

/** A failed check. */
export type Failure = {
  /** In milliseconds since the Unix epoch. */
  at_ms: number;
  /** A hint for the operator about the likely cause; null if there is none. */
  hint: string | null;
  message: string;
  /** The status of the upstream's response; null if there was no response. */
  status: number | null;
};

export type FaultName = "status" | "hang" | "cut";

/** The treatment of a lost node. */
export type Forgetting = {
  /** `count` by default. */
  unused?: Unused;
};

/** A node that was declared lost. */
export type ForgottenNode = {
  /** `LLMGW_NODE_NAME`. */
  name: string;
  /** Its number. */
  node: number;
  /** The number of limits of which something was given back. */
  released_limits: number;
  unused: Unused;
};

/** The kind of a found object, in the order of results that fit equally well. */
export type FoundKind = "request" | "endpoint" | "provider" | "extension" | "project" | "human" | "key" | "model" | "quota";

/** A found object. */
export type FoundObject = {
  /** The id or name by which its routes address it; for a model `provider/model`. */
  id: string;
  kind: FoundKind;
  /** A further description; null if there is none. */
  subtitle: string | null;
  title: string;
};

/** The results, the best first. */
export type FoundObjectList = {
  /** False if more would fit, or if the time or a bound left out a part of what was looked at. */
  complete: boolean;
  data: FoundObject[];
  /** Always null: there are no further pages. */
  next_cursor: string | null;
};

/** The state of the gateway. Only `alerts` needs the database, so that it works when the database fails. */
export type GatewayState = {
  /** Null if the database does not answer. */
  alerts: OpenAlerts | null;
  /** Always true: the admin API requires authentication. */
  auth_required: boolean;
  backup: BackupState;
  /** The bounds of the gateway that were reached since the start, the latest first. */
  bounds_reached: ReachedBound[];
  /** The time of the build, in RFC 3339. */
  built_at: string;
  /** True if the bodies of requests and answers are captured. */
  captures_bodies: boolean;
  /** The git commit, or `unknown`. */
  commit: string;
  counts: StateCounts;
  /** The number of the routing view in use; it grows with each change that affects requests. */
  generation: number;
  /** The periodic jobs. */
  jobs: Job[];
  /** The export of metrics; null if it is off. */
  metrics_export: MetricsExportState | null;
  /** The node that answers: all else is of it, except `alerts`. Absent for a gateway with its own database. */
  node?: NodeLabel;
  oauth: OauthState;
  /** The date of the price list in use. */
  prices_as_of: string;
  reload: Reload;
  retention: RetentionState;
  /** The time at which that view was made, in milliseconds since the Unix epoch. */
  snapshot_created_at_ms: number;
  /** The settings of single sign-on; null if it is off. */
  sso: SsoState | null;
  /** In milliseconds since the Unix epoch. */
  started_at_ms: number;
  /** The target triple. */
  target: string;
  /** The export of traces; null if it is off. */
  traces: TracesState | null;
  /** Providers that are configured but receive no requests, other than disabled ones; at most 100. */
  unusable: UnusableProvider[];
  /** The number of further ones. */
  unusable_omitted: number;
  /** In seconds. */
  uptime_seconds: number;
  usage: UsageState;
  /** How the gateway is doing, since when, and why. */
  verdict: Verdict;
  /** The release version. */
  version: string;
  /** The warnings of the start. */
  warnings: string[];
};

/** The figures of a group. */
export type GroupSeries = {
  /** The ids of the group; null for exchanges without one. */
  group: Record<string, string | null>;
  /** The names of the keys, projects and humans among the ids; null if unknown. */
  names?: Record<string, string | null>;
  points: SeriesPoints;
  /** The times of all exchanges of the series. */
  whole: SeriesTimes;
};

/** The upstream completed a request. */
export type InferenceEvidence = {
  /** The time of the last answer to any request, in milliseconds since the Unix epoch, whatever the credential was then; null if none is known. Answers before a restart are known to the minute. It is not stored here. */
  last_answered_at_ms: number | null;
  /** The failure since then; null if there was none. */
  last_error: Failure | null;
  /** The model that answered; null if there was no success. */
  model: string | null;
  /** The time of the last success, in milliseconds since the Unix epoch; null if there was none. */
  proven_at_ms: number | null;
  /** The request ID of the test that proved it; `GET requests/{id}` shows its record. Null if there was no success. */
  request_id: string | null;
};

/** A periodic job. */
export type Job = {
  /** The interval in words, or a cron expression. */
  interval: string;
  /** The end of the last run, in milliseconds since the Unix epoch; null if it has not ended. */
  last_ended_at_ms: number | null;
  /** The error of the last run that ended; null if it succeeded. */
  last_error: string | null;
  /** The start of the last run, in milliseconds since the Unix epoch; null before the first. */
  last_started_at_ms: number | null;
  /** The name, such as `backup`. */
  name: string;
  /** The next run, in milliseconds since the Unix epoch; null while the job runs, and if no run is planned. */
  next_at_ms: number | null;
};

/** A key, with the names of its project and human. */
export type Key = {
  /** The ID of the human that the key acts as; null for none. */
  acts_as: string | null;
  /** The name of the human that the key acts as; null if it acts as no human. */
  acts_as_name: string | null;
  /** In milliseconds since the Unix epoch. */
  created_at_ms: number;
  /** Endpoints, which may use all of their targets. Null restricts nothing. */
  endpoints: string[] | null;
  /** In milliseconds since the Unix epoch; null if it does not expire. */
  expires_at_ms: number | null;
  /** The id of the first key of its rotations. All keys of this family share its limits. */
  family: string;
  id: string;
  /** The start of the latest hour in which the key was used, in milliseconds since the Unix epoch; null if never. */
  last_used_hour_ms: number | null;
  /** Exact model IDs (`provider/model`), or all models of a provider (`provider/*`). Null restricts nothing. */
  models: string[] | null;
  name: string;
  /** The key's first characters, by which people recognize it. */
  prefix: string;
  /** The ID of the project. */
  project: string;
  /** Null if it is unknown. */
  project_name: string | null;
  /** True if a sealed copy is kept, from which it can be revealed. */
  recoverable: boolean;
  /** The ID of the key that this one replaced; null if it replaced none. */
  rotated_from: string | null;
  /** The permitted operations, such as `chat_completions`; null permits all. */
  routes: string[] | null;
  state: KeyState;
  /** The default tags of its requests, by name. A request's own tag overrides the one with its name. */
  tags: Record<string, string>;
  /** In milliseconds since the Unix epoch. */
  updated_at_ms: number;
  /** Grows with each change; the `ETag` of the object. */
  version: number;
};

/** The selectors that a key loses or gains. */
export type KeyEffect = {
  /** The id of the key. */
  key: string;
  /** The name of the key; null for a key that the change creates. */
  key_name: string | null;
  /** The selectors in alphabetical order; at most 20. */
  selectors: string[];
  /** The number of selectors. */
  selectors_total: number;
};

/** The health of one of several keys. */
export type KeyHealth = {
  circuit: Circuit;
  /** `c1`, `c2` and so on. */
  id: string;
  /** Null if there was none since the start. */
  last_failure: CircuitFailure | null;
  /** The limits that the upstream reported last for the key. */
  limits: UpstreamLimit[];
  /** Models with a circuit that is not closed. */
  models: FailingModel[];
  /** Models that rest because the upstream limits the rate of requests. */
  rests: RestingModel[];
  /** Attempts in flight. */
  running: number;
};

/** A limit that a key gets when it is created. */
export type KeyLimit = {
  /** The endpoint, if only requests that name it count. */
  endpoint: string | null;
  enforcement: Enforcement;
  /** In the unit of the metric; money in millionths of a dollar. */
  limit: number;
  metric: Metric;
  /** `provider/model`, if only requests to one model count. */
  model: string | null;
  /** How long a request may wait for the limit instead of getting 429, in milliseconds; 0 for not at all. */
  wait_ms?: number;
  /** Null for concurrent requests only. */
  window: Period | null;
};

/** A limit that a key gets when it is created. */
export type KeyLimitBody = {
  /** The endpoint, if only requests that name it count. */
  endpoint?: string | null;
  enforcement?: Enforcement;
  /** In the unit of the metric; money in millionths of a dollar. */
  limit: number;
  metric: Metric;
  /** `provider/model`, if only requests to one model count. */
  model?: string | null;
  /** How long a request may wait for the limit instead of getting 429, in milliseconds; 0 for not at all. */
  wait_ms?: number;
  /** Null for concurrent requests only. */
  window?: Period | null;
};

/** Changes to a key. Absent members are kept. */
export type KeyPatch = {
  /** Null for none. A change erases the sealed copy, but the key itself stays valid: holders of it can use it until it is rotated. */
  acts_as?: string | null;
  /** Null restricts nothing. */
  endpoints?: string[] | null;
  /** A time: milliseconds since the Unix epoch, or RFC 3339. Null: it does not expire. */
  expires_at?: unknown;
  /** Null restricts nothing. */
  models?: string[] | null;
  name?: string | null;
  /** False deletes the sealed copy. */
  recoverable?: boolean | null;
  /** Null permits all. */
  routes?: string[] | null;
  /** `active`, `disabled` or `revoked`. A revoked key stays revoked. */
  state?: string | null;
  /** Replaces the default tags of its requests; `{}` removes them. */
  tags?: Record<string, string> | null;
};

/** The state of a key. */
export type KeyState = "active" | "disabled" | "revoked" | "expired";

/** A new key with its plain text, which is never stored unsealed. */
export type KeyWithSecret = {
  /** The ID of the human that the key acts as; null for none. */
  acts_as: string | null;
  /** The name of the human that the key acts as; null if it acts as no human. */
  acts_as_name: string | null;
  /** In milliseconds since the Unix epoch. */
  created_at_ms: number;
  /** Endpoints, which may use all of their targets. Null restricts nothing. */
  endpoints: string[] | null;
  /** In milliseconds since the Unix epoch; null if it does not expire. */
  expires_at_ms: number | null;
  /** The id of the first key of its rotations. All keys of this family share its limits. */
  family: string;
  id: string;
  /** The key itself. Null in a repeated answer if the key cannot be revealed; rotate it then. */
  key: string | null;
  /** The start of the latest hour in which the key was used, in milliseconds since the Unix epoch; null if never. */
  last_used_hour_ms: number | null;
  /** The limits that were created with the key. */
  limits?: Quota[];
  /** Exact model IDs (`provider/model`), or all models of a provider (`provider/*`). Null restricts nothing. */
  models: string[] | null;
  name: string;
  /** The key's first characters, by which people recognize it. */
  prefix: string;
  /** The ID of the project. */
  project: string;
  /** Null if it is unknown. */
  project_name: string | null;
  /** True if a sealed copy is kept, from which it can be revealed. */
  recoverable: boolean;
  /** The ID of the key that this one replaced; null if it replaced none. */
  rotated_from: string | null;
  /** The permitted operations, such as `chat_completions`; null permits all. */
  routes: string[] | null;
  state: KeyState;
  /** The default tags of its requests, by name. A request's own tag overrides the one with its name. */
  tags: Record<string, string>;
  /** In milliseconds since the Unix epoch. */
  updated_at_ms: number;
  /** Grows with each change; the `ETag` of the object. */
  version: number;
};

/** Exchanges with the same change of their price label. */
export type LabelChange = {
  /** Null if the prices are unknown. */
  after: string | null;
  /** Null if the prices were unknown. */
  before: string | null;
  records: number;
};

/** A delivery in a list. */
export type ListedDelivery = {
  /** In milliseconds since the Unix epoch. */
  created_at_ms: number;
  event: OutboxEvent;
  id: string;
  /** The reason of the last failure; null after a success. */
  last_error: string | null;
  /** The status of the receiver's last answer; null if there was none. */
  last_status: number | null;
  /** The time of the next try, or the end of the lease, in milliseconds since the Unix epoch; null if neither follows. */
  next_at_ms: number | null;
  /** The name of the event's object, for a limit that of its subject; the ID if it has no name, null for the gateway. It is no part of the event, which receivers get as it is. */
  object_name: string | null;
  state: DeliveryState;
  /** The failed tries, plus the successful one. */
  tries: number;
  /** The time of the last change, in milliseconds since the Unix epoch. */
  updated_at_ms: number;
  /** The webhook; null for external workers. */
  webhook: string | null;
  /** The name of the webhook; null for external workers. */
  webhook_name: string | null;
  /** The worker that holds it, or held it last; null for webhooks, and before a worker claimed it. */
  worker: string | null;
};

/** A key in a list. */
export type ListedKey = {
  /** The ID of the human that the key acts as; null for none. */
  acts_as: string | null;
  /** The name of the human that the key acts as; null if it acts as no human. */
  acts_as_name: string | null;
  /** In milliseconds since the Unix epoch. */
  created_at_ms: number;
  /** Endpoints, which may use all of their targets. Null restricts nothing. */
  endpoints: string[] | null;
  /** In milliseconds since the Unix epoch; null if it does not expire. */
  expires_at_ms: number | null;
  /** The id of the first key of its rotations. All keys of this family share its limits. */
  family: string;
  id: string;
  /** The start of the latest hour in which the key was used, in milliseconds since the Unix epoch; null if never. */
  last_used_hour_ms: number | null;
  /** Its own limit of which the largest share is used; null if it has none. */
  limit: Quota | null;
  /** Exact model IDs (`provider/model`), or all models of a provider (`provider/*`). Null restricts nothing. */
  models: string[] | null;
  /** Its use since the beginning of this month in UTC; null if it could not be summed in time. */
  month: MonthSpend | null;
  name: string;
  /** The key's first characters, by which people recognize it. */
  prefix: string;
  /** The ID of the project. */
  project: string;
  /** Null if it is unknown. */
  project_name: string | null;
  /** True if a sealed copy is kept, from which it can be revealed. */
  recoverable: boolean;
  /** The ID of the key that this one replaced; null if it replaced none. */
  rotated_from: string | null;
  /** The permitted operations, such as `chat_completions`; null permits all. */
  routes: string[] | null;
  state: KeyState;
  /** The default tags of its requests, by name. A request's own tag overrides the one with its name. */
  tags: Record<string, string>;
  /** In milliseconds since the Unix epoch. */
  updated_at_ms: number;
  /** Grows with each change; the `ETag` of the object. */
  version: number;
};

/** A page of a list whose rows show their use. */
export type ListedKeyPage = {
  data: ListedKey[];
  /** The `cursor` of the next page; null on the last one. */
  next_cursor: string | null;
  /** True if the list is not in order of `spend`, although this was wanted, because the use of all its objects could not be summed in time. It is then in order of the IDs. */
  partial: boolean;
};

/** A project in a list. */
export type ListedProject = {
  /** In milliseconds since the Unix epoch. */
  created_at_ms: number;
  /** True if its keys are rejected. */
  disabled: boolean;
  /** Endpoints, which may use all of their targets. Null restricts nothing. */
  endpoints: string[] | null;
  id: string;
  /** The limits that each new key gets. */
  key_defaults: KeyLimit[];
  /** The number of its keys that are not revoked. */
  keys: number;
  /** The number of its members. */
  members: number;
  /** Exact model IDs (`provider/model`), or all models of a provider (`provider/*`). Null restricts nothing. */
  models: string[] | null;
  /** Its use since the beginning of this month in UTC; null if it could not be summed in time. */
  month: MonthSpend | null;
  name: string;
  /** The role of the human that the filter `principal` names; null without that filter. */
  role: Role | null;
  /** The permitted operations, such as `chat_completions`; null permits all. */
  routes: string[] | null;
  /** In milliseconds since the Unix epoch. */
  updated_at_ms: number;
  /** Grows with each change; the `ETag` of the object. */
  version: number;
};

/** A page of a list whose rows show their use. */
export type ListedProjectPage = {
  data: ListedProject[];
  /** The `cursor` of the next page; null on the last one. */
  next_cursor: string | null;
  /** True if the list is not in order of `spend`, although this was wanted, because the use of all its objects could not be summed in time. It is then in order of the IDs. */
  partial: boolean;
};

/** A webhook in a list. */
export type ListedWebhook = {
  /** In milliseconds since the Unix epoch. */
  created_at_ms: number;
  /** The number of its deliveries that failed too often and are only tried again on request. */
  dead: number;
  /** True if it receives no new events, and waiting ones are not tried. */
  disabled: boolean;
  format: WebhookFormat;
  id: string;
  /** True if an event waits until the ones before it are delivered or dead. */
  in_order: boolean;
  /** The kinds of events that it receives; null for all. */
  kinds: string[] | null;
  name: string;
  /** The longest pause after the first failure, in seconds. It doubles with each further failure. */
  retry_seconds: number;
  /** The time until which the secret before the last rotation signs as well, in milliseconds since the Unix epoch; null if only one secret signs. */
  secret_before_until_ms: number | null;
  /** True if it also receives the ends of conditions. */
  send_resolved: boolean;
  /** In milliseconds since the Unix epoch. */
  updated_at_ms: number;
  /** The origin of its address and the last characters of a long path. The address itself is not shown. */
  url: string;
  /** Grows with each change; the `ETag` of the object. */
  version: number;
};

/** One page of a list. */
export type ListedWebhookPage = {
  data: ListedWebhook[];
  /** The `cursor` of the next page; null on the last one. */
  next_cursor: string | null;
};

/** `alive`: once a second in a stream without `figures`. */
export type LiveAlive = Record<string, unknown>;

/** `bye`: the last event. */
export type LiveBye = {
  reason: ByeReason;
};

/** `change`: an action of an administrator, a publication, a reload, or a circuit that opened or closed. */
export type LiveChange = {
  /** In milliseconds since the Unix epoch. */
  at_ms: number;
  /** The audit record of the change; null if the gateway made it by itself. */
  audit_id: number | null;
  /** The action of the audit, such as `endpoint.update`, or `publication`, `reload`, `reload_failed`, `circuit_open` or `circuit_closed`. */
  kind: string;
  /** The object as `kind/id`, such as `endpoint/line`. */
  object: string;
  /** One sentence. */
  text: string;
};

/** The events of the stream, by name. */
export type LiveEvents = {
  alive: LiveAlive;
  bye: LiveBye;
  change: LiveChange;
  figures: LiveFigures;
  hello: LiveHello;
  providers: LiveProvider[];
  running: LiveRunning;
  seen: SeenRequest;
};

/** `figures`: the gateway at one moment, and the exchanges that ended in the time before it. */
export type LiveFigures = {
  /** Null if the database does not answer. */
  alerts: OpenAlerts | null;
  /** In milliseconds since the Unix epoch. */
  at_ms: number;
  /** The attempts that failed for no fault of the client, and those whose answer broke off. */
  attempt_failures: number;
  /** Requests to upstreams. */
  attempts: number;
  cache_read: number;
  /** The client left. */
  cancelled: number;
  completed: number;
  /** Client connections. */
  connections: number;
  /** The known cost, including failed attempts. */
  cost_micro_usd: MicroUsd;
  /** The answer broke off after output had started. */
  cut: number;
  /** The duration of completed exchanges, in microseconds with two digits; null if there was none. */
  duration_us_p50: number | null;
  duration_us_p99: number | null;
  /** Failed for no fault of the client. */
  failed: number;
  /** The completed ones whose first target did not serve them. */
  failed_over: number;
  /** The time from the request to the first content, in microseconds with two digits; null if there was none. */
  first_content_us_p50: number | null;
  first_content_us_p99: number | null;
  /** Tokens by disjoint classes. */
  input: number;
  output: number;
  /** Failed because of the request, or rejected with 4xx before any target was tried. */
  refused: number;
  /** The sum of `completed`, `failed`, `cut`, `cancelled` and `refused`. */
  requests: number;
  /** Attempts whose cost is unknown and not in the sum. */
  requests_unpriced: number;
  /** Exchanges that have not ended. */
  running: number;
  /** The length of the time in which the exchanges ended, in milliseconds. */
  span_ms: number;
  verdict: Verdict;
};

/** `hello`: the first event. */
export type LiveHello = {
  /** In milliseconds since the Unix epoch. */
  at_ms: number;
  /** The generation of the routing snapshot. */
  generation: number;
  /** The version of the gateway. A page of another version should be loaded again. */
  version: string;
};

/** An item of `providers`: a provider instance that has changed. */
export type LiveProvider = {
  /** The attempts of the last five minutes. */
  attempts: number;
  circuit: Circuit;
  /** Those of them that failed. */
  failures: number;
  /** The names of the nodes at which the circuit of the instance is not closed; absent if there are none, and for a gateway with its own database. `circuit` is that of the node that answers. */
  open_at?: string[];
  provider: string;
  /** Attempts in flight. */
  running: number;
};

/** `running`: the running exchanges that have begun or changed, and those that have ended. */
export type LiveRunning = {
  /** The exchanges, as in `GET running`. At most 200 are listed, those that have been silent longest. */
  begun_or_changed: RunningRequest[];
  /** The ids of those that have ended or are no longer listed. */
  ended: string[];
  /** The number of running exchanges that are not listed. */
  more: number;
};

/** The consumption of a failed attempt, as the API shows it. */
export type LostUsage = {
  /** Null if it is unknown. */
  cost_micro_usd: MicroUsd | null;
  picture?: string | null;
  tier?: string | null;
  /** Tokens by class. */
  tokens: Record<string, number>;
  /** Other billed units by class. */
  units: Record<string, number>;
  vendor_cost_micro_usd?: MicroUsd | null;
};

/** A membership, with the human's name. */
export type Member = {
  /** In milliseconds since the Unix epoch. */
  created_at_ms: number;
  /** The ID of the human. */
  principal: string;
  principal_email: string | null;
  principal_name: string | null;
  /** The ID of the project. */
  project: string;
  role: Role;
};

/** One page of a list. */
export type MemberPage = {
  data: Member[];
  /** The `cursor` of the next page; null on the last one. */
  next_cursor: string | null;
};

/** The role of a human in a project. */
export type Membership = {
  /** `owner`, `admin`, `member` or `viewer`. */
  role: string;
};

/** The metric of a limit. */
export type Metric = "requests" | "concurrent_requests" | "input_tokens" | "output_tokens" | "total_tokens" | "cost_micro_usd";

/** The export of metrics by OTLP. */
export type MetricsExportState = {
  /** The address of the collector. */
  endpoint: string;
  /** Exports that the collector accepted since the start. */
  exports: number;
  /** Exports that failed. */
  failed_exports: number;
  /** The error of the last export; null if it worked. */
  failing_error: string | null;
  /** The time since which exports have been failing, in milliseconds since the Unix epoch; null if they work. */
  failing_since_ms: number | null;
  /** The interval of the exports, in seconds. */
  interval_seconds: number;
  /** Exports of which the collector rejected a part. */
  rejected_exports: number;
};

/** An amount in millionths of a dollar, with three decimals. */
export type MicroUsd = number;

/** A model as the API shows it; null means unknown. */
export type Model = {
  /** True if it accepts audio. */
  audio: boolean | null;
  /** In tokens. */
  context_window: number | null;
  /** The time of its creation as the upstream states it, in seconds since the Unix epoch. */
  created: number | null;
  display_name: string | null;
  /** The exact model ID that requests use. */
  id: string;
  /** Features of the Responses API that the model lacks. */
  lacks: string[];
  /** The time of its last answer to any request, in milliseconds since the Unix epoch, whatever the provider's credential was then; null if none is known. Answers before a restart are known to the minute. */
  last_answered_at_ms: number | null;
  /** In tokens. */
  max_output_tokens: number | null;
  /** The provider's name of the model. */
  model: string;
  /** The operations that the model serves, natively or by adaptation. */
  operations: string[];
  owned_by: string | null;
  /** In dollars per million tokens. */
  prices: Prices | null;
  prices_from: PricesFrom | null;
  /** The protocols that it speaks, if they are fewer than those of the provider, else null. */
  protocols: Protocol[] | null;
  /** The time of the test that the model answered last, in milliseconds since the Unix epoch; null if it answered none. */
  proven_at_ms: number | null;
  /** The ID of the provider. */
  provider: string;
  /** True if it reasons before it answers. */
  reasoning: boolean | null;
  /** The rules that it imposes on requests. */
  rules: ModelRules;
  /** The sources of these facts. */
  sources: FactSource[];
  /** The evidence of its tests; null if it was never tested with the provider's current credential. */
  tested: ModelEvidence | null;
  /** True if it can call tools. */
  tools: boolean | null;
  /** The members of `prices` without which requests in its protocols may have no cost; empty without `prices`. */
  unpriced: string[];
  /** True if it accepts images. */
  vision: boolean | null;
};

/** The evidence that one model completes requests. */
export type ModelEvidence = {
  /** The failure since then; null if there was none. */
  last_error: Failure | null;
  /** The time of the last success, in milliseconds since the Unix epoch; null if there was none. */
  proven_at_ms: number | null;
  /** The request ID of the test that proved it; `GET requests/{id}` shows its record. Null if there was no success. */
  request_id: string | null;
};

/** The properties of a model that one source states; those that are absent are unknown. */
export type ModelFacts = {
  /** Accepts audio input. */
  audio?: boolean | null;
  /** The context window in tokens. */
  context_window?: number | null;
  /** Display name. */
  display_name?: string | null;
  /** Features of the Responses API that the model lacks. */
  lacks?: string[] | null;
  /** The maximum output in tokens. */
  max_output_tokens?: number | null;
  /** Prices are taken from one source as a whole; prices of two sources are never mixed. */
  prices?: Prices | null;
  /** Protocols that the model supports, if fewer than its provider instance supports. */
  protocols?: Protocol[] | null;
  /** Reasons before it answers. */
  reasoning?: boolean | null;
  /** The rules that the model imposes on requests. Each is taken from the first source that states it. */
  rules?: ModelRules | null;
  /** Can call tools. */
  tools?: boolean | null;
  /** Accepts image input. */
  vision?: boolean | null;
};

/** One page of a list. */
export type ModelPage = {
  data: Model[];
  /** The `cursor` of the next page; null on the last one. */
  next_cursor: string | null;
};

/** Rules that a model imposes on requests. Omitted ones are unknown. */
export type ModelRules = {
  /** Accepts cache points of Converse. */
  cache_points?: boolean | null;
  /** Whether signatures of tool calls are accepted, or required for calls of its own. */
  call_signatures?: "accepted" | "required";
  /** Whose members additionalModelRequestFields of Converse may have: those of messages (thinking, output_config, top_k), or of chat (reasoning_effort). */
  converse_fields?: "messages" | "chat";
  /** The effort words that the model knows; an unknown word becomes the next lower known one. */
  efforts?: ("none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "max")[] | null;
  /** False if a forced tool call and thinking exclude each other. */
  forced_tool_with_thinking?: boolean | null;
  /** Sends its thoughts only if the request asks for their summary. */
  hides_thinking?: boolean | null;
  /** The image sizes and the API call of a Google image model. */
  image_family?: "gemini" | "gemini2" | "imagen" | "imagen3";
  /** True if an image model answers with URLs unless asked for inline images; false if it rejects such a request. */
  image_urls?: boolean | null;
  /** Accepts images and documents in tool results of Converse. */
  media_in_tool_results?: boolean | null;
  /** Accepts system text between other messages of a Messages conversation. */
  mid_system?: boolean | null;
  /** The reasoning of a message that must have some and has none. */
  reasoning_absent?: string | null;
  /** The assistant's messages that must have their reasoning: none, those with tool calls since the last message of the user, all with tool calls, or all. */
  reasoning_back?: "never" | "tool_loop" | "tool_calls" | "all";
  /** The member of a message with its reasoning; reasoning_content by default. */
  reasoning_member?: "reasoning_content" | "reasoning";
  /** False if the schema of a tool must not be a union at its root. */
  root_unions?: boolean | null;
  /** The sampling members that the model accepts: any, only one of temperature and top_p, any unless it thinks, or none. */
  sampling?: "any" | "one" | "without_thinking" | "none";
  /** Searches the web for every request, so that a search is reserved. */
  searches?: boolean | null;
  /** Refuses thoughts that it has not signed itself. */
  signed_thinking?: boolean | null;
  /** How the model thinks: never, up to a budget of tokens, adaptively, either way, or adaptively without a way to turn it off. */
  thinking?: "never" | "budget" | "either" | "adaptive" | "always";
  /** The smallest thinking budget in tokens. */
  thinking_budget_min?: number | null;
  /** The member that turns thinking off; unavailable if none does. */
  thinking_off?: "thinking" | "between_tools" | "reasoning_effort" | "reasoning" | "enable_thinking" | "chat_template" | "unavailable";
  /** Thinks unless the request turns thinking off. */
  thinks_by_default?: boolean | null;
  /** False if a chat request with tools must not have an effort other than none. */
  tools_with_effort?: boolean | null;
};

/** The use of an object since the beginning of this month in UTC. */
export type MonthSpend = {
  /** The known cost, including failed attempts. */
  cost_micro_usd: MicroUsd;
  requests: number;
  /** Attempts, failed ones included, whose cost is unknown and not in the sum. */
  requests_unpriced: number;
};

/** The subject of a limit, with its name. */
export type NamedSubject = {
  /** Absent for the gateway. */
  id?: string;
  kind: SubjectKind;
  /** The name of the key, project, human or provider; null for the gateway. */
  name: string | null;
};

/** The stored override and its warnings. */
export type NewCatalogOverride = {
  /** In milliseconds since the Unix epoch. */
  created_at_ms: number;
  /** The time from which they hold, in milliseconds since the Unix epoch. */
  effective_from_ms: number;
  facts: ModelFacts;
  id: string;
  /** The provider's name of the model. */
  model: string;
  /** The ID of the provider. */
  provider: string;
  /** Doubts about it, such as a model that no list has. */
  warnings: string[];
};

/** A claim of a worker. */
export type NewClaim = {
  /** The kinds of events; null for all. */
  kinds?: string[] | null;
  /** The time within which the worker must report, from 1 to 3,600 seconds; 60 by default. After it, the events count as failed once more and others can claim them. */
  lease_seconds?: number | null;
  /** The most events to claim, from 1 to 100; 10 by default. */
  limit?: number | null;
  /** The name of the worker, 1 to 200 characters on one line; `worker` by default. */
  worker?: string | null;
};

/** An endpoint to create, or to assume in an explanation. */
export type NewEndpoint = {
  /** Further names, and patterns that end in `*`. */
  also?: string[];
  /** True to accept chat requests in the form of the Responses API, as Cursor sends them; false by default. */
  cursor_bodies?: boolean;
  /** Its targets in the order in which they are tried. */
  failover: TargetBody[];
  name: string;
  /** The order of its targets within a tier; `listed` by default. */
  order?: TargetOrder;
  /** The system text put before that of every request. */
  preamble?: string | null;
  /** True to keep a session at its target; by default true unless `order` is `listed`. */
  sticky?: boolean | null;
};

/** An extension to add. */
export type NewExtension = {
  /** True by default. */
  enabled?: boolean | null;
  /** 1 to 64 letters, digits, '.', '_' or '-'; it cannot be changed. */
  name: string;
  /** The secret that the extension and the gateway share: `whsec_`, followed by 24 to 64 bytes in base64. */
  secret: string;
  /** `http://`, `https://`, or `unix:` and the absolute path of a socket. */
  url: string;
};

/** A key to mint. */
export type NewKey = {
  /** The ID of the human that it acts as. */
  acts_as?: string | null;
  /** Null or absent restricts nothing. */
  endpoints?: string[] | null;
  /** A time: milliseconds since the Unix epoch, or RFC 3339. Absent: it does not expire. */
  expires_at?: unknown;
  /** Limits that it gets in addition to those of its project. */
  limits?: KeyLimitBody[];
  /** Null or absent restricts nothing. */
  models?: string[] | null;
  name: string;
  /** The ID of the project. */
  project: string;
  /** True, the default, keeps a sealed copy, from which the key can be revealed. */
  recoverable?: boolean;
  /** Null or absent permits all. */
  routes?: string[] | null;
  /** Default tags of its requests by name, at most 8, for reports; a request's own tag overrides the one with its name. */
  tags?: Record<string, string>;
};

/** An override to create. */
export type NewOverride = {
  /** A time: milliseconds since the Unix epoch, or RFC 3339. Absent: from now on. */
  effective_from?: unknown;
  facts: ModelFacts;
  /** The provider's name of the model. */
  model: string;
  /** The ID of the provider. */
  provider: string;
};

/** A human to create. */
export type NewPrincipal = {
  email?: string | null;
  /** 1 to 200 characters on one line. */
  name: string;
};

/** A project to create. */
export type NewProject = {
  /** Null or absent restricts nothing. */
  endpoints?: string[] | null;
  /** The limits that each new key gets. */
  key_defaults?: KeyLimitBody[] | null;
  /** Null or absent restricts nothing. */
  models?: string[] | null;
  name: string;
  /** Null or absent permits all. */
  routes?: string[] | null;
};

/** A provider to connect. The other members are those of a provider in the configuration file. */
export type NewProvider = {
  /** `api_key`, `local` or `oauth`; absent: what its kind needs. */
  auth?: string | null;
  /** 1 to 64 letters, digits, '.', '_' or '-'. */
  id: string;
  /** The ID of the human to whom it is private. */
  owner?: string | null;
  [name: string]: unknown;
};

/** A limit to create. */
export type NewQuota = {
  /** The endpoint, if only requests that name it count. */
  endpoint?: string | null;
  enforcement?: Enforcement;
  /** In the unit of the metric; money in millionths of a dollar. */
  limit: number;
  metric: Metric;
  /** `provider/model`, if only requests to one model count. */
  model?: string | null;
  subject: QuotaSubject;
  /** The longest time that a request waits until it fits, in milliseconds; at most 300000. For hard limits of concurrent requests or a minute. */
  wait_ms?: number;
  /** Absent for concurrent requests only. */
  window?: Period | null;
};

/** A rule to create. */
export type NewRule = {
  /** The time for which a condition must be absent before its alert is resolved, up to 86,400; 300 by default. */
  clear_seconds?: number | null;
  /** Required for `spend_anomaly`: spending of an hour up to this amount is never an anomaly, in micro-dollars. */
  floor_micro_usd?: number | null;
  /** The time for which a condition must hold before an alert opens, up to 86,400; 0 by default. */
  hold_seconds?: number | null;
  kind: AlertKind;
  /** 1 to 200 characters on one line. */
  name: string;
  /** The objects that the rule concerns, as alerts name them; null for all. */
  objects?: string[] | null;
  /** `bad` by default. */
  severity?: Severity | null;
  /** Required for the kinds that have one: per cent of a limit (`quota_warning`), days (`key_expiring`, `certificate_expiring`), hours (`credential_expiring`), times the usual spending (`spend_anomaly`), per cent of free space (`disk_low`), minutes (`shipping_behind`). */
  threshold?: number | null;
};

/** A webhook to create. */
export type NewWebhook = {
  format?: WebhookFormat;
  /** True to receive events strictly in their order: one that fails holds the later ones back. False by default. */
  in_order?: boolean;
  /** The kinds of events that it receives; null for all. */
  kinds?: string[] | null;
  /** 1 to 200 characters on one line. */
  name: string;
  /** The longest pause after the first failure, from 1 to 3,600 seconds; 5 by default. It doubles with each further failure, up to an hour. */
  retry_seconds?: number | null;
  /** True to also receive the ends of conditions. False by default. */
  send_resolved?: boolean;
  /** An `http` or `https` address. The rules for base URLs of providers apply. */
  url: string;
};

/** A gateway that shares the database. */
export type Node = {
  /** The end of its sign of life, in milliseconds since the Unix epoch by the clock of the database; null if it has stopped. */
  alive_until_ms: number | null;
  /** By how much its clock is ahead of that of the database, in milliseconds; negative if it is behind. */
  clock_ahead_ms: number;
  /** SHA-256 of its configuration file as hexadecimal digits; `absent` or `unreadable` without one. */
  file_digest: string;
  /** The time at which it was last heard of, in milliseconds since the Unix epoch by the clock of the database; null if it has stopped, or never served. */
  heard_at_ms: number | null;
  /** True for the gateway that answers. */
  is_this: boolean;
  /** The time at which it stopped in order, in milliseconds since the Unix epoch by the clock of the database; null if it has not. */
  left_at_ms: number | null;
  /** `LLMGW_NODE_NAME`. */
  name: string;
  /** Its number, also in `X-LLMGW-Silent-Nodes`. */
  node: number;
  /** The version of the gateway. */
  release: string;
  /** The number of the newest change that it serves by. */
  seen_version: number;
  /** Whether it is heard of, and serves. */
  standing: NodeStanding;
  /** The age of its oldest usage record that is not in the database, in milliseconds; null if there is none. */
  unstored_for_ms: number | null;
};

/** One of several nodes, as answers name it. */
export type NodeLabel = {
  /** `LLMGW_NODE_NAME`. */
  name: string;
  /** Its number, as in `GET nodes`. */
  node: number;
};

/** The share of a node in a limit. Amounts are in the unit of the metric, money in micro-dollars. */
export type NodeShare = {
  /** The amount that the node may use in this window, including what it has used. The rest is unused, and counts as used for other nodes. */
  granted: number;
  limit: number;
  metric: Metric;
  /** The name of the subject of the limit; the ID if it has no name. */
  name: string;
  /** The ID of the limit. */
  quota: string;
  /** The amount that the stored records of the node have used. Limits by the minute and of concurrent requests have none. */
  used: number;
  /** Null for concurrent requests. */
  window: Period | null;
};

/** Whether a node is heard of, and serves. */
export type NodeStanding = "live" | "silent" | "stale" | "left";

/** The gateways that share a database. */
export type Nodes = {
  /** All nodes, also those that have stopped, but not those that were forgotten. */
  data: Node[];
  /** The number of the newest change of the state; null for a gateway with its own database. */
  newest_version: number | null;
  /** Always null: the list has one page. */
  next_cursor: string | null;
};

/** The end of a sign-in. */
export type OauthDisconnected = {
  /** The reason why the tokens were not revoked; null if they were, or if `revoked` is null. The gateway has forgotten them in any case. */
  error: string | null;
  /** True if the vendor revoked the tokens; null if it has no address for that, or the tokens were gone already. */
  revoked: boolean | null;
};

/** The vendor's OAuth addresses. */
export type OauthSettings = {
  /** Additional parameters of the consent page. */
  authorize_params: Record<string, string>;
  /** The page on which a human consents; null if sign-ins need another device. */
  authorize_url: string | null;
  /** Where the client's secret is sent: `basic` or `post`. */
  client_auth: string;
  /** Null if there is no sign-in on another device. */
  device_authorization_url: string | null;
  /** The issuer that redirects must name; null for any. */
  issuer: string | null;
  /** Null if tokens are not revoked. */
  revocation_url: string | null;
  scopes: string[];
  token_url: string;
  /** Null if the account is not named. */
  userinfo_url: string | null;
};

/** The OAuth sign-in of a provider. */
export type OauthSignIn = {
  /** The account as the vendor names it; null if unknown. */
  account: string | null;
  /** The time of the sign-in, in milliseconds since the Unix epoch; null if there is none. */
  connected_at_ms: number | null;
  /** The expiry of the access token, in milliseconds since the Unix epoch; null if there is none or it is unknown. */
  expires_at_ms: number | null;
  /** The settings that are missing for a sign-in in a browser; null if it is possible. */
  lacks: string | null;
  /** The last error since the last success; null if there is none. */
  last_error: OauthSignInError | null;
  /** True if a sign-in on another device may be possible. */
  on_device: boolean;
  /** The address to register with the vendor as redirect URI; null if `LLMGW_OAUTH_PUBLIC_BASE_URL` is not set. */
  redirect_uri: string | null;
  /** The time of the last renewal, in milliseconds since the Unix epoch; null if there was none. */
  refreshed_at_ms: number | null;
  /** True if the access token is renewed without a human. */
  renewable: boolean;
  /** The granted scopes. */
  scopes: string[];
  /** `none`, `waiting` for a human to consent, `connected`, `expiring` if its token cannot be renewed at the moment or at all, or `broken` if it must be connected again. */
  state: "none" | "waiting" | "connected" | "expiring" | "broken";
};

/** An error of a sign-in or of a renewal. */
export type OauthSignInError = {
  /** In milliseconds since the Unix epoch. */
  at_ms: number;
  message: string;
};

/** The settings of OAuth sign-ins. */
export type OauthState = {
  /** True if `LLMGW_PARTNER_CLIENT_ID` is set. */
  client_id_set: boolean;
  /** The settings that are missing for a sign-in in a browser; null if it is possible. */
  lacks: string | null;
  /** The address to register with vendors as redirect URI; null if `LLMGW_OAUTH_PUBLIC_BASE_URL` is not set. */
  redirect_uri: string | null;
};

/** The store that an object comes from. */
export type ObjectSource = "file" | "api";

/** The reason why a caller cannot use a selector, or one of its targets. */
export type Obstacle = "not_allowed" | "private" | "not_ready" | "no_price" | "no_target" | "ambiguous" | "key_disabled" | "key_expired" | "key_revoked" | "project_disabled" | "principal_disabled";

/** The numbers of alerts that are neither acknowledged nor resolved. */
export type OpenAlerts = {
  /** Those of the severity `bad`. */
  bad: number;
  /** All of them. */
  total: number;
};

/** The recorded figures. */
export type OurFigures = {
  cached_input_tokens: number;
  cost_micro_usd: MicroUsd;
  input_tokens: number;
  output_tokens: number;
  requests: number;
  /** Attempts whose cost is unknown and not in the sum. */
  requests_unpriced: number;
};

/** An event as receivers get it. */
export type OutboxEvent = {
  /** In milliseconds since the Unix epoch. */
  created_at_ms: number;
  /** The content, which depends on the kind. */
  data: Record<string, unknown>;
  /** Unique; the same for all deliveries and tries of the event. */
  id: string;
  /** The kind, such as `provider_down`. */
  kind: string;
  /** The object concerned; null for the gateway. */
  object: string | null;
  /** Ascends in the order in which events were stored. */
  sequence: number;
};

/** The deliveries that are not finished, by state. */
export type OutboxFigures = {
  /** Deliveries that failed too often and need a person. */
  dead: number;
  /** Deliveries that wait for a worker, or that a worker holds. */
  for_workers: number;
  /** Deliveries to webhooks that wait for a try. */
  pending: number;
};

/** The end of an exchange: with the whole answer, with an error, by a client that left, by an upstream that broke off after output had started, or by the end of the process. */
export type Outcome = "completed" | "failed" | "cancelled" | "cut" | "interrupted";

/** A member that routing skips, with the reason. */
export type PassedOver = {
  model: string;
  provider: string;
  /** `no_such_provider`, `unknown_model`, or the state of the provider. */
  reason: string;
};

/** A target that would not be tried. */
export type PassedOverTarget = {
  /** The provider's name of the model. */
  model: string;
  /** The field that the target's protocol cannot express; absent unless `reason` is `unsupported` because of a field. */
  param?: string;
  /** The ID of the provider. */
  provider: string;
  reason: StepResult;
  /** The remaining time of the cooldown or of the rest, in milliseconds; absent unless `reason` is `circuit_open` or `resting`. */
  wait_ms?: number;
};

/** The window of a limit. */
export type Period = "minute" | "hour" | "day" | "week" | "month" | "total";

/** A permission of the admin API. The matrix lists the callers that have it. */
export type Permission = "administer" | "own_session" | "see_self" | "see_projects" | "change_members" | "change_owners" | "see_keys" | "mint_keys" | "change_keys" | "reveal_keys" | "see_usage" | "see_quotas" | "run_requests" | "search" | "see_connections" | "change_connections";

/** The retry and circuit settings. */
export type Policies = {
  defaults: Policy;
  /** Those of single providers, by provider ID. */
  overrides: Record<string, Policy>;
};

/** A policy, with the field names of the configuration file. */
export type Policy = {
  /** The time for which a circuit stays open, in seconds. */
  circuit_cooldown_seconds: number;
  /** Consecutive failures that open the circuit; 0 disables it. */
  circuit_failure_threshold: number;
  /** The longest time for which a model receives no requests after a rate limit of its upstream, in seconds; 0 disables it. */
  rate_limit_rest_max_seconds: number;
  /** The factor by which the pause grows from retry to retry. */
  retry_backoff_multiplier: number;
  /** The pause before the first retry, in seconds. */
  retry_initial_backoff_seconds: number;
  /** Attempts at one target. */
  retry_max_attempts: number;
  /** The longest pause between attempts, in seconds. */
  retry_max_backoff_seconds: number;
};

/** The prices of longer prompts. They inherit nothing from shorter ones. */
export type PriceStep = {
  /** Audio input, per million tokens. */
  audio_input?: number | null;
  /** Audio output, per million tokens. */
  audio_output?: number | null;
  /** A second of audio. */
  audio_second?: number | null;
  /** Input written to the provider's cache for its default lifetime, per million tokens. */
  cache_write?: number | null;
  /** Input written to the provider's cache for an hour, per million tokens. */
  cache_write_1h?: number | null;
  /** Input read from the provider's cache, per million tokens. */
  cached_input?: number | null;
  /** Text to be spoken, per million characters. */
  characters?: number | null;
  /** A generated picture of any size; see `pictures`. */
  image?: number | null;
  /** Image input, per million tokens. */
  image_input?: number | null;
  /** Generated images, per million tokens. */
  image_output?: number | null;
  /** Input that no cache served, per million tokens. */
  input?: number | null;
  /** The prices apply to prompts with more input tokens than this. */
  input_tokens: number;
  /** Output, per million tokens. */
  output?: number | null;
  /** Reasoning, where it is billed apart from output, per million tokens. */
  reasoning?: number | null;
  /** A search that the provider makes for an answer. */
  search?: number | null;
  /** A call of another billed tool of the provider. */
  tool_call?: number | null;
  /** A second of video. */
  video_second?: number | null;
};

/** The prices of a service tier, or a factor on the standard ones. */
export type PriceTier = {
  /** Prices of longer prompts. */
  above?: PriceStep[];
  /** Audio input, per million tokens. */
  audio_input?: number | null;
  /** Audio output, per million tokens. */
  audio_output?: number | null;
  /** A second of audio. */
  audio_second?: number | null;
  /** Input written to the provider's cache for its default lifetime, per million tokens. */
  cache_write?: number | null;
  /** Input written to the provider's cache for an hour, per million tokens. */
  cache_write_1h?: number | null;
  /** Input read from the provider's cache, per million tokens. */
  cached_input?: number | null;
  /** Text to be spoken, per million characters. */
  characters?: number | null;
  /** A generated picture of any size; see `pictures`. */
  image?: number | null;
  /** Image input, per million tokens. */
  image_input?: number | null;
  /** Generated images, per million tokens. */
  image_output?: number | null;
  /** Input that no cache served, per million tokens. */
  input?: number | null;
  /** Input tokens up to which these prices apply; the cost of a longer prompt is unknown. */
  input_tokens_max?: number | null;
  /** Output, per million tokens. */
  output?: number | null;
  /** The price of a generated picture, or of a second of video, by size, or by quality/size. */
  pictures?: Record<string, number>;
  /** Reasoning, where it is billed apart from output, per million tokens. */
  reasoning?: number | null;
  /** A search that the provider makes for an answer. */
  search?: number | null;
  /** Factor on the standard prices of tokens, instead of own prices. */
  times?: number;
  /** A call of another billed tool of the provider. */
  tool_call?: number | null;
  /** A second of video. */
  video_second?: number | null;
};

/** Prices of a model, in dollars. Omitted prices are unknown, not zero. */
export type Prices = {
  /** Prices of longer prompts. */
  above?: PriceStep[];
  /** Audio input, per million tokens. */
  audio_input?: number | null;
  /** Audio output, per million tokens. */
  audio_output?: number | null;
  /** A second of audio. */
  audio_second?: number | null;
  /** Input written to the provider's cache for its default lifetime, per million tokens. */
  cache_write?: number | null;
  /** Input written to the provider's cache for an hour, per million tokens. */
  cache_write_1h?: number | null;
  /** Input read from the provider's cache, per million tokens. */
  cached_input?: number | null;
  /** Text to be spoken, per million characters. */
  characters?: number | null;
  /** A generated picture of any size; see `pictures`. */
  image?: number | null;
  /** Image input, per million tokens. */
  image_input?: number | null;
  /** Generated images, per million tokens. */
  image_output?: number | null;
  /** Input that no cache served, per million tokens. */
  input?: number | null;
  /** Input tokens up to which these prices apply; the cost of a longer prompt is unknown. */
  input_tokens_max?: number | null;
  /** Output, per million tokens. */
  output?: number | null;
  /** The price of a generated picture, or of a second of video, by size, or by quality/size. */
  pictures?: Record<string, number>;
  /** Reasoning, where it is billed apart from output, per million tokens. */
  reasoning?: number | null;
  /** A search that the provider makes for an answer. */
  search?: number | null;
  /** Prices of service tiers that an answer reports, such as flex, priority, batch, fast or geo:us. */
  tiers?: Record<string, PriceTier>;
  /** A call of another billed tool of the provider. */
  tool_call?: number | null;
  /** A second of video. */
  video_second?: number | null;
};

/** The source of prices, and the date since which or on which they are valid. */
export type PricesFrom = {
  /** The date; null if it is unknown. */
  as_of: string | null;
  source: FactSource;
};

/** A human, as stored and as the API shows it. */
export type Principal = {
  /** In milliseconds since the Unix epoch. */
  created_at_ms: number;
  /** True if keys that act as this human are rejected. */
  disabled: boolean;
  /** Null if unknown. */
  email: string | null;
  id: string;
  name: string;
  /** The stable name by which single sign-on knows the human; null until they first sign in. */
  sso_subject: string | null;
  /** In milliseconds since the Unix epoch. */
  updated_at_ms: number;
  /** Grows with each change; the `ETag` of the object. */
  version: number;
};

/** One page of a list. */
export type PrincipalPage = {
  data: Principal[];
  /** The `cursor` of the next page; null on the last one. */
  next_cursor: string | null;
};

/** Changes to a human. Absent members are kept. */
export type PrincipalPatch = {
  /** True rejects the keys that act as this human, and their sign-ins. */
  disabled?: boolean | null;
  /** Null for none. */
  email?: string | null;
  name?: string | null;
  /** The name by which single sign-on knows the human; null lets the next sign-in with the e-mail address set it. */
  sso_subject?: string | null;
};

/** A project, which owns keys and quotas, as stored and as the API shows it. */
export type Project = {
  /** In milliseconds since the Unix epoch. */
  created_at_ms: number;
  /** True if its keys are rejected. */
  disabled: boolean;
  /** Endpoints, which may use all of their targets. Null restricts nothing. */
  endpoints: string[] | null;
  id: string;
  /** The limits that each new key gets. */
  key_defaults: KeyLimit[];
  /** Exact model IDs (`provider/model`), or all models of a provider (`provider/*`). Null restricts nothing. */
  models: string[] | null;
  name: string;
  /** The permitted operations, such as `chat_completions`; null permits all. */
  routes: string[] | null;
  /** In milliseconds since the Unix epoch. */
  updated_at_ms: number;
  /** Grows with each change; the `ETag` of the object. */
  version: number;
};

/** Changes to a project. Absent members are kept. */
export type ProjectPatch = {
  /** True rejects its keys. */
  disabled?: boolean | null;
  /** Null restricts nothing. */
  endpoints?: string[] | null;
  /** The limits that each new key gets; null for none. */
  key_defaults?: KeyLimitBody[] | null;
  /** Null restricts nothing. */
  models?: string[] | null;
  name?: string | null;
  /** Null permits all. */
  routes?: string[] | null;
};

/** A wire protocol. */
export type Protocol = "chat" | "responses" | "messages" | "embeddings" | "speech" | "transcription" | "images" | "videos" | "gemini" | "bedrock" | "gemini_embeddings";

/** The source of token counts: the upstream, what was relayed, an estimate; `none` if nothing was used. */
export type Provenance = "reported" | "measured" | "estimated" | "none";

/** A provider. If its state is `faulty`, the settings may be incomplete. */
export type Provider = {
  /** True if the gateway connected it because it needs no account (`GET anonymous-providers`). Its models are found by their exact IDs only. */
  anonymous: boolean;
  /** Its keys. Absent if it has one or none. */
  api_keys?: ProviderKey[];
  /** Null for kinds without versions. */
  api_version: string | null;
  /** The means of signing in; null if the stored settings cannot be read. */
  auth: ConnectionAuth | null;
  /** Null for kinds that run in the gateway. */
  base_url: string | null;
  /** The projects that may use it although it is private. Absent for a provider of the configuration file. */
  bindings?: Binding[];
  /** The changes of the top-level members of JSON requests; null for none. */
  body: BodyMembers | null;
  /** The host and port to connect to instead of those of `base_url`; null for those. */
  connect_to: string | null;
  /** In milliseconds since the Unix epoch. Absent for a provider of the configuration file. */
  created_at_ms?: number;
  credential: Credential;
  /** The voice of speech requests that do not name one; null if there is none. */
  default_voice: string | null;
  /** True if the provider receives no requests. */
  disabled: boolean;
  /** The options of the kind `echo`; absent for other kinds. */
  echo?: EchoSettings;
  /** The rules for errors of the upstream; the first that fits applies. */
  errors: ErrorRule[];
  /** The evidence of how it works. Absent if it is shadowed, and in answers other than those of `GET providers`. */
  evidence?: Evidence;
  /** The name of the extension; absent for kinds other than `extension`. */
  extension?: string;
  /** The provider of the extension; absent for kinds other than `extension`. */
  extension_provider?: string;
  /** The time in which a stream must have content, in seconds; null for none. */
  first_content_timeout: number | null;
  /** True if Chat may be adapted to Responses, which is experimental. */
  force_api_support: boolean;
  /** Additional headers by name, with masked values. */
  headers: Record<string, string>;
  /** Null for kinds that run in the gateway. */
  http_version: string | null;
  id: string;
  /** Null for kinds without locations. */
  location: string | null;
  /** The declared models, as IDs or with what is known about them. */
  models: WrittenModel[];
  /** The vendor's OAuth addresses; absent for a provider that no human signs in to, or whose extension knows them. */
  oauth?: OauthSettings;
  /** The ID of the human to whom it is private; null if all may use it. */
  owner: string | null;
  /** The vendor's project; null for kinds without projects. */
  project: string | null;
  /** The lifetime of what cache marks of the gateway cache; null if it adds none. */
  prompt_cache: "auto" | "1h" | null;
  /** The protocols that the upstream speaks. */
  protocols: Protocol[];
  /** The HTTP proxy that it sets, with a masked user; `direct` for none; null for that of the variables. */
  proxy: string | null;
  /** The reason why it receives no requests; null if it is ready. */
  reason: string | null;
  /** Null for kinds without regions. */
  region: string | null;
  /** The well-known provider that sets type and address; null if none does. */
  registry_id: string | null;
  /** The rules for Responses requests on models that do not speak Responses: `agents` serves Codex. */
  responses_fallback: "strict" | "agents";
  /** True if the configuration file has a provider or an endpoint of the same name. */
  shadowed: boolean;
  /** The OAuth sign-in. Absent for a provider that uses none, and in answers other than those of `GET providers`. */
  sign_in?: OauthSignIn;
  source: ObjectSource;
  /** `ready`, `disabled`, `not_connected`, `shadowed` or `faulty`. Only a ready provider receives requests. */
  state: "ready" | "disabled" | "not_connected" | "shadowed" | "faulty";
  /** The silence after which a stream is aborted, in seconds. */
  stream_idle_timeout: number;
  /** The time that an attempt may take until the response head, in seconds. */
  timeout: number;
  /** Its own authorities and client certificate; null for none. */
  tls: ProviderTls | null;
  /** The access token. Absent for a provider that uses none, and in answers other than those of `GET providers`. */
  token?: TokenState;
  /** True if requests carry the W3C trace context while traces are exported. */
  trace_context: boolean;
  /** The kind of provider. */
  type: string;
  /** In milliseconds since the Unix epoch. Absent for a provider of the configuration file. */
  updated_at_ms?: number;
  /** Null for a provider of the configuration file. */
  version: number | null;
};

/** The health of a provider. */
export type ProviderHealth = {
  circuit: Circuit;
  /** The health of each key. Absent if the provider has one or none; otherwise the members beside this are those of the key that works best. */
  keys?: KeyHealth[];
  /** Null if there was none since the start. */
  last_failure: CircuitFailure | null;
  /** The limits that the upstream reported last, read at most once a second; empty if it reports none. */
  limits: UpstreamLimit[];
  /** Models with a circuit that is not closed because the upstream does not serve them. */
  models: FailingModel[];
  /** The ID of the provider. */
  provider: string;
  recent: RecentRequests;
  /** Models that rest because the upstream limits the rate of requests. */
  rests: RestingModel[];
  /** Attempts in flight. */
  running: number;
  /** The kind of provider. */
  type: string;
};

/** The health of all providers. */
export type ProviderHealthPage = {
  data: ProviderHealth[];
  /** Always null: the list has one page. */
  next_cursor: string | null;
  /** The node that answers: all but `recent` is of it. Absent for a gateway with its own database. */
  node?: NodeLabel;
};

/** One of several keys of a provider, which is never shown. */
export type ProviderKey = {
  /** `c1`, `c2` and so on, as in the traces of requests. A patch keeps the key by it. */
  id: string;
  /** Its last four characters; null if it is short or a reference. */
  last_four: string | null;
  /** The variable or the file that contains it, as `${ENV:NAME}` or `${FILE:/path}`; null if it is stored itself. */
  reference: string | null;
  /** `ready`; `resting`, if the upstream limits its rate of requests; `open`, if its circuit is; `rejected`, if the upstream rejected it when it was last used; or null in answers other than those of `GET providers`, and while the provider receives no requests. */
  state: "ready" | "resting" | "open" | "rejected" | null;
  /** The time until it receives requests again, in milliseconds; null if it does now. */
  wait_ms: number | null;
};

/** One page of a list. */
export type ProviderPage = {
  data: Provider[];
  /** The `cursor` of the next page; null on the last one. */
  next_cursor: string | null;
};

/** Changes to a provider. Absent members are kept; null removes one. The other members are those of a provider in the configuration file. */
export type ProviderPatch = {
  /** `api_key`, `local` or `oauth`. */
  auth?: string | null;
  /** The ID of the human to whom it is private; null for none. */
  owner?: string | null;
  [name: string]: unknown;
};

/** A test of a provider. */
export type ProviderTest = {
  /** The provider's name of the model. */
  model: string;
};

/** The TLS settings of a provider instance as they are written, without the private key. */
export type ProviderTls = {
  /** The only authorities that may have issued the upstream's certificate, in PEM or as a reference; absent for those of the gateway. */
  ca?: string;
  /** The client certificate with its intermediates, in PEM or as a reference; absent for none. */
  certificate?: string;
  /** The reference to its private key, or dots in place of the key itself; absent for none. */
  key?: string;
};

/** A limit and its current usage. Amounts are in the unit of the metric, money in micro-dollars; usage is rounded up. */
export type Quota = {
  /** In milliseconds since the Unix epoch. */
  created_at_ms: number;
  /** The endpoint, if only requests that name it count; otherwise null. */
  endpoint: string | null;
  enforcement: Enforcement;
  /** True if the usage exceeds the limit, which is possible for a limit that only warns. */
  exceeded: boolean;
  id: string;
  /** In the unit of the metric; money in millionths of a dollar. */
  limit: number;
  metric: Metric;
  /** `provider/model`, if only requests to one model count; otherwise null. */
  model: string | null;
  /** The limit minus what is used and reserved; 0 if that is more. */
  remaining: number;
  /** Reserved by running requests. */
  reserved: number;
  /** The time at which all current usage has left the window, in milliseconds since the Unix epoch; null for a total limit or a limit of concurrent requests. */
  resets_at_ms: number | null;
  subject: NamedSubject;
  /** In milliseconds since the Unix epoch. */
  updated_at_ms: number;
  /** Used in the current window. */
  used: number;
  /** Grows with each change; the `ETag` of the object. */
  version: number;
  /** The longest time that a request waits until it fits, in milliseconds; 0 if it is rejected at once. */
  wait_ms: number;
  /** Requests that wait now, at this node. */
  waiting: number;
  /** Null only for a limit of concurrent requests. */
  window: Period | null;
};

/** One page of limits. */
export type QuotaPage = {
  data: Quota[];
  /** The number of limits on all pages. Null without `sort`, because a list in its own order is not read to its end. */
  matching: number | null;
  /** The `cursor` of the next page; null on the last one. */
  next_cursor: string | null;
};

/** Changes to a limit. Absent members are kept. */
export type QuotaPatch = {
  enforcement?: Enforcement | null;
  /** In the unit of the metric; money in millionths of a dollar. */
  limit?: number | null;
  /** In milliseconds; 0 rejects at once. */
  wait_ms?: number | null;
};

/** The subject of a limit. */
export type QuotaSubject = {
  /** The ID; for a key, that of the first key of its rotations, which represents all of them. Absent for the gateway. */
  id?: string;
  kind: SubjectKind;
};

/** The upstream responded, even if with an error. */
export type ReachableEvidence = {
  /** The time of the last answer, in milliseconds since the Unix epoch; null if there was none. */
  at_ms: number | null;
  /** The check that found it: `sync`, `test completion`; null if there was none. */
  by: string | null;
  /** The failure since then; null if there was none. */
  last_error: Failure | null;
};

/** A bound that was reached since the start. */
export type ReachedBound = {
  /** The name, as in the metric `llmgw_bound_reached_total`. */
  bound: string;
  /** The effect of reaching the bound. */
  gives_way: string;
  /** The last time, in milliseconds since the Unix epoch. */
  last_at_ms: number;
  /** The bound itself; null if the configuration sets it. */
  max: number | null;
  /** The number of times since the start. */
  reached: number;
  /** The action to take. */
  remedy: string;
};

/** Requests that this instance answered in the current and the previous hour. */
export type RecentRequests = {
  /** In microseconds; null without requests. */
  duration_us_avg: number | null;
  /** The time to the first content, in microseconds; null if no request had content. */
  first_content_us_avg: number | null;
  requests: number;
  /** The start of the previous hour, in milliseconds since the Unix epoch. */
  since_ms: number;
};

/** A vendor's export to compare with. */
export type ReconcileRequest = {
  /** The export, as one file or as several pages or files. */
  file: VendorFiles;
  format: VendorFormat;
  /** The columns of a `csv` file. */
  mapping?: Record<string, unknown> | null;
  /** Maps the vendor's model names to ours. */
  models?: Record<string, string>;
  /** If set, only exchanges of this provider are compared. */
  provider?: string | null;
};

/** The comparison with a vendor's export. */
export type Reconciled = {
  data: ReconciledLine[];
  /** The vendor's model names that are recorded under another name, mapped to ours. */
  matched: Record<string, string>;
  /** Models with records on these days that are not in the export. */
  models_not_in_file: string[];
  /** Null for all. */
  provider: string | null;
  /** Rows of the export. */
  rows: number;
  rows_skipped: number;
  /** The first skipped rows, with the reasons. */
  skipped: SkippedRow[];
  totals: Compared;
  /** Models in the export without any record. */
  unknown_models: string[];
};

/** A model on a day. */
export type ReconciledLine = {
  /** In UTC, as 2026-11-22. */
  day: string;
  /** Ours minus theirs. */
  difference: VendorFigures;
  model: string;
  ours: OurFigures;
  /** The figures of the vendor's export. */
  theirs: VendorFigures;
};

/** The recorded sides of an exchange, as they are shown and stored. */
export type RecordedExchange = {
  request_id: string;
  /** The sides in the order in which they began. Requests to the built-in `echo` and voice have no upstream sides. */
  sides: RecordedSide[];
};

/** One side of an exchange. */
export type RecordedSide = {
  /** The number of the upstream request; null on the client's sides. */
  attempt: number | null;
  /** True if `body` is base64, because the bytes are not text. */
  base64: boolean;
  /** The body, or its first 256 KiB. Secrets of providers are redacted. */
  body: string;
  /** The length of the whole body that passed, in bytes. */
  bytes: number;
  /** True if the head, the body or the times are incomplete. */
  cut: boolean;
  /** The first line and the header fields. Values that contain a credential are `[hidden]`. */
  head: string;
  /** The arrival times of the body's pieces, in microseconds since the recording began. */
  pieces_us: number[];
  side: Side;
};

/** A well-known provider. */
export type RegistryEntry = {
  /** The variable that its own SDK reads the key from; absent if no key is needed. */
  api_key_env?: string;
  /** The base URL that its own SDK uses; absent if its kind provides one. */
  base_url?: string;
  /** The URL of its documentation. */
  docs: string;
  /** Its `gen_ai.provider.name` in OpenTelemetry, if it differs from that of its kind. */
  genai_name?: string | null;
  /** The value of `registry_id`. */
  id: string;
  /** Features of the Responses API that it lacks, as in `shared::routing::ProviderInstance::lacks`. */
  lacks?: string[];
  /** Its models, if the upstream has no model list. */
  models?: string[];
  /** Display name. */
  name: string;
  /** Its native protocols, if they differ from those of its kind. */
  protocols?: Protocol[] | null;
  /** Its differences from other providers of its kind. */
  quirks: Record<string, unknown>;
  /** Its provider kind. */
  type: string;
};

/** One page of a list. */
export type RegistryEntryPage = {
  data: RegistryEntry[];
  /** The `cursor` of the next page; null on the last one. */
  next_cursor: string | null;
};

/** One attempt. Times are in milliseconds since the request. */
export type RehearsedAttempt = {
  /** The key, as `c2`; absent if the provider has one. */
  credential?: string;
  ends_at_ms: number;
  result: StepResult;
  starts_at_ms: number;
};

/** The attempts at one candidate. Times are in milliseconds since the request. */
export type RehearsedTarget = {
  /** The number of attempts, including retries; 0 for a candidate whose circuit has opened. */
  attempts: number;
  /** The latest end of the last attempt. */
  ends_at_ms: number;
  /** The result of the last attempt. */
  result: StepResult;
  /** The rule of the provider that decided what follows, as `errors[0]: next`; absent if none did. */
  rule?: string;
  /** The beginning of the first attempt. */
  starts_at_ms: number;
  /** The assumed status; null if no status is assumed. */
  status: number | null;
  target: ExplainedTarget;
  /** The attempts one by one. */
  tries: RehearsedAttempt[];
};

/** The reload of the configuration file. */
export type Reload = {
  /** The error of that failure; null if there was none. */
  last_error: string | null;
  /** The time of the last failure since then, in milliseconds since the Unix epoch; null if there was none. */
  last_error_at_ms: number | null;
  /** The time of the last one that succeeded, or of the start, in milliseconds since the Unix epoch. */
  last_ok_at_ms: number;
  /** Reloads since the start. */
  reloads: number;
};

/** The requests to reprice. */
export type RepriceRequest = {
  /** The cursor of an earlier response. */
  cursor?: string | null;
  /** A time: milliseconds since the Unix epoch, or RFC 3339. */
  from: unknown;
  /** Only exchanges of this model. */
  model?: string | null;
  /** Prices to use instead of the known ones; for one model of one provider. */
  prices?: Prices | null;
  /** Only exchanges of this provider. */
  provider?: string | null;
  /** A time: milliseconds since the Unix epoch, or RFC 3339. Exclusive. */
  to: unknown;
};

/** The result of repricing. */
export type Repriced = {
  /** Exchanges whose cost or label changed. */
  changed: number;
  cost_micro_usd: MicroUsd;
  cost_micro_usd_before: MicroUsd;
  /** The `cursor` to continue from; null when finished. */
  next_cursor: string | null;
  /** Exchanges that were changed, by their price label before and after. */
  prices: LabelChange[];
  /** Exchanges that were examined. */
  records: number;
  /** The first exchanges that were changed, at most 100. */
  requests: RequestChange[];
  /** Exchanges whose cost is still unknown. */
  unpriced: number;
};

/** An exchange whose cost or label changed. */
export type RequestChange = {
  /** With the cost of its failed attempts; null if it is unknown. */
  cost_micro_usd: MicroUsd | null;
  /** With the cost of its failed attempts; null if it was unknown. */
  cost_micro_usd_before: MicroUsd | null;
  model: string;
  /** The ID of the provider. */
  provider: string;
  request_id: string;
  /** In milliseconds since the Unix epoch. */
  started_at_ms: number;
};

/** One exchange, as the API shows it. */
export type RequestRecord = {
  /** The dialect of the target that was tried last; null if it was the client's, or no target was tried. */
  adapted?: string | null;
  /** The number of attempts, including retries. */
  attempts?: number;
  /** The length of the request body in bytes. */
  bytes_in?: number;
  /** The bytes of the answer's body that went to the client, be it an answer or an error; null if the client left before. */
  bytes_out?: number | null;
  /** The originator of a cancellation, `client` or `administrator`; absent if there was none. */
  cancelled_by?: string;
  /** The reason for which the first target came first: `order`, `session`, `affinity` or `state`; absent for a plain list. */
  chosen_by?: string;
  /** The client's product and version; null if it sent no `User-Agent`. */
  client?: string | null;
  /** The cost of the attempt that served; null if it is unknown. */
  cost_micro_usd: MicroUsd | null;
  /** The names of the fields that the adaptation left out, and the members that settings have changed, as `seed: default`. */
  dropped?: string[];
  /** In microseconds. */
  duration_us: number;
  /** The end user that the request names, as a pseudonym unless configured otherwise; null if it names none. */
  end_user: string | null;
  /** The endpoint that was used; null for none. */
  endpoint: string | null;
  /** The code of the error; null without one. */
  error: string | null;
  /** True if another target was tried, or skipped because of an open circuit, a rest or a used-up quota, before the target that was tried last. */
  failed_over?: boolean;
  /** The reason for which the model ended its output; null if it did not, or no target reported one. */
  finish?: string | null;
  /** Until the first content, in microseconds; null if there was none. */
  first_content_us: number | null;
  /** The gateway's own time until the first content, or until the end without content, in microseconds. */
  gateway_us?: number | null;
  /** Until the head of the answer, in microseconds; null if there was none. */
  head_us: number | null;
  /** The ID of the key. */
  key: string;
  /** Null if it is unknown. */
  key_name: string | null;
  /** The sum of the known costs of failed attempts. */
  lost_micro_usd: MicroUsd;
  /** The text of the error that the client got, sanitized and without what it quotes of the request, at most 512 bytes; null if the client got no error, and in records of earlier releases. */
  message?: string | null;
  /** The model of that provider; null if none was tried. */
  model: string | null;
  /** The node that answered it. Absent in lists, and for a gateway with its own database. */
  node?: NodeLabel;
  operation: string;
  /** The order of the endpoint's targets; absent for a plain list. */
  order?: string;
  outcome: Outcome;
  /** The number of targets that were skipped, whatever the reason. */
  passed_over?: number;
  /** The sort of generated picture that prices depend on; null if there is none. */
  picture: string | null;
  /** The label of the prices that were used; null if they are unknown. */
  price: string | null;
  /** The ID of the human that the key acts as; null for none. */
  principal: string | null;
  /** Null if it is unknown, or the key acts as no human. */
  principal_email: string | null;
  /** Null if it is unknown, or the key acts as no human. */
  principal_name: string | null;
  /** The ID of the key's project; null if it has none. */
  project: string | null;
  /** Null if it is unknown, or there is no project. */
  project_name: string | null;
  /** The dialect that the client spoke; null for operations without one. */
  protocol: string | null;
  provenance: Provenance;
  /** The provider that served it, or was tried last; null if none was tried. */
  provider: string | null;
  /** The time in the lines of quotas, in microseconds; null if the request did not wait for one. */
  queue_us: number | null;
  /** The ID of the quota that refused the exchange. */
  refused_by?: string | null;
  request_id: string;
  /** The results of the last steps of the trace, at most 16, in order. */
  results?: string[];
  /** The `model` of the request. */
  selector: string;
  /** The pseudonym of the session; null if the request belongs to none. */
  session?: string | null;
  /** The longest silence of the answer after its first content, in microseconds; null if the answer was complete when it was sent. */
  silence_us_max?: number | null;
  /** In milliseconds since the Unix epoch. */
  started_at_ms: number;
  /** The status of the answer. */
  status: number;
  stream: boolean;
  /** The tags by name. */
  tags: Record<string, string>;
  /** The service tier that the answer reports; null if it reports none. */
  tier: string | null;
  /** Tokens by class. */
  tokens: Record<string, number>;
  /** The targets that were considered, in order. Absent in lists. */
  trace?: Step[];
  /** Other billed units by class. */
  units: Record<string, number>;
  /** The members of the model's `prices` that are missing for the cost, such as `audio_input`, `tiers.flex` or `above`; absent if the cost is known or the model has no prices, and in records of earlier releases. */
  unpriced?: string[];
  /** The upstream's ID of the request; null if it sent none. */
  upstream_id: string | null;
  /** The cost that the vendor reported; null if it reported none. */
  vendor_cost_micro_usd: MicroUsd | null;
};

/** A page of requests. */
export type RequestRecordPage = {
  data: RequestRecord[];
  /** The `cursor` of the next page; null on the last one. A page without rows that has one stopped for time. */
  next_cursor: string | null;
  /** The time since which requests are in a sorted list, in milliseconds since the Unix epoch, if reading older ones would take too long; null if none are left out. */
  sorted_since_ms: number | null;
};

/** The kind of a selector's meaning. */
export type ResolvedKind = "endpoint" | "model" | "alias" | "ambiguous";

/** The meaning of a selector. */
export type ResolvedSelector = {
  kind: ResolvedKind;
  /** The endpoint, or the exact model ID; null if several models have the name. */
  name: string | null;
};

/** A model that receives no requests which another target can serve. */
export type RestingModel = {
  /** The end of the rest, in milliseconds since the Unix epoch. */
  ends_at_ms: number;
  model: string;
  /** The beginning of the rest, in milliseconds since the Unix epoch. */
  since_ms: number;
  /** The status of the last refusal; null if an answer reported that nothing is left of a limit. */
  status: number | null;
  /** The time until then, in milliseconds. */
  wait_ms: number;
};

/** Records deleted since the start because their retention period had ended. */
export type RetentionState = {
  /** Audit records deleted. */
  audit_records_deleted: number;
  /** Usage rows, each of many exchanges, that are still to be deleted. */
  backlog_rows: number;
  /** The end of the last pass, in milliseconds since the Unix epoch; null before the first one. */
  last_pass_at_ms: number | null;
  /** Exchanges deleted. */
  usage_records_deleted: number;
  /** The longest time that one step blocked the writer, in microseconds. */
  writer_held_us_max: number;
};

/** A key in plain text. */
export type RevealedKey = {
  id: string;
  /** The key itself. */
  key: string;
};

/** The role of a human in a project (AUTH-8). */
export type Role = "owner" | "admin" | "member" | "viewer";

/** The rotation of a key. */
export type Rotation = {
  /** A time: milliseconds since the Unix epoch, or RFC 3339. The end of the new key; absent: that of the old one. */
  expires_at?: unknown;
  /** How long the old key stays valid, in seconds. */
  overlap_seconds?: number | null;
};

/** Changes to a rule. Absent members are kept. */
export type RulePatch = {
  clear_seconds?: number | null;
  enabled?: boolean | null;
  floor_micro_usd?: number | null;
  hold_seconds?: number | null;
  name?: string | null;
  /** Null for all objects. */
  objects?: string[] | null;
  severity?: Severity | null;
  threshold?: number | null;
};

/** The event that a test has emitted. */
export type RuleTest = {
  /** The number of the event. */
  sequence: number;
};

/** The running exchanges, those that have been silent longest first. */
export type RunningPage = {
  /** At most 200 exchanges. */
  data: RunningRequest[];
  /** The number of running exchanges that are not listed. */
  more: number;
  /** The nodes that may run further ones and did not answer; absent if there are none. */
  silent_nodes?: NodeLabel[];
};

/** A running exchange. */
export type RunningRequest = {
  /** The number of attempts so far, over all targets. */
  attempt: number;
  /** Bytes of the answer's body that have gone to the client. */
  bytes_out: number;
  /** The family and version of the client's software, out of its `User-Agent`; may be empty. */
  client: string;
  /** The key's ID, or `admin` or `local`. */
  key: string;
  /** The time of the last piece, to the second, in milliseconds since the Unix epoch; null before the first. */
  last_piece_at_ms: number | null;
  /** The model of the latest attempt; null before the first. */
  model: string | null;
  /** The node that runs it; absent for a gateway with its own database. */
  node?: NodeLabel;
  operation: string;
  /** The output tokens so far, estimated from the length of the text. */
  output_tokens_estimate: number;
  /** Pieces of a relayed answer that have arrived from the upstream. */
  pieces: number;
  /** The provider of the latest attempt; null before the first. */
  provider: string | null;
  request_id: string;
  /** The client's selector; empty until the body has been read. */
  selector: string;
  /** `reading` the request, `waiting` for the upstream's head, `paused` between attempts, `held` until the first content, or `streaming`. */
  stage: "reading" | "queued" | "waiting" | "paused" | "held" | "streaming";
  /** The time at which the request's head had arrived, in milliseconds since the Unix epoch. */
  started_at_ms: number;
};

/** A rotation of the secret. */
export type SecretRotation = {
  /** The time for which the secret before signs as well, from 0 to 2,592,000 seconds; 86,400 by default. */
  overlap_seconds?: number | null;
};

/** `seen`: a request with the watched key, or one that was rejected and left no record. */
export type SeenRequest = {
  address: string;
  /** In milliseconds since the Unix epoch. */
  at_ms: number;
  /** The family and version of the client's software, out of its `User-Agent`; may be empty. */
  client: string;
  /** The error code; null if the answer is not an error. */
  code: string | null;
  /** The part of the presented key that may be shown; null without a key. */
  key_prefix: string | null;
  method: string;
  /** The `model` of the request; null if the request was rejected before it was read. */
  model: string | null;
  /** The field of the request that causes the error, at most 128 characters; null if no field does. */
  param: string | null;
  /** The path without the query, at most 256 characters. */
  path: string;
  request_id: string;
  status: number;
};

/** A selector, and the caller's access to it. Quotas that are used up and open circuits do not count, because they pass. */
export type SelectorAccess = {
  /** True if the caller may use at least one target. */
  allowed: boolean;
  kind: SelectorKind;
  /** The obstacles, each once. If `allowed` is true, they concern some of the targets only. */
  reasons: Obstacle[];
  /** The value of `model` in requests. */
  selector: string;
  /** The number of targets of the selector. */
  targets: number;
  /** The number of targets that the caller may use. */
  usable: number;
};

/** One page of a list. */
export type SelectorAccessPage = {
  data: SelectorAccess[];
  /** The `cursor` of the next page; null on the last one. */
  next_cursor: string | null;
};

/** The kind of a selector. */
export type SelectorKind = "endpoint" | "model" | "alias";

/** Figures by time. */
export type Series = {
  /** The moment from which no exchange is missing; `from_ms` unless the answer is partial. */
  complete_from_ms: number;
  /** The start of the first point, in milliseconds since the Unix epoch. */
  from_ms: number;
  /** The groups with the most requests, in that order, at most 50. One group without names if the query has no `group_by`. */
  groups: GroupSeries[];
  /** The number of further groups. */
  groups_omitted: number;
  /** True if exchanges of this time are missing, because reading them took too long or they are no longer kept. */
  partial: boolean;
  /** The requests of this time that are counted under the name `other`, because their day had more than 128 names. */
  requests_merged: number;
  /** The source of the figures: `periods`, which have everything; `hours`, the sums of hours and days, for combinations of names of which no periods are kept and too many records to read; or `records`. */
  source: string;
  /** The start of each point, in milliseconds since the Unix epoch. */
  starts_ms: number[];
  /** The length of a point, in milliseconds. A day of `tz` is shorter or longer where its clock changes. */
  step_ms: number;
  /** The end of the last point, in milliseconds since the Unix epoch. */
  to_ms: number;
  /** The time zone in which days begin. */
  tz: string;
  /** The columns that `source` does not have. They are null. Without `refused`, those requests are in `failed`. */
  unknown: string[];
};

/** The figures of a group. Each list has one item for each point; null for figures that are `unknown`. */
export type SeriesPoints = {
  /** The attempts that failed for no fault of the client, and those whose answer broke off. */
  attempt_failures: number[] | null;
  /** Requests to upstreams. Grouped by provider or model, each counts for its own target. */
  attempts: number[] | null;
  cache_read: number[];
  /** The client left. */
  cancelled: number[];
  completed: number[];
  /** The known cost, including failed attempts. */
  cost_micro_usd: MicroUsd[];
  /** The answer broke off after output had started. */
  cut: number[];
  /** The duration of completed exchanges, in microseconds, exact to 1.6 %; null if there was none. */
  duration_us_p50: (number | null)[] | null;
  duration_us_p99: (number | null)[] | null;
  /** Failed for no fault of the client. */
  failed: number[];
  /** The completed ones after a failover. */
  failed_over: number[] | null;
  /** The time from the request to the first content, in microseconds, exact to 1.6 %; null if there was none. */
  first_content_us_p50: (number | null)[] | null;
  first_content_us_p99: (number | null)[] | null;
  /** Tokens by disjoint classes. */
  input: number[];
  output: number[];
  /** Failed because of the request (400, 413, 415, 422), or rejected with 4xx before any target was tried. */
  refused: number[] | null;
  /** The exchanges that started in the point: the sum of `completed`, `failed`, `cut`, `cancelled` and `refused`. */
  requests: number[];
  /** Attempts, failed ones included, whose cost is unknown and not in the sum. */
  requests_unpriced: number[];
};

/** How long the exchanges of a group took. */
export type SeriesTimes = {
  /** The duration of completed exchanges, in microseconds, exact to 1.6 %; null if there was none. */
  duration_us_p50: number | null;
  duration_us_p99: number | null;
  /** The time from the request to the first content, in microseconds, exact to 1.6 %; null if there was none. */
  first_content_us_p50: number | null;
  first_content_us_p99: number | null;
};

/** The caller and its session. */
export type Session = {
  /** True for an administrator. False for a human without the administrators' group, and for a caller without a session and without a key, to whom all else but `sso` is null or empty. */
  administrator: boolean;
  /** The means of authentication: `session`, or `key` for a key in a header. */
  by: string | null;
  /** The token that requests of the session send in `x-csrf-token` if they change something. Null without a session. */
  csrf_token: string | null;
  /** The latest end of the session, in milliseconds since the Unix epoch. Null without a session. */
  expires_at_ms: number | null;
  /** The extent of each permission in a project, by the role of the human there. Empty for administrators. */
  extents: Record<string, Record<string, Extent>>;
  /** The human who signed in by single sign-on; null for an administrator's key. */
  human: SessionHuman | null;
  /** The time without a request after which a session ends, in seconds. */
  idle_seconds_max: number;
  /** The key's id, which includes the name of its holder if it has one. Null for a human. */
  key: string | null;
  /** The permissions that the caller has for some objects at least. */
  permissions: Permission[];
  /** The role of a human in each of their projects, by the ID of the project. Empty for administrators. */
  roles: Record<string, Role>;
  /** Null if single sign-on is off. */
  sso: SessionSso | null;
};

/** A human who signed in. */
export type SessionHuman = {
  /** Null if unknown. */
  email: string | null;
  id: string;
  name: string;
};

/** Single sign-on, as the sign-in needs it. */
export type SessionSso = {
  /** The reason why the proxy's headers are rejected; null if they are valid or absent. */
  problem: string | null;
  /** Where a browser ends its session with the proxy: a path or an https URL; null if it is not configured. */
  sign_out_url: string | null;
  /** The e-mail address or name of the human whom the proxy has authenticated; null if there is no such human. */
  user: string | null;
};

/** One setting of the process. */
export type Setting = {
  /** The moment at which a change applies: always `start`, the next start of the gateway. Providers and endpoints, which are no settings, change while it runs. */
  applies: "start";
  /** The value that applies if nothing sets one; null if the setting has no default, and for secrets. */
  default: string | null;
  /** A description in one line. */
  doc: string;
  /** The line of the configuration file that sets the value, counted from 1. Null if the file does not set it, or is larger than 1 MiB. */
  line: number | null;
  /** The name of its environment variable, or its path in the file if there is no variable. */
  name: string;
  /** Its path in the configuration file, such as `server.port`; null if only the variable can set it. */
  path: string | null;
  /** True if the value is not shown. */
  secret: boolean;
  /** The layer that sets the value: `default`, `file` or `environment`. */
  source: "default" | "file" | "environment";
  /** The effective value; dots if it is secret, null if nothing sets it and it has no default. */
  value: string | null;
};

/** The steps of the set-up. */
export type Setup = {
  /** True if there is an endpoint with a target. */
  endpoint: boolean;
  /** The request ID of the first request that a project key completed, among the records that are kept. Null if there is none, or none was found within half a second. */
  first_request: string | null;
  /** True if there is a human who is not disabled. */
  human: boolean;
  /** True if a project key can be used. */
  key: boolean;
  /** True if a human who is not disabled owns a project that is not disabled. */
  owner: boolean;
  /** True if there is a project that is not disabled. */
  project: boolean;
  /** True if a ready provider has completed a request: a test, or one of a client. */
  proven: boolean;
  /** True if a provider is ready to receive requests. Providers inside the gateway (`echo`, `builtin_speech`) do not count here and in the next three. */
  provider: boolean;
  /** True if the list of models of a ready provider was read, or a ready provider has no list to read. */
  synced: boolean;
};

/** The urgency of an alert. */
export type Severity = "warn" | "bad";

/** The side of a recorded request or response. */
export type Side = "client_request" | "upstream_request" | "upstream_response" | "client_response";

/** The body of a sign-in. */
export type SignIn = {
  /** The administrator key; not needed if the request has it in a header. */
  key?: string | null;
  /** True signs in the human whom the single sign-on proxy has authenticated, instead of a key. */
  sso?: boolean;
};

/** Counts of skipped entries. */
export type SkippedEntries = {
  /** Entries beyond the limit. */
  over_limit: number;
  /** Entries with the id of an earlier one. */
  repeated: number;
  /** Lists of which further pages were not read. */
  unread_lists: number;
  /** Entries without an id, or with an id that no request could name. */
  without_usable_id: number;
};

/** A row of the export that could not be used. */
export type SkippedRow = {
  reason: string;
  /** Counted from 1. */
  row: number;
};

/** The settings of single sign-on, without its secret. */
export type SsoState = {
  /** The group whose members administer. */
  admin_group: string;
  /** True if unknown humans get an entry at their first sign-in. */
  auto_provision: boolean;
  /** Null if the proxy sends none. */
  email_header: string | null;
  /** Null if the proxy sends none. */
  groups_header: string | null;
  /** Null if the proxy sends none. */
  name_header: string | null;
  /** The proxy whose headers are the defaults. */
  preset: string;
  /** One sentence for each setting that has no effect or is dangerous. */
  problems: string[];
  /** Where a browser ends its session with the proxy; null if it is not configured. */
  sign_out_url: string | null;
  /** The CIDR blocks from which the proxy connects. */
  trusted_proxies: string[];
  user_header: string;
};

/** The beginning of a sign-in. */
export type StartOauthSignIn = {
  /** `browser` or `device`, for a sign-in on another device; absent: `browser`. */
  method?: string | null;
  /** The ID of the human who signs in and to whom the provider is private; absent: its owner. */
  owner?: string | null;
};

/** A sign-in that has begun. */
export type StartedOauthSignIn = {
  /** The vendor's page on which the human consents. */
  authorize_url: string;
  /** The time until which the human must have consented, in milliseconds since the Unix epoch. */
  expires_at_ms: number;
  /** The address to which the vendor sends the browser back, registered with the vendor byte by byte; null for a sign-in on another device. */
  redirect_uri: string | null;
  /** The code to type on that page; null for a sign-in in the browser. */
  user_code: string | null;
};

/** The numbers of objects that requests can use. */
export type StateCounts = {
  endpoints: number;
  /** Keys that can be used, administrators' keys included. */
  keys: number;
  models: number;
  providers: number;
};

/** A target that was considered. */
export type Step = {
  /** The number of the attempt among those at its target, from 1; absent for a skipped target. */
  attempt?: number;
  /** The time until the target's circuit would admit an attempt, in milliseconds; absent unless `result` is `circuit_open`, and in records of earlier releases. */
  circuit_wait_ms?: number;
  /** The key, as `c2`; absent if the provider has one. */
  credential?: string;
  /** The time from the request's head to the first content, in microseconds; absent unless the attempt served. */
  first_content_us?: number;
  /** From the start of the attempt until the head of the answer, in microseconds; absent without an answer. */
  head_us?: number;
  /** The consumption of a failed attempt; absent if there was none. */
  lost?: LostUsage;
  /** The error of a failed attempt, sanitized, at most 200 characters; absent if there was none. */
  message?: string;
  model: string;
  provider: string;
  /** The ID of the quota in whose line the request waited; absent unless `result` is `waited`. `spent_us` is the wait. */
  quota?: string;
  /** `served`, or why the target did not serve. */
  result: string;
  /** The wait that the upstream asked for, in milliseconds; absent if it asked for none. */
  retry_after_ms?: number;
  /** From the start of the attempt until its failure or its first content, in microseconds; absent for a target that was passed over. */
  spent_us?: number;
  /** The time from the request's head to the start of the attempt, in microseconds; absent for a skipped target, and in records of earlier releases. */
  start_us?: number;
  /** The status of the upstream's answer; absent without one. */
  status?: number;
  /** The time until the target's rest ends, in milliseconds; absent unless `result` is `resting`. */
  wait_ms?: number;
};

/** The result of a target in the plan of a request: served, the reason why it was not tried, or the failure of its attempt. */
export type StepResult = "served" | "waited" | "circuit_open" | "resting" | "too_long" | "no_vision" | "no_tools" | "no_dialect" | "unsupported" | "elsewhere" | "not_ready" | "not_allowed" | "private" | "no_price" | "over_quota" | "unreachable" | "no_socket" | "address_refused" | "timed_out" | "invalid" | "status" | "stream_error" | "stream_ended" | "cancelled" | "budget_exhausted";

/** The kind of a limit's subject. */
export type SubjectKind = "key" | "project" | "principal" | "provider" | "gateway";

/** A name that occurs in usage records. */
export type Suggestion = {
  /** The name of a key, project or human; null for other fields, and if it is unknown. */
  name: string | null;
  /** The number of requests of the last 30 days. */
  requests: number;
  /** The value for the filter of the same name. */
  value: string;
};

/** The results, the best first. */
export type SuggestionList = {
  /** False if more would fit, or if the time or a bound left out a part of what was looked at. */
  complete: boolean;
  data: Suggestion[];
  /** Always null: there are no further pages. */
  next_cursor: string | null;
};

/** The result of reading one instance's list. */
export type SyncOutcome = {
  /** Models that the list before did not have. */
  added: number;
  /** In milliseconds since the Unix epoch. */
  at_ms: number;
  /** Null if the list was read. */
  error: Failure | null;
  /** The current number of models. */
  models: number;
  ok: boolean;
  /** The ID of the provider. */
  provider: string;
  /** Models that only the list before had. */
  removed: number;
  skipped: SkippedEntries;
};

/** The result of reading all model lists. */
export type SyncedCatalog = {
  data: SyncOutcome[];
  /** Providers that were not synced for lack of time; the next sync starts with them. */
  not_reached: string[];
  /** The date of the price list in use. */
  prices_as_of: string;
};

/** A provider instance and one of its models. */
export type Target = {
  /** The seconds in which a stream must have content, which take precedence over those of its provider. Absent for those of the provider. */
  first_content_timeout?: number;
  model: string;
  provider: string;
  /** Its tier, from 1 to 9: every target of a lower one comes before. Absent for 1. Not with the order `listed`. */
  tier?: number;
  /** Its share of the requests, from 0 to 1000; 0 comes after all others of its tier. Absent for 1. Not with the order `listed`. */
  weight?: number;
};

/** A provider instance and one of its models. */
export type TargetBody = {
  /** The seconds in which a stream must have content, which take precedence over those of its provider. Absent for those of the provider. */
  first_content_timeout?: number | null;
  model: string;
  provider: string;
  /** Its tier, from 1 to 9: every target of a lower one comes before. Absent for 1. Not with the order `listed`. */
  tier?: number | null;
  /** Its share of the requests, from 0 to 1000; 0 comes after all others of its tier. Absent for 1. Not with the order `listed`. */
  weight?: number | null;
};

/** The order of an endpoint's targets within a tier. */
export type TargetOrder = "listed" | "weighted" | "least_busy" | "fastest" | "cheapest";

/** The times, errors and results of attempts at the targets of a query, and the changes of their circuits. */
export type Telemetry = {
  /** The bounds of the buckets of all distributions. */
  bounds_us: TelemetryBounds;
  /** The length of a point, in milliseconds. */
  bucket_ms: number;
  /** The circuits that opened and closed, the latest first, at most 500. A restart closes all circuits, and none of that is a change. Circuits that were open for less than a second may be missing. */
  circuit_changes: CircuitChange[];
  /** True if there are more changes in this time. */
  circuit_changes_omitted: boolean;
  /** The moment from which none is missing for this reason; `from_ms` unless the answer is partial. */
  complete_from_ms: number;
  /** The start of the time, in milliseconds since the Unix epoch. */
  from_ms: number;
  /** The node that answers: `circuit_changes` are those of its circuits. Absent for a gateway with its own database. */
  node?: NodeLabel;
  /** True if exchanges of this time are missing, because reading them took too long or they are no longer kept. */
  partial: boolean;
  /** The sums of all targets of the query, in the order of time, without points in which nothing started. */
  points: TelemetryPoint[];
  /** The targets of the query with the most requests, in that order, at most 100. */
  targets: TelemetryTarget[];
  /** The number of further targets. */
  targets_omitted: number;
  /** The end of the time, in milliseconds since the Unix epoch. */
  to_ms: number;
};

/** The upper bounds of the buckets, in microseconds. Each distribution has one bucket more, of values beyond all bounds. */
export type TelemetryBounds = {
  first_content: number[];
  gap: number[];
  gateway: number[];
  head: number[];
};

/** The times, errors and results of attempts of the exchanges that started in a point. */
export type TelemetryPoint = {
  /** Those that were not completed, by kind of error; by outcome (`cancelled`, `cut`) if they have none. */
  errors: Record<string, number>;
  /** The time from the request to the first content of a stream. */
  first_content: TimeDistribution;
  /** The time between two pieces of a stream. */
  gap: TimeDistribution;
  /** The time that the gateway itself took until the first content. */
  gateway: TimeDistribution;
  /** The time from the request to the head of the upstream's answer. */
  head: TimeDistribution;
  /** Exchanges that a target served, or was the last one to be tried for. */
  requests: number;
  /** Attempts at the targets by result, and reasons for skipping them, also of exchanges that other targets served. */
  results: Record<string, number>;
  /** The longest time without a piece of an answer, in microseconds; 0 if there was none. */
  silence_us_max: number;
  /** The start of the point, in milliseconds since the Unix epoch. */
  start_ms: number;
};

/** A target with exchanges or attempts in the time. */
export type TelemetryTarget = {
  /** Those that were not completed. */
  errors: number;
  /** The model of that instance; null for exchanges that reached none. */
  model: string | null;
  /** The provider instance; null for exchanges that reached none. `other` counts targets beyond 128 of a day. */
  provider: string | null;
  /** Exchanges that the target served, or was the last one to be tried for. */
  requests: number;
};

/** The distribution of a time. */
export type TimeDistribution = {
  /** The number of values in each bucket, not cumulative; empty if there are no values. */
  buckets: number[];
  /** The number of values. */
  count: number;
  /** Percentiles in microseconds, estimated from the buckets; null if there are no values. Beyond all bounds it is the last bound. */
  p50_us: number | null;
  p90_us: number | null;
  p99_us: number | null;
  /** The sum of the values, in microseconds. */
  sum_us: number;
};

/** The state of a grant's token for the API. */
export type TokenState = {
  /** The error of the last attempt; null if it succeeded. */
  error: string | null;
  /** The expiry of the current token, in milliseconds since the Unix epoch; null if there is no token. */
  expires_at_ms: number | null;
  /** The time of the next renewal or retry, in milliseconds since the Unix epoch. */
  next_at_ms: number;
};

/** The export of traces by OTLP. */
export type TracesState = {
  /** Spans that were dropped because the queue was full. */
  dropped_spans: number;
  /** The address of the collector. */
  endpoint: string;
  /** Spans that the collector accepted since the start. */
  exported_spans: number;
  /** Spans that could not be delivered. */
  failed_spans: number;
  /** The error of the last export; null if it worked. */
  failing_error: string | null;
  /** The time since which exports have been failing, in milliseconds since the Unix epoch; null if they work. */
  failing_since_ms: number | null;
  /** Spans that the collector rejected. */
  rejected_spans: number;
  /** The sampler, with its share of the requests if it has one. */
  sampler: string;
};

/** The result of a test, with the record of its exchange. */
export type Trial = {
  /** The start of the answer. */
  answer: string;
  /** True if the provider may bill the test. */
  billable: boolean;
  /** The error that a client would have received; null if it would have received none. */
  error: string | null;
  /** Until the first content, in milliseconds; null if there was none. */
  first_content_ms: number | null;
  /** A hint for the operator; null if there is none. */
  hint: string | null;
  /** Until the end of the answer, in milliseconds. */
  latency_ms: number;
  /** True if the response was complete and not empty. */
  ok: boolean;
  /** The dialect of the request. */
  protocol: string;
  /** The record, including the trace of the targets that were considered; null if it could not be read in time. */
  record: RequestRecord | null;
  request_id: string;
  /** The model that served the request, as reported by the upstream; null if it was not. */
  served_model: string | null;
  /** The status that a client would have received. */
  status: number;
  /** The usage as the upstream reports it; null if it does not. */
  usage: unknown;
};

/** A provider that is configured but receives no requests. */
export type UnusableProvider = {
  /** The ID of the provider. */
  provider: string;
  /** The fault and its remedy. */
  reason: string;
};

/** What happens to what a lost node had unused of limits by the hour, day, week, month or in total. */
export type Unused = "count" | "release";

/** A limit as the upstream reports it in its headers. */
export type UpstreamLimit = {
  /** Null if the upstream does not name it. */
  limit: number | null;
  /** The limited unit, such as `requests` or `input-tokens`; `retry-after` for a wait before any request. */
  name: string;
  /** Null if the upstream does not name it. */
  remaining: number | null;
  /** The time at which the limit is full again, or the wait ends; null if the upstream does not name it. */
  resets_at_ms: number | null;
  /** The time of the answer that named the limit. */
  seen_at_ms: number;
};

/** A report of usage. */
export type Usage = {
  /** The mark-up and the currency of every `amount`; absent without them. */
  charge?: Charge;
  data: UsageLine[];
  /** The start of the time, in milliseconds since the Unix epoch. */
  from_ms: number;
  /** The `cursor` of the next page; null on the last one. */
  next_cursor: string | null;
  /** The end of the time, exclusive, in milliseconds since the Unix epoch. */
  to_ms: number;
  /** The sums over all pages; null if an answer computed from records has several pages. */
  totals: ChargedFigures | null;
  /** The time zone of the buckets. */
  tz: string;
};

/** The sums of a group in a bucket of time. */
export type UsageLine = {
  /** The charge for the cost, in the report's currency; absent without a mark-up and a currency. */
  amount?: string;
  /** The start of the bucket in local time of the requested time zone; absent without buckets. */
  bucket_start?: string;
  /** In milliseconds since the Unix epoch; absent without buckets. */
  bucket_start_ms?: number;
  /** The known cost, including failed attempts. */
  cost_micro_usd: MicroUsd;
  /** In microseconds; null without requests. */
  duration_us_avg: number | null;
  /** The time to the first content, in microseconds; null if no request had content. */
  first_content_us_avg: number | null;
  /** The ids of the group; null for exchanges without one. */
  group: Record<string, string | null>;
  /** The known cost of failed attempts. */
  lost_micro_usd: MicroUsd;
  /** The names of the keys, projects and humans among the ids; null if unknown. */
  names?: Record<string, string | null>;
  requests: number;
  /** Attempts, failed ones included, whose cost is unknown and not in the sum. */
  requests_unpriced: number;
  tokens: UsageTokens;
  /** Other billed units by class. */
  units: Record<string, number>;
  /** The cost that vendors reported. */
  vendor_cost_micro_usd: MicroUsd;
};

/** The way of usage records into the database. */
export type UsageState = {
  /** Reads of rows that a failing disk has changed. The log names each row. */
  damaged_reads: number;
  /** The error of storing; null if it works. */
  failing_error: string | null;
  /** The time since which storing has been failing, in milliseconds since the Unix epoch; null if it works. */
  failing_since_ms: number | null;
  /** False while requests are rejected with 503 because the journal has no space to record their usage. */
  has_room: boolean;
  /** Failures to read or write files of the journal. */
  journal_failures: number;
  /** Parts of journal files that contained no valid record. */
  journal_garbage_lines: number;
  /** Files of the journal. */
  journal_segments: number;
  /** Bytes of the journal files that are waiting to be stored or deleted. */
  journal_waiting_bytes: number;
  /** Events that could not be written to any journal file; their clients received an incomplete response. */
  lost: number;
  /** Queued events at the writer thread's last poll. */
  queued: number;
  /** Exchanges rejected because their sums exceed the range of the table. */
  rejected: number;
  /** The file or the database that contains them. */
  store: UsageStore;
  /** Exchanges stored since the start. */
  stored: number;
  /** The time of the last storing, in milliseconds since the Unix epoch; 0 before the first one. */
  stored_at_ms: number;
};

/** The place and size of what stores the usage. */
export type UsageStore = {
  /** Size in bytes, including the write-ahead log that is not yet checkpointed; null for a database of PostgreSQL. */
  bytes: number | null;
  /** File name within the state directory, or the address of the database of PostgreSQL. */
  file: string;
};

/** Tokens by class, and their sum. */
export type UsageTokens = {
  total: number;
  [name: string]: number;
};

/** Figures that an export may lack. */
export type VendorFigures = {
  cached_input_tokens: number | null;
  cost_micro_usd: MicroUsd | null;
  input_tokens: number | null;
  output_tokens: number | null;
  requests: number | null;
};

export type VendorFiles = string | string[];

export type VendorFormat = "openai" | "anthropic" | "csv";

/** A verdict with the change that may have caused it. */
export type Verdict = {
  /** The last action of an administrator up to the minute in which the trouble began; null without trouble, or if the audit has none. */
  change_before: ChangeBefore | null;
  /** The faults, the worst first; then the requests of the last hour. */
  reasons: VerdictReason[];
  /** The number of further faults. */
  reasons_omitted: number;
  /** The beginning of the state, in milliseconds since the Unix epoch. States without trouble begin with the process or with the end of the last trouble. */
  since_ms: number;
  state: VerdictState;
};

/** One reason for a verdict. */
export type VerdictReason = {
  /** `usage_unrecorded`, `draining`, `requests_failing`, `no_eligible_target`, `circuit_open`, `provider_failing`, `first_content_slow`, `no_provider`, `no_request` or `requests`. */
  code: string;
  /** Counts, and times in milliseconds or microseconds as their names state. */
  figures: Record<string, number>;
  /** The names of the nodes at which it is so; absent if it concerns all of the gateway, and for a gateway with its own database. */
  nodes?: string[];
  /** The endpoint, selector, provider or model; null if the reason concerns all of the gateway. */
  object: string | null;
};

/** The state of the gateway, the worst one first. */
export type VerdictState = "unrecorded" | "draining" | "failing" | "degraded" | "serving" | "quiet" | "set_up";

/** A webhook as the API and the audit show it. */
export type Webhook = {
  /** In milliseconds since the Unix epoch. */
  created_at_ms: number;
  /** True if it receives no new events, and waiting ones are not tried. */
  disabled: boolean;
  format: WebhookFormat;
  id: string;
  /** True if an event waits until the ones before it are delivered or dead. */
  in_order: boolean;
  /** The kinds of events that it receives; null for all. */
  kinds: string[] | null;
  name: string;
  /** The longest pause after the first failure, in seconds. It doubles with each further failure. */
  retry_seconds: number;
  /** The time until which the secret before the last rotation signs as well, in milliseconds since the Unix epoch; null if only one secret signs. */
  secret_before_until_ms: number | null;
  /** True if it also receives the ends of conditions. */
  send_resolved: boolean;
  /** In milliseconds since the Unix epoch. */
  updated_at_ms: number;
  /** The origin of its address and the last characters of a long path. The address itself is not shown. */
  url: string;
  /** Grows with each change; the `ETag` of the object. */
  version: number;
};

/** The shape of the messages for a receiver. */
export type WebhookFormat = "json" | "slack";

/** Changes to a webhook. Absent members are kept. */
export type WebhookPatch = {
  /** True stops new events and tries. */
  disabled?: boolean | null;
  format?: WebhookFormat | null;
  in_order?: boolean | null;
  /** Null for all kinds. */
  kinds?: string[] | null;
  name?: string | null;
  /** From 1 to 3,600 seconds. */
  retry_seconds?: number | null;
  send_resolved?: boolean | null;
  url?: string | null;
};

/** The result of a test. */
export type WebhookTest = {
  duration_ms: number;
  /** The reason of the failure; null if `ok`. */
  error: string | null;
  /** True if the receiver answered with a status from 200 to 299. */
  ok: boolean;
  /** The status of the answer; null if there was none. */
  status: number | null;
};

/** A webhook with its new secret, which is shown only once. */
export type WebhookWithSecret = {
  /** In milliseconds since the Unix epoch. */
  created_at_ms: number;
  /** True if it receives no new events, and waiting ones are not tried. */
  disabled: boolean;
  format: WebhookFormat;
  id: string;
  /** True if an event waits until the ones before it are delivered or dead. */
  in_order: boolean;
  /** The kinds of events that it receives; null for all. */
  kinds: string[] | null;
  name: string;
  /** The longest pause after the first failure, in seconds. It doubles with each further failure. */
  retry_seconds: number;
  /** The secret for verifying signatures, as the libraries of Standard Webhooks take it; null in the answer to a repeated request. */
  secret: string | null;
  /** The time until which the secret before the last rotation signs as well, in milliseconds since the Unix epoch; null if only one secret signs. */
  secret_before_until_ms: number | null;
  /** True if it also receives the ends of conditions. */
  send_resolved: boolean;
  /** In milliseconds since the Unix epoch. */
  updated_at_ms: number;
  /** The origin of its address and the last characters of a long path. The address itself is not shown. */
  url: string;
  /** Grows with each change; the `ETag` of the object. */
  version: number;
};

/** A declared model as it may have been written. */
export type WrittenModel = string | DeclaredModel;

