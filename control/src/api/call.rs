//! One request to the admin API, as handlers see it: arguments, query, body, and the ways to answer.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_MATCH};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use ring::digest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use shared::error_kind::ErrorKind;
use shared::port::{Body, full};

use super::query::Query;
use super::{ApiError, App};
use crate::actor::Actor;
use crate::command::{Answer, Command, Idempotency, OrderContext, OrderOf, Reply};

/// One request, authenticated.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) app: &'a App,
    pub(crate) actor: &'a Actor,
    pub(crate) parts: &'a Parts,
    pub(crate) body: &'a Bytes,
    /// What stands in the places of the route's pattern, decoded.
    pub(super) arguments: Vec<String>,
}

impl Call<'_> {
    /// What stands in the first `{}` of the pattern.
    pub(crate) fn argument(&self) -> &str {
        self.arguments.first().map_or("", |argument| argument)
    }

    /// What stands in the second `{}`.
    pub(crate) fn second_argument(&self) -> &str {
        self.arguments.get(1).map_or("", |argument| argument)
    }

    /// The query, to be taken by name.
    pub(crate) fn query(&self) -> Result<Query, ApiError> {
        Query::parse(self.parts.uri.query().unwrap_or_default())
    }

    /// For routes that take no parameters.
    pub(crate) fn no_query(&self) -> Result<(), ApiError> {
        self.query()?.finish()
    }

    /// The body as JSON. An unknown or missing field is refused by name.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        let bytes: &[u8] = if self.body.is_empty() { b"{}" } else { self.body };
        serde_json::from_slice(bytes).map_err(|error| {
            let message = error.to_string();
            ApiError::parameter(named(&message), format!("The body is not what this path takes: {message}."))
        })
    }

    /// The version that `If-Match` names; none where the header is absent or `*` (RFC 9110 section 13.1.1).
    pub(crate) fn if_match(&self) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.parts.headers.get(IF_MATCH) else { return Ok(None) };
        let text = value.to_str().unwrap_or_default().trim();
        if text == "*" {
            return Ok(None);
        }
        let number =
            text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).and_then(|n| n.parse().ok());
        number.map(Some).ok_or_else(|| {
            ApiError::parameter("If-Match", "If-Match takes the ETag of the object, as \"3\", or *.")
        })
    }

    /// Has `command` carried out and answers with its output and `status`.
    pub(crate) async fn execute<C: Command>(
        &self,
        status: StatusCode,
        command: C,
    ) -> Result<Response<Body>, ApiError> {
        self.order(status, command, self.idempotency()?).await
    }

    /// The same for what is never answered from memory, whatever `Idempotency-Key` says.
    pub(crate) async fn execute_each_time<C: Command>(
        &self,
        status: StatusCode,
        command: C,
    ) -> Result<Response<Body>, ApiError> {
        self.order(status, command, None).await
    }

    async fn order<C: Command>(
        &self,
        status: StatusCode,
        command: C,
        idempotency: Option<Idempotency>,
    ) -> Result<Response<Body>, ApiError> {
        let context = OrderContext { actor: self.actor.clone(), status, idempotency };
        let (order, reply) = OrderOf::new(command, context);
        self.app.scribe.write(Box::new(order))?;
        match reply.await {
            Ok(Reply::Answer(answer)) => Ok(response(answer)),
            Ok(Reply::Refused { kind, message, param }) => Err(refused(kind, message, param)),
            Ok(Reply::Failed(error)) => Err(error.into()),
            Err(_) => Err(crate::store::error::StoreError::Stopping.into()),
        }
    }

    /// The request's `Idempotency-Key`, on a POST (draft-ietf-httpapi-idempotency-key-header).
    fn idempotency(&self) -> Result<Option<Idempotency>, ApiError> {
        let Some(value) = self.parts.headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
        if self.parts.method != Method::POST {
            return Ok(None);
        }
        let key = value.to_str().unwrap_or_default().trim();
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(ApiError::parameter(
                "Idempotency-Key",
                format!("Idempotency-Key is 1 to {KEY_BYTES_MAX} visible ASCII characters."),
            ));
        }
        let mut context = digest::Context::new(&digest::SHA256);
        for part in [self.parts.uri.path().as_bytes(), b"\0", self.body] {
            context.update(part);
        }
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(context.finish().as_ref());
        Ok(Some(Idempotency { key: key.to_owned(), fingerprint }))
    }
}

/// A JSON answer.
pub(crate) fn json(value: &impl Serialize) -> Result<Response<Body>, ApiError> {
    let body = serde_json::to_vec(value)
        .map_err(|_| ApiError::new(ErrorKind::Internal, "The answer could not be written as JSON."))?;
    Ok(response(Answer { status: StatusCode::OK, body, version: None, replayed: false }))
}

/// A JSON answer about one object that has a version.
pub(crate) fn json_of_version(value: &impl Serialize, version: u64) -> Result<Response<Body>, ApiError> {
    let mut response = json(value)?;
    response.headers_mut().insert(ETAG, etag(version));
    Ok(response)
}

fn response(answer: Answer) -> Response<Body> {
    let mut response = Response::new(full(answer.body));
    *response.status_mut() = answer.status;
    let headers = response.headers_mut();
    if answer.status != StatusCode::NO_CONTENT {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(version) = answer.version {
        headers.insert(ETAG, etag(version));
    }
    if answer.replayed {
        headers.insert("idempotency-replayed", HeaderValue::from_static("true"));
    }
    response
}

fn etag(version: u64) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{version}\"")).unwrap_or_else(|_| HeaderValue::from_static("\"0\""))
}

fn refused(kind: ErrorKind, message: Cow<'static, str>, param: Option<Cow<'static, str>>) -> ApiError {
    match param {
        Some(param) => ApiError::parameter(&param, message),
        None => ApiError::new(kind, message),
    }
}

/// The field that serde's message is about: what stands in its first pair of backticks.
fn named(message: &str) -> &str {
    message.split('`').nth(1).unwrap_or_default()
}

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const KEY_BYTES_MAX: usize = 255;
