//! Resolves an operation's id to the target that runs the operation.

use std::sync::Arc;

use shared::access::Access;
use shared::error_kind::ErrorKind;
use shared::id::EndpointName;
use shared::operation_id::{Owner, Started};
use shared::routing::{Endpoint, Target};
use shared::snapshot::Route;
use wire::media::videos;
use wire::request::Head;

use super::super::inference::AuthorizedRequest;
use crate::adapt;
use crate::error::Fault;
use crate::server::body::HeldBody;

/// An operation whose id a client sent.
#[derive(Debug)]
pub(in crate::operation) struct KnownOperation {
    pub(super) operation: String,
    pub(super) started: Started,
}

/// Returns the operation that `body` asks about, and the selector's route reduced to the target that runs it. The
/// caller must still be allowed to use this target through the selector; target order and circuits are ignored, because
/// no other target has the operation.
pub(in crate::operation) fn holder(
    authorized: AuthorizedRequest<'_>,
    head: &Head,
    body: &HeldBody,
) -> Result<(KnownOperation, Route), Fault> {
    let operation = videos::polled(&mut body.segments.concat()).map_err(adapt::refusal)?;
    let Some(started) = authorized.snapshot.operation_ids.open(&operation) else {
        return Err(Fault::new(ErrorKind::InvalidRequest, NOT_OURS).param("operation"));
    };
    let (route, _) = authorized.select(head);
    let route = route?;
    let is_own = started.owner == Owner::of(authorized.access);
    let route = cut(&route, &started, authorized.access).filter(|_| is_own).ok_or_else(unknown)?;
    Ok((KnownOperation { operation, started }, route))
}

fn cut(route: &Route, started: &Started, access: &Access) -> Option<Route> {
    let name = route.endpoint().map(EndpointName::as_str);
    let has_it =
        |target: &&Target| target.provider.id == started.provider && target.model.id == started.model;
    let target = route.targets().iter().find(has_it)?;
    if access.refusal(name, target).is_some() {
        return None;
    }
    Some(match route {
        Route::Endpoint(endpoint) => {
            Route::Endpoint(Arc::new(Endpoint::new(endpoint.name.clone(), vec![target.clone()])))
        }
        Route::Model(_) | Route::Alias(_) | Route::Ambiguous(_) => Route::Model(target.clone()),
    })
}

/// Returns the same error for operations of other projects and for expired ones, so that clients cannot distinguish
/// them.
pub(super) fn unknown() -> Fault {
    Fault::new(ErrorKind::OperationNotFound, UNKNOWN).param("operation")
}

const NOT_OURS: &str =
    "'operation' is not a valid operation ID: send the ID that the start of the video returned, unchanged.";
const UNKNOWN: &str = "The operation does not exist for this model: another project started it, 'model' no \
                       longer resolves to its target, or the provider no longer has it.";
