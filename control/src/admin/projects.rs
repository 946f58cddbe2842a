//! `projects` and their members.

use http::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use shared::error_kind::ErrorKind;
use shared::port::Body;

use super::field::Lists;
use super::list::{Containing, ListPage, PageOf, Paging, SortValue, SortedPaging};
use super::principals::Disabled;
use super::query::choose;
use super::quotas::key_limits;
use super::reference::NoContent;
use super::spend::{MonthSpend, SpendPage, SpendRanks, SpendReading};
use super::{ApiError, Call, Route, field, json, json_of_version, route_of, write_of};
use crate::admin::permission::{Object, Permission};
use crate::common::change::FieldChange;
use crate::db::engine::{Db, DbResult};
use crate::db::members::MemberRole;
use crate::db::names::Labels;
use crate::db::principals::PrincipalFilter;
use crate::db::projects::{ProjectFilter, ProjectSummary};
use crate::db::quotas::KeyLimit;
use crate::db::{members, projects};
use crate::usage::requests::Column;
use crate::writer::FLUSH_TIME_MAX;
use crate::writer::command::members::{OwnerChanges, PutMember, RemoveMember, ShownMember};
use crate::writer::command::projects::{CreateProject, DeleteProject, EditProject};

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, "projects", |call| Box::pin(list(call)))
        .answers::<SpendPage<ListedProject>>(
            "Lists the projects, in order of `name`, `created`, `members`, `keys` or `spend` (of this month) if wanted.",
        )
        .query::<ProjectList>()
        .permits(Permission::SeeProjects),
    write_of(Method::POST, "projects", |call| Box::pin(create(call)))
        .answers::<projects::StoredProject>("Creates a project.")
        .statuses(&[201])
        .takes::<NewProject>(),
    route_of(Method::GET, "projects/{}", |call| Box::pin(show(call)))
        .answers::<projects::StoredProject>("Shows a project.")
        .permits(Permission::SeeProjects),
    write_of(Method::PATCH, "projects/{}", |call| Box::pin(edit(call)))
        .answers::<projects::StoredProject>("Changes a project.")
        .takes::<ProjectPatch>()
        .reads_version(),
    write_of(Method::DELETE, "projects/{}", |call| Box::pin(delete(call)))
        .answers::<NoContent>("Deletes a project that has no keys.")
        .reads_version(),
    route_of(Method::GET, "projects/{}/members", |call| Box::pin(list_members(call)))
        .answers::<ListPage<ShownMember>>("Lists the members of a project.")
        .query::<(Paging, MemberQuery)>()
        .permits(Permission::SeeProjects),
    write_of(Method::PUT, "projects/{}/members/{}", |call| Box::pin(put_member(call)))
        .answers::<ShownMember>("Adds a human to a project, or changes the role.")
        .takes::<Membership>()
        .permits(Permission::ChangeMembers),
    write_of(Method::DELETE, "projects/{}/members/{}", |call| Box::pin(remove_member(call)))
        .answers::<NoContent>("Removes a human from a project.")
        .permits(Permission::ChangeMembers),
];

type ProjectList = (SortedPaging<ProjectColumn>, ProjectQuery, Disabled, Containing);

/// The filters of a list.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ProjectQuery {
    /// Only those of this human, by ID.
    principal: Option<String>,
}

/// The filters of a list of members.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct MemberQuery {
    /// Only humans that are disabled, or only those that are not.
    disabled: Option<bool>,
    /// A part of the human's name, e-mail address or ID.
    q: Option<String>,
}

async fn list(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let query: ProjectList = call.query()?;
    let (paging, ProjectQuery { principal }, Disabled { disabled }, Containing { q: text }) = query;
    let (page, member) = (PageOf::of(paging)?, call.standing.human().map(str::to_owned));
    let filter = ProjectFilter { member, principal, disabled, text };
    call.app.writer.flush(FLUSH_TIME_MAX).await;
    let spend = SpendReading::new(Column::Project, call.usage_scope());
    json(&call.app.readers.ask(move |db| listed(db, &page, &filter, &spend)).await?)
}

fn listed(
    db: &Db,
    page: &PageOf<ProjectColumn>,
    filter: &ProjectFilter,
    spend: &SpendReading,
) -> DbResult<SpendPage<ListedProject>> {
    let ranks = spend.ranks(db, page, matches!(page.column(), Some(ProjectColumn::Spend)))?;
    let rows = projects::page(db, filter, &page.after, page.rows())?;
    let value = |summary: &ProjectSummary, column| value(summary, column, &ranks);
    let found = ListPage::sorted(rows, page, |summary| &summary.project.id, value);
    let months = spend.of_page(db, ranks, &found, |summary| &summary.project.id)?;
    months.page(found, |summary| Ok(ListedProject { month: months.of_id(&summary.project.id), summary }))
}

/// A project in a list.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ListedProject {
    #[serde(flatten)]
    summary: ProjectSummary,
    /// Its use since the beginning of this month in UTC; null if it could not be summed in time.
    month: Option<MonthSpend>,
}

/// A column by which the list can be sorted.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum ProjectColumn {
    Name,
    Created,
    Members,
    Keys,
    Spend,
}

fn value(summary: &ProjectSummary, column: ProjectColumn, ranks: &SpendRanks) -> Option<SortValue> {
    Some(match column {
        ProjectColumn::Name => summary.project.name.as_str().into(),
        ProjectColumn::Created => summary.project.created_at_ms.into(),
        ProjectColumn::Members => summary.members.into(),
        ProjectColumn::Keys => summary.keys.into(),
        ProjectColumn::Spend => ranks.value(&summary.project.id)?,
    })
}

async fn show(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let project = call.found("project", projects::find).await?;
    json_of_version(&project, project.version)
}

/// A project to create.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct NewProject {
    name: String,
    /// Null or absent restricts nothing.
    #[serde(default)]
    models: FieldChange<Vec<String>>,
    /// Null or absent restricts nothing.
    #[serde(default)]
    endpoints: FieldChange<Vec<String>>,
    /// Null or absent permits all.
    #[serde(default)]
    routes: FieldChange<Vec<String>>,
    /// The limits that each new key gets.
    #[serde(default)]
    key_defaults: FieldChange<Vec<KeyLimit>>,
}

async fn create(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let NewProject { name, models, endpoints, routes, key_defaults } = call.json()?;
    let name = field::name("name", &name)?;
    let allowlist = Lists { models, endpoints, routes }.check()?;
    let key_defaults = defaults(key_defaults)?.unwrap_or_default();
    call.execute(StatusCode::CREATED, CreateProject { name, allowlist, key_defaults }).await
}

/// Changes to a project. Absent members are kept.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct ProjectPatch {
    #[serde(default)]
    name: Option<String>,
    /// True rejects its keys.
    #[serde(default)]
    disabled: Option<bool>,
    /// Null restricts nothing.
    #[serde(default)]
    models: FieldChange<Vec<String>>,
    /// Null restricts nothing.
    #[serde(default)]
    endpoints: FieldChange<Vec<String>>,
    /// Null permits all.
    #[serde(default)]
    routes: FieldChange<Vec<String>>,
    /// The limits that each new key gets; null for none.
    #[serde(default)]
    key_defaults: FieldChange<Vec<KeyLimit>>,
}

async fn edit(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let ProjectPatch { name, disabled, models, endpoints, routes, key_defaults } = call.json()?;
    let edit = EditProject {
        id: call.argument().to_owned(),
        if_version: call.if_match()?,
        name: name.map(|name| field::name("name", &name)).transpose()?,
        disabled,
        allowlist: Lists { models, endpoints, routes }.check()?,
        key_defaults: defaults(key_defaults)?,
    };
    call.execute(StatusCode::OK, edit).await
}

/// Returns the new default limits of keys, or `None` if they do not change.
fn defaults(change: FieldChange<Vec<KeyLimit>>) -> Result<Option<Vec<KeyLimit>>, ApiError> {
    match change {
        FieldChange::Keep => Ok(None),
        FieldChange::Clear => Ok(Some(Vec::new())),
        FieldChange::Set(limits) => key_limits("key_defaults", limits).map(Some),
    }
}

async fn delete(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let delete = DeleteProject { id: call.argument().to_owned(), if_version: call.if_match()? };
    call.execute(StatusCode::NO_CONTENT, delete).await
}

async fn list_members(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let (paging, MemberQuery { disabled, q: text }): (Paging, MemberQuery) = call.query()?;
    let (page, filter) = (paging.page(), PrincipalFilter { disabled, text });
    let (id, after, rows) = (call.argument().to_owned(), page.after.clone(), page.rows());
    let ask = call.app.readers.ask(move |db| {
        let project = projects::find(db, &id)?;
        let Some(project) = project else { return Ok(None) };
        let mut labels = Labels::default();
        let named = |member| ShownMember::of(db, &mut labels, member);
        let members = members::page(db, &project.id, &filter, &after, rows)?;
        members.into_iter().map(named).collect::<DbResult<Vec<_>>>().map(Some)
    });
    json(&ListPage::page(ask.await?.ok_or_else(unknown)?, &page, |listed| &listed.member.principal))
}

/// The role of a human in a project.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Membership {
    /// `owner`, `admin`, `member` or `viewer`.
    role: String,
}

async fn put_member(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let membership: Membership = call.json()?;
    let put = PutMember {
        project: call.argument().to_owned(),
        principal: call.second_argument().to_owned(),
        role: choose("role", &membership.role, &MemberRole::NAMES)?,
        owners: owners(&call),
    };
    call.execute(StatusCode::OK, put).await
}

async fn remove_member(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let remove = RemoveMember {
        project: call.argument().to_owned(),
        principal: call.second_argument().to_owned(),
        owners: owners(&call),
    };
    call.execute(StatusCode::NO_CONTENT, remove).await
}

/// Returns whether the caller may change owners of the project.
fn owners(call: &Call<'_>) -> OwnerChanges {
    let project = Object::One { project: Some(call.argument().to_owned()), owner: None };
    match call.permit(Permission::ChangeOwners, &project) {
        Ok(()) => OwnerChanges::Permitted,
        Err(_) => OwnerChanges::Refused,
    }
}

fn unknown() -> ApiError {
    ApiError::new(ErrorKind::NotFound, "There is no such project.")
}
