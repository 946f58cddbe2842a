//! `providers`: provider instances from the configuration file and the API.

use std::collections::HashMap;
use std::sync::Arc;

use http::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shared::clock::monotonic_ms;
use shared::error_kind::ErrorKind;
use shared::health::CircuitState;
use shared::id::is_name;
use shared::port::Body;
use shared::routing::ProviderInstance;
use shared::snapshot::Snapshot;

use super::health::{recent_since_ms, served_since};
use super::list::{Containing, ListPage, PageOf, SortValue, SortedPaging};
use super::query::choose;
use super::reference::NoContent;
use super::{ApiError, App, Call, Route, json, json_of_version, oauth, route_of, write_of};
use crate::admin::permission::Permission;
use crate::common::change::FieldChange;
use crate::common::credential::Sign;
use crate::routing::config::{ConnectionAuth, WrittenProvider};
use crate::routing::connection::{
    NOT_CONNECTED, ObjectSource, ProviderConnection, ProviderStanding, ShownProvider, View,
};
use crate::writer::command::providers::{CreateProvider, DeleteProvider, EditProvider};

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, "providers", |call| Box::pin(list(call)))
        .answers::<ListPage<ShownProvider>>(
            "Lists the providers of the file and of the API, in order of `name`, `state` (failing first if ascending), \
             `failures` (since the last success), `served`, `first_token` (both of this hour and the one before) or \
             `last_failure` if wanted.",
        )
        .query::<ProviderList>()
        .permits(Permission::SeeConnections),
    write_of(Method::POST, "providers", |call| Box::pin(create(call)))
        .answers::<ShownProvider>("Connects a provider.")
        .statuses(&[201])
        .takes::<NewProvider>(),
    route_of(Method::GET, "providers/{}", |call| Box::pin(show(call)))
        .answers::<ShownProvider>("Shows a provider.")
        .query::<Sourced>()
        .permits(Permission::SeeConnections),
    write_of(Method::PATCH, "providers/{}", |call| Box::pin(edit(call)))
        .answers::<ShownProvider>("Changes a provider of the API.")
        .takes::<ProviderPatch>()
        .query::<Sourced>()
        .reads_version(),
    write_of(Method::DELETE, "providers/{}", |call| Box::pin(delete(call)))
        .answers::<NoContent>("Deletes a provider of the API that no endpoint uses.")
        .query::<Sourced>()
        .reads_version(),
];

type ProviderList = (SortedPaging<ProviderColumn>, Sourced, ProviderQuery, Containing);

/// The filters of a list.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ProviderQuery {
    /// Only those of this human, by ID.
    owner: Option<String>,
    /// Only those in this state.
    state: Option<String>,
}

/// The place where an object is defined.
#[derive(Clone, Copy, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Sourced {
    /// Only what the configuration file or the API has defined.
    source: Option<ObjectSource>,
}

impl Sourced {
    pub(super) fn admits(self, source: ObjectSource) -> bool {
        self.source.is_none_or(|wanted| wanted == source)
    }

    /// True if the request addresses the API's object even if the configuration file has one with the same name.
    pub(super) fn means_shadowed(self) -> bool {
        self.source == Some(ObjectSource::Api)
    }
}

async fn list(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let (paging, source, ProviderQuery { owner, state }, containing): ProviderList = call.query()?;
    let (page, text) = (PageOf::of(paging)?, containing.lower_case());
    let (snapshot, view) = published(call.app);
    let wanted = |connection: &&ProviderConnection| {
        connection.place > page.after
            && call.standing.human().is_none_or(|human| connection.owner() == Some(human))
            && source.admits(connection.source)
            && state.as_deref().is_none_or(|state| state == connection.standing.name())
            && owner.as_deref().is_none_or(|owner| connection.owner() == Some(owner))
            && text.as_deref().is_none_or(|text| {
                let address = connection.base_url().unwrap_or_default();
                [connection.id.as_str(), address].iter().any(|name| name.to_lowercase().contains(text))
            })
    };
    let served = match page.column() {
        Some(ProviderColumn::Served | ProviderColumn::FirstToken) => {
            served_since(&call, recent_since_ms()).await?
        }
        Some(_) | None => HashMap::new(),
    };
    let now_ms = monotonic_ms();
    let value = |connection: &&ProviderConnection, column| {
        let instance = instance_of(&snapshot, connection);
        let sums = served.get(&connection.id).filter(|_| instance.is_some());
        let circuit = instance.map(|instance| instance.best_lane(now_ms).circuits.instance());
        match column {
            ProviderColumn::Name => Some(connection.id.as_str().into()),
            ProviderColumn::State => Some(state_rank(connection, instance, now_ms).into()),
            ProviderColumn::Failures => Some(u64::from(circuit?.failures()).into()),
            ProviderColumn::LastFailure => Some(circuit?.trouble()?.at_ms.into()),
            ProviderColumn::Served => Some(sums.map_or(0, |sums| sums.requests).into()),
            ProviderColumn::FirstToken => {
                let sums = sums?;
                sums.first_content_us.checked_div(sums.first_contents).map(SortValue::from)
            }
        }
    };
    let found = view.providers.iter().filter(wanted).take(page.rows_max());
    let list = ListPage::sorted(found, &page, |connection| &connection.place, value);
    json(&list.map(|connection| shown(call.app, &snapshot, connection)))
}

/// A column by which the list can be sorted.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum ProviderColumn {
    Name,
    State,
    Failures,
    Served,
    FirstToken,
    LastFailure,
}

/// Returns the rank of a provider by its need of attention: failing, unusable, partly failing, working, switched off.
fn state_rank(connection: &ProviderConnection, instance: Option<&ProviderInstance>, now_ms: u64) -> u64 {
    match &connection.standing {
        ProviderStanding::Disabled
        | ProviderStanding::ExtensionDisabled(_)
        | ProviderStanding::Shadowed(_) => 4,
        ProviderStanding::NotConnected(_) | ProviderStanding::Faulty(_) => 1,
        ProviderStanding::Ready => match instance {
            None => 1,
            Some(instance) if instance.unready.is_some() => 1,
            Some(instance) => {
                let is_closed = |lane: &ProviderInstance| {
                    lane.circuits.instance().state(now_ms, &lane.circuit_policy) == CircuitState::Closed
                };
                if !is_closed(instance.best_lane(now_ms)) {
                    return 0;
                }
                let is_partial = instance.each_lane().any(|lane| {
                    !is_closed(lane)
                        || !lane.circuits.models(now_ms, &lane.circuit_policy).is_empty()
                        || !lane.circuits.rests().all(now_ms).is_empty()
                });
                if is_partial { 2 } else { 3 }
            }
        },
    }
}

/// Returns the routed instance of a connection; `None` if the connection is shadowed or not routed.
fn instance_of<'a>(snapshot: &'a Snapshot, connection: &ProviderConnection) -> Option<&'a ProviderInstance> {
    if matches!(connection.standing, ProviderStanding::Shadowed(_)) {
        return None;
    }
    let place = snapshot.providers.binary_search_by(|instance| instance.id.as_str().cmp(&connection.id));
    snapshot.providers.get(place.ok()?).map(Arc::as_ref)
}

async fn show(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let source: Sourced = call.query()?;
    let (snapshot, view) = published(call.app);
    let found = view.providers.iter().find(|connection| {
        connection.id == call.argument()
            && call.standing.human().is_none_or(|human| connection.owner() == Some(human))
            && source.admits(connection.source)
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
    let instance = instance_of(snapshot, connection);
    if let Some(Ok(Sign::Token(grant))) = connection.read.as_ref().map(|read| read.sign()) {
        shown.token = app.tokens.standing(&grant);
    }
    if let (Some(why), ProviderStanding::Ready) = (instance.and_then(|i| i.unready), &connection.standing) {
        shown.state = NOT_CONNECTED;
        shown.reason = Some(format!("The provider cannot be used: {why}."));
    }
    shown.sign_in = connection.read.as_deref().and_then(|provider| oauth::sign_in(app, provider));
    if let (Some(keys), Some(instance)) = (&mut shown.api_keys, instance) {
        let now_ms = monotonic_ms();
        keys.iter_mut().for_each(|key| key.standing(instance, now_ms));
    }
    let instance = instance.map(|instance| (instance, &snapshot.key_hasher));
    let mut evidence = app.catalog.evidence(&connection.id, instance);
    evidence.inference.last_answered_at_ms = app.answers.of_provider(&connection.id);
    shown.evidence = Some(evidence);
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
    let shadowed = call.query::<Sourced>()?.means_shadowed();
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
    let shadowed = call.query::<Sourced>()?.means_shadowed();
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

pub(super) const NAME_RULE: &str =
    "must be 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or digit.";
