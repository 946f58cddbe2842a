//! `adaptations`: the fate of each field of a request that is adapted to a target's dialect.

use http::{Method, Response};
use serde::{Deserialize, Serialize};
use shared::adaptation::{AdaptationStep, AdaptationTable, AdaptedField};
use shared::port::Body;

use super::list::ListPage;
use super::{ApiError, Call, Route, json, route_of};

pub(super) static ROUTES: &[Route] =
    &[route_of(Method::GET, "adaptations", |call| Box::pin(async move { list(&call) }))
        .answers::<ListPage<ShownAdaptation>>(
            "Lists the adaptations between protocols, with the fate of each field of a request.",
        )
        .query::<AdaptationQuery>()];

/// The filters of the list.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AdaptationQuery {
    /// Only adaptations of this protocol of a client.
    client: Option<String>,
    /// Only adaptations to this protocol of a target.
    target: Option<String>,
}

/// An adaptation of requests in a client's protocol to a target's.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Adaptation"))]
struct ShownAdaptation {
    /// The client's protocol.
    client: &'static str,
    /// The target's protocol.
    target: &'static str,
    /// The translations, in order: one, or two by way of another protocol. A field has a fate in each of them.
    steps: Vec<ShownStep>,
}

/// One translation of a request.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "AdaptationStep"))]
struct ShownStep {
    /// The protocol before it.
    from: &'static str,
    /// The protocol after it.
    to: &'static str,
    fields: Vec<ShownField>,
    /// The fields with another fate at providers with `responses_fallback: agents`.
    agents: Vec<ShownField>,
}

/// The fate of one field.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "AdaptedField"))]
struct ShownField {
    /// The path: `*` is any element, `[kind]` one of that `type`, `=value` only that value.
    field: &'static str,
    /// `exact`: kept as it is; `mapped`: translated; `hint`: translated or dropped, without another meaning; `rejected`: 400.
    fate: &'static str,
    /// The field's destination, or the reason why it has none.
    note: &'static str,
}

fn list(call: &Call<'_>) -> Result<Response<Body>, ApiError> {
    let AdaptationQuery { client, target } = call.query()?;
    let is_meant = |table: &&AdaptationTable| {
        client.as_deref().is_none_or(|client| client == table.client.name())
            && target.as_deref().is_none_or(|target| target == table.target.name())
    };
    json(&ListPage::whole(call.app.adaptations.iter().filter(is_meant).map(ShownAdaptation::of).collect()))
}

impl ShownAdaptation {
    fn of(table: &AdaptationTable) -> Self {
        Self {
            client: table.client.name(),
            target: table.target.name(),
            steps: table.steps.iter().map(ShownStep::of).collect(),
        }
    }
}

impl ShownStep {
    fn of(step: &AdaptationStep) -> Self {
        let shown = |fields: &[AdaptedField]| {
            let field = |&AdaptedField { field, fate, note }: &AdaptedField| ShownField { field, fate, note };
            fields.iter().map(field).collect()
        };
        let (from, to) = (step.from.name(), step.to.name());
        Self { from, to, fields: shown(&step.fields), agents: shown(&step.agents) }
    }
}
