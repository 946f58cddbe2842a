//! The closed list of error kinds of a request. One table row per kind determines the HTTP status and the `type` and
//! `code` members of both error envelopes (ERR-2), so that no handler invents its own.

use serde::{Deserialize, Serialize};

/// The reason for a failed request, as reported to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The HTTP framing or syntax of the request is invalid; the connection closes.
    BadHttp,
    /// The body is not valid for the route.
    InvalidRequest,
    /// The body contains a field or value that no target of the selector supports (MSG-2, CHAT-6, RESP-2).
    UnsupportedField,
    /// No target of the selector can ever serve this route.
    UnsupportedRoute,
    /// The key is missing, wrong, expired or disabled.
    InvalidKey,
    /// The key is valid but is not permitted to do this.
    Forbidden,
    /// The allowlist of the key or of its project does not contain the requested item (AUTH-2).
    NotAllowed,
    /// The target is a provider instance owned by a human, and the key does not act as that human (AUTH-4).
    PrivateProvider,
    /// The request has a non-loopback browser origin in the unauthenticated local mode (AUTH-3).
    ForbiddenOrigin,
    /// The path does not exist.
    NotFound,
    /// The caller's project has no stored response with the ID that the request continues, or no target of the selector
    /// has the account that stores it.
    PreviousResponseNotFound,
    /// No target of the selector can read the encrypted reasoning of the request.
    InvalidEncryptedContent,
    /// The selector matches nothing that this caller may use (SEL-1).
    ModelNotFound,
    /// The operation does not exist, or does not belong to this caller (VID-1).
    OperationNotFound,
    /// The path exists but does not support the method.
    MethodNotAllowed,
    /// The object is in a state that does not allow this, or its name is taken.
    Conflict,
    /// The object has changed since the version in `If-Match`.
    PreconditionFailed,
    /// The client took too long to send its request.
    RequestTimeout,
    /// The body exceeds the size limit (LIM-1).
    BodyTooLarge,
    /// The route does not support the content encoding or content type (LIM-2).
    UnsupportedEncoding,
    /// A WebSocket upgrade was requested on a path that serves only HTTP (LIM-3).
    UpgradeRequired,
    /// The caller's quota is used up.
    QuotaExceeded,
    /// The upstreams of all targets limit the rate of requests.
    RateLimited,
    /// Too many failed sign-ins from one address.
    TooManySignIns,
    /// The route is specified but not implemented in this release.
    NotImplemented,
    /// No target of the plan may be tried now (FAIL-3).
    NoEligibleTarget,
    /// The failover budget ran out before output (FAIL-2).
    BudgetExhausted,
    /// The gateway has reached its limit of bodies, connections or records.
    Overloaded,
    /// The database that the nodes of a cluster share cannot be reached.
    DatabaseUnreachable,
    /// The gateway is shutting down.
    Draining,
    /// The upstream could not be reached, or closed the connection before it answered.
    UpstreamUnreachable,
    /// The upstream did not answer in time.
    UpstreamTimeout,
    /// The upstream's response is invalid.
    UpstreamInvalid,
    /// The upstream responded with an error; its own status is kept.
    UpstreamStatus,
    /// The upstream's stream broke off after output had started (ERR-3).
    UpstreamCut,
    /// An administrator cancelled the request.
    Cancelled,
    /// An internal error of the gateway.
    Internal,
}

/// One row of the table: HTTP status, OpenAI `type`, OpenAI `code`, Anthropic `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRow {
    /// HTTP status code.
    pub status: u16,
    /// `error.type` in the OpenAI envelope.
    pub kind: &'static str,
    /// `error.code` in the OpenAI envelope.
    pub code: &'static str,
    /// `error.type` in the Anthropic envelope.
    pub anthropic: &'static str,
}

impl ErrorKind {
    /// Returns the table row of this kind. For [`ErrorKind::UpstreamStatus`] the status is only the fallback.
    pub fn row(self) -> ErrorRow {
        let (status, kind, code, anthropic) = match self {
            Self::BadHttp => (400, INVALID, "bad_http", INVALID),
            Self::InvalidRequest => (400, INVALID, "invalid_request", INVALID),
            Self::UnsupportedField => (400, INVALID, "unsupported_parameter", INVALID),
            Self::UnsupportedRoute => (400, INVALID, "unsupported_route", INVALID),
            Self::InvalidKey => (401, INVALID, "invalid_api_key", "authentication_error"),
            Self::Forbidden => (403, "permission_error", "forbidden", "permission_error"),
            Self::NotAllowed => (403, "permission_error", "not_allowed", "permission_error"),
            Self::PrivateProvider => (403, "permission_error", "private_provider", "permission_error"),
            Self::ForbiddenOrigin => (403, "permission_error", "forbidden_origin", "permission_error"),
            Self::NotFound => (404, INVALID, "not_found", "not_found_error"),
            Self::PreviousResponseNotFound => (400, INVALID, "previous_response_not_found", INVALID),
            Self::InvalidEncryptedContent => (400, INVALID, "invalid_encrypted_content", INVALID),
            Self::ModelNotFound => (404, INVALID, "model_not_found", "not_found_error"),
            Self::OperationNotFound => (404, INVALID, "operation_not_found", "not_found_error"),
            Self::MethodNotAllowed => (405, INVALID, "method_not_allowed", INVALID),
            Self::Conflict => (409, INVALID, "conflict", INVALID),
            Self::PreconditionFailed => (412, INVALID, "precondition_failed", INVALID),
            Self::RequestTimeout => (408, INVALID, "request_timeout", INVALID),
            Self::BodyTooLarge => (413, INVALID, "request_too_large", "request_too_large"),
            Self::UnsupportedEncoding => (415, INVALID, "unsupported_encoding", INVALID),
            Self::UpgradeRequired => (426, INVALID, "upgrade_required", INVALID),
            Self::QuotaExceeded => (429, "rate_limit_error", "quota_exceeded", "rate_limit_error"),
            Self::RateLimited => (429, "rate_limit_error", "rate_limited", "rate_limit_error"),
            Self::TooManySignIns => (429, "rate_limit_error", "too_many_sign_ins", "rate_limit_error"),
            Self::NotImplemented => (501, INVALID, "not_implemented", INVALID),
            Self::NoEligibleTarget => (503, SERVER, "no_eligible_target", "overloaded_error"),
            Self::BudgetExhausted => (504, SERVER, "failover_budget_exhausted", "timeout_error"),
            Self::Overloaded => (503, SERVER, "overloaded", "overloaded_error"),
            Self::DatabaseUnreachable => (503, SERVER, "database_unreachable", "overloaded_error"),
            Self::Draining => (503, SERVER, "draining", "overloaded_error"),
            Self::UpstreamUnreachable => (502, SERVER, "upstream_unreachable", API),
            Self::UpstreamTimeout => (504, SERVER, "upstream_timeout", "timeout_error"),
            Self::UpstreamInvalid => (502, SERVER, "upstream_invalid_response", API),
            Self::UpstreamStatus => (502, SERVER, "upstream_error", API),
            Self::UpstreamCut => (502, SERVER, "upstream_stream_broken", API),
            Self::Cancelled => (499, SERVER, "request_cancelled", API),
            Self::Internal => (500, SERVER, "internal_error", API),
        };
        ErrorRow { status, kind, code, anthropic }
    }
}

const INVALID: &str = "invalid_request_error";
const SERVER: &str = "server_error";
const API: &str = "api_error";

/// Returns the message of a 404 for a path that nothing serves. It quotes the path unless it is long.
pub fn not_served(path: &str) -> String {
    let path = if path.len() <= QUOTED_PATH_BYTES_MAX { path } else { "This path" };
    format!("{path} is not served. GET / lists the paths that are.")
}

const QUOTED_PATH_BYTES_MAX: usize = 64;
