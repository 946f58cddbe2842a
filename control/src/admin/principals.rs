//! `principals`: the humans known to the gateway.

use http::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use shared::port::Body;

use super::list::{Containing, ListPage, PageOf, SortValue, SortedPaging};
use super::reference::NoContent;
use super::{ApiError, Call, Route, field, json, json_of_version, route_of, write_of};
use crate::admin::permission::Permission;
use crate::common::change::FieldChange;
use crate::db::principals::{self, PrincipalFilter};
use crate::writer::command::principals::{CreatePrincipal, DeletePrincipal, EditPrincipal};

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, "principals", |call| Box::pin(list(call)))
        .answers::<ListPage<principals::Principal>>(
            "Lists the humans, in order of `name`, `email` or `created` if wanted.",
        )
        .query::<PrincipalList>()
        .permits(Permission::SeeSelf),
    write_of(Method::POST, "principals", |call| Box::pin(create(call)))
        .answers::<principals::Principal>("Creates a human.")
        .statuses(&[201])
        .takes::<NewPrincipal>(),
    route_of(Method::GET, "principals/{}", |call| Box::pin(show(call)))
        .answers::<principals::Principal>("Shows a human.")
        .permits(Permission::SeeSelf),
    write_of(Method::PATCH, "principals/{}", |call| Box::pin(edit(call)))
        .answers::<principals::Principal>("Changes a human.")
        .takes::<PrincipalPatch>()
        .reads_version(),
    write_of(Method::DELETE, "principals/{}", |call| Box::pin(delete(call)))
        .answers::<NoContent>("Deletes a human as whom no key acts.")
        .reads_version(),
];

type PrincipalList = (SortedPaging<PrincipalColumn>, Disabled, Containing);

/// The filter by whether an object is disabled.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Disabled {
    /// Only those that are disabled, or only those that are not.
    pub(super) disabled: Option<bool>,
}

async fn list(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let (paging, Disabled { disabled }, Containing { q: text }): PrincipalList = call.query()?;
    let (page, filter) = (PageOf::of(paging)?, PrincipalFilter { disabled, text });
    if let Some(own) = call.standing.human().map(str::to_owned) {
        let own = call.app.readers.ask(move |db| principals::find(db, &own)).await?;
        return json(&ListPage::whole(own.into_iter().collect()));
    }
    let (after, rows) = (page.after.clone(), page.rows());
    let ask = call.app.readers.ask(move |db| principals::page(db, &filter, &after, rows));
    json(&ListPage::sorted(ask.await?, &page, |principal| &principal.id, value))
}

/// A column by which the list can be sorted.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum PrincipalColumn {
    Name,
    Email,
    Created,
}

fn value(principal: &principals::Principal, column: PrincipalColumn) -> Option<SortValue> {
    Some(match column {
        PrincipalColumn::Name => principal.name.as_str().into(),
        PrincipalColumn::Email => principal.email.as_deref()?.into(),
        PrincipalColumn::Created => principal.created_at_ms.into(),
    })
}

async fn show(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let principal = call.found("principal", principals::find).await?;
    json_of_version(&principal, principal.version)
}

/// A human to create.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct NewPrincipal {
    /// 1 to 200 characters on one line.
    name: String,
    #[serde(default)]
    email: Option<String>,
}

async fn create(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let new: NewPrincipal = call.json()?;
    let name = field::name("name", &new.name)?;
    let email = new.email.map(|email| field::email(&email)).transpose()?;
    call.execute(StatusCode::CREATED, CreatePrincipal { name, email }).await
}

/// Changes to a human. Absent members are kept.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct PrincipalPatch {
    #[serde(default)]
    name: Option<String>,
    /// Null for none.
    #[serde(default)]
    email: FieldChange<String>,
    /// The name by which single sign-on knows the human; null lets the next sign-in with the e-mail address set it.
    #[serde(default)]
    sso_subject: FieldChange<String>,
    /// True rejects the keys that act as this human, and their sign-ins.
    #[serde(default)]
    disabled: Option<bool>,
}

async fn edit(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let patch: PrincipalPatch = call.json()?;
    let email = match patch.email {
        FieldChange::Set(email) => FieldChange::Set(field::email(&email)?),
        other => other,
    };
    let edit = EditPrincipal {
        id: call.argument().to_owned(),
        if_version: call.if_match()?,
        name: patch.name.map(|name| field::name("name", &name)).transpose()?,
        email,
        sso_subject: match patch.sso_subject {
            FieldChange::Set(subject) => FieldChange::Set(field::name("sso_subject", &subject)?),
            other => other,
        },
        disabled: patch.disabled,
    };
    call.execute(StatusCode::OK, edit).await
}

async fn delete(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let delete = DeletePrincipal { id: call.argument().to_owned(), if_version: call.if_match()? };
    call.execute(StatusCode::NO_CONTENT, delete).await
}
