//! `providers`: provider instances from the configuration file and the API.

use std::sync::Arc;

use http::{Method, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value};
use shared::error_kind::ErrorKind;
use shared::id::is_name;
use shared::port::Body;
use shared::snapshot::Snapshot;

use super::list::{ListPage, PageOf};
use super::query::{Query, choose};
use super::reference::NoContent;
use super::{ApiError, App, Call, Route, json, json_of_version, oauth, route_of, write_of};
use crate::change::FieldChange;
use crate::command::providers::{CreateProvider, DeleteProvider, EditProvider};
use crate::config::{ConnectionAuth, WrittenProvider};
use crate::connection::{
    NOT_CONNECTED, ObjectSource, ProviderConnection, ProviderStanding, ShownProvider, View,
};
use crate::credential::Sign;
use crate::permission::Permission;

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, "providers", |call| Box::pin(list(call)))
        .answers::<ListPage<ShownProvider>>("Lists the providers of the file and of the API.")
        .query(&["limit", "cursor", "source", "owner", "state", "q"])
        .permits(Permission::SeeConnections),
    write_of(Method::POST, "providers", |call| Box::pin(create(call)))
        .answers::<ShownProvider>("Connects a provider (201).")
        .takes::<NewProvider>(),
    route_of(Method::GET, "providers/{}", |call| Box::pin(show(call)))
        .answers::<ShownProvider>("Shows a provider.")
        .query(&["source"])
        .permits(Permission::SeeConnections),
    write_of(Method::PATCH, "providers/{}", |call| Box::pin(edit(call)))
        .answers::<ShownProvider>("Changes a provider of the API.")
        .takes::<ProviderPatch>()
        .query(&["source"]),
    write_of(Method::DELETE, "providers/{}", |call| Box::pin(delete(call)))
        .answers::<NoContent>("Deletes a provider of the API that no endpoint uses.")
        .query(&["source"]),
];

async fn list(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let mut query = call.query()?;
    let page = PageOf::take(&mut query)?;
    let source = source(&mut query)?;
    let owner = query.text("owner");
    let state = query.text("state");
    let text = query.text("q").map(|text| text.to_lowercase());
    query.finish()?;
    let (snapshot, view) = published(call.app);
    let wanted = |connection: &&ProviderConnection| {
        connection.place > page.after
            && call.standing.human().is_none_or(|human| connection.owner() == Some(human))
            && source.is_none_or(|source| source == connection.source)
            && state.as_deref().is_none_or(|state| state == connection.standing.name())
            && owner.as_deref().is_none_or(|owner| connection.owner() == Some(owner))
            && text.as_deref().is_none_or(|text| {
                let address = connection.base_url().unwrap_or_default();
                [connection.id.as_str(), address].iter().any(|name| name.to_lowercase().contains(text))
            })
    };
    let found = view.providers.iter().filter(wanted).take(page.limit.saturating_add(1)).collect();
    let list = ListPage::page(found, &page, |connection: &&ProviderConnection| &connection.place);
    json(&list.map(|connection| shown(call.app, &snapshot, connection)))
}

async fn show(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let mut query = call.query()?;
    let source = source(&mut query)?;
    query.finish()?;
    let (snapshot, view) = published(call.app);
    let found = view.providers.iter().find(|connection| {
        connection.id == call.argument()
            && call.standing.human().is_none_or(|human| connection.owner() == Some(human))
            && source.is_none_or(|source| source == connection.source)
    });
    let connection = found.ok_or_else(|| ApiError::new(ErrorKind::NotFound, "There is no such provider."))?;
    match connection.version() {
        Some(version) => json_of_version(&shown(call.app, &snapshot, connection), version),
        None => json(&shown(call.app, &snapshot, connection)),
    }
}

/// Returns the snapshot and the view of the database. The view is read last: it is written before the snapshot that is made
/// of it, so it is never the older one, and has the error because of which an instance of the snapshot is not ready.
fn published(app: &App) -> (Arc<Snapshot>, Arc<View>) {
    let snapshot = app.snapshot.load();
    (snapshot, app.view.read())
}

/// Returns a connection as the API shows it. Unless it is shadowed in routing, this includes its token state and the
/// evidence of how it works.
fn shown(app: &App, snapshot: &Snapshot, connection: &ProviderConnection) -> ShownProvider {
    let mut shown = connection.shown();
    if matches!(connection.standing, ProviderStanding::Shadowed(_)) {
        return shown;
    }
    let place = snapshot.providers.binary_search_by(|instance| instance.id.as_str().cmp(&connection.id));
    let instance = place.ok().and_then(|place| snapshot.providers.get(place));
    if let Some(Ok(Sign::Token(grant))) = connection.read.as_ref().map(|read| read.sign()) {
        shown.token = app.tokens.standing(&grant);
    }
    if let (Some(why), ProviderStanding::Ready) = (instance.and_then(|i| i.unready), &connection.standing) {
        shown.state = NOT_CONNECTED;
        shown.reason = Some(format!("The provider cannot be used: {why}."));
    }
    shown.sign_in = connection.read.as_deref().and_then(|provider| oauth::sign_in(app, provider));
    let instance = instance.map(|instance| (instance.as_ref(), &snapshot.key_hasher));
    shown.evidence = Some(app.catalog.evidence(&connection.id, instance));
    shown
}

/// A provider to connect. The other members are those of a provider in the configuration file.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct NewProvider {
    /// 1 to 64 letters, digits, '.', '_' or '-'.
    id: String,
    /// `api_key`, `local` or `oauth`; absent: what its kind needs.
    #[serde(default)]
    auth: Option<String>,
    /// The ID of the human to whom it is private.
    #[serde(default)]
    owner: Option<String>,
    /// The same fields as in the configuration file, validated by the same rules.
    #[serde(flatten)]
    written: Map<String, Value>,
}

async fn create(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let NewProvider { id, auth, owner, written } = call.json()?;
    if !is_name(&id) {
        return Err(ApiError::parameter("id", format!("id {NAME_RULE}")));
    }
    let auth = how_to_sign_in(auth)?;
    let create = CreateProvider { id, auth, owner, written: WrittenProvider(written), is_anonymous: false };
    call.execute(StatusCode::CREATED, create).await
}

/// Changes to a provider. Absent members are kept; null removes one. The other members are those of a provider in the
/// configuration file.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ProviderPatch {
    /// `api_key`, `local` or `oauth`.
    #[serde(default)]
    auth: Option<String>,
    /// The ID of the human to whom it is private; null for none.
    #[serde(default)]
    owner: FieldChange<String>,
    #[serde(flatten)]
    written: Map<String, Value>,
}

async fn edit(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let mut query = call.query()?;
    let shadowed = means_shadowed(&mut query)?;
    query.finish()?;
    let ProviderPatch { auth, owner, written } = call.json()?;
    let edit = EditProvider {
        id: call.argument().to_owned(),
        if_version: call.if_match()?,
        auth: how_to_sign_in(auth)?,
        owner,
        patch: WrittenProvider(written),
        shadowed,
    };
    call.execute(StatusCode::OK, edit).await
}

async fn delete(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let mut query = call.query()?;
    let shadowed = means_shadowed(&mut query)?;
    query.finish()?;
    let delete = DeleteProvider { id: call.argument().to_owned(), if_version: call.if_match()?, shadowed };
    let signed_in = oauth::connectable(&call).ok().filter(|_| !shadowed && !call.dry_run);
    let answer = call.execute(StatusCode::NO_CONTENT, delete).await?;
    if let Some(provider) = signed_in
        && let Some(Err(why)) = oauth::revoke(call.app, &provider).await
    {
        tracing::warn!(
            provider.id = provider.id.as_str(),
            "the tokens of a deleted provider could not be revoked: {why}"
        );
    }
    Ok(answer)
}

fn how_to_sign_in(auth: Option<String>) -> Result<Option<ConnectionAuth>, ApiError> {
    let choices = ConnectionAuth::ALL.map(|auth| (auth.name(), auth));
    auth.map(|auth| choose("auth", &auth, &choices)).transpose()
}

/// Takes the parameter `source`, if it is present.
pub(super) fn source(query: &mut Query) -> Result<Option<ObjectSource>, ApiError> {
    query.choice("source", &[("file", ObjectSource::File), ("api", ObjectSource::Api)])
}

/// True if the request addresses the API's object even if the configuration file has one with the same name.
pub(super) fn means_shadowed(query: &mut Query) -> Result<bool, ApiError> {
    Ok(source(query)? == Some(ObjectSource::Api))
}

pub(super) const NAME_RULE: &str =
    "must be 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or digit.";
