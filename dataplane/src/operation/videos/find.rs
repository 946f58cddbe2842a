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

impl KnownOperation {
    /// Returns `target` with the key that started the operation. Returns `None` if the provider no longer has the key. An
    /// operation of the time when it had one key is taken to be of the key that is listed first.
    pub(super) fn target_of(&self, target: &Target) -> Option<Target> {
        let lanes = &target.provider.lanes;
        let lane = match self.started.credential {
            _ if lanes.is_empty() => Some(&target.provider),
            None => lanes.first(),
            Some(mark) => lanes.iter().find(|lane| lane.credential_mark() == mark),
        };
        Some(Target { provider: Arc::clone(lane?), model: Arc::clone(&target.model) })
    }
}

/// Returns the operation that `body` asks about, and the selector's route reduced to the target that runs it. The
/// caller must still be allowed to use this target through the selector; target order and circuits are ignored, because
/// no other target has the operation.
pub(in crate::operation) fn holder(
    authorized: &AuthorizedRequest<'_>,
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

#[cfg(test)]
mod tests {
    use shared::id::{CredentialNumber, KeyId, ModelId, ProviderId};
    use shared::routing::{EchoOptions, Lane, ProviderInstance};

    use super::*;
    use crate::fixture::{echo, target};

    #[test]
    fn a_video_is_polled_with_the_key_that_started_it() {
        let lane = |mark: u8| {
            let number = CredentialNumber(u32::from(mark));
            let lane = Some(Lane { number, hint: None, of_instance: Arc::default() });
            Arc::new(ProviderInstance { lane, identity: [mark; 32], ..echo("p", EchoOptions::default()) })
        };
        let one =
            target(&Arc::new(ProviderInstance { identity: [2; 32], ..echo("p", EchoOptions::default()) }));
        let lanes = vec![lane(1), lane(2), lane(3)];
        let several = target(&Arc::new(ProviderInstance { lanes, ..echo("p", EchoOptions::default()) }));
        let polled = |credential: Option<&Arc<ProviderInstance>>, now: &Target| {
            let started = Started {
                provider: ProviderId::new("p"),
                model: ModelId::new("m"),
                name: "n".into(),
                owner: Owner::Key(KeyId::new("k")),
                at_s: 0,
                credential: credential.map(|lane| lane.credential_mark()),
            };
            let known = KnownOperation { operation: String::new(), started };
            known.target_of(now).map(|target| target.provider.identity[0])
        };
        let [first, second, _] = &*several.provider.lanes else { panic!() };
        assert_eq!(polled(Some(second), &several), Some(2));
        assert_eq!(polled(None, &several), Some(first.identity[0]), "of the time when there was one key");
        assert_eq!(polled(Some(&lane(9)), &several), None, "the key is gone");
        assert_eq!(polled(Some(second), &one), Some(2));
    }
}
