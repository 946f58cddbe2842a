//! Routes of the specification that a later release will serve. They are in the route table so that unauthenticated
//! callers are rejected as on all other routes and administrators get a "not implemented" error.

use http::Method;
use shared::error_kind::ErrorKind;

use super::{ApiError, Route, route_of};

const fn later(method: Method, pattern: &'static str) -> Route {
    route_of(method, pattern, |_| Box::pin(async { Err(not_yet()) }))
}

fn not_yet() -> ApiError {
    ApiError::new(ErrorKind::NotImplemented, "This release does not implement this path yet.")
}

pub(super) static ROUTES: &[Route] = &[
    later(Method::GET, "alerts"),
    later(Method::POST, "alerts/{}/ack"),
    later(Method::GET, "alert-rules"),
    later(Method::POST, "alert-rules"),
    later(Method::PATCH, "alert-rules/{}"),
    later(Method::DELETE, "alert-rules/{}"),
    later(Method::GET, "outbox"),
    later(Method::POST, "outbox/claim"),
    later(Method::POST, "outbox/{}/retry"),
    later(Method::POST, "outbox/{}/delivered"),
    later(Method::POST, "outbox/{}/failed"),
    later(Method::GET, "webhooks"),
    later(Method::POST, "webhooks"),
    later(Method::PATCH, "webhooks/{}"),
    later(Method::DELETE, "webhooks/{}"),
    later(Method::POST, "webhooks/{}/test"),
];
