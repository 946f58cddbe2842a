//! `keys/{id}/access`, `projects/{id}/access`, `principals/{id}/access`, and `access/effective` for any of them: each
//! selector, with the reasons why the caller may not use it.

use http::{Method, Response};
use serde::{Deserialize, Serialize};
use shared::error_kind::ErrorKind;
use shared::port::Body;
use shared::routing::Target;
use shared::snapshot::Route as SelectorRoute;

use super::list::{Containing, ListPage, Paging};
use super::{ApiError, Call, Route, json, route_of};
use crate::admin::permission::Permission;
use crate::db::engine::{Db, DbResult};
use crate::routing::publish::AccessHolder;
use crate::routing::selector_access::{Obstacle, SelectorAccess, listed};
use crate::usage::scope::UsageScope;

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, "keys/{}/access", |call| Box::pin(list(call, &KEY)))
        .answers::<ListPage<SelectorRow>>("Lists the selectors, and why the key may not use them.")
        .query::<AccessList>()
        .permits(Permission::SeeKeys),
    route_of(Method::GET, "projects/{}/access", |call| Box::pin(list(call, &PROJECT)))
        .answers::<ListPage<SelectorRow>>("Lists the selectors, and why the project may not use them.")
        .query::<AccessList>()
        .permits(Permission::SeeProjects),
    route_of(Method::GET, "principals/{}/access", |call| Box::pin(list(call, &HUMAN)))
        .answers::<ListPage<SelectorRow>>("Lists the selectors, and why the human may not use them.")
        .query::<AccessList>()
        .permits(Permission::SeeSelf),
    route_of(Method::GET, "access/effective", |call| Box::pin(effective(call)))
        .answers::<ListPage<SelectorRow>>(
            "Lists the selectors, and why a key, project or human may not use them.",
        )
        .query::<(HolderQuery, AccessList)>(),
];

/// A selector, and the caller's access to it. Quotas that are used up and open circuits do not count, because they pass.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "SelectorAccess"))]
struct SelectorRow {
    /// The value of `model` in requests.
    selector: String,
    kind: SelectorKind,
    /// True if the caller may use at least one target.
    allowed: bool,
    /// The obstacles, each once. If `allowed` is true, they concern some of the targets only.
    reasons: Vec<Obstacle>,
    /// The number of targets of the selector.
    targets: usize,
    /// The number of targets that the caller may use.
    usable: usize,
}

/// The kind of a selector.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum SelectorKind {
    Endpoint,
    /// `provider/model`.
    Model,
    /// The name of a model without its provider.
    Alias,
}

type AccessList = (Paging, Containing, AccessQuery);

/// The filters of a list.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AccessQuery {
    /// Only selectors of this kind.
    kind: Option<SelectorKind>,
    /// Only selectors that may be used, or only those that may not.
    allowed: Option<bool>,
}

/// The caller whose access is listed.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct HolderQuery {
    /// The ID of the key. Exactly one of `key`, `project` and `principal` is needed.
    key: Option<String>,
    /// The ID of the project.
    project: Option<String>,
    /// The ID of the human.
    principal: Option<String>,
}

impl SelectorRow {
    fn of(selector: &str, route: &SelectorRoute, holder: &AccessHolder) -> Self {
        let access = SelectorAccess::of(&holder.access, route);
        // The first obstacle of the holder comes first.
        let obstacles = holder.obstacles.iter().rev();
        let access = obstacles.fold(access, |access, obstacle| access.blocked_by(*obstacle));
        Self {
            selector: selector.to_owned(),
            kind: match route {
                SelectorRoute::Endpoint(_) => SelectorKind::Endpoint,
                SelectorRoute::Model(_) => SelectorKind::Model,
                SelectorRoute::Alias(_) | SelectorRoute::Ambiguous(_) => SelectorKind::Alias,
            },
            allowed: access.is_allowed(),
            reasons: access.reasons,
            targets: access.targets,
            usable: access.usable,
        }
    }
}

/// A kind of caller.
struct HolderKind {
    /// The query parameter that names one.
    parameter: &'static str,
    read: fn(&Db, &str) -> DbResult<Option<AccessHolder>>,
    unknown: &'static str,
}

static KEY: HolderKind =
    HolderKind { parameter: "key", read: AccessHolder::key, unknown: "There is no such key." };
static PROJECT: HolderKind =
    HolderKind { parameter: "project", read: AccessHolder::project, unknown: "There is no such project." };
static HUMAN: HolderKind =
    HolderKind { parameter: "principal", read: AccessHolder::human, unknown: "There is no such principal." };

async fn list(call: Call<'_>, kind: &HolderKind) -> Result<Response<Body>, ApiError> {
    answer(&call, call.query()?, kind, call.argument().to_owned()).await
}

/// Lists the selectors of the one caller that the query names.
async fn effective(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let (HolderQuery { key, project, principal }, list): (HolderQuery, AccessList) = call.query()?;
    let named = [(&KEY, key), (&PROJECT, project), (&HUMAN, principal)];
    let mut named = named.into_iter().filter_map(|(kind, id)| Some((kind, id?)));
    match (named.next(), named.next()) {
        (Some((kind, id)), None) => answer(&call, list, kind, id).await,
        (None, _) => Err(ApiError::parameter("key", "Send key, project or principal, with its ID.")),
        (Some(_), Some((kind, _))) => {
            Err(ApiError::parameter(kind.parameter, "Send only one of key, project and principal."))
        }
    }
}

/// Returns false for a selector whose targets are all private to others than the human and not shared with the human's
/// projects: the human does not learn of it.
fn is_shown(route: &SelectorRoute, human: &str, projects: &UsageScope) -> bool {
    let is_known = |target: &Target| {
        let provider = &target.provider;
        provider.owner.as_ref().is_none_or(|owner| owner.as_str() == human)
            || provider.shared_with.iter().any(|project| projects.has_project(project.as_str()))
    };
    let targets = listed(route);
    targets.is_empty() || targets.iter().any(is_known)
}

async fn answer(
    call: &Call<'_>,
    (paging, containing, AccessQuery { kind, allowed }): AccessList,
    holder: &HolderKind,
    id: String,
) -> Result<Response<Body>, ApiError> {
    let (page, text) = (paging.page(), containing.lower_case());
    let HolderKind { read, unknown, .. } = *holder;
    let holder = call.app.readers.ask(move |db| read(db, &id)).await?;
    let holder = holder.ok_or_else(|| ApiError::new(ErrorKind::NotFound, unknown))?;
    let (snapshot, scope) = (call.app.snapshot.load(), call.usage_scope());
    let is_meant = |selector: &str| {
        selector > page.after.as_str()
            && text.as_ref().is_none_or(|text| selector.to_lowercase().contains(text))
    };
    let mut selectors: Vec<_> = snapshot.selectors().filter(|(selector, _)| is_meant(selector)).collect();
    selectors.sort_unstable_by_key(|(selector, _)| *selector);
    let rows = selectors
        .into_iter()
        .filter(|(_, route)| call.standing.human().is_none_or(|human| is_shown(route, human, &scope)))
        .map(|(selector, route)| SelectorRow::of(selector, route, &holder));
    let passes = |row: &SelectorRow| {
        kind.is_none_or(|kind| kind == row.kind) && allowed.is_none_or(|allowed| allowed == row.allowed)
    };
    let rows = rows.filter(passes).take(page.limit.saturating_add(1)).collect();
    json(&ListPage::page(rows, &page, |row| &row.selector))
}
