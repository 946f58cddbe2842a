//! The query parameters of the admin API: what each one may be and what it means. `tests/queries.rs` compares the choices and
//! the bounds with those that the gateway states when it refuses a value.

use serde_json::{Value, json};

use crate::admin::Route;

/// A query parameter of some routes.
pub(in crate::admin::tests) struct Parameter {
    /// The pattern of the route; empty for all routes that have no row of their own.
    route: &'static str,
    name: &'static str,
    pub(in crate::admin::tests) values: Values,
    doc: &'static str,
}

/// The values that a parameter may have.
pub(in crate::admin::tests) enum Values {
    Text,
    /// A whole number of at least, and of at most.
    Number(u64, u64),
    Decimal,
    Flag,
    /// One of these.
    Choice(&'static [&'static str]),
    /// Some of these, separated by commas.
    Choices(&'static [&'static str]),
    /// Names of dimensions, separated by commas.
    Names,
    /// A time in milliseconds since the Unix epoch, or as text.
    Moment,
    /// Several parameters whose names begin with `tag.`.
    Tags,
}

impl Parameter {
    /// Returns the description of a parameter of a route.
    pub(in crate::admin::tests) fn of(route: &Route, name: &str) -> &'static Self {
        let named = |place: &str| PARAMETERS.iter().find(|row| row.name == name && row.route == place);
        let found = named(route.pattern).or_else(|| named(""));
        found.unwrap_or_else(|| panic!("{} {name} needs a row in PARAMETERS", route.pattern))
    }

    /// Returns its name among the components.
    pub(super) fn key(&self) -> String {
        let name = if self.name == TAG { TAGS } else { self.name };
        if self.route.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.route.replace("/{}", "").replace('/', "."))
        }
    }

    /// Returns its Parameter Object.
    pub(super) fn object(&self) -> Value {
        let mut object = json!({"name": self.name, "in": "query", "description": self.doc});
        if REQUIRED.contains(&(self.route, self.name)) {
            object["required"] = json!(true);
        }
        if let Values::Choices(_) | Values::Names = self.values {
            object["explode"] = json!(false);
        }
        if let Values::Tags = self.values {
            // Each member of the object is a parameter of its own.
            object["name"] = json!(TAGS);
            object["explode"] = json!(true);
        }
        object["schema"] = self.values.schema();
        object
    }
}

impl Values {
    fn schema(&self) -> Value {
        match self {
            Self::Text => json!({"type": "string"}),
            Self::Number(min, u64::MAX) => json!({"type": "integer", "minimum": min}),
            Self::Number(min, max) => json!({"type": "integer", "minimum": min, "maximum": max}),
            Self::Decimal => json!({"type": "number", "minimum": 0}),
            Self::Flag => json!({"type": "boolean"}),
            Self::Choice(names) => json!({"type": "string", "enum": names}),
            Self::Choices(names) => json!({"type": "array", "items": {"type": "string", "enum": names}}),
            Self::Names => json!({"type": "array", "items": {"type": "string"}}),
            Self::Moment => json!({"$ref": "#/components/schemas/Moment"}),
            Self::Tags => json!({
                "type": "object",
                "patternProperties": {"^tag\\.": {"type": "string"}},
                "additionalProperties": false,
            }),
        }
    }
}

const fn row(route: &'static str, name: &'static str, values: Values, doc: &'static str) -> Parameter {
    Parameter { route, name, values, doc }
}

/// The placeholder for the tags of requests, and the name under which the document has them.
const TAG: &str = "tag.NAME";
const TAGS: &str = "tags";

/// The parameters without which the route refuses a request.
const REQUIRED: [(&str, &str); 2] = [("search", "q"), ("suggest", "field")];

const OPERATIONS: &[&str] = &[
    "chat_completions",
    "responses",
    "messages",
    "count_tokens",
    "embeddings",
    "transcription",
    "speech",
    "images",
    "videos",
    "models",
];

const RESULTS: &[&str] = &[
    "served",
    "circuit_open",
    "resting",
    "no_vision",
    "no_tools",
    "no_dialect",
    "unsupported",
    "elsewhere",
    "not_ready",
    "not_allowed",
    "private",
    "no_price",
    "over_quota",
    "unreachable",
    "no_socket",
    "address_refused",
    "timed_out",
    "invalid",
    "status",
    "stream_error",
    "stream_ended",
    "cancelled",
    "budget_exhausted",
];

const FIGURES: &[&str] = &[
    "cost",
    "requests",
    "requests_unpriced",
    "tokens",
    "lost_cost",
    "input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "reasoning_tokens",
    "audio_input_tokens",
    "audio_output_tokens",
    "image_input_tokens",
    "image_output_tokens",
    "characters",
    "audio_ms",
    "video_ms",
    "images",
    "searches",
    "tool_calls",
];

const SORT: &str = "The column by which the list is sorted. In its own order if absent.";

static PARAMETERS: &[Parameter] = &[
    row("", "limit", Values::Number(1, 500), "The maximum number of entries on the page. 50 if absent."),
    row("search", "limit", Values::Number(1, 50), "The maximum number of results."),
    row("suggest", "limit", Values::Number(1, 50), "The maximum number of names."),
    row(
        "usage",
        "limit",
        Values::Number(1, 10_000),
        "The maximum number of groups on the page, and its default.",
    ),
    row("", "cursor", Values::Text, "The `next_cursor` of the previous page."),
    row("", "q", Values::Text, "A part of the name, in any case."),
    row("", "disabled", Values::Flag, "Only those that are disabled, or only those that are not."),
    row(
        "projects/{}/members",
        "disabled",
        Values::Flag,
        "Only humans that are disabled, or only those that are not.",
    ),
    row("projects/{}/members", "q", Values::Text, "A part of the human's name, e-mail address or ID."),
    row(
        "search",
        "q",
        Values::Text,
        "A part of a name, an ID, or the beginning of a key or of a request ID.",
    ),
    row("suggest", "q", Values::Text, "A part of the name, in any case."),
    row("", "dry_run", Values::Flag, "If true, the answer is what the write would do, and nothing is kept."),
    row(
        "session",
        "everywhere",
        Values::Flag,
        "If true, all sessions of the same human or key end, those of a key in the header too.",
    ),
    row("", "from", Values::Moment, "The start of the time."),
    row("", "to", Values::Moment, "The end of the time, exclusive."),
    row("outbox", "to", Values::Text, "Only deliveries to this receiver: the ID of a webhook, or `workers`."),
    row(
        "",
        "tz",
        Values::Text,
        "The IANA name of the time zone of days and of local times, such as `Europe/Berlin`. UTC if absent.",
    ),
    row(
        "",
        "source",
        Values::Choice(&["file", "api"]),
        "Only what the configuration file or the API has defined.",
    ),
    row("", "owner", Values::Text, "Only those of this human, by ID."),
    row("", "state", Values::Text, "Only those in this state."),
    row(
        "alerts",
        "state",
        Values::Choice(&["open", "acknowledged", "resolved"]),
        "Only alerts in this state.",
    ),
    row(
        "keys",
        "state",
        Values::Choice(&["active", "expired", "disabled", "revoked"]),
        "Only keys in this state.",
    ),
    row(
        "outbox",
        "state",
        Values::Choice(&["pending", "leased", "delivered", "dead"]),
        "Only deliveries in this state.",
    ),
    row("", "kind", Values::Choice(&["endpoint", "model", "alias"]), "Only selectors of this kind."),
    row("quotas", "key", Values::Text, "Only limits of this key, by ID, or of several, separated by commas."),
    row(
        "quotas",
        "project",
        Values::Text,
        "Only limits of this project, by ID, or of several, separated by commas.",
    ),
    row(
        "quotas",
        "principal",
        Values::Text,
        "Only limits of this human, by ID, or of several, separated by commas.",
    ),
    row(
        "quotas",
        "provider",
        Values::Text,
        "Only limits of this provider, by ID, or of several, separated by commas.",
    ),
    row(
        "quotas",
        "share_percent_min",
        Values::Number(0, u64::MAX),
        "Only limits of which at least so many per cent are used or reserved.",
    ),
    row(
        "quotas",
        "kind",
        Values::Choice(&["key", "project", "principal", "provider", "gateway"]),
        "Only limits of subjects of this kind.",
    ),
    row("outbox", "kind", Values::Text, "Only events of this kind."),
    row(
        "alerts",
        "kind",
        Values::Choice(&[
            "quota_warning",
            "quota_exhausted",
            "key_expiring",
            "provider_down",
            "provider_recovered",
            "credential_expiring",
            "credential_broken",
            "spend_anomaly",
            "catalog_drift",
            "config_reload_failed",
            "disk_low",
            "backup_failed",
        ]),
        "Only alerts of this kind.",
    ),
    row("", "allowed", Values::Flag, "Only selectors that may be used, or only those that may not."),
    row("", "key", Values::Text, "Only those of this key, by ID."),
    row("", "project", Values::Text, "Only those of this project, by ID."),
    row("", "principal", Values::Text, "Only those of this human, by ID."),
    row(
        "access/effective",
        "key",
        Values::Text,
        "The ID of the key. Exactly one of `key`, `project` and `principal` is needed.",
    ),
    row("access/effective", "project", Values::Text, "The ID of the project."),
    row("access/effective", "principal", Values::Text, "The ID of the human."),
    row("", "acts_as", Values::Text, "Only keys that act as this human, by ID."),
    row("", "prefix", Values::Text, "The beginning of the key itself, as the list shows it."),
    row("", "provider", Values::Text, "Only those of this provider, by ID."),
    row("", "endpoint", Values::Text, "Only requests to this endpoint."),
    row("", "model", Values::Text, "Only those of this model, by its ID at the provider."),
    row("", "client", Values::Text, "Only requests of this client, such as an SDK or agent."),
    row("adaptations", "client", Values::Text, "Only adaptations of this protocol of a client."),
    row("adaptations", "target", Values::Text, "Only adaptations to this protocol of a target."),
    row("", "operation", Values::Text, "Only requests of this operation."),
    row("catalog", "operation", Values::Choice(OPERATIONS), "Only models that serve this operation."),
    row(
        "catalog",
        "capability",
        Values::Choices(&["vision", "tools", "reasoning", "audio"]),
        "Only models with all of these capabilities.",
    ),
    row("catalog", "priced", Values::Flag, "Only models with a price, or only those without one."),
    row(
        "catalog",
        "context_min",
        Values::Number(0, u64::MAX),
        "Only models with a context window of at least so many tokens.",
    ),
    row(
        "catalog",
        "price_max",
        Values::Decimal,
        "Only models with prices of at most so many dollars a million tokens.",
    ),
    row(
        "catalog",
        "proven",
        Values::Flag,
        "Only models that have answered a request, or only those that have not.",
    ),
    row("", "outcome", Values::Text, "Only requests with this outcome."),
    row(
        "audit",
        "outcome",
        Values::Choice(&["done", "refused"]),
        "Only actions that were done, or only those that were refused.",
    ),
    row(
        "audit/export",
        "outcome",
        Values::Choice(&["done", "refused"]),
        "Only actions that were done, or only those that were refused.",
    ),
    row("", "actor", Values::Text, "Only actions of this actor, as the records name it."),
    row("", "action", Values::Text, "Only this action, such as `key.create`."),
    row("", "object", Values::Text, "Only actions on this object: its kind, its ID, or `KIND/ID`."),
    row("alerts", "object", Values::Text, "Only alerts about this object."),
    row(
        "",
        TAG,
        Values::Tags,
        "Only requests with these tags: `tag.team=search` for the tag `team` with the value `search`.",
    ),
    row("", "end_user", Values::Text, "Only requests of this end user, by name or pseudonym."),
    row("", "session", Values::Text, "Only requests of this session, by name or pseudonym."),
    row("", "status", Values::Number(100, 999), "Only requests that were answered with this status."),
    row("", "status_class", Values::Number(1, 9), "Only requests whose status begins with this digit."),
    row("", "error", Values::Text, "Only requests with this error code."),
    row("", "request_id_prefix", Values::Text, "The beginning of the request ID."),
    row(
        "",
        "duration_us_min",
        Values::Number(0, u64::MAX),
        "Only requests that took at least so many microseconds.",
    ),
    row(
        "",
        "first_content_us_min",
        Values::Number(0, u64::MAX),
        "Only requests whose first content took at least so many microseconds.",
    ),
    row(
        "",
        "cost_micro_usd_min",
        Values::Number(0, u64::MAX),
        "Only requests that cost at least so many micro-dollars.",
    ),
    row(
        "",
        "cost_micro_usd_max",
        Values::Number(0, u64::MAX),
        "Only requests that cost at most so many micro-dollars.",
    ),
    row("", "failed", Values::Flag, "Only requests that failed, or only those that did not."),
    row(
        "",
        "failed_over",
        Values::Flag,
        "Only requests that another target answered than the first one, or only the others.",
    ),
    row("", "attempted", Values::Text, "Only requests with an attempt at this provider, by ID."),
    row("", "result", Values::Choice(RESULTS), "Only requests with an attempt that ended so."),
    row(
        "",
        "started_at_ms",
        Values::Number(0, u64::MAX),
        "The start of the request, in milliseconds since the Unix epoch, if several have its ID.",
    ),
    row(
        "suggest",
        "field",
        Values::Choice(&[
            "model",
            "provider",
            "endpoint",
            "key",
            "project",
            "principal",
            "operation",
            "outcome",
            "client",
            "error",
        ]),
        "The field of the records whose names are wanted.",
    ),
    row("", "group_by", Values::Names, "The dimensions of the groups. `tag:NAME` is a tag."),
    row(
        "usage",
        "bucket",
        Values::Choice(&["hour", "day", "week", "month"]),
        "The length of the buckets of time. One bucket if absent.",
    ),
    row(
        "telemetry",
        "bucket",
        Values::Choice(&["60", "300", "3600", "86400"]),
        "The length of a point, in seconds. The shortest that fits if absent.",
    ),
    row(
        "series",
        "step",
        Values::Choice(&["1", "10", "60", "3600", "21600", "86400", "all"]),
        "The length of a step, in seconds; `all` is one step. The shortest that fits if absent.",
    ),
    row(
        "usage",
        "sort",
        Values::Choice(FIGURES),
        "The figure by which the groups are sorted. By name if absent.",
    ),
    row("alerts", "sort", Values::Choice(&["severity", "opened", "resolved", "times"]), SORT),
    row("audit", "sort", Values::Choice(&["time"]), SORT),
    row("backups", "sort", Values::Choice(&["time", "size"]), SORT),
    row(
        "catalog",
        "sort",
        Values::Choice(&["name", "context", "input_price", "output_price", "proven"]),
        SORT,
    ),
    row("endpoints", "sort", Values::Choice(&["name", "targets", "requests"]), SORT),
    row("extensions", "sort", Values::Choice(&["name", "created"]), SORT),
    row("keys", "sort", Values::Choice(&["name", "created", "last_used", "spend", "expires"]), SORT),
    row("outbox", "sort", Values::Choice(&["created", "tries", "next_try"]), SORT),
    row("principals", "sort", Values::Choice(&["name", "email", "created"]), SORT),
    row("projects", "sort", Values::Choice(&["name", "created", "members", "keys", "spend"]), SORT),
    row(
        "providers",
        "sort",
        Values::Choice(&["name", "state", "failures", "served", "first_token", "last_failure"]),
        SORT,
    ),
    row("quotas", "sort", Values::Choice(&["share", "used", "limit", "name", "resets"]), SORT),
    row("requests", "sort", Values::Choice(&["time", "cost", "duration", "first_token", "tokens"]), SORT),
    row("webhooks", "sort", Values::Choice(&["name", "created", "state"]), SORT),
    row("", "order", Values::Choice(&["desc", "asc"]), "The direction of `sort`. Descending if absent."),
    row(
        "usage/export",
        "format",
        Values::Choice(&["csv", "jsonl"]),
        "The format of the file. CSV if absent.",
    ),
    row(
        "audit/export",
        "format",
        Values::Choice(&["jsonl", "csv"]),
        "The format of the file. JSON Lines if absent.",
    ),
    row("", "markup_percent", Values::Text, "Percent that are added to the costs, as a decimal fraction."),
    row("", "currency", Values::Text, "The ISO 4217 code of the currency of `rate`."),
    row("", "rate", Values::Text, "The price of a dollar in `currency`, as a decimal fraction."),
    row("", "watch", Values::Text, "The ID of a key, whose finished requests are sent as `seen`."),
];
