//! `anonymous-providers`: the curated providers that need no account, and their automatic checks.

use std::collections::HashMap;

use http::{Method, Response};
use serde::Serialize;
use shared::port::Body;

use super::{ApiError, Call, Route, json, route_of};
use crate::db::anonymous;
use crate::jobs::anonymous::{CuratedProvider, curated};

pub(super) static ROUTES: &[Route] =
    &[route_of(Method::GET, "anonymous-providers", |call| Box::pin(list(call)))
        .answers::<AnonymousProviders>(
            "Lists the curated providers that need no account, and their automatic checks.",
        )];

/// The curated providers.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AnonymousProviders {
    /// True if `LLMGW_ANONYMOUS_PROVIDER_AUTOMATION` is set: the gateway connects these providers, and checks each of them
    /// once a day.
    enabled: bool,
    data: Vec<AnonymousProvider>,
}

/// A curated provider and its automatic check.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AnonymousProvider {
    #[serde(flatten)]
    entry: CuratedProvider,
    /// True if there is a provider of this ID that the automation connected, and that has no credential since.
    /// `GET providers/{id}` shows the evidence of its checks.
    connected: bool,
    /// True if an operator disabled it; it is not checked then.
    disabled: bool,
    /// The beginning of the last check, in milliseconds since the Unix epoch; null if there was none.
    checked_at_ms: Option<u64>,
}

async fn list(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let claims: HashMap<String, u64> = call.app.readers.ask(anonymous::claims).await?;
    let view = call.app.view.read();
    let shown = |entry: CuratedProvider| {
        let connection = view.providers.iter().find(|found| found.is_anonymous() && found.id == entry.id);
        AnonymousProvider {
            connected: connection.is_some(),
            disabled: connection.and_then(|found| found.read.as_ref()).is_some_and(|read| read.disabled),
            checked_at_ms: claims.get(&entry.id).copied(),
            entry,
        }
    };
    let data = curated().into_iter().map(shown).collect();
    json(&AnonymousProviders { enabled: call.app.config.anonymous_provider_automation, data })
}
