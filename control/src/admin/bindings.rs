//! `providers/{id}/bindings`: projects that may use a provider instance owned by a human.

use http::{Method, Response, StatusCode};
use shared::port::Body;

use super::{ApiError, Call, Route, write_of};
use crate::admin::permission::{Object, Permission};
use crate::routing::connection::ShownProvider;
use crate::writer::command::bindings::{Bind, Unbind};

pub(super) static ROUTES: &[Route] = &[
    write_of(Method::PUT, "providers/{}/bindings/{}", |call| Box::pin(bind(call)))
        .answers::<ShownProvider>("Permits a project to use a private provider.")
        .permits(Permission::ChangeConnections)
        .reads_version(),
    write_of(Method::DELETE, "providers/{}/bindings/{}", |call| Box::pin(unbind(call)))
        .answers::<ShownProvider>("Withdraws that permission.")
        .permits(Permission::ChangeConnections)
        .reads_version(),
];

async fn bind(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    call.no_fields()?;
    let project = Object::One { project: Some(call.second_argument().to_owned()), owner: None };
    call.permit(Permission::SeeProjects, &project)?;
    let bind = Bind {
        provider: call.argument().to_owned(),
        project: call.second_argument().to_owned(),
        if_version: call.if_match()?,
    };
    call.execute(StatusCode::OK, bind).await
}

async fn unbind(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let unbind = Unbind {
        provider: call.argument().to_owned(),
        project: call.second_argument().to_owned(),
        if_version: call.if_match()?,
    };
    call.execute(StatusCode::OK, unbind).await
}
