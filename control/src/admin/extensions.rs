//! `extensions`: services outside the process that provide models (ADM-7).

use std::sync::Arc;

use http::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use shared::error_kind::ErrorKind;
use shared::id::is_name;
use shared::port::Body;
use shared::secret::Secret;
use shared::standard_webhooks::WebhookKey;

use super::list::{Containing, ListPage, PageOf, SortedPaging};
use super::providers::NAME_RULE;
use super::reference::{NoContent, NoMembers};
use super::{ApiError, Call, Route, json, json_of_version, route_of, write_of};
use crate::db::extensions::{self, ExtensionRow};
use crate::routing::config::BaseUrl;
use crate::routing::extension::open;
use crate::routing::extension::probe::probe as run_probe;
use crate::routing::extension::shown::ShownExtension;
use crate::writer::command::extensions::{CreateExtension, DeleteExtension, EditExtension, RecordProbe};

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, "extensions", |call| Box::pin(list(call)))
        .answers::<ListPage<ShownExtension>>(
            "Lists the extensions, in order of `name` or `created` if wanted.",
        )
        .query::<ExtensionList>(),
    write_of(Method::POST, "extensions", |call| Box::pin(create(call)))
        .answers::<ShownExtension>("Adds an extension.")
        .statuses(&[201])
        .takes::<NewExtension>(),
    route_of(Method::GET, "extensions/{}", |call| Box::pin(show(call)))
        .answers::<ShownExtension>("Shows an extension."),
    write_of(Method::PATCH, "extensions/{}", |call| Box::pin(edit(call)))
        .answers::<ShownExtension>("Changes an extension.")
        .takes::<ExtensionPatch>()
        .reads_version(),
    write_of(Method::DELETE, "extensions/{}", |call| Box::pin(delete(call)))
        .answers::<NoContent>("Deletes an extension that no provider uses.")
        .reads_version(),
    route_of(Method::POST, "extensions/{}/probe", |call| Box::pin(probe(call)))
        .answers::<ShownExtension>("Reads the providers and models of an extension, and stores the result.")
        .takes::<NoMembers>()
        .acts_each_time(),
];

type ExtensionList = (SortedPaging<ExtensionColumn>, Containing);

async fn list(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let (paging, Containing { q: text }): ExtensionList = call.query()?;
    let page = PageOf::of(paging)?;
    let (after, rows) = (page.after.clone(), page.rows());
    let ask = call.app.readers.ask(move |db| extensions::page(db, text.as_deref(), &after, rows));
    let value = |row: &ExtensionRow, column| {
        Some(match column {
            ExtensionColumn::Name => row.name.as_str().into(),
            ExtensionColumn::Created => row.created_at_ms.into(),
        })
    };
    let found = ListPage::sorted(ask.await?, &page, |row| &row.name, value);
    json(&found.map(|row| shown(&call, &row)))
}

/// A column by which the list can be sorted.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum ExtensionColumn {
    Name,
    Created,
}

async fn show(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let row = find(&call).await?;
    json_of_version(&shown(&call, &row), row.version)
}

fn shown(call: &Call<'_>, row: &ExtensionRow) -> ShownExtension {
    let view = call.app.view.read();
    let users = view.providers.iter().filter(|provider| provider.extension() == Some(&row.name));
    let mut users: Vec<String> = users.map(|provider| provider.id.clone()).collect();
    users.dedup();
    ShownExtension::of(row, users)
}

async fn find(call: &Call<'_>) -> Result<ExtensionRow, ApiError> {
    call.found("extension", extensions::find).await
}

/// An extension to add.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct NewExtension {
    /// 1 to 64 letters, digits, '.', '_' or '-'; it cannot be changed.
    name: String,
    /// `http://`, `https://`, or `unix:` and the absolute path of a socket.
    url: String,
    /// The secret that the extension and the gateway share: `whsec_`, followed by 24 to 64 bytes in base64.
    secret: String,
    /// True by default.
    #[serde(default)]
    enabled: Option<bool>,
}

async fn create(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let new: NewExtension = call.json()?;
    let secret = Secret::new(new.secret);
    if !is_name(&new.name) {
        return Err(ApiError::parameter("name", format!("name {NAME_RULE}")));
    }
    let create = CreateExtension {
        name: new.name,
        url: address(new.url)?,
        secret: shared_secret(secret)?,
        enabled: new.enabled.unwrap_or(true),
    };
    call.execute(StatusCode::CREATED, create).await
}

/// Changes to an extension. Absent members are kept.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct ExtensionPatch {
    /// `http://`, `https://`, or `unix:` and the absolute path of a socket.
    #[serde(default)]
    url: Option<String>,
    /// `whsec_`, followed by 24 to 64 bytes in base64.
    #[serde(default)]
    secret: Option<String>,
    /// False sends no requests to its providers.
    #[serde(default)]
    enabled: Option<bool>,
}

async fn edit(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let patch: ExtensionPatch = call.json()?;
    let edit = EditExtension {
        name: call.argument().to_owned(),
        if_version: call.if_match()?,
        url: patch.url.map(address).transpose()?,
        secret: patch.secret.map(|secret| shared_secret(Secret::new(secret))).transpose()?,
        enabled: patch.enabled,
    };
    call.execute(StatusCode::OK, edit).await
}

async fn delete(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let delete = DeleteExtension { name: call.argument().to_owned(), if_version: call.if_match()? };
    call.execute(StatusCode::NO_CONTENT, delete).await
}

async fn probe(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    call.no_fields()?;
    let row = find(&call).await?;
    let (_, access) = open(&row, &call.app.keys).map_err(|_| {
        ApiError::new(
            ErrorKind::Internal,
            "The secret of the extension cannot be decrypted. Set it again with PATCH extensions/{name}.",
        )
    })?;
    let result = run_probe(&call.app.http, &Arc::new(access)).await;
    let record = RecordProbe { name: row.name, version: row.version, result };
    call.execute_each_time(StatusCode::OK, record).await
}

fn address(text: String) -> Result<String, ApiError> {
    match BaseUrl::extension(&text) {
        Ok(_) => Ok(text),
        Err(why) => Err(ApiError::parameter("url", format!("url {why}."))),
    }
}

fn shared_secret(secret: Secret<String>) -> Result<Secret<String>, ApiError> {
    if WebhookKey::read(secret.expose()).is_some() {
        return Ok(secret);
    }
    let message = "secret must be whsec_ followed by 24 to 64 bytes in base64; make one with: echo \
                   whsec_$(openssl rand -base64 32)";
    Err(ApiError::parameter("secret", message))
}
