//! `keys/{id}/access`, `projects/{id}/access` and `principals/{id}/access`: each selector, with the reasons why the caller
//! may not use it.

use http::{Method, Response};
use rusqlite::Connection;
use serde::Serialize;
use shared::error_kind::ErrorKind;
use shared::port::Body;
use shared::snapshot::Route as SelectorRoute;

use super::list::{ListPage, PageOf};
use super::{ApiError, Call, Route, json, route_of};
use crate::permission::Permission;
use crate::publish::AccessHolder;
use crate::selector_access::{Obstacle, SelectorAccess};

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, "keys/{}/access", |call| {
        Box::pin(list(call, AccessHolder::key, "There is no such key."))
    })
    .answers::<ListPage<SelectorRow>>("Lists the selectors, and why the key may not use them.")
    .query(FILTERS)
    .permits(Permission::SeeKeys),
    route_of(Method::GET, "projects/{}/access", |call| {
        Box::pin(list(call, AccessHolder::project, "There is no such project."))
    })
    .answers::<ListPage<SelectorRow>>("Lists the selectors, and why the project may not use them.")
    .query(FILTERS)
    .permits(Permission::SeeProjects),
    route_of(Method::GET, "principals/{}/access", |call| {
        Box::pin(list(call, AccessHolder::human, "There is no such principal."))
    })
    .answers::<ListPage<SelectorRow>>("Lists the selectors, and why the human may not use them.")
    .query(FILTERS)
    .permits(Permission::SeeSelf),
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
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum SelectorKind {
    Endpoint,
    /// `provider/model`.
    Model,
    /// The name of a model without its provider.
    Alias,
}

/// The query parameters of the lists.
const FILTERS: &[&str] = &["limit", "cursor", "q", "kind", "allowed"];
const KINDS: &[(&str, SelectorKind)] =
    &[("endpoint", SelectorKind::Endpoint), ("model", SelectorKind::Model), ("alias", SelectorKind::Alias)];

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

async fn list(
    call: Call<'_>,
    read: fn(&Connection, &str) -> rusqlite::Result<Option<AccessHolder>>,
    unknown: &'static str,
) -> Result<Response<Body>, ApiError> {
    let mut query = call.query()?;
    let page = PageOf::take(&mut query)?;
    let text = query.text("q").map(|text| text.to_lowercase());
    let kind = query.choice("kind", KINDS)?;
    let allowed = query.choice("allowed", &[("true", true), ("false", false)])?;
    query.finish()?;
    let id = call.argument().to_owned();
    let holder = call.app.readers.ask(move |db| read(db, &id)).await?;
    let holder = holder.ok_or_else(|| ApiError::new(ErrorKind::NotFound, unknown))?;
    let snapshot = call.app.snapshot.load();
    let is_meant = |selector: &&str| {
        *selector > page.after.as_str()
            && text.as_ref().is_none_or(|text| selector.to_lowercase().contains(text))
    };
    let mut selectors: Vec<&str> = snapshot.routes.keys().map(|name| &**name).filter(is_meant).collect();
    selectors.sort_unstable();
    let rows = selectors
        .into_iter()
        .filter_map(|selector| Some(SelectorRow::of(selector, snapshot.routes.get(selector)?, &holder)));
    let passes = |row: &SelectorRow| {
        kind.is_none_or(|kind| kind == row.kind) && allowed.is_none_or(|allowed| allowed == row.allowed)
    };
    let rows = rows.filter(passes).take(page.limit.saturating_add(1)).collect();
    json(&ListPage::page(rows, &page, |row| &row.selector))
}
