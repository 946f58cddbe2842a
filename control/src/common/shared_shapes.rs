//! The shapes of types of `shared` in answers and bodies of the admin API. Tests generate its documentation and the
//! console's types from them.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use shared::quota;

pub(crate) use crate::routing::config::PricesShape as Prices;
pub(crate) use crate::routing::config::RulesShape as ModelRules;

/// Defines the shape of a text that is one of a list of names.
macro_rules! names {
    ($shape:ident, $doc:literal, $names:expr) => {
        #[doc = $doc]
        pub(crate) struct $shape;

        impl JsonSchema for $shape {
            fn schema_name() -> Cow<'static, str> {
                stringify!($shape).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let names: Vec<&str> = $names;
                json_schema!({"description": $doc, "type": "string", "enum": names})
            }
        }
    };
}

names!(
    Side,
    "The side of a recorded request or response.",
    ["client_request", "upstream_request", "upstream_response", "client_response"].to_vec()
);
names!(Metric, "The metric of a limit.", quota::Metric::ALL.iter().map(|metric| metric.name()).collect());
names!(Period, "The window of a limit.", quota::Period::ALL.iter().map(|period| period.name()).collect());
names!(
    SubjectKind,
    "The kind of a limit's subject.",
    quota::Subject::ALL.iter().map(|subject| subject.name()).collect()
);
names!(
    Protocol,
    "A wire protocol.",
    shared::operation::Dialect::ALL.iter().map(|dialect| dialect.name()).collect()
);
names!(
    StepResult,
    "The result of a target in the plan of a request: served, the reason why it was not tried, or the failure of its attempt.",
    shared::usage::StepResult::ALL.iter().map(|result| result.name()).collect()
);
names!(
    TargetOrder,
    "The order of an endpoint's targets within a tier.",
    shared::usage::TargetOrder::ALL.iter().map(|order| order.name()).collect()
);
names!(
    ChosenBy,
    "The reason for which a target came first: the order of the endpoint, the session, the affinity key, or state of a provider.",
    shared::usage::ChosenBy::ALL.iter().map(|reason| reason.name()).collect()
);
names!(
    Outcome,
    "The end of an exchange: with the whole answer, with an error, by a client that left, by an upstream that broke off \
     after output had started, or by the end of the process.",
    vec!["completed", "failed", "cancelled", "cut", "interrupted"]
);
names!(
    Provenance,
    "The source of token counts: the upstream, what was relayed, an estimate; `none` if nothing was used.",
    vec!["reported", "measured", "estimated", "none"]
);

/// Restricts what a key or all keys of a project may use.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct Allowlist {
    /// Exact model IDs (`provider/model`), or all models of a provider (`provider/*`). Null restricts nothing.
    models: Option<Vec<String>>,
    /// Endpoints, which may use all of their targets. Null restricts nothing.
    endpoints: Option<Vec<String>>,
    /// The permitted operations, such as `chat_completions`; null permits all.
    routes: Option<Vec<String>>,
}

/// The build of the gateway.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct Build {
    /// The release version.
    version: String,
    /// The git commit, or `unknown`.
    commit: String,
    /// The time of the build, in RFC 3339.
    built_at: String,
    /// The target triple.
    target: String,
}

/// The object of an audit record before and after the action.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct AuditDetail {
    /// The object before the action; null if it did not exist, or the action changed nothing.
    before: serde_json::Value,
    /// The object after the action, or what is known of the action; null if there is nothing.
    after: serde_json::Value,
}
