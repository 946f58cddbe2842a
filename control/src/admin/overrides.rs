//! `catalog/overrides`: model properties set by administrators, each from a given time on. They take precedence over
//! every other source.

use http::{Method, Response, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use shared::port::Body;

use super::list::{ListPage, Paging};
use super::reference::NoContent;
use super::{ApiError, Call, Route, field, json, route_of, write_of};
use crate::common::model_facts::Facts;
use crate::db::overrides::{self, Override, Which};
use crate::routing::catalog::facts::KnownModel;
use crate::routing::config::{did_you_mean, is_model_id};
use crate::writer::command::catalog::{CreateOverride, DeleteOverride, StoredOverride};

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, "catalog/overrides", |call| Box::pin(list(call)))
        .answers::<ListPage<Override>>("Lists the overrides of facts about models.")
        .query::<(Paging, OverrideQuery)>(),
    write_of(Method::POST, "catalog/overrides", |call| Box::pin(create(call)))
        .answers::<StoredOverride>("Overrides facts about a model, such as its prices, from a time on.")
        .statuses(&[201])
        .takes::<NewOverride>(),
    route_of(Method::GET, "catalog/overrides/{}", |call| Box::pin(show(call)))
        .answers::<Override>("Shows an override."),
    write_of(Method::DELETE, "catalog/overrides/{}", |call| Box::pin(delete(call)))
        .answers::<NoContent>("Deletes an override."),
];

/// The filters of the list.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct OverrideQuery {
    /// Only those of this provider, by ID.
    provider: Option<String>,
    /// Only those of this model, by its ID at the provider.
    model: Option<String>,
}

async fn list(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let (paging, OverrideQuery { provider, model }): (Paging, OverrideQuery) = call.query()?;
    let page = paging.page();
    let which = Which { provider, model, after: page.after.clone() };
    let rows = page.rows();
    let found = call.app.readers.ask(move |db| overrides::page(db, &which, rows)).await?;
    json(&ListPage::page(found, &page, |row| &row.id))
}

async fn show(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    json(&call.found("catalog override", overrides::find).await?)
}

/// An override to create.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct NewOverride {
    /// The ID of the provider.
    provider: String,
    /// The provider's name of the model.
    model: String,
    /// A time: milliseconds since the Unix epoch, or RFC 3339. Absent: from now on.
    #[serde(default)]
    effective_from: Option<Value>,
    facts: Facts,
}

async fn create(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let new: NewOverride = call.json()?;
    if !shared::id::is_name(&new.provider) {
        return Err(ApiError::parameter("provider", "provider must be the id of a provider."));
    }
    if !is_model_id(&new.model) {
        let message = "model must be a model of the provider, without the provider ID as a prefix.";
        return Err(ApiError::parameter("model", message));
    }
    if let Some((param, message)) = new.facts.fault() {
        return Err(ApiError::parameter(param, message));
    }
    let effective_from_ms =
        new.effective_from.map(|from| field::any_moment("effective_from", &from)).transpose()?;
    let warnings = warnings(&call.app.catalog.known(), &new.provider, &new.model);
    let create = CreateOverride {
        provider: new.provider,
        model: new.model,
        effective_from_ms,
        facts: new.facts,
        warnings,
    };
    call.execute(StatusCode::CREATED, create).await
}

/// An override may be created before its model exists, but an unknown model id is usually a typo.
fn warnings(known: &[KnownModel], provider: &str, model: &str) -> Vec<String> {
    let models = || {
        let of_provider = known.iter().filter(|known| known.provider.as_str() == provider);
        of_provider.map(|known| known.model.id.as_str())
    };
    if models().any(|id| id == model) {
        return Vec::new();
    }
    let hint = did_you_mean(model, models());
    let hint = if hint.is_empty() { "." } else { &hint };
    vec![format!(
        "Provider '{provider}' has no model '{model}'{hint} The override has no effect until the provider lists or \
         declares that model."
    )]
}

async fn delete(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    call.execute(StatusCode::NO_CONTENT, DeleteOverride { id: call.argument().to_owned() }).await
}
