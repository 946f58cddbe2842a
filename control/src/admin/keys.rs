//! `keys`: project keys, which grant access to the data plane.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shared::clock::unix_ms;
use shared::error_kind::ErrorKind;
use shared::port::Body;
use shared::quota::{Counters, Subject};

use super::field::Lists;
use super::list::{Containing, PageOf, PageRows, SortValue, SortedPaging};
use super::query::choose;
use super::quotas::key_limits;
use super::reference::{NoContent, NoMembers};
use super::spend::{MonthSpend, SpendPage, SpendRanks, SpendReading};
use super::{ApiError, Call, Route, field, json, json_of_version, route_of, write_of};
use crate::admin::permission::{Object, Permission};
use crate::common::change::FieldChange;
use crate::db::engine::{Db, DbResult};
use crate::db::keys::{self, KeyFilter, KeyState, StoredKey};
use crate::db::names::Labels;
use crate::db::quotas::{self, KeyLimit, Of};
use crate::usage::requests::Column;
use crate::writer::FLUSH_TIME_MAX;
use crate::writer::command::keys::{
    DeleteKey, EditKey, IssueKey, Issued, KeyOperation, Reveal, Revealed, Rotate, ShownKey,
};
use crate::writer::command::quotas::QuotaStanding;

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, "keys", |call| Box::pin(list(call)))
        .answers::<SpendPage<ListedKey>>(
            "Lists the project keys, in order of `name`, `created`, `last_used`, `spend` (of this month) or `expires` \
             if wanted.",
        )
        .query::<KeyList>()
        .permits(Permission::SeeKeys),
    write_of(Method::POST, "keys", |call| Box::pin(create(call)))
        .answers::<Issued>("Mints a project key.")
        .statuses(&[201])
        .takes::<NewKey>()
        .permits(Permission::MintKeys),
    route_of(Method::GET, "keys/{}", |call| Box::pin(show(call)))
        .answers::<ShownKey>("Shows a key.")
        .permits(Permission::SeeKeys),
    write_of(Method::PATCH, "keys/{}", |call| Box::pin(edit(call)))
        .answers::<ShownKey>("Changes a key.")
        .takes::<KeyPatch>()
        .permits(Permission::ChangeKeys)
        .reads_version(),
    write_of(Method::DELETE, "keys/{}", |call| Box::pin(delete(call)))
        .answers::<NoContent>("Deletes a revoked key.")
        .permits(Permission::ChangeKeys)
        .reads_version(),
    route_of(Method::POST, "keys/{}/reveal", |call| Box::pin(reveal(call)))
        .answers::<Revealed>("Shows the key itself, if a sealed copy is kept. The audit records it.")
        .takes::<NoMembers>()
        .acts_each_time()
        .permits(Permission::RevealKeys),
    write_of(Method::POST, "keys/{}/rotate", |call| Box::pin(rotate(call)))
        .answers::<Issued>("Mints a successor; the old key stays valid for a while.")
        .statuses(&[201])
        .takes::<Rotation>()
        .permits(Permission::MintKeys)
        .reads_version(),
];

type KeyList = (SortedPaging<KeyColumn>, KeyQuery, Containing);

/// The filters of a list.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct KeyQuery {
    /// Only those of this project, by ID.
    project: Option<String>,
    /// Only keys that act as this human, by ID.
    acts_as: Option<String>,
    /// Only keys in this state.
    state: Option<KeyState>,
    /// The beginning of the key itself, as the list shows it.
    prefix: Option<String>,
}

async fn list(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let (paging, query, Containing { q: text }): KeyList = call.query()?;
    let page = PageOf::of(paging)?;
    let (KeyQuery { project, acts_as, state, prefix }, projects) = (query, call.standing.projects());
    let filter = KeyFilter { projects, project, acts_as, state, prefix, text };
    call.app.writer.flush(FLUSH_TIME_MAX).await;
    let spend = SpendReading::new(Column::Key, call.usage_scope());
    let counters = Arc::clone(&call.app.counters);
    json(&call.app.readers.ask(move |db| listed(db, &page, &filter, &spend, &counters)).await?)
}

fn listed(
    db: &Db,
    page: &PageOf<KeyColumn>,
    filter: &KeyFilter,
    spend: &SpendReading,
    counters: &Counters,
) -> DbResult<SpendPage<ListedKey>> {
    let ranks = spend.ranks(db, page, matches!(page.column(), Some(KeyColumn::Spend)))?;
    let mut found = PageRows::new(page);
    keys::each(db, unix_ms(), filter, (&page.after, page.rows()), |key| {
        found.add(key, |key| &key.id, |key, column| value(key, column, &ranks));
        Ok(())
    })?;
    let found = found.page();
    let (months, mut labels) = (spend.of_page(db, ranks, &found, |key| &key.id)?, Labels::default());
    months.page(found, |key| {
        let month = months.of_id(&key.id);
        let limit = tightest(db, &mut labels, counters, &key)?;
        Ok(ListedKey { key: ShownKey::of(db, &mut labels, key)?, month, limit })
    })
}

/// Returns the limit of a key of which the largest share is used.
fn tightest(
    db: &Db,
    labels: &mut Labels,
    counters: &Counters,
    key: &StoredKey,
) -> DbResult<Option<QuotaStanding>> {
    let limits = quotas::of_subject(db, &Of { kind: Subject::Key, id: key.family.clone() })?;
    let standings = limits.into_iter().map(|row| QuotaStanding::of(db, labels, counters, row));
    let standings = standings.collect::<DbResult<Vec<_>>>()?;
    Ok(standings.into_iter().max_by_key(QuotaStanding::share_ppm))
}

/// A key in a list.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ListedKey {
    #[serde(flatten)]
    key: ShownKey,
    /// Its use since the beginning of this month in UTC; null if it could not be summed in time.
    month: Option<MonthSpend>,
    /// Its own limit of which the largest share is used; null if it has none.
    limit: Option<QuotaStanding>,
}

/// A column by which the list can be sorted.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum KeyColumn {
    Name,
    Created,
    LastUsed,
    Spend,
    Expires,
}

fn value(key: &StoredKey, column: KeyColumn, ranks: &SpendRanks) -> Option<SortValue> {
    Some(match column {
        KeyColumn::Name => key.name.as_str().into(),
        KeyColumn::Created => key.created_at_ms.into(),
        // A key that was never used precedes all others.
        KeyColumn::LastUsed => key.last_used_hour_ms.unwrap_or(0).into(),
        KeyColumn::Spend => ranks.value(&key.id)?,
        KeyColumn::Expires => key.expires_at_ms?.into(),
    })
}

async fn show(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let found = call.found("key", |db, id| {
        let key = keys::find(db, id, unix_ms())?;
        key.map(|key| ShownKey::of(db, &mut Labels::default(), key)).transpose()
    });
    let listed = found.await?;
    json_of_version(&listed, listed.key.version)
}

/// A key to mint.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct NewKey {
    name: String,
    /// The ID of the project.
    project: String,
    /// The ID of the human that it acts as.
    #[serde(default)]
    acts_as: Option<String>,
    /// A time: milliseconds since the Unix epoch, or RFC 3339. Absent: it does not expire.
    #[serde(default)]
    expires_at: Option<Value>,
    /// Null or absent restricts nothing.
    #[serde(default)]
    models: FieldChange<Vec<String>>,
    /// Null or absent restricts nothing.
    #[serde(default)]
    endpoints: FieldChange<Vec<String>>,
    /// Null or absent permits all.
    #[serde(default)]
    routes: FieldChange<Vec<String>>,
    /// Default tags of its requests by name, at most 8, for reports; a request's own tag overrides the one with its name.
    #[serde(default)]
    tags: BTreeMap<String, String>,
    /// True, the default, keeps a sealed copy, from which the key can be revealed.
    #[serde(default = "yes")]
    recoverable: bool,
    /// Limits that it gets in addition to those of its project.
    #[serde(default)]
    limits: Vec<KeyLimit>,
}

fn yes() -> bool {
    true
}

async fn create(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let NewKey { name, project, acts_as, expires_at, models, endpoints, routes, tags, recoverable, limits } =
        call.json()?;
    call.permit(
        Permission::MintKeys,
        &Object::One { project: Some(project.clone()), owner: acts_as.clone() },
    )?;
    only_of_administrators(&call, "limits", !limits.is_empty())?;
    let create = IssueKey {
        name: field::name("name", &name)?,
        project,
        acts_as,
        expires_at_ms: expires_at.map(|at| field::future("expires_at", &at)).transpose()?,
        allowlist: Lists { models, endpoints, routes }.check()?,
        tags: field::tags("tags", tags)?,
        recoverable,
        limits: key_limits("limits", limits)?,
    };
    call.execute(StatusCode::CREATED, create).await
}

/// Changes to a key. Absent members are kept.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct KeyPatch {
    #[serde(default)]
    name: Option<String>,
    /// Null for none. A change erases the sealed copy, but the key itself stays valid: holders of it can use it until it is rotated.
    #[serde(default)]
    acts_as: FieldChange<String>,
    /// A time: milliseconds since the Unix epoch, or RFC 3339. Null: it does not expire.
    #[serde(default)]
    expires_at: FieldChange<Value>,
    /// Null restricts nothing.
    #[serde(default)]
    models: FieldChange<Vec<String>>,
    /// Null restricts nothing.
    #[serde(default)]
    endpoints: FieldChange<Vec<String>>,
    /// Null permits all.
    #[serde(default)]
    routes: FieldChange<Vec<String>>,
    /// Replaces the default tags of its requests; `{}` removes them.
    #[serde(default)]
    tags: Option<BTreeMap<String, String>>,
    /// False deletes the sealed copy.
    #[serde(default)]
    recoverable: Option<bool>,
    /// `active`, `disabled` or `revoked`. A revoked key stays revoked.
    #[serde(default)]
    state: Option<String>,
}

async fn edit(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let KeyPatch { name, acts_as, expires_at, models, endpoints, routes, tags, recoverable, state } =
        call.json()?;
    own_identity(&call, &acts_as)?;
    let edit = EditKey {
        id: call.argument().to_owned(),
        if_version: call.if_match()?,
        name: name.map(|name| field::name("name", &name)).transpose()?,
        acts_as,
        expires_at_ms: match expires_at {
            FieldChange::Keep => FieldChange::Keep,
            FieldChange::Clear => FieldChange::Clear,
            FieldChange::Set(at) => FieldChange::Set(field::future("expires_at", &at)?),
        },
        allowlist: Lists { models, endpoints, routes }.check()?,
        tags: tags.map(|tags| field::tags("tags", tags)).transpose()?,
        recoverable,
        edge: state.map(|state| choose("state", &state, &EDGES)).transpose()?,
    };
    call.execute(StatusCode::OK, edit).await
}

/// Refuses a field that humans may not send.
fn only_of_administrators(call: &Call<'_>, field: &str, is_sent: bool) -> Result<(), ApiError> {
    if !is_sent || call.standing.human().is_none() {
        return Ok(());
    }
    let message = format!("{field} may be sent by an administrator only; leave it out.");
    Err(ApiError::new(ErrorKind::Forbidden, message))
}

/// Rejects a change by which a key would act as another human, because it could then use that human's private connections,
/// or as no human, because the limits of its human would no longer apply to it.
fn own_identity(call: &Call<'_>, acts_as: &FieldChange<String>) -> Result<(), ApiError> {
    let is_others = match (acts_as, call.standing.human()) {
        (FieldChange::Set(acts_as), Some(human)) => acts_as != human,
        (FieldChange::Clear, Some(_)) => true,
        (FieldChange::Keep, Some(_)) | (_, None) => false,
    };
    only_of_administrators(call, "acts_as with another value than your own ID", is_others)
}

async fn delete(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let delete = DeleteKey { id: call.argument().to_owned(), if_version: call.if_match()? };
    call.execute(StatusCode::NO_CONTENT, delete).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoRevealBody {}

async fn reveal(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let NoRevealBody {} = call.json()?;
    call.execute_each_time(StatusCode::OK, Reveal { id: call.argument().to_owned() }).await
}

/// The rotation of a key.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Rotation {
    /// How long the old key stays valid, in seconds.
    #[serde(default)]
    overlap_seconds: Option<u64>,
    /// A time: milliseconds since the Unix epoch, or RFC 3339. The end of the new key; absent: that of the old one.
    #[serde(default)]
    expires_at: Option<Value>,
}

async fn rotate(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let rotation: Rotation = call.json()?;
    let overlap = rotation.overlap_seconds.unwrap_or(OVERLAP_SECONDS_DEFAULT);
    if overlap > OVERLAP_SECONDS_MAX {
        let message = format!("overlap_seconds must be a number from 0 to {OVERLAP_SECONDS_MAX}.");
        return Err(ApiError::parameter("overlap_seconds", message));
    }
    let rotate = Rotate {
        id: call.argument().to_owned(),
        if_version: call.if_match()?,
        overlap_ms: overlap * 1_000,
        expires_at_ms: rotation.expires_at.map(|at| field::future("expires_at", &at)).transpose()?,
    };
    call.execute(StatusCode::CREATED, rotate).await
}

/// The values that a client may set as a key's state.
const EDGES: [(&str, KeyOperation); 3] = [
    ("active", KeyOperation::Enable),
    ("disabled", KeyOperation::Disable),
    ("revoked", KeyOperation::Revoke),
];

/// One day.
const OVERLAP_SECONDS_DEFAULT: u64 = 86_400;
/// One year.
const OVERLAP_SECONDS_MAX: u64 = 31_536_000;
