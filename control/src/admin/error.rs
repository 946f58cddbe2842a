//! Errors of the admin API, in the same envelope as the OpenAI routes use (ADM-2).

use std::borrow::Cow;

use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::json;
use shared::error_kind::ErrorKind;
use shared::port::{Body, full};

use crate::db::error::QueryError;
use crate::writer::command::{CommandRefusal, UNSEALED};

/// An error response of the admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    kind: ErrorKind,
    message: Cow<'static, str>,
    /// The invalid parameter.
    param: Option<String>,
    allow: Option<Cow<'static, str>>,
    /// In seconds.
    retry_after: Option<u64>,
}

impl ApiError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into(), param: None, allow: None, retry_after: None }
    }

    /// A parameter is invalid.
    pub(crate) fn parameter(name: &str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { param: Some(name.to_owned()), ..Self::new(ErrorKind::InvalidRequest, message) }
    }

    /// The path exists but does not support the method; `allow` lists the supported ones.
    pub(crate) fn method_not_allowed(allow: impl Into<Cow<'static, str>>) -> Self {
        let allow = allow.into();
        let message = format!("The method is not allowed on this path. Allowed: {allow}.");
        Self { allow: Some(allow), ..Self::new(ErrorKind::MethodNotAllowed, message) }
    }

    /// Returns the error code if the request failed authentication, authorization or rate limiting (401, 403, 429).
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        let row = self.kind.row();
        matches!(row.status, 401 | 403 | 429).then_some(row.code)
    }

    /// Sets `Retry-After`, in seconds.
    pub(crate) fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    pub(crate) fn response(&self, id: &RequestId) -> Response<Body> {
        let row = self.kind.row();
        let envelope = json!({"error": {
            "message": self.message,
            "type": row.kind,
            "code": row.code,
            "param": self.param,
            "request_id": id.0,
        }});
        let mut response = Response::new(full(envelope.to_string()));
        *response.status_mut() =
            StatusCode::from_u16(row.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(allow) = self.allow.as_ref().and_then(|allow| HeaderValue::from_str(allow).ok()) {
            headers.insert(ALLOW, allow);
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.kind == ErrorKind::InvalidKey {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> Self {
        if let QueryError::Sql(error) = &error {
            tracing::error!("the database cannot be read: {error}");
        }
        let (kind, message) = error.answer();
        Self { retry_after: error.retry_after(), ..Self::new(kind, message) }
    }
}

impl From<CommandRefusal> for ApiError {
    fn from(refusal: CommandRefusal) -> Self {
        match refusal {
            CommandRefusal::Reported { message, param: Some(param), .. } => Self::parameter(&param, message),
            CommandRefusal::Reported { kind, message, .. } => Self::new(kind, message),
            CommandRefusal::Seal => Self::new(ErrorKind::Internal, UNSEALED),
            CommandRefusal::Failed(error) => error.into(),
        }
    }
}

/// The request id that the data plane assigned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestId(Option<String>);

impl RequestId {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self(headers.get("x-request-id").and_then(|id| id.to_str().ok()).map(str::to_owned))
    }

    /// Returns the id, if the data plane assigned one.
    pub(crate) fn text(self) -> Option<String> {
        self.0
    }
}
